"""Saves that are killed on such a mount leave the old checkpoint or the new one."""

from __future__ import annotations

from pathlib import Path

import mounts
from programs import seed, trial


def test_kills_leave_the_old_or_the_new_checkpoint(mount: Path) -> None:
    counts = trial("kill_save", mount / "run", 60, seed(), timeout=3000)[0]
    assert counts["before_commit"] + counts["after_commit"] == 60
    assert counts["before_commit"] >= 10, "the kills come too late to prove much"


def test_a_kill_at_any_point_of_publishing_leaves_the_old_or_the_new(mount: Path) -> None:
    [counts] = trial("kill_at_points", mount / "run", 0, seed(), "file.,claim.,publish.", timeout=3000)
    assert {point for point in mounts.POINTS if not counts["fired"][point].get("kill")} == set()
