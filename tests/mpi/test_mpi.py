"""The group over real MPI processes."""

from __future__ import annotations

import pytest
from mpirun import mpirun


def run(ranks: int, *arguments: str) -> str:
    done = mpirun(ranks, "group_check", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_group_over_mpi_keeps_the_promises(ranks: int) -> None:
    assert run(ranks) == f"{ranks} ranks ok\n"


def test_a_silent_rank_is_named_at_the_deadline_and_may_come_back() -> None:
    assert run(4, "silent") == "4 ranks ok\n"
