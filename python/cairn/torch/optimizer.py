"""The optimizer's part of a checkpoint, of which every rank reads its own share and no more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata
from torch.distributed._shard.sharded_tensor.metadata import TensorProperties as ShardTensorProperties
from torch.distributed._shard.sharded_tensor.shard import Shard
from torch.distributed.checkpoint._nested_dict import unflatten_state_dict
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.optimizer import _alloc_tensor, _gen_rank_device, _is_nested_tensor
from torch.distributed.checkpoint.planner import LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.distributed.tensor import DTensor

from .. import Error
from . import _objects
from ._tensors import place_of_dtensor
from .state_dict_loader import _load_state_dict

__all__ = ["load_sharded_optimizer_state_dict"]

_PARAMETER_STEP = 2  # of a path: optimizer / state / net.0.weight / exp_avg


def load_sharded_optimizer_state_dict(
    model_state_dict: dict[str, Any],
    optimizer_key: str,
    storage_reader: StorageReader,
    planner: LoadPlanner | None = None,
) -> dict[str, Any]:
    """The entries of a checkpoint below `optimizer_key`, as a new state: tensors of one element and objects whole,
    other tensors cut.

    They are cut by rows over the default group into `ShardedTensor`s; like their parameter, where the model's state
    has a `DTensor` of that name; and for a model with nested `ShardedTensor`s (FSDP over TP) by rows over the inner
    group within the part of the outer one. Any number of ranks may have saved them. `planner` is used when no
    `ShardedTensor` is nested.

    >>> state = cairn.torch.load_sharded_optimizer_state_dict(
    ...     model.state_dict(), "optimizer", cairn.torch.FileSystemReader("run/step-7"))
    """
    if not dist.is_initialized():
        raise RuntimeError(
            "load_sharded_optimizer_state_dict cuts tensors over the ranks of a process group: "
            "call torch.distributed.init_process_group first"
        )
    _objects.require_safe_reader(storage_reader)
    metadata = storage_reader.read_metadata()
    cuts = _Cuts(model_state_dict)
    state: dict[str, Any] = {}
    destinations: dict[str, Any] = {}
    for name, parameter, stored in _entries(metadata, optimizer_key):
        if isinstance(stored, BytesStorageMetadata):
            destinations[name] = "<bytes_io>"
            continue
        state[name], destinations[name] = cuts.place(name, parameter, stored)
    _load_state_dict(destinations, storage_reader, planner=None if cuts.inner_group is not None else planner)
    paths = {name: metadata.planner_data[name] for name in destinations}
    return unflatten_state_dict({name: state.get(name, value) for name, value in destinations.items()}, paths)


def _entries(metadata: Metadata, key: str) -> Iterator[tuple[str, Any, Any]]:
    """(name, name of its parameter, what is stored) for the optimizer's entries."""
    paths = metadata.planner_data
    if not isinstance(paths, dict):
        raise Error(
            "the checkpoint does not say which of its entries are the optimizer's: it was saved by a planner that "
            "leaves no paths; load it by names with load()"
        )
    found = [name for name in metadata.state_dict_metadata if name in paths and paths[name][0] == key]
    if not found:
        there = sorted({repr(path[0]) for path in paths.values()})
        raise KeyError(f"nothing in the checkpoint begins with {key!r}; there are: {', '.join(there)}")
    for name in found:
        path = paths[name]
        parameter = path[_PARAMETER_STEP] if len(path) > _PARAMETER_STEP else None
        yield name, parameter, metadata.state_dict_metadata[name]


class _Displaced:
    """The rank's shards of a tensor, at other offsets than the ShardedTensor they belong to says."""

    def __init__(self, size: torch.Size, pieces: Sequence[tuple[Sequence[int], torch.Tensor]]) -> None:
        self._size = size
        self._pieces = pieces

    def size(self) -> torch.Size:
        return self._size

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [ChunkStorageMetadata(torch.Size(offsets), tensor.size()) for offsets, tensor in self._pieces]

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        return next(tensor for offsets, tensor in self._pieces if torch.Size(offsets) == index.offset)


