"""The group over real MPI processes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = Path(os.environ.get("CAIRN_GROUP_CHECK", ROOT / "build/release/tests/group_check"))
# Open MPI refuses root and more ranks than cores unless it is told; loopback only.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader", "-n"]


def run(ranks: int, *arguments: str) -> str:
    done = subprocess.run([*MPIRUN, str(ranks), CHECK, *arguments], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_group_over_mpi_keeps_the_promises(ranks: int) -> None:
    assert run(ranks) == f"{ranks} ranks ok\n"


def test_a_silent_rank_is_named_at_the_deadline_and_may_come_back() -> None:
    assert run(4, "silent") == "4 ranks ok\n"
