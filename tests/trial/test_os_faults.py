"""System calls that fail, do less than they are asked for, or are interrupted: see os_faults.cc."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import seed, trial

ACTIONS = ["save", "overwrite", "load", "open", "verify", "gc", "convert"]


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory where nothing waits for a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        yield Path(directory)


def fail(directory: Path, errors: str, io: str = "buffered", only: str = "") -> dict:
    environment = {**os.environ, "CAIRN_IO": io}
    return trial("os_faults", directory, seed(), errors, only, timeout=3600, env=environment)[0]


def test_every_call_may_fail(memory: Path) -> None:
    counts = fail(memory, "EIO,ENOSPC,ESTALE")
    for action in ACTIONS:
        assert counts[action]["failed"] >= counts[action]["calls"], "most of them are not to be done without"
    assert counts["reluctant"]["runs"] == 4 * len(ACTIONS)


def test_short_and_interrupted_calls_change_nothing_on_a_disk(tmp_path: Path) -> None:
    for io in ["buffered", "direct"]:
        assert fail(tmp_path, "EIO", io, "reluctant")["reluctant"]["calls"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EDQUOT", "ESTALE", "EROFS", "EMFILE"])
def test_every_call_may_fail_with(error: str, memory: Path) -> None:
    fail(memory, error)


@pytest.mark.slow
@pytest.mark.parametrize("io", ["buffered", "direct"])
def test_every_call_may_fail_on_a_disk(io: str, tmp_path: Path) -> None:
    fail(tmp_path, "EIO,ENOSPC", io)
