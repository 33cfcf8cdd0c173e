"""`make wheel` and the source archive, as somebody with a compiler and somebody without one get them."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest
from programs import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dist() -> Path:
    done = subprocess.run([ROOT / "tools/wheel.sh", "2"], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("installed into an empty environment, saved, loaded, verified\n")
    return ROOT / "dist"


def test_there_is_one_wheel_for_older_systems_and_one_archive(dist: Path) -> None:
    [wheel] = dist.glob("*.whl")
    assert "-manylinux_2_35_" in wheel.name
    [archive] = dist.glob("*.tar.gz")
    assert archive.stat().st_size < 10_000_000


def test_the_archive_installs_where_there_is_a_compiler(dist: Path, tmp_path: Path) -> None:
    [archive] = dist.glob("*.tar.gz")
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv/bin/python"
    # With build tools of ours; everything else is the archive's.
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "-qq", "--no-deps", "--no-build-isolation", archive], check=True, cwd=tmp_path)
    [wheel] = tmp_path.glob("*.whl")
    subprocess.run([*pip, "--python", python, "install", "-qq", "--no-deps", "--no-index", wheel], check=True)
    said = subprocess.run([python.parent / "cairn", "--version"], text=True, capture_output=True, check=True).stdout
    assert said.startswith(f"cairn {(ROOT / 'VERSION').read_text().strip()}\n")
    subprocess.run([python, "-c", "import cairn; cairn.save({'a': 1}, 'here')"], check=True, cwd=tmp_path)
