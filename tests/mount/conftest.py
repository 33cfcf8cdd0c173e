"""A mount without links, exclusive renames, directory syncs, direct I/O or locks for others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mounts
import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    mounts.skip_without_mounts()
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.fixture
def mount(folder: Path, tmp_path: Path) -> Iterator[Path]:
    with mounts.mounted(folder, tmp_path / "mount", *mounts.ALL) as point:
        yield point
