"""torch's helpers of planners: its own, but for what cairn does better."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import planner_helpers as _torchs
from torch.distributed.checkpoint.planner import SavePlan, WriteItem

# Taken now: cairn.torch.install() puts the function below in its place.
from torch.distributed.checkpoint.planner_helpers import _init_state_dict as _init_state_dict_of_torch
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

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


def _materialize(value: Any) -> Any:
    """A meta tensor with memory; everything else as it is."""
    if getattr(value, "device", None) != torch.device("meta"):
        return value
    if not dist.is_initialized():
        return torch.empty_like(value, device="cpu")
    alone = {"": value}
    _init_state_dict_of_torch(alone)  # on the device of the default group, with what a DTensor says of itself
    return alone[""]


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
