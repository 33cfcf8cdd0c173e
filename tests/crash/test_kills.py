"""Four processes overwrite a checkpoint; they are killed at random moments, stopped, or get in each other's way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs import seed, trial


def run(program: str, directory: Path, times: int, patience: float = 600) -> dict[str, float]:
    return trial(program, directory, times, seed(), timeout=patience)[0]


def wanted(name: str, usual: int) -> int:
    return int(os.environ.get(name, usual))


def test_500_kills_leave_the_old_or_the_new_checkpoint(tmp_path: Path) -> None:
    counts = run("kill_save", tmp_path / "run", 500)
    assert counts["before_commit"] + counts["after_commit"] == 500
    assert counts["before_commit"] >= 150, "the kills come too late to prove much"


def test_a_rank_that_stops_past_the_deadline_is_fenced(tmp_path: Path) -> None:
    counts = run("stop_save", tmp_path / "run", 5)
    assert counts["fenced"] > 0, "nobody was stopped in time"


def test_two_jobs_that_save_one_id_at_once_never_mix(tmp_path: Path) -> None:
    counts = run("two_jobs", tmp_path / "run", 20)
    assert counts["one"] > 0, "the jobs never met"


@pytest.mark.slow
def test_many_kills_leave_the_old_or_the_new_checkpoint(tmp_path: Path) -> None:
    kills = wanted("CAIRN_KILLS", 10_000)
    counts = run("kill_save", tmp_path / "run", kills, patience=max(600, kills))
    assert 2 * counts["before_commit"] >= kills, "the kills come too late to prove much"


@pytest.mark.slow
def test_many_ranks_that_stop_past_the_deadline_are_fenced(tmp_path: Path) -> None:
    stops = wanted("CAIRN_STOPS", 50)
    counts = run("stop_save", tmp_path / "run", stops, patience=60 * stops)
    assert 2 * counts["fenced"] >= stops, "too few were stopped in time"


@pytest.mark.slow
def test_two_jobs_never_mix_however_often_they_meet(tmp_path: Path) -> None:
    times = wanted("CAIRN_TWO_JOBS", 200)
    counts = run("two_jobs", tmp_path / "run", times, patience=max(600, 10 * times))
    assert 2 * counts["one"] >= times, "the jobs missed each other too often"
