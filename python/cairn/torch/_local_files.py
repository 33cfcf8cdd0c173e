"""Files as Python sees them: the one module of the package that touches any. The engine does without it."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any


def sync_directory(path: str | os.PathLike[str]) -> None:
    """After it the names in the directory are as durable as the files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(path: str | os.PathLike[str]) -> bytes:
    return Path(path).read_bytes()


def is_file(path: str | os.PathLike[str]) -> bool:
    return os.path.isfile(path)


def is_folder(path: str | os.PathLike[str]) -> bool:
    return os.path.isdir(path)


def make_durable(stream: Any) -> None:
    """What was written to a stream is on the disk, where it leads to one."""
    stream.flush()
    try:
        descriptor = stream.fileno()
    except (AttributeError, io.UnsupportedOperation):
        return  # a stream to somewhere else, which is durable in its own way or not at all
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a pipe or a device has nothing to sync
            raise
