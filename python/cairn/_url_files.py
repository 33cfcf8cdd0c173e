"""Files at URLs that the engine reaches by itself and no operating system knows: `s3://bucket/run`."""

from __future__ import annotations

import io
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from . import _engine


def is_url(path: Any) -> bool:
    """Whether a checkpoint id is the URL of such a place, in a build that has it."""
    return isinstance(path, str) and path.startswith("s3://") and _engine.has_object_stores()


class UrlFiles:
    """What torch's writers and readers, and those derived from them, ask of a file system (torch's FileSystemBase)."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[io.BytesIO, None, None]:
        stream = io.BytesIO(_engine.read_file(os.fspath(path)) if "r" in mode else b"")
        yield stream
        if "r" not in mode:
            _engine.write_file(os.fspath(path), stream.getvalue(), "x" not in mode)

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        return f"{os.fspath(path).rstrip('/')}/{suffix}"

    def init_path(self, path: str | os.PathLike[str]) -> str:
        return os.fspath(path)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """A prefix of keys is there as soon as something has it."""

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        _engine.rename_file(os.fspath(path), os.fspath(new_path))

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return _engine.file_exists(os.fspath(path))

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        _engine.remove_file(os.fspath(path))

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        return [self.concat_path(path, name) for name in _engine.list_folder(os.fspath(path))]
