"""An installed cairn is complete: a stranger's CMake project finds, links and runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "torch-2.11-two-ranks"


def run(*command: object) -> str:
    """What the command prints; its errors end the test."""
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that cairn is installed into."""
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", ROOT / "build" / "release", "--prefix", folder)
    return folder


def test_the_installed_command_lists_a_checkpoint(prefix: Path) -> None:
    listed = run(prefix / "bin" / "cairn", "ls", GOLDEN)
    assert "model.w" in listed


def test_every_public_header_is_installed_and_no_other(prefix: Path) -> None:
    public = {path.name for path in (ROOT / "include" / "cairn").glob("*.h")}
    installed = {str(path.relative_to(prefix / "include")) for path in (prefix / "include").rglob("*.h")}
    assert installed == {f"cairn/{name}" for name in public}


@pytest.fixture(scope="module")
def examples(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples, built as a stranger's project against the installed library."""
    folder = tmp_path_factory.mktemp("examples")
    run("cmake", "-S", ROOT / "examples", "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder)
    return folder


def test_a_project_of_its_own_builds_against_the_installed_library(examples: Path) -> None:
    lines = run(examples / "inspect", GOLDEN, "model.w", "[1:2]").splitlines()
    assert lines[0] == "dcp"
    assert "model.w float32 [8, 8]" in lines
    # Row 1 of arange(64) as 8x8.
    assert lines[-1] == "model.w[1:2]: shape [1, 8], 32 bytes, first element 8"


# What the examples of docs/planning.md print.
PLANNERS = {
    "rename_on_save": ["rank 0: foo_model.w foo_step", "foo_model.w", "foo_step", "7"],
    "save_half": ["w float16 8 bytes", "ids int64 24 bytes"],
    "balance_replicas": ["rank 0: a c e", "rank 1: b d"],
    "extra_metadata": ["[{'rank': 0, 'host': 'a'}, {'rank': 1, 'host': 'b'}]"],
}


@pytest.mark.parametrize("name", PLANNERS)
def test_the_planner_examples_run(examples: Path, name: str) -> None:
    assert run(examples / name).splitlines() == PLANNERS[name]


LOADERS = {
    "rename_on_load": ["{'net': {'w': tensor(float32, [8, 8])}, 'step': 7}", "last element of net.w: 63"],
    "materialize_on_load": ["model.w: int8 [8, 8], 64 bytes, last element 126 x 0.5"],
}


@pytest.mark.parametrize("name", LOADERS)
def test_the_examples_that_load_run(examples: Path, name: str) -> None:
    assert run(examples / name, GOLDEN).splitlines() == LOADERS[name]


def test_the_example_that_saves_in_the_background_runs(examples: Path, tmp_path: Path) -> None:
    assert run(examples / "async_training", tmp_path).startswith(f"{tmp_path}/step-20: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-10", "step-15", "step-20", "step-5"]
