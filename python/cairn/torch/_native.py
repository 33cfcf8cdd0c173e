"""Saves and loads that the engine does all by itself, from the first byte to the last without the GIL."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from .. import _engine
from . import _convert, _dist, _objects, _progress, _tensors, _ways, planner_helpers
from ._errors import as_checkpoint_exception
from ._stateful import Failed, made
from .default_planner import DefaultSavePlanner
from .filesystem import FileSystemReader, shown


class Prepared(NamedTuple):
    """A state as the engine sees it, and the question to the planner's own hooks, if it has any."""

    state: Any
    resolve: Any | None = None
    error: BaseException | None = None  # why there is no state


# The engine's planners, which remember plans: kept from save to save, as torch keeps its caches, by the class
# of the planner; and by group, because what a plan means depends on who else makes it.
_planners: dict[Any, Any] = {}


def engine_planner(
    planner: Any | None,
    prepared: Prepared,
    process_group: Any,
    no_dist: bool,
    use_collectives: bool,
    may_cache: bool = True,
) -> Any:
    """The engine's planner for one save. A cached one serves one save at a time: not saves in the background,
    of which the next begins before the last has ended. What Python makes of a tensor it makes of a whole one, so
    then none is cut to be written faster."""
    flatten = planner is None or planner.flatten_state_dict
    lowest = planner is not None and planner.dedup_save_to_lowest_rank
    split = prepared.resolve is None and not prepared.state.has_pieces()
    caches = may_cache and planner is not None and planner._enable_plan_caching and prepared.error is None
    if not caches:
        made = _engine.SavePlanner(flatten, lowest, False, not use_collectives, split)
        if prepared.error is not None:
            made.fail(prepared.error)
        return made
    key = (type(planner), flatten, lowest, use_collectives, no_dist, id(process_group), split)
    if key not in _planners:
        _planners[key] = _engine.SavePlanner(flatten, lowest, True, not use_collectives, split)
    return _planners[key]


class LazyMetadata(Metadata):
    """A checkpoint's Metadata, which becomes torch's very own when somebody looks at it.

    On the coordinator it is what was saved; on the other ranks, and after a load, it is read from the
    checkpoint, and an error when that is no longer the one of `save_id`.
    """

    def __init__(self, storage: Any, save_id: str | None = None, engine: Any | None = None, rank: int = 0) -> None:
        # Where the storage leads now: it may be used for the next save before somebody looks.
        _fields(self).update(fs=storage.fs, path=storage.path, save_id=save_id, engine=engine, rank=rank)

    def _become(self) -> Metadata:
        known = _fields(self)
        engine = known["engine"] or self._read(known)
        made = vars(_convert.to_metadata(engine, shown(known["fs"].concat_path(known["path"], ".metadata"))))
        known.clear()
        known.update(made)
        self.__class__ = Metadata  # type: ignore[assignment]
        return self

    @staticmethod
    def _read(known: dict[str, Any]) -> Any:
        files = _engine.Files(known["fs"], known["path"], follow_links=not _objects.is_safe())
        engine = _engine.Reader({"files": files}).metadata(known["rank"])
        if known["save_id"] not in (None, engine.save_id):
            raise RuntimeError(f"the checkpoint in {known['path']} has been replaced since this save")
        return engine

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return vars(self._become())

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":
            return object.__setattr__(self, name, value)
        setattr(self._become(), name, value)
        return None

    def __eq__(self, other: object) -> bool:
        return self._become() == (other._become() if isinstance(other, LazyMetadata) else other)

    def __repr__(self) -> str:
        return repr(self._become())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._become().__reduce_ex__(protocol)

    __hash__ = None  # type: ignore[assignment]


def _fields(metadata: Metadata) -> dict[str, Any]:
    """Its own dict, whatever its class says of `__dict__`."""
    fields: dict[str, Any] = Metadata.__dict__["__dict__"].__get__(metadata)
    return fields


for _field in dataclasses.fields(Metadata):
    _own = property(lambda self, name=_field.name: getattr(self._become(), name))  # type: ignore[misc]
    setattr(LazyMetadata, _field.name, _own)


def save(
    state_dict: dict[str, Any],
    writer: Any,
    process_group: Any,
    coordinator_rank: int,
    no_dist: bool,
    planner: Any | None,
    use_collectives: bool,
    report: dict[str, Any],
) -> Metadata:
    path = os.fspath(writer.path)
    options, state_dict = options_of(writer, state_dict, no_dist)
    options.update(_progress.engine_options())
    options.update(coordinator_rank=coordinator_rank, use_collectives=use_collectives)
    group, about = _dist.options_of(no_dist, process_group)
    options.update(about)
    prepared = prepare(state_dict, planner)
    engine = engine_planner(planner, prepared, process_group, no_dist, use_collectives)
    with as_checkpoint_exception("write"):
        saved = _engine.save(
            prepared.state, engine, writer.engine_path(), group, _tensors.encode, prepared.resolve, options
        )
    return finished(writer, path, saved, report)


