"""Another process changes files while they are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs import seed, trial


def change(place: Path, rounds: int) -> None:
    counts = trial("changed_files", place, rounds, seed(), timeout=1800)[0]
    assert counts["errors"] > rounds // 10 and counts["right"] > rounds // 10, "the changes come too early or too late"


def test_1000_changes_of_files_that_are_being_read(tmp_path: Path) -> None:
    change(tmp_path, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["buffered", "direct", "uring"])
def test_changes_on_every_way_to_the_disk(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_IO", path)
    change(tmp_path, int(os.environ.get("CAIRN_CHANGES", 10_000)))
