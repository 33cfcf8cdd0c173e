"""torch's dataclasses out of the engine's rows (python/src/metadata.h) and back."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from .._errors import error
from . import _objects

_MEMORY_FORMATS = (torch.contiguous_format, torch.channels_last, torch.preserve_format)


def _size(numbers: Any) -> torch.Size:
    return torch.Size(numbers)


def to_entry(row: tuple[Any, ...]) -> TensorStorageMetadata | BytesStorageMetadata:
    if len(row) == 1:
        return BytesStorageMetadata()
    _, dtype, layout, requires_grad, memory_format, pin_memory, size, chunks = row
    properties = TensorProperties(
        dtype=getattr(torch, dtype),
        layout=getattr(torch, layout.removeprefix("torch.")),
        requires_grad=requires_grad,
        memory_format=_MEMORY_FORMATS[memory_format],
        pin_memory=pin_memory,
    )
    boxes = [ChunkStorageMetadata(_size(offsets), _size(sizes)) for offsets, sizes in chunks]
    return TensorStorageMetadata(properties, _size(size), boxes)


def from_entry(fqn: str, entry: Any) -> tuple[Any, ...]:
    if isinstance(entry, BytesStorageMetadata):
        return (fqn,)
    properties = entry.properties
    return (
        fqn,
        str(properties.dtype).removeprefix("torch."),
        str(properties.layout),
        properties.requires_grad,
        _MEMORY_FORMATS.index(properties.memory_format),
        properties.pin_memory,
        tuple(entry.size),
        [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in entry.chunks],
    )


def to_index(fqn: str, offset: Any, hint: int | None = None) -> MetadataIndex:
    return MetadataIndex(fqn, None if offset is None else _size(offset), hint)


def to_place(row: tuple[Any, ...]) -> tuple[MetadataIndex, _StorageInfo]:
    fqn, offset, hint, file, begin, length, transforms = row
    return to_index(fqn, offset, hint), _StorageInfo(file, begin, length, list(transforms) or None)


def from_place(index: MetadataIndex, place: _StorageInfo) -> tuple[Any, ...]:
    offset = None if index.offset is None else tuple(index.offset)
    transforms = list(place.transform_descriptors or [])
    return (index.fqn, offset, index.index, place.relative_path, place.offset, place.length, transforms)


def from_results(results: list[list[Any]]) -> tuple[list[tuple[Any, bytes]], bytes | None]:
    """(what each rank wrote and its checksums, or a pickle of places that are of somebody's own kind)."""
    if all(type(each.storage_data) is _StorageInfo for rank in results for each in rank):
        rows = [[from_place(each.index, each.storage_data) for each in rank] for rank in results]
        return [(row, getattr(rank, "attachment", b"")) for row, rank in zip(rows, results)], None
    return [], pickle.dumps({each.index: each.storage_data for rank in results for each in rank}, protocol=2)


_FIELDS = {field.name for field in dataclasses.fields(Metadata)}


def to_metadata(engine: Any, file: str) -> Metadata:
    """torch's Metadata of the one in `file`. Nothing in it is run: what is not DCP's own is made of plain data and of
    dataclasses derived from torch's, or refused; with safe objects it is left out, and places of that kind refused."""
    safe = _objects.is_safe()
    paths = engine.paths()
    if engine.has_foreign_places and safe:
        raise error("unsupported", "where its items are is told by objects of somebody's own")
    made = Metadata(
        state_dict_metadata={row[0]: to_entry(row) for row in engine.entries()},
        planner_data=paths or None,
        storage_data=engine.foreign_places(file) if engine.has_foreign_places else dict(map(to_place, engine.places())),
        storage_meta=StorageMeta(checkpoint_id=engine.checkpoint_id, save_id=engine.save_id),
        version=engine.version,
    )
    if paths is False and not safe:
        made.planner_data = engine.foreign_planner_data(file)
    if not safe:
        vars(made).update(engine.extra(file))
    return made


def from_metadata(metadata: Metadata) -> tuple[list[tuple[Any, ...]], Any, dict[str, bytes]]:
    """(entries, planner data, attributes of somebody's own) for the engine to write."""
    entries = [from_entry(fqn, entry) for fqn, entry in metadata.state_dict_metadata.items()]
    data = metadata.planner_data
    is_paths = isinstance(data, dict) and all(
        isinstance(path, tuple) and all(isinstance(step, (str, int)) for step in path) for path in data.values()
    )
    extra = {name: pickle.dumps(each, protocol=2) for name, each in vars(metadata).items() if name not in _FIELDS}
    return entries, data if data is None or is_paths else pickle.dumps(data, protocol=2), extra
