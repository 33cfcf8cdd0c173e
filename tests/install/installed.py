"""cairn, installed into a folder."""

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
