"""tests/once.py leaves out what has passed, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SEES = ()  # none of the sources: tests/once.py

TAKES = "from " "programs import"  # in two parts: this file takes nothing
GOOD = "def test_one(): pass\ndef test_two(): pass\n"
BAD = "def test_one(): assert False\n"
SKIPPED = "import pytest\ndef test_one(): pytest.skip('not here')\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two test files, a helper and a program."""
    write(tmp_path / "tests/once.py", (TESTS / "once.py").read_text())
    write(tmp_path / "tests/conftest.py", "from once import pytest_configure, pytest_ignore_collect\n")
    write(tmp_path / "tests/helper.py", "")
    write(tmp_path / "tests/a/test_a.py", GOOD)
    write(tmp_path / "tests/b/test_b.py", GOOD)
    write(tmp_path / "build/release/cairn", "a program")
    write(tmp_path / ".gitignore", "/build/\n__pycache__/\n.pytest_cache/\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def run(project: Path, *words: str, once: str = "1", status: int = 0) -> str:
    environment = {**os.environ, "CAIRN_ONCE": once, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "CAIRN_LEFT_OUT"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests", *words], cwd=project, env=environment, text=True, capture_output=True
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def passed_now(project: Path, *words: str, once: str = "1", status: int = 0) -> int:
    """How many tests were run and passed."""
    found = re.search(r"(\d+) passed", run(project, *words, once=once, status=status))
    return int(found[1]) if found else 0


def test_what_passed_is_left_out_and_said_to_be(project: Path) -> None:
    assert passed_now(project) == 4
    assert re.search(r"not run again: 4 tests in 2 files, which have passed since .+AGAIN=1", run(project))
    assert passed_now(project, once="") == 4


def test_workers_leave_out_the_same(project: Path) -> None:
    workers = ("-p", "xdist", "-n", "2", "--dist", "loadfile")
    assert passed_now(project, *workers) == 4
    write(project / "tests/a/test_a.py", GOOD + "\n")
    assert passed_now(project, *workers) == 2
    assert passed_now(project, *workers) == 0


@pytest.mark.parametrize("file", ["tests/helper.py", "tests/new.json", "build/release/libcairn.a"])
def test_everything_runs_again_when_anything_shared_changes(project: Path, file: str) -> None:
    assert passed_now(project) == 4
    write(project / file, "# changed")
    assert passed_now(project) == 4


@pytest.mark.parametrize(
    "file, words, runs",
    [
        ("src/new.cc", "", 0),
        ("src/new.cc", "# ROOT", 2),
        ("src/new.cc", "from tree import x", 2),
        ("src/new.cc", 'SEES = ("src", "include")  # ROOT', 2),
        ("src/new.cc", 'SEES = ("include",)  # ROOT', 0),
        ("src/new.cc", "SEES = ()  # ROOT", 0),
        ("build/release/cairn", "", 0),
        ("build/release/cairn", f"# {TAKES} CLI", 2),
        ("build/release/cairn", 'SEES = ("src",)  # ROOT', 0),
        ("build/release/cairn", 'SEES = ("cli",)  # ROOT', 2),
        ("build/release/cairn", f"SEES = ()  # ROOT; {TAKES} CLI", 2),
        ("build/release/cairn", f"# {TAKES} BUILD", 2),
        ("build/release/cairn", "# __file__", 2),
        ("build/release/cairn", "from tree import x", 2),
    ],
)
def test_sources_and_the_command_matter_to_those_who_look_at_them(
    project: Path, file: str, words: str, runs: int
) -> None:
    write(project / "tests/tree.py", "x = __file__\n")
    write(project / "tests/a/test_a.py", words + "\n" + GOOD)
    assert passed_now(project) == 4
    write(project / file, "# changed")
    assert passed_now(project) == runs


def test_without_git_everything_runs(project: Path) -> None:
    assert passed_now(project) == 4
    shutil.rmtree(project / ".git")
    assert passed_now(project) == 4


def test_a_setting_is_a_change(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert passed_now(project) == 4
    monkeypatch.setenv("CAIRN_BUILD", "build/debug")
    assert passed_now(project) == 4


@pytest.mark.parametrize("text, status", [(BAD, 1), (SKIPPED, 0)])
def test_what_did_not_pass_runs_again(project: Path, text: str, status: int) -> None:
    write(project / "tests/a/test_a.py", text)
    assert passed_now(project, status=status) == 2
    assert passed_now(project, "-ra", status=status) == 0  # b is left out; a is not, and says the same as before
    write(project / "tests/a/test_a.py", GOOD)
    assert passed_now(project) == 2


def test_a_file_that_ran_in_part_has_not_passed(project: Path) -> None:
    assert passed_now(project, "-k", "test_one") == 2
    assert passed_now(project, "tests/a/test_a.py::test_two") == 4  # `tests` is there as well
    assert passed_now(project) == 4
