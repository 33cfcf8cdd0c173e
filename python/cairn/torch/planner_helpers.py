"""torch's helpers of planners: its own, but for what cairn does better."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint import planner_helpers as _torchs
from torch.distributed.checkpoint.planner import SavePlan, WriteItem
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from ._tensors import DTensor

__all__ = ["create_read_items_for_chunk_list"]


def __getattr__(name: str) -> Any:
    return getattr(_torchs, name)


def _compare_save_plans(plan: SavePlan, other_plan: SavePlan) -> bool:
    """Whether two plans write the same. Unlike torch's, dtypes and paths count: a changed one is a change."""
    if plan.usable != other_plan.usable or len(plan.items) != len(other_plan.items):
        return False
    if plan.planner_data != other_plan.planner_data:
        return False
    return all(map(_same_item, plan.items, other_plan.items))


def _same_item(a: WriteItem, b: WriteItem) -> bool:
    return a.index == b.index and a.index.index == b.index.index and a.type == b.type and a.tensor_data == b.tensor_data


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

    def visit(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _materialize(value)
        if isinstance(value, dict):
            for key in list(value):
                value[key] = visit(value[key])
            return value
        if type(value) in (list, tuple):
            return type(value)(map(visit, value))
        return value

    return visit(state_dict)
