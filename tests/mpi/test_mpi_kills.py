"""MPI ranks that die in the middle of a save: whatever the launcher does then, the disk is as it should be."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Optional

import pytest
from mpirun import mpirun, said_by
from programs import TRIALS, command, seed

RANKS = 4
FILES = RANKS + 2
SAVE_SECONDS = 0.3  # about what a save takes here
POINTS = [
    "save.begun", "save.planned", "save.before_write", "stream.before_write", "file.before_rename",
    "write.before_directory_sync", "step.before_gather", "publish.after_manifest", "publish.before_metadata",
    "publish.after_metadata", "publish.before_remove", "file.after_remove", "step.before_scatter",
]  # fmt: skip
OF_THE_COORDINATOR = ("publish.", "save.begun", "save.planned", "file.after_remove", "step.before_scatter")


def save(directory: Path, version: int, *victim: object) -> list[str]:
    """What the ranks say that live to the end."""
    return [*said_by(mpirun(RANKS, "kill_check", "save", directory, version, *victim, timeout=600)).values()]


def version_in(directory: Path) -> Optional[int]:
    done = command(TRIALS / "kill_check", "check", directory)
    assert done.returncode == 0, done.stderr
    return None if done.stdout == "none\n" else int(done.stdout)


def choose_victim(draw: random.Random) -> tuple[int, str]:
    """A rank, and the moment at which it dies."""
    if draw.random() < 0.5:
        return draw.randrange(RANKS), str(int(draw.random() * SAVE_SECONDS * 1e6))
    point = draw.choice(POINTS)
    return 0 if point.startswith(OF_THE_COORDINATOR) else draw.randrange(RANKS), f"{point}:1:kill"


def kill(directory: Path, kills: int) -> None:
    draw = random.Random(seed())
    old: Optional[int] = None
    for version in range(1, kills + 1):
        rank, moment = choose_victim(draw)
        said = save(directory, version, rank, moment)
        found = version_in(directory)
        assert found in (old, version), f"after {moment} of rank {rank}"
        assert "ok" not in said or found == version, f"after {moment} of rank {rank}: {said}"
        old = found
        if version % 5 == 0 or version == kills:
            assert save(directory, version + 1_000_000) == ["ok"] * RANKS
            old = version_in(directory)
            assert old == version + 1_000_000
            assert len(list(directory.iterdir())) == FILES


def test_killed_mpi_ranks_leave_the_old_or_the_new_checkpoint(tmp_path: Path) -> None:
    kill(tmp_path / "run", 4)


@pytest.mark.slow
def test_many_killed_mpi_ranks_leave_the_old_or_the_new_checkpoint(tmp_path: Path) -> None:
    kill(tmp_path / "run", int(os.environ.get("CAIRN_MPI_KILLS", "200")))
