#!/usr/bin/env python3
"""Runs the unit tests of a build with ctest, and leaves out the programs that have passed before as they are now.

    tests/unit.py build/asan --jobs 2           # AGAIN=1 in the environment: all of them

A test program is what was compiled and linked into it, and the files that it reads: both are looked at, times are not.
What passed is kept in passed.json in the build, so a new clone and a `make clean` begin afresh.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READ = ("tests/golden", "fuzz/corpus", "tools/tsan.supp")  # by the tests
STARTED = "tests/crippled_mount"  # by the tests, in the build

# A line for each test that passed helps nobody.
NOISE = re.compile(r"^ *(Start +\d+:|\d+/\d+ Test .* Passed )")


def digest(files: list[Path]) -> str:
    sums = hashlib.sha256()
    for file in sorted(file for file in files if file.is_file()):
        sums.update(str(file).encode() + hashlib.sha256(file.read_bytes()).digest())
    return sums.hexdigest()


def tests_by_program(build: Path) -> dict[str, int]:
    """How many tests each program has; ctest knows a program's tests by a label of its name."""
    said = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, check=True)
    counts: dict[str, int] = {}
    for test in json.loads(said.stdout)["tests"]:
        (label,) = next(entry["value"] for entry in test["properties"] if entry["name"] == "LABELS")
        counts[label] = counts.get(label, 0) + 1
    return counts


def keys_of(build: Path, programs: list[str]) -> dict[str, str]:
    """What each program must have passed as, to be left out."""
    read = [file for name in READ for file in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))]
    around = digest([*read, build / STARTED])
    files = {file.name: file for folder in ("tests", "fuzz") for file in (build / folder).glob("*")}
    return {name: digest([files[name]]) + around for name in programs}


def run_ctest(build: Path, jobs: str, left_out: list[str]) -> int:
    words = ["ctest", "-j", jobs, "--output-on-failure", "--no-tests=error", "--test-dir", str(build)]
    if left_out:
        words += ["-LE", f"^({'|'.join(left_out)})$"]
    with subprocess.Popen(words, text=True, stdout=subprocess.PIPE) as running:
        assert running.stdout
        for line in running.stdout:
            if not NOISE.match(line):
                print(line, end="", flush=True)
    return running.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--jobs", default="2")
    given = parser.parse_args()
    kept = given.build / "passed.json"
    counts = tests_by_program(given.build)
    keys = keys_of(given.build, list(counts))
    known = json.loads(kept.read_text()) if kept.exists() and not os.environ.get("AGAIN") else {}
    left_out = [name for name in counts if known.get(name) == keys[name]]
    status = run_ctest(given.build, given.jobs, left_out) if len(left_out) < len(counts) else 0
    if left_out:
        tests = sum(counts[name] for name in left_out)
        print(
            f"not run again: {tests} tests of {len(left_out)} programs, which have passed before as they are now "
            f"(make test AGAIN=1 runs them): {', '.join(left_out)}"
        )
    if status == 0:
        kept.write_text(json.dumps(keys, indent=1))
    return status


if __name__ == "__main__":
    sys.exit(main())
