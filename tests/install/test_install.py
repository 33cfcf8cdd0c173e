"""An installed cairn is complete: a stranger's CMake project finds, links and runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


CONSUMER = """
#include <cairn/cairn.h>
#include <cairn/checkpoint.h>
#include <iostream>
int main(int, char** argv) { std::cout << cairn::Checkpoint::open(argv[1])->tensors().size() << "\\n"; }
"""


def consumer(folder: Path, cmake: str) -> Path:
    """A project of one file."""
    folder.mkdir()
    (folder / "main.cc").write_text(CONSUMER)
    lines = ["cmake_minimum_required(VERSION 3.25)", "project(consumer LANGUAGES CXX)", "set(CMAKE_CXX_STANDARD 20)"]
    lines += [cmake, "add_executable(main main.cc)", "target_link_libraries(main PRIVATE cairn::cairn)"]
    (folder / "CMakeLists.txt").write_text("\n".join(lines))
    return folder


def test_who_does_not_ask_for_mpi_does_not_need_it(prefix: Path, tmp_path: Path) -> None:
    source = consumer(tmp_path / "plain", "find_package(cairn REQUIRED)")
    options = ["-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON"]
    run("cmake", "-S", source, "-B", source / "build", *options)
    run("cmake", "--build", source / "build")
    tensors = json.loads(run(prefix / "bin" / "cairn", "ls", GOLDEN, "--json"))["tensors"]
    assert run(source / "build" / "main", GOLDEN) == f"{len(tensors)}\n"

    with_mpi = consumer(tmp_path / "mpi", "find_package(cairn REQUIRED COMPONENTS mpi)")
    done = subprocess.run(["cmake", "-S", with_mpi, "-B", with_mpi / "build", *options], text=True, capture_output=True)
    assert done.returncode != 0
    assert "mpi" in done.stderr


def test_pkg_config_says_how_to_link(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cc").write_text(CONSUMER)
    (pc,) = prefix.rglob("cairn.pc")
    found = subprocess.run(["pkg-config", "--cflags", "--libs", "cairn"], text=True, capture_output=True,
                           env={**os.environ, "PKG_CONFIG_PATH": str(pc.parent)}, check=True).stdout
    run("c++", "-std=c++20", tmp_path / "main.cc", "-o", tmp_path / "main", *found.split())
    assert run(tmp_path / "main", GOLDEN).strip().isdigit()


@pytest.mark.slow
def test_a_project_takes_the_sources_along(tmp_path: Path) -> None:
    fetch = f'include(FetchContent)\nFetchContent_Declare(cairn SOURCE_DIR "{ROOT}")\nFetchContent_MakeAvailable(cairn)'
    source = consumer(tmp_path / "fetch", fetch)
    run("cmake", "-S", source, "-B", source / "build", "-G", "Ninja")
    run("cmake", "--build", source / "build", "-j", "2")
    assert run(source / "build" / "main", GOLDEN).strip().isdigit()
    assert not list((source / "build").rglob("cairn_cli*")), "the command is not what was asked for"


def test_the_man_page_and_the_completions_are_installed(prefix: Path) -> None:
    page = (prefix / "share/man/man1/cairn.1").read_text()
    made = run(sys.executable, ROOT / "tools" / "man_page.py", prefix / "bin" / "cairn")
    assert page == made, "tools/man_page.py build/release/cairn > docs/cairn.1"
    assert "complete" in (prefix / "share/bash-completion/completions/cairn").read_text()
    assert (prefix / "share/zsh/site-functions/_cairn").read_text().startswith("#compdef cairn")
