"""Checkpoints wherever fsspec reaches: `s3://...`, `gs://...`, `memory://...`: torch's classes on cairn's engine."""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any

# Taken now: cairn.torch.install() puts the classes here in their place.
from torch.distributed.checkpoint._fsspec_filesystem import FileSystem
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader as _Reader
from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter as _Writer

from .._url_files import UrlFiles, is_url
from .filesystem import FileSystemReader, FileSystemWriter

__all__ = ["FileSystem", "FsspecReader", "FsspecWriter"]


def _native_where_it_can(init: Any, native: Any) -> Any:
    """A bucket of S3's is the engine's own, unless there are options for fsspec's file system."""

    @functools.wraps(init)
    def __init__(self: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        known = inspect.signature(native).parameters.keys()
        (native if is_url(path) and known >= kwargs.keys() else init)(self, path, *args, **kwargs)

    return __init__


class _ThroughFsspec:
    """What writer and reader share."""

    fs: Any
    path: Any

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        is_native = isinstance(self.fs, UrlFiles)
        options = {} if is_native else self.fs.fs.storage_options  # which the user gave once
        super().reset(checkpoint_id if is_native else None)  # type: ignore[misc]
        if checkpoint_id and not is_native:
            self.path = self.fs.init_path(checkpoint_id, **options)


class FsspecWriter(_ThroughFsspec, FileSystemWriter, _Writer):
    """FileSystemWriter through fsspec; further keywords go to the file system."""

    __init__ = _native_where_it_can(_Writer.__init__, FileSystemWriter.__init__)


class FsspecReader(_ThroughFsspec, FileSystemReader, _Reader):
    """FileSystemReader through fsspec; further keywords go to the file system."""

    __init__ = _native_where_it_can(_Reader.__init__, FileSystemReader.__init__)
