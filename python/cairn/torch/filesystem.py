"""Checkpoints in a directory: torch's FileSystemWriter and FileSystemReader on cairn's engine.

Where `save` and `load` are native, these objects only carry the options. Otherwise (a planner of the user's)
they hand whole plans to the engine. Only what the engine cannot reach goes item by item through Python
streams (_streams.py): file systems and stream transforms that are written in Python.
"""

from __future__ import annotations

import dataclasses
import io
import os
import threading
import uuid
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint._extension import ExtensionRegistry, ZStandard
from torch.distributed.checkpoint.filesystem import (
    CURRENT_DCP_VERSION,
    FileSystemBase,
    SerializationFormat,
    _metadata_fn,
    _StorageInfo,
    _StoragePrefix,
    _StorageReaderTransforms,
    _StorageWriterTransforms,
)
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from .. import Error, _engine
from .._errors import error as make_error
from . import _convert, _objects, _streams
from ._local_files import FileSystem
from ._tensors import is_plain

__all__ = ["FileSystem", "FileSystemBase", "FileSystemReader", "FileSystemWriter", "SerializationFormat"]


@dataclasses.dataclass
class _Prefix(_StoragePrefix):
    """What the coordinator tells a rank about its files: the beginning of their names, and which save it is."""

    save_id: str = ""


class _Results(list[WriteResult]):
    """A rank's WriteResults, and the engine's checksums of its files beside them."""

    attachment: bytes = b""


