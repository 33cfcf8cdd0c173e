"""Ranks are killed, fail or are held up at every point that the sources name (CAIRN_POINT)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import mounts
import pytest
from programs import ROOT, seed, trial

SEES = ("src",)  # for what runs again: tests/once.py

ACTIONS = ("kill", "error", "sleep")


def points_in_sources() -> list[str]:
    found: list[str] = []
    for source in (ROOT / "src").rglob("*.cc"):
        found += re.findall(r'CAIRN_POINT\("([^"]+)"\)', source.read_text())
    return sorted(found)


def disturb(directory: Path, rounds: int, patience: float) -> dict[str, dict[str, int]]:
    """How often each point was fired, by what was done there. Prints the table. test_mounts.py has the others."""
    [counts] = trial("kill_at_points", directory, rounds, seed(), timeout=patience)
    print(f"{counts['runs']} runs")
    print(f"{'point':32}" + "".join(f"{action:>8}" for action in ACTIONS))
    for point in points_in_sources():
        row = counts["fired"].get(point, {})
        print(f"{point:32}" + "".join(f"{row.get(action, 0):8}" for action in ACTIONS))
    return counts["fired"]


def test_every_point_has_a_name_of_its_own() -> None:
    points = points_in_sources()
    assert len(points) >= 45
    assert len(set(points)) == len(points)
    assert all(re.fullmatch(r"[a-z]+\.[a-z_]+", point) for point in points)


def test_a_kill_at_any_point_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    fired = disturb(tmp_path, 0, patience=600)
    missed = {point for point in points_in_sources() if not fired.get(point, {}).get("kill")}
    assert missed - mounts.POINTS == set(), "points that nobody came to"


@pytest.mark.slow
def test_every_rank_at_every_point_killed_failing_and_late(tmp_path: Path) -> None:
    rounds = int(os.environ.get("CAIRN_POINT_ROUNDS", "20"))
    fired = disturb(tmp_path, rounds, patience=1800 * rounds)
    for action in ("kill", "sleep"):
        assert {point for point in points_in_sources() if not fired.get(point, {}).get(action)} <= mounts.POINTS
