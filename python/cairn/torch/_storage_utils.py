"""Which storage a checkpoint id means."""

from __future__ import annotations

import os
from typing import Any

from .filesystem import FileSystemReader, FileSystemWriter, as_text


def _storage_setup(storage: Any, checkpoint_id: str | os.PathLike[str] | None, reader: bool = False) -> Any:
    """The given storage, reset to the id if there is one; else the first kind that takes the id."""
    checkpoint_id = as_text(checkpoint_id)
    if storage is not None:
        if checkpoint_id is not None:
            storage.reset(checkpoint_id)
        return storage
    if not checkpoint_id:
        raise RuntimeError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
    kinds: list[Any] = [FileSystemReader if reader else FileSystemWriter]
    if fsspec := _fsspec_kind(reader):
        kinds.append(fsspec)
    for kind in kinds:
        if kind.validate_checkpoint_id(checkpoint_id):
            made = kind(checkpoint_id)
            made.reset(checkpoint_id)
            return made
    raise RuntimeError(
        "Cannot detect which StorageReader or StorageWriter to use. Please specify the storage_reader/storage_writer."
    )


def _fsspec_kind(reader: bool) -> Any | None:
    try:
        from ._fsspec_filesystem import FsspecReader, FsspecWriter
    except ImportError:
        return None
    return FsspecReader if reader else FsspecWriter
