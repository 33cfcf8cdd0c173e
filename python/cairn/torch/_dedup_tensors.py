"""The older rule of dedup: the lowest rank that holds an item writes it."""

from __future__ import annotations

from torch.distributed.checkpoint.planner import SavePlan

from ._dedup_save_plans import dedup_save_plans


def dedup_tensors(all_plans: list[SavePlan]) -> list[SavePlan]:
    return dedup_save_plans(all_plans, save_to_lowest_rank=True)
