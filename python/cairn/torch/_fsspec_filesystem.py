"""Checkpoints wherever fsspec reaches: `s3://...`, `gs://...`, `memory://...`: torch's classes on cairn's engine."""

from __future__ import annotations

import os
from typing import Any

# Taken now: cairn.torch.install() puts the classes here in their place.
from torch.distributed.checkpoint._fsspec_filesystem import FileSystem
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader as _Reader
from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter as _Writer

from .filesystem import FileSystemReader, FileSystemWriter

__all__ = ["FileSystem", "FsspecReader", "FsspecWriter"]


class _ThroughFsspec:
    """What writer and reader share."""

    fs: Any
    path: Any

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        options = self.fs.fs.storage_options  # which the user gave once
        super().reset(None)  # type: ignore[misc]
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id, **options)


class FsspecWriter(_ThroughFsspec, FileSystemWriter, _Writer):
    """FileSystemWriter through fsspec; further keywords go to the file system."""

    __init__ = _Writer.__init__


class FsspecReader(_ThroughFsspec, FileSystemReader, _Reader):
    """FileSystemReader through fsspec; further keywords go to the file system."""

    __init__ = _Reader.__init__
