"""Checkpoints in a directory, or wherever a file system of Python's leads: torch's FileSystemWriter and
FileSystemReader on cairn's engine.

Where `save` and `load` are native, these objects only carry the options. Otherwise (a planner of the user's) their
steps hand whole plans to the engine.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint import filesystem as _torchs
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.filesystem import (
    CURRENT_DCP_VERSION,
    FileSystem,
    FileSystemBase,
    SerializationFormat,
    _metadata_fn,
    _StorageWriterTransforms,
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
from .._url_files import UrlFiles, is_url
from . import _convert, _objects, _places
from ._tensors import as_planned

__all__ = ["FileSystem", "FileSystemBase", "FileSystemReader", "FileSystemWriter", "SerializationFormat"]


def __getattr__(name: str) -> Any:
    return getattr(_torchs, name)


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def as_text(path: Any) -> Any:
    """A path of bytes as Python's functions for paths take it, which torch's classes know; anything else as it is."""
    return os.fsdecode(path) if isinstance(path, bytes) else path


def shown(path: Any) -> str:
    """For errors, whatever its bytes."""
    return os.fsencode(path).decode(errors="replace")


def with_path_as_text(init: Any) -> Any:
    """torch's, under its signature, for paths that are bytes too."""

    @functools.wraps(init)
    def __init__(self: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        init(self, as_text(path), *args, **kwargs)
        _find_url(self, path)

    return __init__


def _find_url(storage: Any, path: Any) -> None:
    """torch's classes make a path of whatever they are given."""
    if is_url(path):
        storage.fs, storage.path = UrlFiles(), path


class _Results(list[WriteResult]):
    """A rank's WriteResults, and the engine's checksums of its files beside them."""

    attachment: bytes = b""


class _AtPath:
    """What writer and reader share: where they are."""

    fs: Any
    path: Any

    def why_open(self) -> str | None:
        """Why the engine cannot do this on its own; None when it can."""
        return None

    def is_local(self) -> bool:
        """Whether the engine finds the place by its path, as soon as it needs it and in a step that all ranks share."""
        return _places.local_path(self.fs, self.path) is not None

    def engine_path(self) -> str:
        return str(os.fspath(_places.local_path(self.fs, self.path) or self.path))

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(as_text(checkpoint_id))  # type: ignore[misc]
        _find_url(self, checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return is_url(checkpoint_id) or bool(super().validate_checkpoint_id(checkpoint_id))  # type: ignore[misc]


class FileSystemWriter(_AtPath, _Writer):
    """Writes a checkpoint into a directory, atomically: readers see the old one or the new one, whole.

    The arguments are torch's. `thread_count` is how many files a rank writes at once (1, the default, leaves
    that to the engine); `per_thread_copy_ahead` has no meaning here.
    """

    __init__ = with_path_as_text(_Writer.__init__)
    is_coordinator = True
    _role: Any = None  # _engine.WriterRole: who this rank is in the save that is under way
    _engine_writer: Any = None  # _engine.Writer, from then on

    # What the engine needs to do all by itself.

    def engine_options(self) -> _engine.SaveOptions:
        extensions = self.transforms.extensions
        known = type(self.transforms) is _StorageWriterTransforms and {ZStandard} >= set(map(type, extensions))
        return {
            "files": None if self.is_local() else _engine.Files(self.fs, self.path, create=True),
            "overwrite": self.overwrite,
            "durable": self.sync_files,
            "files_per_rank": self.thread_count if self.thread_count > 1 else 0,
            "file_per_item": not self.single_file_per_rank,
            "transforms": ["zstd" for _ in extensions] if known else [],
            "transform": None if known else _engine.Transforms(self.transforms),
        }

    # The steps of a save, as torch's StorageWriter names them.

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(checkpoint_id)
        self._role = self._engine_writer = None

    def begin(self, role: Any) -> None:
        """Called by a save before its first step: which save it is, and this rank's part in it."""
        self._role, self._engine_writer = role, None
        self.save_id = role.save_id

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)
        self.is_coordinator = is_coordinator
        self._require_format()

    def _require_format(self) -> None:
        if self.serialization_format != SerializationFormat.TORCH_SAVE:
            raise ValueError("FileSystemWriter writes torch_save items; for safetensors use HuggingFaceStorageWriter")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        plan = super().prepare_local_plan(plan)
        self._set_up_engine()  # here the coordinator takes what only one save at a time may have
        return plan

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        if self._engine_writer is None:  # a subclass left a step out, or nobody drives the steps
            self._set_up_engine(int(plan.storage_data.prefix.strip("_")))
        return done(self._write_by_engine(plan, planner))

    def _write_by_engine(self, plan: SavePlan, planner: SavePlanner, encode: Any = as_planned) -> _Results:
        written, attachment = self._engine_writer.write(plan.items, planner, encode)
        results = _Results(written)
        results.attachment = attachment
        return results

    def _open_engine(self) -> Any:
        return _engine.Writer({**self.engine_options(), "files": _engine.Files(self.fs, self.path, create=True)})

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
        return self._engine_writer is not None and bool(self._engine_writer.is_published())

    def abandon(self) -> None:
        """After a save that failed: what this rank wrote goes."""
        if self._engine_writer is not None:
            self._engine_writer.abandon()
            self._engine_writer = None


class FileSystemReader(_AtPath, _Reader):
    """Reads a checkpoint of a directory, torch's or cairn's: the bytes that are needed, in parallel, verified."""

    __init__ = with_path_as_text(_Reader.__init__)
    runs_nothing = True  # of what is in a description
    _engine_reader: Any = None  # _engine.Reader, when it has read the metadata
    _begun: tuple[Any, Any] | None = None  # such a reader and what it knows, while a load is under way

    def engine_options(self) -> _engine.LoadOptions:
        return {
            "files": None if self.is_local() else self._files(),
            "transform": _engine.Transforms(self.transforms),
            "follow_links": not _objects.is_safe(),  # as torch does, unless the checkpoint is a stranger's
        }

    def _files(self) -> _engine.Files:
        return _engine.Files(self.fs, self.path, follow_links=not _objects.is_safe())

    def _open_engine(self) -> Any:
        return _engine.Reader({**self.engine_options(), "files": self._files()})

    def describe(self) -> bytes:
        """Called by a load on its coordinator: what all ranks have to know of the checkpoint. Nothing, when there is
        none, or none that the engine can read: read_metadata() says what is wrong."""
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

    def end(self) -> None:
        """Called by a load when it is over: what is read then is read anew."""
        self._begun = None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(checkpoint_id)
        self._engine_reader = self._begun = None

    def _opened(self, rank: int | None = None) -> tuple[Any, Any]:
        """A reader, and what it knows of the checkpoint."""
        if self._begun is not None:
            return self._begun
        reader = self._open_engine()
        return reader, reader.metadata(rank or 0)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The checkpoint's description. Nothing that is in the file is run: the engine reads it, and what is none of
        DCP's own becomes plain data and dataclasses derived from torch's, or is refused. Safe objects leave out what a
        planner of the user's left there and refuse the rest."""
        rank = kwargs.get("rank")
        name = _metadata_fn if rank is None else f"__{rank}{_metadata_fn}"
        path = self.fs.concat_path(self.path, name)

        def bytes_of_file() -> bytes:
            with self.fs.create_stream(path, "rb") as stream:
                read: bytes = stream.read()
                return read

        file, known = shown(path), None
        try:
            self._engine_reader, known = self._opened(rank)
            metadata = _convert.to_metadata(known, file)
        except Error as error:
            if error.code != "unsupported":
                raise
            if _objects.is_safe():
                message = f"{file} holds what only unpickling could read, refused with safe=True: {error}"
                raise make_error("unsupported", message) from None
            if known is not None:
                raise
            self._engine_reader = None
            metadata = _engine.object_of_pickle(bytes_of_file(), file)  # of classes derived from DCP's own
            if not isinstance(metadata, Metadata):
                raise
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        assert metadata.storage_meta is not None
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        reader = self._engine_reader
        own = reader is not None and type(self)._slice_file is _Reader._slice_file
        with _objects.guarded(planner):
            if not own or not reader.read(plan.items, planner, self.storage_data):
                super().read_data(plan, planner)  # from places that the engine did not find, or the caller made
        return done(None)
