"""Saves to a loopback server that does wrong as seeds say, and saves that are killed: every promise is looked at."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from programs import seed, trial

Say = Callable[[str, object], None]


def wanted(name: str, usual: int) -> int:
    return int(os.environ.get(name, usual))


def run_seeds(count: int, record_property: Say, patience: float) -> dict[str, Any]:
    counts = trial("s3_trial", "--seeds", count, "--first", seed(2**40), timeout=patience)[-1]
    record_property("said", f"saves to a server that does wrong: {counts}")
    assert counts["seeds"] == count
    return counts


def run_kills(count: int, record_property: Say, patience: float) -> dict[str, Any]:
    counts = trial("s3_kills", count, seed(), timeout=patience)[-1]
    record_property("said", f"saves to a bucket that were killed: {counts}")
    return counts


def test_500_seeds_keep_every_promise(record_property: Say) -> None:
    counts = run_seeds(500, record_property, patience=600)
    # Where little goes wrong little is proved.
    assert min(counts["faults"].values()) >= 2, counts
    assert counts["failed"] >= 50 and counts["conflicts"] >= 20 and counts["done"] >= 500, counts
    assert counts["loaded"] >= 50, counts


def test_40_kills_leave_the_old_or_the_new_checkpoint(record_property: Say) -> None:
    counts = run_kills(40, record_property, patience=600)
    assert counts["kills"] >= 20 and counts["before_commit"] >= 10, counts


@pytest.mark.slow
def test_20000_seeds_keep_every_promise(record_property: Say) -> None:
    run_seeds(wanted("CAIRN_S3_SEEDS", 20_000), record_property, patience=24 * 3600)


@pytest.mark.slow
def test_1000_kills_leave_the_old_or_the_new_checkpoint(record_property: Say) -> None:
    kills = wanted("CAIRN_S3_KILLS", 1_000)
    counts = run_kills(kills, record_property, patience=24 * 3600)
    assert 2 * counts["kills"] >= kills and 4 * counts["before_commit"] >= kills, counts
