"""An installed cairn is complete: a stranger's CMake project finds, links and runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from installed import GOLDEN, ROOT, prefix, run  # noqa: F401 - a fixture


def test_the_installed_command_lists_a_checkpoint(prefix: Path) -> None:
    listed = run(prefix / "bin" / "cairn", "ls", GOLDEN)
    assert "model.w" in listed


def test_every_public_header_is_installed_and_no_other(prefix: Path) -> None:
    public = {path.name for path in (ROOT / "include" / "cairn").glob("*.h")}
    installed = {str(path.relative_to(prefix / "include")) for path in (prefix / "include").rglob("*.h")}
    assert installed == {f"cairn/{name}" for name in public}


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
