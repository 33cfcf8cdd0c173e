"""Leaves out test files that have passed before on this very tree and these very programs.

`make test` sets CAIRN_ONCE for it; without that every test runs. What passed is kept in build/passed.json, so a new
clone and a `make clean` begin afresh. A file has passed when all of its tests ran and none failed or was skipped. It
runs again when anything changes that it may depend on: itself, any file of the tree but the other test files, a
program of the build, a Python package, a CAIRN_ variable. Two things are seen more closely, by the words of the test
file and of the modules of tests/ that it imports:

- A C++ source is seen through the programs made of it, but by tests that say where the tree is (ROOT, __file__).
  Of those, ones that say SEES = ("src", "include") see the sources in these folders alone.
- The command is seen by tests that take it from programs.py (CLI, BUILD), and by those that see the whole tree, or cli.

    CAIRN_ONCE=1 .venv/bin/python -m pytest tests     # the second time: what has changed
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
PASSED = ROOT / "build/passed.json"
COMMAND = ("release/cairn", "release/libcairn_commands.a")
PROGRAMS = ("release/libcairn.a", "release/tests/*", "release/python/cairn/*.so", "asan/fuzz/replay_*")
LEFT_OUT = "CAIRN_LEFT_OUT"  # the files, one a line: workers of pytest-xdist inherit it


def files_of_the_tree() -> list[str]:
    """All that git knows or would add; nothing where there is no git."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True)
    return [file for file in listed.stdout.decode().split("\0") if file]


def is_test(file: str) -> bool:
    return file.startswith("tests/") and Path(file).match("test_*.py")


def digest(files: Iterable[Path], words: Iterable[str]) -> str:
    sums = hashlib.sha256("\0".join(words).encode())
    for file in sorted(file for file in files if file.is_file()):
        sums.update(str(file).encode() + hashlib.sha256(file.read_bytes()).digest())
    return sums.hexdigest()


def is_source(file: str) -> bool:
    return Path(file).suffix in (".cc", ".h") or Path(file).name == "CMakeLists.txt" or file.startswith("cmake/")


def text_of(file: Path, seen: set[Path]) -> str:
    """What `file` says, and the modules of tests/ that it imports."""
    if file in seen or file.name in ("programs.py", "once.py"):  # they name all there is
        return ""
    seen.add(file)
    text = file.read_text()
    names = set(re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE))
    return text + "".join(text_of(found, seen) for name in names for found in TESTS.rglob(f"{name}.py"))


class Once:
    """What need not run, and what has passed; in the process that the tests were started from."""

    def __init__(self, config: pytest.Config, tree: list[str]) -> None:
        shared = [ROOT / file for file in tree if not is_test(file) and not is_source(file)]
        programs = [file for pattern in PROGRAMS for file in (ROOT / "build").glob(pattern)]
        self.command = digest([ROOT / "build" / file for file in COMMAND], [])
        self.sources = [file for file in tree if is_source(file)]
        packages = sorted(f"{found.name}=={found.version}" for found in importlib.metadata.distributions())
        settings = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("CAIRN_"))
        self.surroundings = digest([*shared, *programs], [sys.version, config.option.markexpr, *packages, *settings])
        known = json.loads(PASSED.read_text()) if PASSED.exists() else {}
        self.left_out: dict[str, dict[str, Any]] = {
            file: entry for file, entry in known.items() if is_test(file) and entry["key"] == self.key_of(file)
        }
        self.passed: Counter[str] = Counter()
        self.others: set[str] = set()
        os.environ[LEFT_OUT] = "\n".join(self.left_out)

    def key_of(self, file: str) -> str:
        above = [folder / "conftest.py" for folder in Path(file).parents]
        seen: set[Path] = set()
        text = "".join(text_of(ROOT / each, seen) for each in (file, *above) if (ROOT / each).exists())
        sees_tree = bool(re.search(r"\bROOT\b|__file__", text))
        said = re.findall(r"^SEES = \((.*)\)", text, re.MULTILINE)
        folders = set(re.findall(r"[\w.]+", " ".join(said)))
        seen_sources = [each for each in self.sources if sees_tree and (not said or each.split("/")[0] in folders)]
        sees_command = (sees_tree and (not said or "cli" in folders)) or re.search(r"from programs import .*\b(CLI|BUILD)\b", text)
        more = [self.command if sees_command else ""]
        return digest([ROOT / each for each in (file, *seen_sources)], [self.surroundings, *more])

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.left_out:
            return
        tests = sum(entry["tests"] for entry in self.left_out.values())
        since = min(entry["when"] for entry in self.left_out.values())
        terminalreporter.write_line(
            f"not run again: {tests} tests in {len(self.left_out)} files, which have passed since {since} on this very "
            "tree and these very programs (make test AGAIN=1 runs them)"
        )

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.split("::")[0]
        if not report.passed:
            self.others.add(file)
        elif report.when == "call":
            self.passed[file] += 1

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.left_out:
            session.exitstatus = pytest.ExitCode.OK
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return  # some files may have run in part
        now = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
        entries = {
            file: {"key": self.key_of(file), "tests": tests, "when": now}
            for file, tests in self.passed.items()
            if file not in self.others
        }
        PASSED.write_text(json.dumps({**self.left_out, **entries}, indent=1))


def takes_whole_files(config: pytest.Config) -> bool:
    option = config.option
    return not (option.keyword or option.maxfail or option.collectonly or any("::" in word for word in config.args))


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    os.environ.pop(LEFT_OUT, None)
    if os.environ.get("CAIRN_ONCE") and takes_whole_files(config) and (tree := files_of_the_tree()):
        config.pluginmanager.register(Once(config, tree))


def pytest_ignore_collect(collection_path: Path) -> Optional[bool]:
    left_out = os.environ.get(LEFT_OUT, "").split("\n")
    return True if collection_path.is_relative_to(ROOT) and str(collection_path.relative_to(ROOT)) in left_out else None
