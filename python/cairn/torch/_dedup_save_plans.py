"""Which of the ranks that hold an item writes it: decided by the engine, by DCP's rule."""

from __future__ import annotations

import dataclasses

from torch.distributed.checkpoint.planner import SavePlan

from .. import _engine
from ._convert import from_write_item


def dedup_save_plans(all_plans: list[SavePlan], save_to_lowest_rank: bool = False) -> list[SavePlan]:
    """Leaves every item in the plan of one rank: the one with the least to write so far, or the lowest."""
    rows = [[from_write_item(item) for item in plan.items] for plan in all_plans]
    kept = _engine.dedup(rows, save_to_lowest_rank)
    return [
        dataclasses.replace(plan, items=[plan.items[i] for i in positions]) for plan, positions in zip(all_plans, kept)
    ]