class _Cuts:
    """How the ranks cut the state of each parameter."""

    def __init__(self, model_state_dict: dict[str, Any]) -> None:
        self._dtensors = {name: value for name, value in model_state_dict.items() if isinstance(value, DTensor)}
        self._outer: dict[str, Shard] = {}  # the shard that holds an inner ShardedTensor
        self.inner_group: Any | None = None
        for name, value in model_state_dict.items():
            if not _is_nested_tensor(value):
                continue
            shard = value.local_shards()[0]
            if len(value.local_shards()) != 1:
                raise AssertionError("Cannot handle ST with multiple shards")
            self._outer[name] = shard
            self.inner_group = shard.tensor._process_group
        self._device = dist.distributed_c10d._get_pg_default_device(self.inner_group)

    def place(self, name: str, parameter: Any, stored: TensorStorageMetadata) -> tuple[Any, Any]:
        """(what the caller gets, what is loaded into) for one entry: two names for the same memory."""
        if stored.size.numel() == 1:
            whole = self._memory(stored, stored.size)
            return whole, whole
        if parameter in self._dtensors and self._dtensors[parameter].dim() == len(stored.size):
            like = self._like_dtensor(name, self._dtensors[parameter], stored)
            return like, like
        if self.inner_group is None:
            rows = self._by_rows(stored, stored.size, dist.group.WORLD, keep_empty=False)
            return rows, rows
        shard = self._outer.get(parameter)
        begin = [0] * len(stored.size) if shard is None else shard.metadata.shard_offsets
        sizes = stored.size if shard is None else torch.Size(shard.metadata.shard_sizes)
        _require_inside(name, parameter, begin, sizes, stored.size)
        rows = self._by_rows(stored, sizes, self.inner_group, keep_empty=True)
        pieces = [
            ([a + b for a, b in zip(each.metadata.shard_offsets, begin)], each.tensor)
            for each in rows.local_shards()
            if each.tensor.numel() > 0
        ]
        return rows, _Displaced(stored.size, pieces)

    def _memory(self, stored: TensorStorageMetadata, size: Sequence[int]) -> torch.Tensor:
        pin = stored.properties.pin_memory and self._device.type == "cpu" and torch.cuda.is_available()
        return _alloc_tensor(replace(stored.properties, pin_memory=pin), size, self._device.type)

    def _like_dtensor(self, name: str, parameter: DTensor, stored: TensorStorageMetadata) -> DTensor:
        if parameter.shape != stored.size:
            raise ValueError(
                f"the state {name!r} is stored with shape {tuple(stored.size)} and its parameter has "
                f"{tuple(parameter.shape)}: the model is not the one that was saved"
            )
        sizes, _ = place_of_dtensor(parameter)
        return DTensor.from_local(
            self._memory(stored, sizes),
            parameter.device_mesh,
            parameter.placements,
            run_check=False,
            shape=parameter.shape,
            stride=parameter.stride(),
        )

    def _by_rows(self, stored: TensorStorageMetadata, size: torch.Size, group: Any, keep_empty: bool) -> ShardedTensor:
        """A ShardedTensor over a group, in parts as torch.chunk makes them, made without a word to the others."""
        ranks = dist.get_process_group_ranks(group)
        length = math.ceil(size[0] / len(ranks))
        shards: list[Any] = []  # ShardMetadata, each with a placement
        for i, rank in enumerate(ranks):
            rows = min(length, max(size[0] - length * i, 0))
            if rows > 0 or keep_empty:
                offsets = [length * i] + [0] * (len(size) - 1)
                shards.append(
                    ShardMetadata(
                        offsets, [rows, *size[1:]], f"rank:{rank}/{_gen_rank_device(rank, self._device.type)}"
                    )
                )
        me = dist.get_rank()
        mine = [Shard(self._memory(stored, each.shard_sizes), each) for each in shards if each.placement.rank() == me]
        properties = stored.properties
        described = ShardTensorProperties(
            dtype=properties.dtype,
            layout=properties.layout,
            requires_grad=properties.requires_grad,
            memory_format=properties.memory_format,
            pin_memory=bool(mine) and mine[0].tensor.is_pinned(),
        )
        return ShardedTensor._init_from_local_shards_and_global_metadata(
            mine, ShardedTensorMetadata(shards, size, described), process_group=group
        )


def _require_inside(name: str, parameter: Any, begin: Sequence[int], sizes: Sequence[int], stored: torch.Size) -> None:
    fits = len(begin) == len(stored) and all(at + n <= whole for at, n, whole in zip(begin, sizes, stored))
    if not fits:
        raise ValueError(
            f"the state {name!r} is stored with shape {tuple(stored)}, which does not hold this rank's part of the "
            f"parameter {parameter!r} ({tuple(sizes)} at {tuple(begin)}): the model is not the one that was saved"
        )
