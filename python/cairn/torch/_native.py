"""Saves and loads that the engine does all by itself, from the first byte to the last without the GIL."""

from __future__ import annotations

import os
from typing import Any, Optional

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from .. import _engine
from . import _convert, _dist, _objects, _progress, _streams, _tensors, _ways, planner_helpers
from ._errors import as_checkpoint_exception
from .filesystem import FileSystemReader

# The engine's planners, which remember plans: kept from save to save, as torch keeps its caches, by the class
# of the planner; and by group, because what a plan means depends on who else makes it.
_planners: dict[Any, Any] = {}


def engine_planner(
    planner: Optional[Any], process_group: Any, no_dist: bool, use_collectives: bool, may_cache: bool = True
) -> Any:
    """The engine's planner for one save. A cached one serves one save at a time: not saves in the background,
    of which the next begins before the last has ended."""
    flatten = planner is None or planner.flatten_state_dict
    lowest = planner is not None and planner.dedup_save_to_lowest_rank
    caches = may_cache and planner is not None and planner._enable_plan_caching
    if not caches:
        return _engine.SavePlanner(flatten, lowest, False, not use_collectives)
    key = (type(planner), flatten, lowest, use_collectives, no_dist, id(process_group))
    if key not in _planners:
        _planners[key] = _engine.SavePlanner(flatten, lowest, True, not use_collectives)
    return _planners[key]


class LazyMetadata(Metadata):
    """A checkpoint's Metadata, made into torch's objects when somebody looks at it.

    On the coordinator it is what was saved; on the other ranks, and after a load, it is read from the
    checkpoint, and an error when that is no longer the one of `save_id`.
    """

    _FIELDS = ("state_dict_metadata", "planner_data", "storage_data", "storage_meta", "version")

    def __init__(self, path: str, save_id: Optional[str] = None, engine: Optional[Any] = None, rank: int = 0) -> None:
        self.__dict__.update(_path=path, _save_id=save_id, _engine=engine, _rank=rank)

    def _made(self) -> Metadata:
        if "_metadata" not in self.__dict__:
            engine = self.__dict__["_engine"] or self._read()
            self.__dict__["_metadata"] = _convert.to_metadata(engine)
        return self.__dict__["_metadata"]

    def _read(self) -> Any:
        reader = _engine.Reader(self.__dict__["_path"], not _objects.is_safe())
        engine = reader.metadata(self.__dict__["_rank"])
        if self.__dict__["_save_id"] not in (None, engine.save_id):
            raise RuntimeError(f"the checkpoint in {self.__dict__['_path']} has been replaced since this save")
        return engine

    def __eq__(self, other: object) -> bool:
        made = other._made() if isinstance(other, LazyMetadata) else other
        return self._made() == made

    def __reduce__(self) -> Any:
        return self._made().__reduce_ex__(2)

    __hash__ = None  # type: ignore[assignment]


def _forward(name: str) -> property:
    return property(
        lambda self: getattr(self._made(), name), lambda self, value: setattr(self._made(), name, value)
    )


for _name in LazyMetadata._FIELDS:
    setattr(LazyMetadata, _name, _forward(_name))


def save(
    state_dict: dict[str, Any],
    writer: Any,
    process_group: Any,
    coordinator_rank: int,
    no_dist: bool,
    planner: Optional[Any],
    use_collectives: bool,
    report: dict[str, Any],
) -> Metadata:
    path = os.fspath(writer.path)
    options = {
        **writer.engine_options(),
        **_progress.engine_options(),
        "coordinator_rank": coordinator_rank,
        "use_collectives": use_collectives,
    }
    group = None
    if not no_dist:
        group = _dist.engine_group(process_group)
        options["deadline"] = _dist.timeout_of(process_group)
    state, resolve = prepare(state_dict, planner)
    engine = engine_planner(planner, process_group, no_dist, use_collectives)
    if use_collectives:
        with as_checkpoint_exception("write"):
            saved = _engine.save(state, engine, path, group, _objects.encode, resolve, options)
    else:
        saved = _engine.save(state, engine, path, group, _objects.encode, resolve, options)
    return finished(writer, path, saved, report)


