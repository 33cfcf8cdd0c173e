"""Files as Python sees them: the one module of the package that touches any. The engine does without it."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from torch.distributed.checkpoint.filesystem import FileSystemBase


class FileSystem(FileSystemBase):
    """The local file system, for streams and for who asks `writer.fs`."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        with open(path, mode) as stream:
            yield cast(io.IOBase, stream)

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str | os.PathLike[str]:
        return Path(path) / suffix

    def init_path(self, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
        return path if isinstance(path, Path) else Path(path)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        os.replace(path, new_path)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        os.makedirs(path, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        if isinstance(checkpoint_id, Path):
            return True
        if "://" in str(checkpoint_id):
            return False
        return any(parent.exists() and os.access(parent, os.W_OK) for parent in Path(checkpoint_id).parents)

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return os.path.exists(path)

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        os.remove(path)

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        return [str(each) for each in Path(path).iterdir()]

    def sync_directory(self, path: str | os.PathLike[str]) -> None:
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