def options_of(storage: Any, state_dict: Any, alone: bool) -> tuple[Any, Any]:
    """(what the engine is told of the storage, the state). Who cannot reach the storage has no state: all hear why."""
    options = made(storage.engine_options, alone)
    return ({}, options) if isinstance(options, Failed) else (options, state_dict)


def finished(writer: Any, path: str, saved: Any, report: dict[str, Any]) -> Metadata:
    writer.save_id = saved["save_id"]
    metadata = saved.pop("metadata")
    report.update(saved)
    return LazyMetadata(writer, saved["save_id"], metadata)


def prepare(state_dict: Any, planner: Any | None, keep: bool = False) -> Prepared:
    """What can fail on one rank alone fails in the save itself, on all ranks. With `keep` the state is as it is now,
    whatever becomes of its objects."""

    def make() -> Prepared:
        if isinstance(state_dict, Failed):
            raise state_dict.error
        flatten = planner is None or planner.flatten_state_dict
        _tensors.wait_for_streams()
        state = _engine.State(dict(state_dict), _tensors.for_saving, _tensors.for_saving, flatten)
        if keep:
            state.freeze(_tensors.encode)
        return Prepared(state, _hooks_of(planner, state_dict) if _ways.save_hooks(planner) else None)

    prepared: Prepared | Failed = made(make)
    if isinstance(prepared, Failed):
        return Prepared(_engine.State({}, _tensors.for_saving, None), error=prepared.error)
    return prepared


def _hooks_of(planner: Any, state_dict: dict[str, Any]) -> Any:
    planner.set_up_planner(state_dict)
    finds_itself = bool(_ways.overridden(planner, DefaultSavePlanner, "lookup_object"))

    def resolve(fqn: str, offsets: tuple[int, ...] | None, sizes: Any) -> Any:  # both are None for an object
        if offsets is None:
            item = WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)
            return planner.resolve_data(item).getvalue()
        index = MetadataIndex(fqn, torch.Size(offsets))
        whole = planner.lookup_object(index)
        piece = _piece(whole, offsets, sizes)
        item = _tensor_item(index, sizes, piece, whole)
        made = planner.transform_object(item, piece)
        if made is piece and not finds_itself:
            return None  # the engine has it
        return _tensors.as_planned(item, made)

    return resolve


def _piece(tensor: torch.Tensor, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> torch.Tensor:
    """The part the engine asks for: all of it, or a part of a tensor that was split to be written faster."""
    if tuple(tensor.shape) == tuple(sizes):
        return tensor
    for dim, (offset, size) in enumerate(zip(offsets, sizes)):
        tensor = tensor.narrow(dim, offset, size)
    return tensor


def _tensor_item(index: MetadataIndex, sizes: Any, piece: torch.Tensor, whole: torch.Tensor) -> WriteItem:
    chunk = ChunkStorageMetadata(index.offset, torch.Size(sizes))  # type: ignore[arg-type]
    data = TensorWriteData(chunk, TensorProperties.create_from_tensor(piece), whole.size())
    kind = WriteItemType.TENSOR if whole.size() == chunk.sizes else WriteItemType.SHARD
    return WriteItem(index, kind, tensor_data=data)


def load(
    state_dict: dict[str, Any],
    reader: Any,
    process_group: Any,
    coordinator_rank: int,
    no_dist: bool,
    planner: Any | None,
    report: dict[str, Any],
) -> None:
    """Fills the tensors of the state in place and replaces its objects. What fails on one rank fails on all."""
    options: Any = {
        "coordinator_rank": coordinator_rank,
        **_progress.engine_options(),
    }
    flatten = True
    if planner is not None:
        flatten = planner.flatten_state_dict
        options.update(allow_partial=planner.allow_partial_load, flatten=flatten)
    group, about = _dist.options_of(no_dist, process_group)
    options.update(about)
    reading, state_dict = options_of(reader, state_dict, no_dist)
    options.update(reading)
    path = reader.engine_path()
    destinations = _tensors.Destinations()

    def make() -> Any:
        if isinstance(state_dict, Failed):
            raise state_dict.error
        planner_helpers._init_state_dict(state_dict)
        _tensors.wait_for_streams()
        return _engine.State(state_dict, destinations, destinations, flatten)

    state = made(make)
    failure = state.error if isinstance(state, Failed) else None
    if failure is not None:
        state = _engine.State({}, destinations, None)

    def bring_home(archives: dict[str, bytes]) -> None:
        objects = {name: _objects.decode(archive) for name, archive in archives.items()}
        destinations.fill(objects)
        for name, value in objects.items():
            state.put(name, value)

    with as_checkpoint_exception("read"):
        read = _engine.load(state, path, group, options, failure, bring_home)
    if planner is not None and type(reader) is FileSystemReader:
        planner.metadata = LazyMetadata(reader, rank=0 if no_dist else _dist.rank_in(process_group))
    report.update(read)
