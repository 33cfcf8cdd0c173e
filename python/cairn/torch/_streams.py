"""Items through Python streams, one after the other: for file systems and transforms written in Python.

The bytes in the files are the same as everywhere else.
"""

from __future__ import annotations

import io
import os
import pickle
import queue
import threading
from typing import IO, Any, Optional

import torch
from torch.distributed.checkpoint._extension import ExtensionRegistry
from torch.distributed.checkpoint.filesystem import DEFAULT_SUFFIX, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.planner import WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.checkpoint.utils import _create_file_view

from . import _objects
from ._tensors import plain_copy


def as_planned(item: WriteItem, data: torch.Tensor) -> Any:
    """The tensor, when it is what the item says and the engine can read it; else its archive."""
    data = data.detach()
    plain = plain_copy(data)
    planned = item.tensor_data
    if plain is not None and plain.dtype == planned.properties.dtype and plain.size() == planned.chunk.sizes:
        return plain
    return _objects.encode(_on_cpu(data))


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, with no more memory than its own: torch.save would write all of the storage."""
    moved = tensor.detach().cpu()
    if type(moved) is torch.Tensor and moved.layout is torch.strided:
        if moved.untyped_storage().size() != moved.numel() * moved.itemsize:
            moved = moved.clone()
    return moved


# --- transforms ---


class WriterTransforms:
    """The transforms of a save, in the order they are given."""

    def __init__(self, extensions: Optional[Any] = None) -> None:
        self.extensions = list(extensions or [])

    def open(self, stream: IO[bytes]) -> tuple[IO[bytes], list[str]]:
        """The stream to write an item into, and what to record: the transforms, in the order to undo them."""
        for extension in self.extensions:
            stream = extension.transform_to(stream)
        return stream, [extension.get_descriptor() for extension in reversed(self.extensions)]


class ReaderTransforms:
    def __init__(self, registry: Optional[ExtensionRegistry] = None) -> None:
        self.registry = registry or ExtensionRegistry()

    def undo(self, stream: IO[bytes], descriptors: Optional[list[str]]) -> IO[bytes]:
        for extension in self.registry.from_descriptor_list(descriptors or []):
            stream = extension.transform_from(stream)
        return stream


# --- writing ---


def write(writer: Any, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
    """The items of a plan into files: one for each thread, or one for each item."""
    prefix = plan.storage_data.prefix
    if writer.single_file_per_rank:
        groups = _spread(plan.items, max(1, writer.thread_count))
    else:
        groups = [[item] for item in plan.items]
    jobs: queue.SimpleQueue[tuple[str, list[WriteItem]]] = queue.SimpleQueue()
    for i, group in enumerate(groups):
        jobs.put((f"{prefix}{i}{DEFAULT_SUFFIX}", group))
    results: list[WriteResult] = []
    failures: list[BaseException] = []

    def work() -> None:
        while not failures:
            try:
                name, items = jobs.get_nowait()
            except queue.Empty:
                return
            try:
                results.extend(_write_file(writer, name, items, planner))
            except BaseException as error:  # noqa: BLE001 - it is raised below, in the thread that asked
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(min(writer.thread_count, len(groups)) - 1)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def _bytes_of(item: WriteItem) -> int:
    if item.tensor_data is None:
        return 0
    return item.tensor_data.chunk.sizes.numel() * item.tensor_data.properties.dtype.itemsize


def _spread(items: list[WriteItem], files: int) -> list[list[WriteItem]]:
    """The largest first, each into the file with the least so far; objects before tensors."""
    groups: list[list[WriteItem]] = [[] for _ in range(files)]
    loads = [0] * files
    objects = [item for item in items if item.type == WriteItemType.BYTE_IO]
    tensors = [item for item in items if item.type != WriteItemType.BYTE_IO]
    for i, item in enumerate(objects):
        groups[i % files].append(item)
    for item in sorted(tensors, key=_bytes_of, reverse=True) if files > 1 else tensors:
        lightest = loads.index(min(loads))
        groups[lightest].append(item)
        loads[lightest] += _bytes_of(item)
    return groups


def _write_file(writer: Any, name: str, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
    results = []
    with writer.fs.create_stream(writer.fs.concat_path(writer.path, name), "wb") as stream:
        for item in items:
            results.append(_write_item(writer, stream, name, item, planner.resolve_data(item)))
        _make_durable(stream, writer.sync_files)
    return results


def _write_item(writer: Any, stream: Any, name: str, item: WriteItem, data: Any) -> WriteResult:
    begin = stream.tell()
    transformed, descriptors = writer.transforms.open(stream)
    if isinstance(data, io.BytesIO):
        transformed.write(data.getbuffer())
    else:
        torch.save(_on_cpu(data), transformed)
    if transformed is not stream:
        transformed.close()
    length = stream.tell() - begin
    return WriteResult(item.index, length, _StorageInfo(name, begin, length, descriptors or None))


def _make_durable(stream: Any, sync: bool) -> None:
    if not sync:
        return
    try:
        stream.flush()
        os.fsync(stream.fileno())
    except (AttributeError, io.UnsupportedOperation, OSError):
        pass  # a stream to somewhere else, which is durable in its own way or not at all


def write_metadata(fs: Any, path: Any, metadata: Metadata, sync: bool) -> None:
    """Beside the place first, then in place, so that there is never half a file."""
    temporary = f"{path}.tmp"
    with fs.create_stream(temporary, "wb") as stream:
        pickle.dump(metadata, stream)
        _make_durable(stream, sync)
    if fs.exists(path):
        fs.rm_file(path)
    fs.rename(temporary, path)


# --- reading ---


def read(reader: Any, plan: LoadPlan, planner: LoadPlanner) -> None:
    """The items of a plan, file by file."""
    by_file: dict[str, list[Any]] = {}
    for item in plan.items:
        by_file.setdefault(reader.storage_data[item.storage_index].relative_path, []).append(item)
    for name, items in by_file.items():
        with reader.fs.create_stream(reader.fs.concat_path(reader.path, name), "rb") as stream:
            for item in items:
                _read_item(reader, stream, item, planner)


def _read_item(reader: Any, stream: Any, item: Any, planner: LoadPlanner) -> None:
    place = reader.storage_data[item.storage_index]
    view = _create_file_view(stream, place.offset, place.length)
    data = io.BytesIO(reader.transforms.undo(view, getattr(place, "transform_descriptors", None)).read(-1))
    if item.type == LoadItemType.BYTE_IO:
        planner.load_bytes(item, data)
        return
    tensor = torch.load(data, map_location="cpu", weights_only=True)
    for dim, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths)):
        tensor = tensor.narrow(dim, offset, length)
    target = planner.resolve_tensor(item).detach()
    if target.size() != tensor.size():
        raise AssertionError(f"req {item.storage_index} mismatch sizes {target.size()} vs {tensor.size()}")
    target.copy_(tensor)
    planner.commit_tensor(item, target)
