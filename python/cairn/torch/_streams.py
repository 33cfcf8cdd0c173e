"""Items through Python streams, one after the other: for file systems and transforms written in Python.

The bytes in the files are the same as everywhere else.
"""

from __future__ import annotations

import io
import os
import pickle
import queue
import re
import threading
from contextlib import suppress
from typing import Any, cast

import torch
from torch.distributed.checkpoint.filesystem import DEFAULT_SUFFIX, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import (
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import WriteResult

from .. import _engine
from .._errors import error
from ._local_files import make_durable


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, with no more memory than its own: torch.save would write all of the storage."""
    moved = tensor.detach().cpu()
    plain = type(moved) is torch.Tensor and moved.layout is torch.strided
    if plain and moved.untyped_storage().size() != moved.numel() * moved.itemsize:
        return moved.clone()
    return moved


# --- writing ---


def write(writer: Any, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
    """The items of a plan into files: one for each thread, or one for each item. Their names carry the save's id, so
    that none of them is a file of the checkpoint that is replaced."""
    prefix = plan.storage_data.prefix
    if writer.single_file_per_rank:
        groups = _spread(plan.items, max(1, writer.thread_count))
    else:
        groups = [[item] for item in plan.items]
    jobs: queue.SimpleQueue[tuple[str, list[WriteItem]]] = queue.SimpleQueue()
    for i, group in enumerate(groups):
        jobs.put((f"{prefix}{i}.{writer.save_id}{DEFAULT_SUFFIX}", group))
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
    writer.written.append(name)  # before it is there: what is half there goes too when the save fails
    with writer.fs.create_stream(writer.fs.concat_path(writer.path, name), "wb") as stream:
        results = [_write_item(writer, stream, name, item, planner.resolve_data(item)) for item in items]
        if writer.sync_files:
            make_durable(stream)
    return results


def _write_item(writer: Any, stream: Any, name: str, item: WriteItem, data: Any) -> WriteResult:
    begin = stream.tell()
    transformed, descriptors = writer.transforms.transform_save_stream(item, stream)
    if isinstance(data, io.BytesIO):
        transformed.write(data.getbuffer())
    else:
        torch.save(_on_cpu(data), transformed)
    transformed.close()
    length = stream.tell() - begin
    return WriteResult(item.index, length, _StorageInfo(name, begin, length, descriptors or None))


# --- the place of the old checkpoint ---


class Replaced:
    """The description that stands where a save will put its own, as it was when the save began."""

    def __init__(self, fs: Any, folder: Any, name: str) -> None:
        self.fs = fs
        self.folder = folder
        self.name = name
        self.bytes = self._read(name)

    def _path(self, name: str) -> Any:
        return self.fs.concat_path(self.folder, name)

    def _read(self, name: str) -> bytes | None:
        if not self.fs.exists(self._path(name)):
            return None
        with self.fs.create_stream(self._path(name), "rb") as stream:
            found: bytes = stream.read()
            return found

    def publish(self, metadata: Metadata, save_id: str, sync: bool) -> None:
        """The new description in the place of the old, whole, and only then the old files go."""
        partial = f"{self.name}.{save_id[:16]}.cairn-partial"
        kept = {place.relative_path for place in metadata.storage_data.values() if hasattr(place, "relative_path")}
        try:
            with self.fs.create_stream(self._path(partial), "wb") as stream:
                stream.write(pickle.dumps(metadata))
                if sync:
                    make_durable(stream)
            self._sync_folder(sync)
            self._require_files(kept)
            if self._read(self.name) != self.bytes:
                raise error("conflict", f"{self._path(self.name)} has been replaced by another save in the meantime")
            self.fs.rename(self._path(partial), self._path(self.name))
        except BaseException:
            remove(self.fs, self.folder, [partial])
            raise
        self._sync_folder(sync)
        # The new checkpoint is there: what cannot be removed now lies about, and is no reason to fail.
        with suppress(Exception):
            remove(self.fs, self.folder, sorted(self._old_files() - kept - self._files_of_others()))

    def is_published(self, save_id: str) -> bool:
        now = self._read(self.name)
        return now is not None and _engine.parse_metadata(now, self.name).save_id == save_id

    def _require_files(self, names: set[str]) -> None:
        """A clean-up, or a rank that gave up, may have taken files that nobody names yet."""
        if not hasattr(self.fs, "ls"):
            return
        missing = sorted(name for name in names - self._listed() if "/" not in name)
        if missing:
            raise error("conflict", f"{self._path(missing[0])} has been removed before the save was done")

    def _listed(self) -> set[str]:
        return {os.path.basename(os.fspath(path)) for path in self.fs.ls(self.folder)}

    def _old_files(self) -> set[str]:
        if self.bytes is None:
            return set()
        old = _engine.parse_metadata(self.bytes, self.name)
        names = {name for name in _files_of(old) if _DATA_FILE.fullmatch(name)}
        if old.save_id is not None and _SAVE_ID.fullmatch(old.save_id):
            names.add(f"{self.name.removesuffix('.metadata')}.cairn-manifest.{old.save_id}")
        return {name for name in names if self.fs.exists(self._path(name))}

    def _files_of_others(self) -> set[str]:
        """What the other descriptions in the folder name: those of single ranks, or of all ranks together."""
        if not hasattr(self.fs, "ls"):  # then only a name with a save's id is known to be one description's
            return {name for name in self._old_files() if name.count(".") == 1}
        others = [name for name in self._listed() if _METADATA_FILE.fullmatch(name) and name != self.name]
        # Not None, for they are there; one that is gone in the meantime is a TypeError, which publish() overlooks.
        found = (_engine.parse_metadata(cast(bytes, self._read(name)), name) for name in others)
        return {file for each in found for file in _files_of(each)}

    def _sync_folder(self, sync: bool) -> None:
        sync_directory = getattr(self.fs, "sync_directory", None)
        if sync and sync_directory is not None:
            sync_directory(self.folder)


_DATA_FILE = re.compile(r"__[0-9]+_[0-9]+(\.[0-9a-f]{32})?\.distcp")
_METADATA_FILE = re.compile(r"(__[0-9]+)?\.metadata")
_SAVE_ID = re.compile(r"[0-9a-f]{32}")


def _files_of(description: Any) -> set[str]:
    return {row[3] for row in description.places()}


def remove(fs: Any, folder: Any, names: list[str]) -> None:
    """As far as it goes: what stays is found by the next save or `cairn gc`."""
    for name in names:
        with suppress(Exception):
            path = fs.concat_path(folder, name)
            if fs.exists(path):
                fs.rm_file(path)