def finished(writer: Any, path: str, saved: dict[str, Any], report: dict[str, Any]) -> Metadata:
    writer.save_id = saved["save_id"]
    metadata = saved.pop("metadata")
    report.update(saved)
    return LazyMetadata(path, saved["save_id"], metadata)


def prepare(state_dict: dict[str, Any], planner: Optional[Any]) -> tuple[Any, Optional[Any]]:
    """The state as the engine sees it, and the question to the planner's own hooks, if it has any."""
    flatten = planner is None or planner.flatten_state_dict
    _tensors.wait_for_streams()
    state = _engine.State(dict(state_dict), _tensors.for_saving, _tensors.for_saving, flatten)
    return state, _hooks_of(planner, state_dict) if _ways.save_hooks(planner) else None


def _hooks_of(planner: Any, state_dict: dict[str, Any]) -> Any:
    planner.set_up_planner(state_dict)

    def resolve(fqn: str, offsets: Optional[tuple[int, ...]], sizes: Optional[tuple[int, ...]]) -> Any:
        if offsets is None:
            item = WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)
            return planner.resolve_data(item).getvalue()
        whole = planner.lookup_object(MetadataIndex(fqn, torch.Size(offsets)))
        piece = _piece(whole, offsets, sizes)
        item = _tensor_item(fqn, offsets, sizes, piece, whole)
        return _streams.as_planned(item, planner.transform_object(item, piece))

    return resolve


def _piece(tensor: torch.Tensor, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> torch.Tensor:
    """The part the engine asks for: all of it, or a part of a tensor that was split to be written faster."""
    if tuple(tensor.shape) == tuple(sizes):
        return tensor
    for dim, (offset, size) in enumerate(zip(offsets, sizes)):
        tensor = tensor.narrow(dim, offset, size)
    return tensor


def _tensor_item(fqn: str, offsets: Any, sizes: Any, piece: torch.Tensor, whole: torch.Tensor) -> WriteItem:
    chunk = ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
    data = TensorWriteData(chunk, TensorProperties.create_from_tensor(piece), whole.size())
    kind = WriteItemType.TENSOR if whole.size() == chunk.sizes else WriteItemType.SHARD
    return WriteItem(MetadataIndex(fqn, chunk.offsets), kind, tensor_data=data)


def load(
    state_dict: dict[str, Any],
    reader: Any,
    process_group: Any,
    coordinator_rank: int,
    no_dist: bool,
    planner: Optional[Any],
    report: dict[str, Any],
) -> None:
    """Fills the tensors of the state in place and replaces its objects."""
    options: dict[str, Any] = {
        "coordinator_rank": coordinator_rank,
        "follow_links": not _objects.is_safe(),  # as torch does, unless the checkpoint is a stranger's
        **_progress.engine_options(),
    }
    flatten = True
    if planner is not None:
        flatten = planner.flatten_state_dict
        options.update(allow_partial=planner.allow_partial_load, flatten=flatten)
    group = None
    if not no_dist:
        group = _dist.engine_group(process_group)
        options["deadline"] = _dist.timeout_of(process_group)
    options.update(reader.engine_options())
    path = os.fspath(reader.path)
    planner_helpers._init_state_dict(state_dict)
    _tensors.wait_for_streams()
    destinations = _tensors.Destinations()
    state = _engine.State(state_dict, destinations, destinations, flatten)
    with as_checkpoint_exception("read"):
        read, archives = _engine.load(state, path, group, options)
    objects = {name: _objects.decode(archive) for name, archive in archives.items()}
    destinations.fill(objects)
    for name, value in objects.items():
        state.put(name, value)
    if planner is not None and type(reader) is FileSystemReader:
        planner.metadata = LazyMetadata(path, rank=0 if no_dist else _dist.rank_in(process_group))
    report.update(read)
