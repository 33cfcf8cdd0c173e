"""Checkpoints in a directory: torch's FileSystemWriter and FileSystemReader on cairn's engine.

Where `save` and `load` are native, these objects only carry the options. Otherwise (a planner of the user's)
they hand whole plans to the engine. Only what the engine cannot reach goes item by item through Python
streams (_streams.py): file systems and stream transforms that are written in Python.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint import filesystem as _torchs
from torch.distributed.checkpoint._extension import ExtensionRegistry, ZStandard
from torch.distributed.checkpoint.filesystem import (
    CURRENT_DCP_VERSION,
    FileSystem,
    FileSystemBase,
    SerializationFormat,
    _metadata_fn,
)

# Taken now: cairn.torch.install() puts the classes here in their place.
from torch.distributed.checkpoint.filesystem import FileSystemReader as _Reader
from torch.distributed.checkpoint.filesystem import FileSystemWriter as _Writer
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from .. import Error, _engine
from .._errors import error as make_error
from . import _convert, _objects, _streams
from ._tensors import as_planned

__all__ = ["FileSystem", "FileSystemBase", "FileSystemReader", "FileSystemWriter", "SerializationFormat"]


def __getattr__(name: str) -> Any:
    return getattr(_torchs, name)


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class _Results(list[WriteResult]):
    """A rank's WriteResults, and the engine's checksums of its files beside them."""

    attachment: bytes = b""


class FileSystemWriter(_Writer):
    """Writes a checkpoint into a directory, atomically: readers see the old one or the new one, whole.

    The arguments are torch's. `thread_count` is how many files a rank writes at once (1, the default, leaves
    that to the engine); `per_thread_copy_ahead` has no meaning here.
    """

    is_coordinator = True
    _role: Any = None  # _engine.WriterRole: who this rank is in the save that is under way
    _engine_writer: Any = None  # _engine.Writer, from then on
    _replaced: _streams.Replaced | None = None
    written: list[str] = []  # noqa: RUF012 - files of this rank that may be there, of a save through streams

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
        super().reset(checkpoint_id)
        self._role = self._engine_writer = None

    def begin(self, role: Any) -> None:
        """Called by a save before its first step: which save it is, and this rank's part in it."""
        self._role, self._engine_writer, self._replaced, self.written = role, None, None, []
        self.save_id = role.save_id

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)
        self.is_coordinator = is_coordinator
        self._require_format()

    def _require_format(self) -> None:
        if self.serialization_format != SerializationFormat.TORCH_SAVE:
            raise ValueError("FileSystemWriter writes torch_save items; for safetensors use HuggingFaceStorageWriter")

    def _metadata_name(self) -> str:
        return _metadata_fn if self.use_collectives else f"__{self.rank}{_metadata_fn}"

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.written = []
        plan = super().prepare_local_plan(plan)
        if self.why_open() is None:
            self._set_up_engine()  # here the coordinator takes what only one save at a time may have
        elif self.is_coordinator or not self.use_collectives:
            self._replaced = self._find_replaced()
        return plan

    def _find_replaced(self) -> _streams.Replaced:
        return _streams.Replaced(self.fs, self.path, self._metadata_name())

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        if self.why_open() is None:
            results: list[WriteResult] = self._write_by_engine(plan, planner)
        else:
            results = _streams.write(self, plan, planner)
        return done(results)

    def _write_by_engine(self, plan: SavePlan, planner: SavePlanner) -> _Results:
        if self._engine_writer is None:  # a subclass left a step out, or nobody drives the steps
            self._set_up_engine(int(plan.storage_data.prefix.strip("_")))
        written, attachment = self._engine_writer.write(plan.items, planner, as_planned)
        results = _Results(written)
        results.attachment = attachment
        return results

    def _open_engine(self) -> Any:
        return _engine.Writer(os.fspath(self.path), self.engine_options())

    def _set_up_engine(self, rank: int | None = None) -> None:
        role = self._role
        if role is None:
            world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
            rank = self.rank if rank is None else rank
            role = _engine.WriterRole(self.save_id, rank or 0, world, self.is_coordinator, self.use_collectives)
        self._engine_writer = self._open_engine()
        self._engine_writer.set_up(role)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = {each.index: each.storage_data for rank in results for each in rank}
        metadata.storage_meta = self.storage_meta()
        if self.why_open() is not None:  # the data came through streams: there are no checksums
            replaced = self._replaced if self._replaced is not None else self._find_replaced()
            replaced.publish(metadata, self.save_id, self.sync_files)
            self.written = []
            return
        if self._engine_writer is None:
            self._set_up_engine()
        entries, planner_data, extra = _convert.from_metadata(metadata)
        self._engine_writer.finish(entries, planner_data, *_convert.from_results(results), extra)

    def retire_collective(self) -> None:
        """On the coordinator, when each rank has finished a checkpoint of its own: that takes the place of an earlier
        one of all ranks together."""
        if self._engine_writer is not None:
            self._engine_writer.retire_collective()

    def is_published(self) -> bool:
        """Whether the checkpoint of the save that was under way is there."""
        if self._engine_writer is not None:
            there: bool = self._engine_writer.is_published()
            return there
        return self._find_replaced().is_published(self.save_id)

    def abandon(self) -> None:
        """After a save that failed: what this rank wrote goes."""
        if self._engine_writer is not None:
            self._engine_writer.abandon()
            self._engine_writer = None
        names, self.written = self.written, []
        with suppress(Exception):  # whether it is published cannot be told then: the files stay
            if names and not self._find_replaced().is_published(self.save_id):
                _streams.remove(self.fs, self.path, names)


