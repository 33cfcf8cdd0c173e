"""Items for torch's objects: what `torch.distributed.checkpoint.planner_helpers` offers, on cairn's engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

from .. import _engine
from ._tensors import DTensor, place_of_dtensor, refuse_partial

# --- what is written ---


def _write_item(fqn: str, kind: WriteItemType, chunk: ChunkStorageMetadata, properties: Any, size: Any) -> WriteItem:
    data = TensorWriteData(chunk=chunk, properties=properties, size=torch.Size(size))
    return WriteItem(index=MetadataIndex(fqn, chunk.offsets), type=kind, tensor_data=data)


def _create_chunk_from_tensor(tensor: torch.Tensor) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size([0] * tensor.dim()), sizes=tensor.size())


def _create_chunk_from_dtensor(tensor: Any) -> ChunkStorageMetadata:
    sizes, offsets = place_of_dtensor(tensor)
    return ChunkStorageMetadata(offsets=torch.Size(offsets), sizes=torch.Size(sizes))


def _chunk_for_shard(shard_md: Any) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size(shard_md.shard_offsets), torch.Size(shard_md.shard_sizes))


def _create_write_item_for_tensor(fqn: str, tensor: torch.Tensor) -> WriteItem:
    properties = TensorProperties.create_from_tensor(tensor)
    return _write_item(fqn, WriteItemType.TENSOR, _create_chunk_from_tensor(tensor), properties, tensor.size())


def _create_write_items_for_dtensor(fqn: str, tensor: Any) -> WriteItem:
    properties = TensorProperties.create_from_tensor(tensor.to_local())
    return _write_item(fqn, WriteItemType.SHARD, _create_chunk_from_dtensor(tensor), properties, tensor.size())


def _create_write_item_for_shard(fqn: str, sharded_tensor: ShardedTensor, shard_md: Any) -> WriteItem:
    whole = sharded_tensor.metadata()
    names = ("dtype", "layout", "requires_grad", "memory_format", "pin_memory")
    properties = TensorProperties(**{name: getattr(whole.tensor_properties, name) for name in names})
    return _write_item(fqn, WriteItemType.SHARD, _chunk_for_shard(shard_md), properties, whole.size)


def _create_write_item_for_bytesio(fqn: str, bytes: Any) -> WriteItem:
    return WriteItem(index=MetadataIndex(fqn), type=WriteItemType.BYTE_IO)


def _create_write_items(fqn: str, object: Any) -> list[WriteItem]:
    """The items of one entry on this rank: a piece each, or the object as a whole."""
    if DTensor is not None and isinstance(object, DTensor):
        refuse_partial(object, fqn)
    if hasattr(object, "__create_write_items__"):
        items: list[WriteItem] = object.__create_write_items__(fqn, object)
        return items
    if isinstance(object, ShardedTensor):
        return [_create_write_item_for_shard(fqn, object, shard.metadata) for shard in object.local_shards()]
    if isinstance(object, torch.Tensor):
        return [_create_write_item_for_tensor(fqn, object)]
    return [_create_write_item_for_bytesio(fqn, object)]


def _create_default_metadata_only_plan(state_dict: dict[str, Any]) -> SavePlan:
    """A plan as if this rank held all shards of all tensors, to describe a state without saving it."""
    items: list[WriteItem] = []
    for fqn, value in state_dict.items():
        if DTensor is not None and isinstance(value, DTensor):
            items.append(_create_write_items_for_dtensor(fqn, value))
        elif isinstance(value, ShardedTensor):
            shards = value.metadata().shards_metadata
            items.extend(_create_write_item_for_shard(fqn, value, shard) for shard in shards)
        elif isinstance(value, torch.Tensor):
            items.append(_create_write_item_for_tensor(fqn, value))
        else:
            items.append(_create_write_item_for_bytesio(fqn, value))
    return SavePlan(items)


# --- what is read ---


def _create_read_item_for_byteio(
    dest_index: MetadataIndex, dest_offset: int, storage_index: MetadataIndex, storage_offset: int, length: int
) -> ReadItem:
    return ReadItem(
        type=LoadItemType.BYTE_IO,
        dest_index=dest_index,
        dest_offsets=torch.Size([dest_offset]),
        storage_index=storage_index,
        storage_offsets=torch.Size([storage_offset]),
        lengths=torch.Size([length]),
    )


def _create_read_item_for_tensor(
    dest_index: MetadataIndex,
    dest_offsets: Sequence[int],
    storage_index: MetadataIndex,
    storage_offsets: Sequence[int],
    lengths: Sequence[int],
) -> ReadItem:
    return ReadItem(
        type=LoadItemType.TENSOR,
        dest_index=dest_index,
        dest_offsets=torch.Size(dest_offsets),
        storage_index=storage_index,
        storage_offsets=torch.Size(storage_offsets),
        lengths=torch.Size(lengths),
    )


def create_read_items_for_chunk_list(
    fqn: str, checkpoint_md: TensorStorageMetadata, local_chunks: list[ChunkStorageMetadata]
) -> list[ReadItem]:
    """The parts of the stored chunks that lie in the wanted ones; who overlaps whom is found by the engine."""
    if not local_chunks or not checkpoint_md.chunks:
        return []

    def boxes(chunks: list[ChunkStorageMetadata]) -> list[_engine.Chunk]:
        return [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in chunks]

    items = []
    shared = _engine.reshard(tuple(checkpoint_md.size), boxes(checkpoint_md.chunks), boxes(local_chunks))
    for wanted, stored, dest_offsets, storage_offsets, lengths in shared:
        dest_index = MetadataIndex(fqn, local_chunks[wanted].offsets, wanted)
        storage_index = MetadataIndex(fqn, checkpoint_md.chunks[stored].offsets, stored)
        items.append(_create_read_item_for_tensor(dest_index, dest_offsets, storage_index, storage_offsets, lengths))
    return items


def _create_chunk_list(tensor: Any) -> list[ChunkStorageMetadata]:
    if hasattr(tensor, "__create_chunk_list__"):
        chunks: list[ChunkStorageMetadata] = tensor.__create_chunk_list__()
        return chunks
    if isinstance(tensor, ShardedTensor):
        return [_chunk_for_shard(shard.metadata) for shard in tensor.local_shards()]
    if isinstance(tensor, torch.Tensor):
        return [_create_chunk_from_tensor(tensor)]
    raise ValueError(f"Unsupported Type, expecting one of [Tensor, DTensor, ShardedTensor] ,but got {type(tensor)}")


def _create_read_items(fqn: str, md: Any, obj: Any) -> list[ReadItem]:
    if isinstance(md, BytesStorageMetadata):
        return [_create_read_item_for_byteio(MetadataIndex(fqn), 0, MetadataIndex(fqn), 0, 0)]
    try:
        wanted = _create_chunk_list(obj)
    except ValueError as error:
        raise ValueError(
            f"Invalid checkpoint metadata for {fqn}, expected BytesStorageMetadata but found {type(md)}"
        ) from error
    return create_read_items_for_chunk_list(fqn, md, wanted)


# --- unchanged plans ---


def _compare_save_plans(plan: SavePlan, other_plan: SavePlan) -> bool:
    """Whether two plans write the same. Unlike torch's, dtypes and paths count: a changed one is a change."""
    if plan.usable != other_plan.usable or len(plan.items) != len(other_plan.items):
        return False
    if plan.planner_data != other_plan.planner_data:
        return False
    return all(map(_same_item, plan.items, other_plan.items))


