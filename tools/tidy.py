#!/usr/bin/env python3
"""Runs clang-tidy over the library and the command, skipping what has not changed since it last passed.

A file passes again without being read when nothing that clang-tidy would see has changed: the file, the
project headers it includes however far down, its compile command, .clang-tidy and clang-tidy itself. What
passed is kept as empty files in the user's cache (~/.cache/cairn-lint), as ccache keeps objects, so that
every clone of the tree has it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from includes import Include, closure

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cairn-lint"
TIDY = "clang-tidy-14"
FOLDERS = ("src/", "cli/")


def compile_commands(build: Path) -> dict[str, str]:
    """File (relative to the root) -> compile command, of the files to check."""
    entries = json.loads((build / "compile_commands.json").read_text())
    commands = {}
    for entry in entries:
        file = Path(entry["directory"], entry["file"]).resolve()
        if file.is_relative_to(ROOT):
            name = str(file.relative_to(ROOT))
            if name.startswith(FOLDERS) and not name.endswith("_test.cc"):
                commands[name] = entry["command"]
    return commands


def tidy_version() -> str:
    return subprocess.run([TIDY, "--version"], text=True, capture_output=True, check=True).stdout


def key_of(file: str, command: str, version: str, seen: dict[str, list[Include]]) -> str:
    """Names everything the verdict on `file` depends on, wherever the tree is."""
    digest = hashlib.sha256(command.replace(str(ROOT), "").encode() + version.encode())
    digest.update((ROOT / ".clang-tidy").read_bytes())
    for name in sorted(closure(ROOT, file, seen)):
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return digest.hexdigest()


def check(build: Path, file: str) -> tuple[bool, str]:
    """Whether clang-tidy is content with `file`, and what it printed."""
    run = subprocess.run(
        [TIDY, "--quiet", "--warnings-as-errors=*", "-p", str(build), file],
        cwd=ROOT,
        text=True,
        capture_output=True,
    )
    return run.returncode == 0, run.stdout if run.stdout.strip() else run.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("files", nargs="*", help="only these, relative to the root (default: all)")
    args = parser.parse_args()

    CACHE.mkdir(parents=True, exist_ok=True)
    seen: dict[str, list[Include]] = {}
    commands = compile_commands(args.build)
    wanted = args.files or sorted(commands)
    assert wanted, f"{args.build} compiles no file by itself"
    version = tidy_version()
    keys = {file: key_of(file, commands[file], version, seen) for file in wanted}
    stale = [file for file in wanted if not (CACHE / keys[file]).exists()]
    if stale:
        print(f"clang-tidy: {len(stale)} of {len(wanted)} files to check", flush=True)
    failed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for file, (passed, output) in zip(stale, pool.map(lambda f: check(args.build, f), stale)):
            if passed:
                (CACHE / keys[file]).touch()
            else:
                failed += 1
                print(f"{file}:\n{output}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
