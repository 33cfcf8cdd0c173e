"""A process that saves a thousand times is as large as one that saved a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import trial


@pytest.mark.parametrize("how", ["sync", "async"])
def test_1000_saves_and_loads_leave_no_memory_thread_or_descriptor(tmp_path: Path, how: str) -> None:
    trial("growth", tmp_path / "run", 1000, how)
