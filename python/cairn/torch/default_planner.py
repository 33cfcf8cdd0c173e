"""The default planners: torch's own, which `save` and `load` recognise.

As they stand, nothing here runs but the constructors: the whole of the planning happens in C++. The methods serve
subclasses and whoever calls them.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.checkpoint import default_planner as _torchs
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._sharded_tensor_utils import _flatten_sharded_tensors

# Taken now: cairn.torch.install() puts the classes here in their place.
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner as _LoadPlanner
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner as _SavePlanner
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner as _EmptyPlanner
from torch.distributed.checkpoint.default_planner import (
    create_default_global_load_plan,
    create_default_global_save_plan,
    create_default_local_load_plan,
    create_default_local_save_plan,
)
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner

from ._tensors import DTensor, refuse_partial
from .planner_helpers import _compare_save_plans, _init_state_dict

__all__ = [
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "create_default_global_load_plan",
    "create_default_global_save_plan",
    "create_default_local_load_plan",
    "create_default_local_save_plan",
]


def __getattr__(name: str) -> Any:
    return getattr(_torchs, name)


class DefaultSavePlanner(_SavePlanner):
    """Plans a save as DCP does. Override `lookup_object` or `transform_object` and the planning stays in C++.

    >>> class Half(DefaultSavePlanner):
    ...     def transform_object(self, write_item, object):
    ...         value = super().transform_object(write_item, object)
    ...         return value.half() if isinstance(value, torch.Tensor) else value
    """

    _pending_plan: SavePlan | None = None

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        super().set_up_planner(state_dict, storage_meta, is_coordinator)
        for name, value in self.state_dict.items():
            if DTensor is not None and isinstance(value, DTensor):
                refuse_partial(value, name)

    # Remembered plans, as torch remembers them. A change of dtype or of a path is a change here.

    def create_local_plan(self) -> SavePlan:
        caches, self._enable_plan_caching = self._enable_plan_caching, False
        try:
            plan = super().create_local_plan()
        finally:
            self._enable_plan_caching = caches
        if not caches:
            return plan
        cached = SavePlanner._cached_save_plan.get(self._cached_plans_key)
        if cached is not None and _compare_save_plans(plan, cached):
            self._pending_plan = None
            return SavePlan([], usable=False)
        # Remembered when the save has come so far that the plan is finished.
        self._pending_plan = plan
        return plan

    def _create_global_plan_with_caching(
        self, all_plans: list[SavePlan]
    ) -> tuple[list[SavePlan], list[SavePlan], Metadata]:
        """(what each rank is told: its new part of the global plan or "as last time", the global plan, metadata)."""
        key = self._cached_plans_key
        before = SavePlanner._cached_global_plan.get(key)
        unchanged = SavePlan([], usable=False)
        if before is not None and not any(plan.usable for plan in all_plans):
            return [unchanged] * len(all_plans), before, SavePlanner._cached_metadata[key]
        if before is not None:
            known = SavePlanner._cached_all_plans[key]
            all_plans = [new if new.usable else old for old, new in zip(known, all_plans)]
        plans, metadata = self._create_global_plan(all_plans)
        SavePlanner._cached_all_plans[key] = all_plans
        SavePlanner._cached_global_plan[key] = plans
        SavePlanner._cached_metadata[key] = metadata
        if before is None:
            return plans, plans, metadata
        told = [unchanged if _compare_save_plans(old, new) else new for old, new in zip(before, plans)]
        return told, plans, metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        if self._enable_plan_caching and self._pending_plan is not None:
            SavePlanner._cached_save_plan[self._cached_plans_key] = self._pending_plan
            self._pending_plan = None
        return super().finish_plan(new_plan)


class DefaultLoadPlanner(_LoadPlanner):
    """Plans a load as DCP does. Override `lookup_tensor` or `transform_tensor` to load into other memory."""

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        # torch's own would make None of objects that are no plain data before they are loaded.
        _init_state_dict(state_dict)
        self.original_state_dict = state_dict
        if self.flatten_sharded_tensors:
            state_dict = _flatten_sharded_tensors(state_dict)
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = state_dict
        self.metadata = metadata
        self.is_coordinator = is_coordinator


class _EmptyStateDictLoadPlanner(_EmptyPlanner, DefaultLoadPlanner):
    """Builds the state from the checkpoint: all of it, or what `keys` name (flat names or the begin of paths)."""

    def __init__(self, keys: set[str] | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(keys, *args, **kwargs)  # type: ignore[no-untyped-call]

    def _should_include_key(self, key: str, metadata: Metadata) -> bool:
        if key not in (metadata.planner_data or {}):  # a storage may know no paths
            return self.keys is None or key in self.keys
        wanted: bool = super()._should_include_key(key, metadata)
        return wanted
