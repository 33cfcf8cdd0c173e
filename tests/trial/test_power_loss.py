"""What a loss of power leaves of saves, clean-ups and conversions: nothing, or the old or the new checkpoint, whole."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("CAIRN_POWER_LOSS", ROOT / "build/release/tests/power_loss"))
KINDS = ["save", "overwrite", "gc", "convert"]


def lose_power(directory: Path, states: int) -> dict:
    seed = int(os.environ.get("CAIRN_SEED", time.time_ns() % 2**31))
    print("seed", seed)
    command = [PROGRAM, directory, str(states), str(seed)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    print(counts)
    return counts


def check_counts(counts: dict, states: int) -> None:
    assert counts["states"] >= states
    for kind in KINDS:
        of = counts[kind]
        assert of["states"] >= states // len(KINDS) and of["reported"] > 0 and of["next_saves"] > 0
    assert counts["save"]["absent"] > 0 and counts["save"]["new"] > 0
    assert counts["overwrite"]["old"] > 0 and counts["overwrite"]["new"] > 0
    assert counts["gc"]["old"] > 0 and counts["gc"]["absent"] > 0, "beside a checkpoint, and alone"
    assert counts["convert"]["old"] > 0 and counts["convert"]["absent"] > 0 and counts["convert"]["new"] > 0


def test_10000_losses_of_power_leave_nothing_or_a_whole_checkpoint(tmp_path: Path) -> None:
    check_counts(lose_power(tmp_path, 10_000), 10_000)


@pytest.mark.slow
def test_100000_losses_of_power_leave_nothing_or_a_whole_checkpoint(tmp_path: Path) -> None:
    states = int(os.environ.get("CAIRN_POWER_STATES", "100000"))
    check_counts(lose_power(tmp_path, states), states)