def _same_item(a: WriteItem, b: WriteItem) -> bool:
    return a.index == b.index and a.index.index == b.index.index and a.type == b.type and a.tensor_data == b.tensor_data


def _contains_usable_plan(delta_plans: list[SavePlan]) -> bool:
    return any(plan.usable for plan in delta_plans)


def _merge_delta_local_plans(cached_plans: list[SavePlan], delta_plans: list[SavePlan]) -> list[SavePlan]:
    return [delta if delta.usable else cached for cached, delta in zip(cached_plans, delta_plans)]


# --- meta tensors ---


def _device_for_loading() -> torch.device:
    """Where a meta tensor gets its memory: the current device of the default group."""
    if not dist.is_initialized():
        return torch.device("cpu")
    kind = torch.device(dist.distributed_c10d._get_pg_default_device().type)
    if kind.type == "cpu":
        return kind
    return torch.device(kind.type, torch.get_device_module(kind.type).current_device())


def _materialize(value: Any) -> Any:
    """A meta tensor with memory; everything else as it is."""
    if getattr(value, "device", None) != torch.device("meta"):
        return value
    if isinstance(value, ShardedTensor):
        raise RuntimeError(f"Found unsupported type {type(value)} for meta device loading.")
    device = _device_for_loading()
    if DTensor is None or not isinstance(value, DTensor):
        return torch.empty_like(value, device=device)
    # Shape and stride are said because the parts need not be of one size.
    return DTensor.from_local(
        torch.empty_like(value.to_local(), device=device),
        device_mesh=value.device_mesh,
        placements=value.placements,
        shape=value.size(),
        stride=value.stride(),
    )


def _init_state_dict(state_dict: dict[str, Any]) -> Any:
    """Gives meta tensors memory, in place. Objects of any kind stay what they are (torch makes them None)."""
    return _iterate_state_dict(state_dict, _materialize, _materialize, _materialize)


def _iterate_state_dict(
    iter_object: Any,
    dtensor_func: Callable[[Any], Any],
    sharded_tensor_func: Callable[[Any], Any],
    tensor_func: Callable[[Any], Any],
) -> Any:
    def visit(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if DTensor is not None and isinstance(value, DTensor):
                return dtensor_func(value)
            return sharded_tensor_func(value) if isinstance(value, ShardedTensor) else tensor_func(value)
        if isinstance(value, dict):
            for key in list(value):
                value[key] = visit(value[key])
            return value
        if type(value) in (list, tuple):
            return type(value)(map(visit, value))
        return value

    return visit(iter_object)
