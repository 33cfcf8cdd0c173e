"""What a loss of power leaves of saves, clean-ups and conversions: nothing, or the old or the new checkpoint, whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs import seed, trial

KINDS = ["save", "overwrite", "gc", "convert"]


def lose_power(directory: Path, states: int) -> None:
    [counts] = trial("power_loss", directory, states, seed(), timeout=3600)
    assert counts["states"] >= states
    for kind in KINDS:
        of = counts[kind]
        assert of["states"] >= states // len(KINDS) and of["reported"] > 0 and of["next_saves"] > 0
    assert counts["save"]["absent"] > 0 and counts["save"]["new"] > 0
    assert counts["overwrite"]["old"] > 0 and counts["overwrite"]["new"] > 0
    assert counts["gc"]["old"] > 0 and counts["gc"]["absent"] > 0, "beside a checkpoint, and alone"
    assert counts["convert"]["old"] > 0 and counts["convert"]["absent"] > 0 and counts["convert"]["new"] > 0


def test_10000_losses_of_power_leave_nothing_or_a_whole_checkpoint(tmp_path: Path) -> None:
    lose_power(tmp_path, 10_000)


@pytest.mark.slow
def test_100000_losses_of_power_leave_nothing_or_a_whole_checkpoint(tmp_path: Path) -> None:
    lose_power(tmp_path, int(os.environ.get("CAIRN_POWER_STATES", "100000")))
