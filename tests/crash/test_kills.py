"""Four processes overwrite a checkpoint and are killed at random moments."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("CAIRN_KILL_SAVE", ROOT / "build/release/tests/kill_save"))


def kill(directory: Path, kills: int) -> dict[str, float]:
    seed = int(os.environ.get("CAIRN_SEED", time.time_ns() % 2**31))
    print("seed", seed)
    done = subprocess.run([PROGRAM, directory, str(kills), str(seed)], text=True, capture_output=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_300_kills_leave_the_old_or_the_new_checkpoint(tmp_path: Path) -> None:
    counts = kill(tmp_path / "run", 300)
    print(counts)
    assert counts["before_commit"] + counts["after_commit"] == 300
    assert counts["before_commit"] >= 100, "the kills come too late to prove much"


@pytest.mark.slow
def test_10000_kills_leave_the_old_or_the_new_checkpoint(tmp_path: Path) -> None:
    counts = kill(tmp_path / "run", 10_000)
    print(counts)
