"""tools/check_paths.py finds folders of one machine in text files, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = "/" + "home/ann/run"  # in two pieces, so that this file passes the check itself


def check(folder: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "check_paths.py"), str(folder)], text=True, capture_output=True
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def repository(folder: Path, files: dict[str, bytes]) -> Path:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def test_a_path_of_one_machine_is_found_at_its_line(tmp_path: Path) -> None:
    status, lines = check(repository(tmp_path, {"a.md": f"x\nsee {HOME}\n".encode()}))
    assert status == 1
    assert lines == [f"a.md:2: path of one machine: see {HOME}"]


def test_relative_paths_binary_files_and_ignored_files_pass(tmp_path: Path) -> None:
    files = {
        "a.md": b"src/home/ann and run/work/x\n",
        "b.bin": b"\0" + HOME.encode(),
        ".gitignore": b"c.log\n",
        "c.log": HOME.encode(),
    }
    assert check(repository(tmp_path, files)) == (0, [])
