"""Ranks are killed, fail or are held up at every point that the sources name (CAIRN_POINT)."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
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


def print_table(runs: int, fired: dict[str, dict[str, int]]) -> None:
    print(f"{runs} runs")
    print(f"{'point':32}" + "".join(f"{action:>8}" for action in ACTIONS))
    for point in points_in_sources():
        row = fired.get(point, {})
        print(f"{point:32}" + "".join(f"{row.get(action, 0):8}" for action in ACTIONS))


def test_every_point_has_a_name_of_its_own() -> None:
    points = points_in_sources()
    assert len(points) >= 45
    assert len(set(points)) == len(points)
    assert all(re.fullmatch(r"[a-z]+\.[a-z_]+", point) for point in points)


def missed(fired: dict[str, dict[str, int]], action: str) -> set[str]:
    """Points that nobody came to; test_mounts.py comes to the others."""
    return {point for point in points_in_sources() if not fired.get(point, {}).get(action)} - mounts.POINTS


def disturbed(folder: Path, groups: list[str], rounds: int, timeout: float) -> dict[str, dict[str, int]]:
    """Ranks mostly wait, so groups of points are tried side by side."""
    number = seed()

    def disturb(group: str) -> dict:
        [counts] = trial("kill_at_points", folder / group, rounds, number, group, timeout=timeout)
        return counts

    with ThreadPoolExecutor(6) as pool:
        counted = list(pool.map(disturb, groups))
    fired = {point: row for counts in counted for point, row in counts["fired"].items()}
    print_table(sum(counts["runs"] for counts in counted), fired)
    return fired


def test_a_kill_at_any_point_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    [counts] = trial("kill_at_points", tmp_path, 0, seed(), timeout=600)
    print_table(counts["runs"], counts["fired"])
    assert missed(counts["fired"], "kill") == set()


def test_a_lock_that_cannot_be_taken_leaves_no_file(tmp_path: Path) -> None:
    """Ranks also fail and are late at the points of a lock; at all others they do so in the slow test below."""
    points = [point for point in points_in_sources() if point.startswith("lock.")]
    fired = disturbed(tmp_path, points, 1, timeout=1800)
    assert points and all(fired[point][action] for point in points for action in ACTIONS)


@pytest.mark.slow
def test_every_rank_at_every_point_killed_failing_and_late(tmp_path: Path) -> None:
    """CAIRN_POINT_ROUNDS=20 for a night of it."""
    rounds = int(os.environ.get("CAIRN_POINT_ROUNDS", "1"))
    groups = sorted({point.split(".")[0] + "." for point in points_in_sources()})
    fired = disturbed(tmp_path, groups, rounds, timeout=3600 * rounds)
    for action in ("kill", "sleep"):
        assert missed(fired, action) == set()
