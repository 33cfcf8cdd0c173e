"""Folders seen through mounts that lack what real ones lack (tests/mount/crippled_mount.cc). Two of one folder are two
machines."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import TRIALS

ALL = ["no-links", "no-exclusive-rename", "no-directory-sync", "no-direct", "flock-per-mount", "stale"]

# Only where there are neither links nor exclusive renames.
POINTS = {"file.name_taken"}


def skip_without_mounts() -> None:
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as e:
        pytest.skip(f"/dev/fuse cannot be opened: {e.strerror}")


@contextmanager
def mounted(folder: Path, point: Path, *switches: str) -> Iterator[Path]:
    """`folder` at `point`, which is made."""
    point.mkdir()
    process = subprocess.Popen([TRIALS / "crippled_mount", folder, point, *switches], stderr=subprocess.PIPE)
    try:
        while not os.path.ismount(point):
            assert process.poll() is None, process.stderr.read().decode()
            time.sleep(0.01)
        yield point
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)
        process.wait()
        process.stderr.close()
