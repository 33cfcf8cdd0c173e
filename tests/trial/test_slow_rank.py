"""One of four ranks has a slow disk: in time, all succeed; too late, all fail at the deadline and name it."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import trial

IN_TIME = [("save", 5, 20_000), ("save", 50, 20_000), ("load", 20, 20_000)]
TOO_LATE = [("save", 200, 800), ("load", 200, 800)]


@pytest.mark.parametrize(("what", "call_ms", "deadline_ms"), IN_TIME)
def test_a_slow_rank_in_time_is_waited_for(tmp_path: Path, what: str, call_ms: int, deadline_ms: int) -> None:
    assert trial("slow_rank", tmp_path / "run", what, call_ms, deadline_ms)[0]["failed"] is False


@pytest.mark.parametrize(("what", "call_ms", "deadline_ms"), TOO_LATE)
def test_a_slow_rank_fails_all_at_the_deadline(tmp_path: Path, what: str, call_ms: int, deadline_ms: int) -> None:
    assert trial("slow_rank", tmp_path / "run", what, call_ms, deadline_ms)[0]["failed"] is True


@pytest.mark.slow
@pytest.mark.parametrize("call_ms", [100, 500, 1000, 5000])
@pytest.mark.parametrize("what", ["save", "load"])
def test_slow_disks_of_all_speeds(tmp_path: Path, what: str, call_ms: int) -> None:
    for attempt in range(1 if call_ms > 1000 else 5):
        trial("slow_rank", tmp_path / f"run{attempt}", what, call_ms, 3000)