class FileSystemWriter(StorageWriter, BlockingAsyncStager):
    """Writes a checkpoint into a directory, atomically: readers see the old one or the new one, whole.

    The arguments are torch's. `thread_count` is how many files a rank writes at once (1, the default, leaves
    that to the engine); `per_thread_copy_ahead` has no meaning here.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Any | None = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
    ) -> None:
        BlockingAsyncStager.__init__(self, cache_staged_state_dict=cache_staged_state_dict)
        if serialization_format != SerializationFormat.TORCH_SAVE:
            raise ValueError("FileSystemWriter writes torch_save items; for safetensors use HuggingFaceStorageWriter")
        self.fs: FileSystemBase = FileSystem()
        self.path = self.fs.init_path(path)
        self.single_file_per_rank = single_file_per_rank
        self.sync_files = sync_files
        self.thread_count = thread_count
        self.per_thread_copy_ahead = per_thread_copy_ahead
        self.overwrite = overwrite
        self.serialization_format: SerializationFormat = serialization_format
        self.transforms = _StorageWriterTransforms(_extensions)
        self.save_id = uuid.uuid4().hex
        self._is_used = False
        self.is_coordinator = True
        self.rank: int | None = None
        self.use_collectives = True
        self._engine_writer: Any = None  # _engine.Writer, while a save is under way
        self._replaced: _streams.Replaced | None = None
        self.written: list[str] = []  # files of this rank that may be there, of a save through streams
        self._finished_writer: Any | None = None

    # What the engine needs to do all by itself.

    def why_open(self) -> str | None:
        """Why the engine cannot write this checkpoint on its own; None when it can."""
        if type(self.fs) is not FileSystem:
            return f"the file system is a {type(self.fs).__qualname__}"
        foreign = [each for each in self.transforms.extensions if type(each) is not ZStandard]
        if foreign:
            return f"the transform {foreign[0].get_descriptor()} is written in Python"
        return None if self.single_file_per_rank else "every item has a file of its own"

    def engine_options(self) -> _engine.WriteOptions:
        return {
            "overwrite": self.overwrite,
            "durable": self.sync_files,
            "files_per_rank": self.thread_count if self.thread_count > 1 else 0,
            "transforms": ["zstd" for _ in self.transforms.extensions],
        }

    # The steps of a save, as torch's StorageWriter names them.

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.save_id = uuid.uuid4().hex
        self._engine_writer = None

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.is_coordinator = is_coordinator
        self.rank = kwargs.get("rank")
        self.use_collectives = kwargs.get("use_collectives", True)

    def _metadata_name(self) -> str:
        return _metadata_fn if self.use_collectives else f"__{self.rank}{_metadata_fn}"

    def _metadata_path(self) -> str | os.PathLike[str]:
        return self.fs.concat_path(self.path, self._metadata_name())

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.fs.mkdir(self.path)
        if self._is_used:  # by a save before, with no reset since; names must not meet
            self.save_id, self._is_used = uuid.uuid4().hex, False
        self._replaced, self.written = None, []
        by_engine = self.why_open() is None and type(self).write_data is FileSystemWriter.write_data
        if not by_engine and (self.is_coordinator or not self.use_collectives):
            self._replaced = self._find_replaced()
        if self.fs.exists(self._metadata_path()):
            if not self.overwrite:
                raise RuntimeError(f"Checkpoint already exists and self.overwrite={self.overwrite}.")
            warnings.warn(
                f"Detected an existing checkpoint in {self._metadata_path()}, overwriting since "
                f"self.overwrite={self.overwrite}. The old one stays readable until the new one is whole.",
                stacklevel=2,
            )
        if self.use_collectives:
            return plan
        return dataclasses.replace(plan, storage_data=_Prefix(f"__{self.rank}_", self.save_id))

    def _find_replaced(self) -> _streams.Replaced:
        return _streams.Replaced(self.fs, self.path, self._metadata_name())

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return [
            plan
            if plan.storage_data is not None
            else dataclasses.replace(plan, storage_data=_Prefix(f"__{i}_", self.save_id))
            for i, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        self.save_id = getattr(plan.storage_data, "save_id", "") or self.save_id
        self._is_used = True
        if self.why_open() is None:
            results: list[WriteResult] = self._write_by_engine(plan, planner)
        else:
            results = _streams.write(self, plan, planner)
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def _write_by_engine(self, plan: SavePlan, planner: SavePlanner) -> _Results:
        self._set_up_engine(int(plan.storage_data.prefix.strip("_")))
        items = plan.items

        def resolve(position: int) -> Any:
            data = planner.resolve_data(items[position])
            return data.getvalue() if isinstance(data, io.BytesIO) else _streams.as_planned(items[position], data)

        places, attachment = self._engine_writer.write([_convert.from_write_item(item) for item in items], resolve)
        results = _Results()
        for row in sorted(places, key=lambda row: row[2]):
            _, place = _convert.to_place(row)
            results.append(WriteResult(items[row[2]].index, place.length, place))
        results.attachment = attachment
        return results

    def _set_up_engine(self, rank: int) -> None:
        world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        # Whether it may be overwritten was asked when the plan was prepared.
        options: _engine.WriteOptions = {**self.engine_options(), "overwrite": True}
        self._engine_writer = _engine.Writer(os.fspath(self.path), options)
        self._engine_writer.set_up(self.save_id, rank, max(world, 1), self.is_coordinator, self.use_collectives)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = {each.index: each.storage_data for rank in results for each in rank}
        metadata.storage_meta = self.storage_meta()
        by_engine = self.why_open() is None and all(getattr(rank, "attachment", b"") for rank in results if rank)
        if not by_engine:
            # The data came through streams, or a subclass wrote it: there are no checksums, so there is no manifest.
            self._engine_writer = None
            replaced = self._replaced if self._replaced is not None else self._find_replaced()
            replaced.publish(metadata, self.save_id, self.sync_files)
            self.written = []
            return
        if self._engine_writer is None:
            self._set_up_engine(self.rank or 0)
        ranks = [
            ([_convert.from_place(each.index, each.storage_data) for each in rank], getattr(rank, "attachment", b""))
            for rank in results
        ]
        entries, planner_data, extra = _convert.from_metadata(metadata)
        self._engine_writer.finish(entries, planner_data, ranks, extra)
        self._finished_writer, self._engine_writer = self._engine_writer, None

    def retire_collective(self) -> None:
        """On the coordinator, when each rank has finished a checkpoint of its own: that takes the place of an earlier
        one of all ranks together."""
        if self._finished_writer is not None:
            self._finished_writer.retire_collective()
            self._finished_writer = None

    def abandon(self) -> None:
        """After a save that failed: what this rank wrote goes."""
        if self._engine_writer is not None:
            self._engine_writer.abandon()
            self._engine_writer = None
        names, self.written = self.written, []
        with suppress(Exception):  # whether it is published cannot be told then: the files stay
            if names and not self._find_replaced().is_published(self.save_id):
                _streams.remove(self.fs, self.path, names)

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self.save_id)

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


class FileSystemReader(StorageReader):
    """Reads a checkpoint of a directory, torch's or cairn's: the bytes that are needed, in parallel, verified."""

    def __init__(self, path: str | os.PathLike[str], _extension_registry: ExtensionRegistry | None = None) -> None:
        super().__init__()
        self.fs: FileSystemBase = FileSystem()
        self.path = self.fs.init_path(path)
        self.storage_data: dict[Any, Any] = {}
        self.load_id = uuid.uuid4().hex
        self.transforms = _StorageReaderTransforms(_extension_registry)
        self._engine_reader: Any = None  # _engine.Reader, when it has read the metadata
        self._own_places: dict[Any, Any] | None = None  # what the engine read, if the engine did
        self._registry = _extension_registry

    def why_open(self) -> str | None:
        if type(self.fs) is not FileSystem:
            return f"the file system is a {type(self.fs).__qualname__}"
        return None if self._registry is None else "there is a registry of extensions"

    def engine_options(self) -> dict[str, Any]:
        return {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self.storage_data = {}
        self._engine_reader = None
        self._own_places = None
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.load_id = uuid.uuid4().hex

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The checkpoint's description. Parsed by the engine, which runs nothing that is in the file; only what the
        engine does not know is unpickled, as torch does: not with safe objects, which leave out what a planner of
        the user's left there and refuse the rest."""
        rank = kwargs.get("rank")
        name = _metadata_fn if rank is None else f"__{rank}{_metadata_fn}"
        path = self.fs.concat_path(self.path, name)

        def bytes_of_file() -> bytes:
            with self.fs.create_stream(path, "rb") as stream:
                read: bytes = stream.read()
                return read

        unpickle = _objects.unpickler(bytes_of_file)
        try:
            if type(self.fs) is FileSystem and self.fs.exists(path):
                reader = _engine.Reader(os.fspath(self.path), not _objects.is_safe())
                metadata = _convert.to_metadata(reader.metadata(rank or 0), unpickle)
                self._engine_reader, self._own_places = reader, metadata.storage_data
            else:
                metadata = _convert.to_metadata(_engine.parse_metadata(bytes_of_file(), os.fspath(path)), unpickle)
        except Error as error:
            if error.code != "unsupported":
                raise
            if unpickle is None:
                message = f"{os.fspath(path)} holds what only unpickling could read, refused with safe=True: {error}"
                raise make_error("unsupported", message) from None
            metadata = unpickle()
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        assert metadata.storage_meta is not None
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.storage_data = metadata.storage_data
        self.rank = kwargs.get("rank")
        self.use_collectives = kwargs.get("use_collectives", True)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        with _objects.guarded(planner):
            self._read_data(plan, planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _read_data(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        places = self.storage_data
        by_engine = self.why_open() is None and self._engine_reader is not None and places is self._own_places
        if by_engine and all(self._is_known(places[item.storage_index]) for item in plan.items):
            try:
                self._read_by_engine(plan, planner)
            except Error as error:
                if error.code != "unsupported":
                    raise
                _streams.read(self, plan, planner)  # an item that only torch can read
        else:
            _streams.read(self, plan, planner)

    @staticmethod
    def _is_known(place: _StorageInfo) -> bool:
        return all(each.startswith("stream.zstd") for each in place.transform_descriptors or [])

    def _read_by_engine(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        lock = threading.Lock()  # planners of users' need not know threads
        held: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

        def resolve(position: int) -> torch.Tensor:
            item = plan.items[position]
            with lock:
                target = planner.resolve_tensor(item).detach()
            if target.size() != item.lengths:
                raise AssertionError(f"req {item.storage_index} mismatch sizes {target.size()} vs {item.lengths}")
            memory = target if is_plain(target) else torch.empty(target.shape, dtype=target.dtype)
            held[position] = (target, memory)
            return memory

        def commit(position: int) -> None:
            target, memory = held.pop(position)
            with lock:
                if memory is not target:
                    target.copy_(memory)
                planner.commit_tensor(plan.items[position], target)

        archives = self._engine_reader.read([_convert.from_read_item(item) for item in plan.items], resolve, commit)
        for position, item in enumerate(plan.items):
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(archives[position]))

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return isinstance(checkpoint_id, Path) or "://" not in str(checkpoint_id)
