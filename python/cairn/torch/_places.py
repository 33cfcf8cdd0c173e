"""What the engine shows to Python code that is called for the bytes of a checkpoint: streams, items, places."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.checkpoint import metadata, planner
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.filesystem import _StorageReaderTransforms

from .._url_files import UrlFiles

# What the engine can undo by itself.
_KNOWN = {"stream.zstd/1"}


class Sink(io.RawIOBase):
    """Where an item's bytes are written to. Closing it closes nothing: the file goes on."""

    def __init__(self, store: Callable[[Any], int]) -> None:
        super().__init__()
        self._store = store
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        length = self._store(data)
        self._written += length
        return length

    def tell(self) -> int:
        return self._written


class Source(io.RawIOBase):
    """An item's bytes as they lie in the file."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size = size
        self._fetch = fetch
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        start = (0, self._position, self._size)[whence]
        self._position = max(0, start + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._fetch(self._position, wanted)
        self._position += wanted
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


def descriptor_of(stream: Any) -> int | None:
    """Of the operating system's file behind a stream, if there is one."""
    try:
        found = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return found if isinstance(found, int) else None


def local_path(fs: Any, path: Any) -> Any | None:
    """The directory or bucket that a path means to a file system, when both are nothing else than this machine's own
    or the engine's. What a user has changed about a file system is asked for, so only the classes themselves count."""
    kind = type(fs)
    if kind is UrlFiles:
        return path
    if kind in _classes(("torch.distributed.checkpoint.filesystem",), "FileSystem"):
        return path
    through = ("torch.distributed.checkpoint._fsspec_filesystem",)
    inner: Any = getattr(fs, "fs", None)
    if kind in _classes(through, "FileSystem") and type(inner) in _classes(
        ("fsspec.implementations.local",), "LocalFileSystem"
    ):
        return inner._strip_protocol(path)
    return None


def _classes(modules: tuple[str, ...], name: str) -> set[Any]:
    return {getattr(sys.modules[module], name, None) for module in modules if module in sys.modules} - {None}


def sees_all(transforms: Any) -> bool:
    """Whether a reader's transforms want to see every item: they are somebody's own."""
    stock = _StorageReaderTransforms.transform_load_stream
    return getattr(type(transforms), "transform_load_stream", None) is not stock


def is_theirs(transforms: Any, descriptors: list[str]) -> bool:
    """Whether only they can undo this."""
    registered = getattr(getattr(transforms, "extension_registry", None), "extensions", {})
    own = registered.get(ZStandard.registry_name(), ZStandard) is not ZStandard
    return own or any(each not in _KNOWN for each in descriptors)


def write_item(row: tuple[Any, ...]) -> Any:
    """torch's WriteItem, of (fqn, offset, hint, type, dtype, size, chunk offsets, chunk sizes)."""
    fqn, offset, hint, kind, dtype, size, offsets, sizes = row
    index = metadata.MetadataIndex(fqn, None if offset is None else torch.Size(offset), hint)
    if dtype is None:
        return planner.WriteItem(index=index, type=planner.WriteItemType(kind))
    data = planner.TensorWriteData(
        chunk=metadata.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)),
        properties=metadata.TensorProperties(dtype=getattr(torch, dtype)),
        size=torch.Size(size),
    )
    return planner.WriteItem(index=index, type=planner.WriteItemType(kind), tensor_data=data)


def read_item(row: tuple[Any, ...]) -> Any:
    """torch's ReadItem, of (is tensor, destination, offset, hint, offsets there, the same of the storage, lengths)."""
    is_tensor, to, to_offset, to_hint, to_offsets, of, of_offset, of_hint, of_offsets, lengths = row

    def index(fqn: str, offset: Any, hint: int | None) -> Any:
        return metadata.MetadataIndex(fqn, None if offset is None else torch.Size(offset), hint)

    return planner.ReadItem(
        type=planner.LoadItemType.TENSOR if is_tensor else planner.LoadItemType.BYTE_IO,
        dest_index=index(to, to_offset, to_hint),
        dest_offsets=torch.Size(to_offsets),
        storage_index=index(of, of_offset, of_hint),
        storage_offsets=torch.Size(of_offsets),
        lengths=torch.Size(lengths),
    )
