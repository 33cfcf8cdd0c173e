"""The examples, built as a stranger's project against an installed cairn, do what the documentation says."""

from __future__ import annotations

from pathlib import Path

import pytest
from installed import GOLDEN, ROOT, prefix, run  # noqa: F401 - a fixture

SEES = ("src", "include", "examples", "cmake", "CMakeLists.txt")  # for what runs again: tests/once.py


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
    "rename_on_save": ["{'foo_model': {'w': tensor(float32, [2, 2])}, 'foo_step': 7}"],
    "save_half": ["{'w': tensor(float16, [2, 2])} 0.0999756"],
    "balance_replicas": ["a __0_0", "c __0_0", "e __0_0", "b __1_0", "d __1_0"],
    "extra_metadata": ["[{'rank': 0, 'host': 'a'}, {'rank': 1, 'host': 'a'}]"],
    "rename_on_load": ["{'net': {'w': tensor(float32, [2, 2]), 'step': 7}} 63"],
    "materialize_on_load": ["{'w': tensor(int8, [2, 2])} 126 x 0.5"],
}


@pytest.mark.parametrize("name", PLANNERS)
def test_the_planner_examples_run(examples: Path, name: str) -> None:
    assert run(examples / name).splitlines() == PLANNERS[name]
    assert len((ROOT / "examples" / f"{name}.cc").read_text().splitlines()) <= 40


def test_the_example_that_saves_in_the_background_runs(examples: Path, tmp_path: Path) -> None:
    assert run(examples / "async_training", tmp_path).startswith(f"{tmp_path}/step-20: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-10", "step-15", "step-20", "step-5"]