class FileSystemReader(_Reader):
    """Reads a checkpoint of a directory, torch's or cairn's: the bytes that are needed, in parallel, verified."""

    runs_nothing = True  # of what is in a description
    _engine_reader: Any = None  # _engine.Reader, when it has read the metadata
    _begun: tuple[Any, Any] | None = None  # such a reader and what it knows, while a load is under way

    def why_open(self) -> str | None:
        if type(self.fs) is not FileSystem:
            return f"the file system is a {type(self.fs).__qualname__}"
        registry = self.transforms.extension_registry
        return (
            None
            if type(registry) is ExtensionRegistry and vars(registry) == vars(ExtensionRegistry())
            else ("there is a registry of extensions")
        )

    def engine_options(self) -> dict[str, Any]:
        return {}

    def _open_engine(self) -> Any:
        return _engine.Reader(os.fspath(self.path), not _objects.is_safe())

    def describe(self) -> bytes:
        """Called by a load on its coordinator: what all ranks have to know of the checkpoint. Nothing, when there is
        none, or none that the engine can read: read_metadata() says what is wrong."""
        if type(self.fs) is not FileSystem:
            return b""
        try:
            described: bytes = self._open_engine().describe()
            return described
        except Error:
            return b""

    def begin(self, description: bytes, role: Any) -> None:
        """Called by a load before its first step."""
        self._begun = None
        if description:
            reader = self._open_engine()
            self._begun = reader, reader.set_up(description, role)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(checkpoint_id)
        self._engine_reader = self._begun = None

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
            if self._begun is not None:
                reader, known = self._begun
                metadata = _convert.to_metadata(known, unpickle)
                self._engine_reader = reader
            elif type(self.fs) is FileSystem and self.fs.exists(path):
                reader = _engine.Reader(os.fspath(self.path), not _objects.is_safe())
                metadata = _convert.to_metadata(reader.metadata(rank or 0), unpickle)
                self._engine_reader = reader
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

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        own = self.why_open() is None and self._engine_reader is not None
        own = own and type(self)._slice_file is _Reader._slice_file
        with _objects.guarded(planner):
            try:
                read = own and self._engine_reader.read(plan.items, planner, self.storage_data)
            except Error as error:
                if error.code != "unsupported":
                    raise
                read = False  # an item that only torch can read
            if not read:
                super().read_data(plan, planner)
        return done(None)
