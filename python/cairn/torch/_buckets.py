"""Places that the engine reaches by itself and no operating system knows: `s3://bucket/run`."""

from __future__ import annotations

import io
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemBase

from .. import _engine


def is_bucket(path: Any) -> bool:
    """Whether a checkpoint id is the URL of such a place, in a build that has it."""
    return isinstance(path, str) and path.startswith("s3://") and _engine.has_object_stores


class BucketFileSystem(FileSystemBase):
    """What torch's classes, and those derived from them, ask of a file system. The engine does not: it has the URL."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[io.IOBase, None, None]:
        if "r" in mode:
            yield io.BytesIO(_engine.read_file(os.fspath(path)))
            return
        stream = io.BytesIO()
        yield stream
        _engine.write_file(os.fspath(path), stream.getvalue(), "x" not in mode)

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        return f"{os.fspath(path).rstrip('/')}/{suffix}"

    def init_path(self, path: str | os.PathLike[str]) -> str:
        return os.fspath(path)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        _engine.rename_file(os.fspath(path), os.fspath(new_path))

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """A prefix of keys is there as soon as something has it."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return is_bucket(checkpoint_id)

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return _engine.file_exists(os.fspath(path))

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        _engine.remove_file(os.fspath(path))

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        return [self.concat_path(path, name) for name in _engine.list_folder(os.fspath(path))]
