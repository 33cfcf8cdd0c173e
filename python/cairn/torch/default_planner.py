"""The default planners, with torch's names, hooks and data types; the planning itself is the engine's.

`save` and `load` see whether a planner is one of these as it stands. Then nothing here runs but the
constructors: the whole save or load happens in C++. The methods serve subclasses and whoever calls them.
"""

from __future__ import annotations

import dataclasses
import io
import logging
from collections import ChainMap
from typing import Any

import torch
from torch.distributed.checkpoint import _version
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._sharded_tensor_utils import _flatten_sharded_tensors
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.utils import find_state_dict_object

from .. import _engine
from . import _dedup_save_plans as _dedup
from . import _objects
from ._tensors import DTensor
from .planner_helpers import (
    _compare_save_plans,
    _contains_usable_plan,
    _create_default_metadata_only_plan,
    _create_read_items,
    _create_write_items,
    _init_state_dict,
    _merge_delta_local_plans,
)

logger = logging.getLogger("cairn")

__all__ = [
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "create_default_global_load_plan",
    "create_default_global_save_plan",
    "create_default_local_load_plan",
    "create_default_local_save_plan",
]


class DefaultSavePlanner(SavePlanner):
    """Plans a save as DCP does. Override `lookup_object` or `transform_object` and the save stays native.

    >>> class Half(DefaultSavePlanner):
    ...     def transform_object(self, write_item, object):
    ...         value = super().transform_object(write_item, object)
    ...         return value.half() if isinstance(value, torch.Tensor) else value
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        if dedup_replicated_tensors is not None:
            logger.warning(
                "DefaultSavePlanner's `dedup_replicated_tensors` argument has no effect: "
                "replicated tensors are always written once."
            )
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self._enable_plan_caching = enable_plan_caching
        self._cached_plans_key = type(self).__name__
        self._pending_plan: SavePlan | None = None
        self.mappings: dict[str, Any] = {}

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        if self.flatten_sharded_tensors:
            state_dict = _flatten_sharded_tensors(state_dict)
        self.state_dict = state_dict
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> SavePlan:
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            plan = dataclasses.replace(plan, planner_data=self.mappings)
        self.plan = plan
        if not self._enable_plan_caching:
            return plan
        cached = SavePlanner._cached_save_plan.get(self._cached_plans_key)
        if cached is not None and _compare_save_plans(plan, cached):
            self._pending_plan = None
            return SavePlan([], usable=False)
        # Remembered when the save has come so far that the plan is finished.
        self._pending_plan = plan
        return plan

    def _dedup_save_plans(self, all_plans: list[SavePlan]) -> list[SavePlan]:
        return _dedup.dedup_save_plans(all_plans, self.dedup_save_to_lowest_rank)

    def _create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans, metadata = create_default_global_save_plan(self._dedup_save_plans(all_plans))
        if self.flatten_state_dict:
            paths = dict(ChainMap(*[plan.planner_data for plan in plans]))
            metadata = dataclasses.replace(metadata, planner_data=paths)
        if problems := _names()._validate_global_plan(plans, metadata):
            raise ValueError(f"Failed to validate global plan: {'; '.join(problems)[:500]}")
        return plans, metadata

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        if self._enable_plan_caching:
            plans, metadata = self._cached_global_plan_of(all_plans)
        else:
            plans, metadata = self._create_global_plan(all_plans)
        self.global_plan, self.metadata = plans, metadata
        return plans, metadata

    def _cached_global_plan_of(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """What each rank is told: its new part of the global plan, or "as last time"."""
        key = self._cached_plans_key
        before = SavePlanner._cached_global_plan.get(key)
        if before is not None and not _contains_usable_plan(all_plans):
            return [SavePlan([], usable=False)] * len(all_plans), SavePlanner._cached_metadata[key]
        if before is not None:
            all_plans = _merge_delta_local_plans(SavePlanner._cached_all_plans[key], all_plans)
        plans, metadata = self._create_global_plan(all_plans)
        SavePlanner._cached_all_plans[key] = all_plans
        SavePlanner._cached_global_plan[key] = plans
        SavePlanner._cached_metadata[key] = metadata
        if before is None:
            return plans, metadata
        unchanged = SavePlan([], usable=False)
        told = [unchanged if _compare_save_plans(old, new) else new for old, new in zip(before, plans)]
        return told, metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        key = self._cached_plans_key
        if self._enable_plan_caching:
            if self._pending_plan is not None:
                SavePlanner._cached_save_plan[key] = self._pending_plan
                self._pending_plan = None
            if new_plan.usable:
                SavePlanner._cached_final_save_plan[key] = new_plan
            else:
                new_plan = SavePlanner._cached_final_save_plan[key]
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        data: torch.Tensor | io.BytesIO = self.transform_object(write_item, self.lookup_object(write_item.index))
        return data

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The entry an item comes from; its piece, when it is a tensor cut over ranks."""
        return find_state_dict_object(self.state_dict, index)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """What is written for it: a tensor as it is, anything else pickled."""
        return io.BytesIO(_objects.encode(object)) if write_item.type == WriteItemType.BYTE_IO else object


class DefaultLoadPlanner(LoadPlanner):
    """Plans a load as DCP does. Override `lookup_tensor` or `transform_tensor` to load into other memory."""

    original_state_dict: dict[str, Any]
    mappings: dict[str, Any]

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.allow_partial_load = allow_partial_load
        self.original_state_dict = {}
        self.mappings = {}

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        _init_state_dict(state_dict)
        self.original_state_dict = state_dict
        if self.flatten_sharded_tensors:
            state_dict = _flatten_sharded_tensors(state_dict)
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = state_dict
        self.metadata = metadata
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> LoadPlan:
        if self.metadata is None:
            raise AssertionError("a load is planned from the checkpoint's metadata, and there is none")
        if self.flatten_state_dict:
            self._look_for_old_keys()
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def _look_for_old_keys(self) -> None:
        """torch 2.3 and older kept a dict without tensors as one entry: such a checkpoint is read that way."""
        assert self.metadata is not None  # create_local_plan has looked
        absent = set(self.metadata.state_dict_metadata) - set(self.state_dict)
        if not absent:
            return
        _version._derived_version = "2_3"
        try:
            before, mappings = flatten_state_dict(self.original_state_dict)
        finally:
            _version._derived_version = None
        if set(before) & absent:
            self.state_dict, self.mappings = before, mappings

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        return new_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        loaded = _objects.decode(value)
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[read_item.dest_index.fqn], loaded)
        else:
            self.state_dict[read_item.dest_index.fqn] = loaded

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        pass

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        found: torch.Tensor = find_state_dict_object(self.state_dict, index)
        return found

    def transform_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> torch.Tensor:
        for dim, (offset, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths)):
            if tensor.size(dim) != length:
                tensor = tensor.narrow(dim, offset, length)
        return tensor


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Builds the state from the checkpoint: all of it, or what `keys` name (flat names or the begin of paths)."""

    def __init__(self, keys: set[str] | str | None = None, *args: Any, **kwargs: Any) -> None:
        self.keys = {keys} if isinstance(keys, str) else keys
        super().__init__(*args, **kwargs)

    def _is_wanted(self, fqn: str, metadata: Metadata) -> bool:
        if self.keys is None or fqn in self.keys:
            return True
        path = (metadata.planner_data or {}).get(fqn, ())
        steps = [str(step) for step in path]
        return any(".".join(steps[: i + 1]) in self.keys for i in range(len(steps)))

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        if state_dict:
            raise AssertionError("the state must be empty: it is built from the checkpoint")
        if metadata is None:
            raise AssertionError("a state cannot be built without the checkpoint's metadata")
        for fqn, stored in metadata.state_dict_metadata.items():
            if not self._is_wanted(fqn, metadata):
                continue
            value: Any = stored
            if isinstance(stored, TensorStorageMetadata):
                value = torch.empty(stored.size, dtype=stored.properties.dtype)
            path = (metadata.planner_data or {}).get(fqn)
            if path is not None:
                set_element(state_dict, path, value)
            else:
                state_dict[fqn] = value
        super().set_up_planner(state_dict, metadata, is_coordinator)


# --- the steps as functions ---


def create_default_local_save_plan(state_dict: dict[str, Any], is_coordinator: bool) -> SavePlan:
    """One item for every piece of every tensor on this rank, and for every object; replicated state too."""
    items: list[WriteItem] = []
    for fqn, value in state_dict.items():
        outside = DTensor is not None and isinstance(value, DTensor) and value.device_mesh.get_coordinate() is None
        if not outside:
            items.extend(_create_write_items(fqn, value))
    return SavePlan(items)


def create_default_global_save_plan(
    all_plans: list[SavePlan], rewrite_index_hints: bool = True
) -> tuple[list[SavePlan], Metadata]:
    """What the plans write, described; the items' hints say where their chunks stand in the description."""
    entries: dict[str, Any] = {}
    plans = []
    for plan in all_plans:
        items = []
        for item in plan.items:
            fqn = item.index.fqn
            if item.type != WriteItemType.SHARD and fqn in entries:
                raise AssertionError(f"item.index.fqn not in md: '{fqn}' is written twice")
            if item.type == WriteItemType.BYTE_IO:
                entries[fqn] = BytesStorageMetadata()
                items.append(item)
                continue
            data: Any = item.tensor_data  # not None: the item is a tensor's
            entry = entries.setdefault(fqn, TensorStorageMetadata(data.properties, data.size, []))
            if rewrite_index_hints:
                index = dataclasses.replace(item.index, index=len(entry.chunks))
                items.append(dataclasses.replace(item, index=index))
            else:
                items.append(item)
            entry.chunks.append(data.chunk)
        plans.append(dataclasses.replace(plan, items=items))
    return plans, Metadata(entries)


def create_default_local_load_plan(state_dict: dict[str, Any], metadata: Metadata, strict: bool = True) -> LoadPlan:
    """The stored parts of everything in the state. With `strict` a name the checkpoint lacks is an error."""
    items: list[ReadItem] = []
    for fqn, value in state_dict.items():
        stored = metadata.state_dict_metadata.get(fqn)
        if stored is None:
            if strict:
                raise RuntimeError(f"Missing key in checkpoint state_dict: {fqn}.")
            continue
        if isinstance(stored, TensorStorageMetadata) and hasattr(value, "size"):
            size = torch.Size(getattr(value, "global_shape", None) or value.size())
            if stored.size != size:
                raise ValueError(f"Size mismatch between saved {stored.size} and current: {size} for {fqn}")
        outside = DTensor is not None and isinstance(value, DTensor) and value.device_mesh.get_coordinate() is None
        if not outside:
            items.extend(_create_read_items(fqn, stored, value))
    return LoadPlan(items)


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    return all_plans


def _create_default_local_metadata(state_dict: dict[str, Any]) -> Metadata:
    """The description of a state as it would be saved."""
    return create_default_global_save_plan([_create_default_metadata_only_plan(state_dict)])[1]


def _check_box_overlap(box0: ChunkStorageMetadata, box1: ChunkStorageMetadata) -> bool:
    return all(
        begin0 < begin1 + size1 and begin1 < begin0 + size0
        for begin0, size0, begin1, size1 in zip(box0.offsets, box0.sizes, box1.offsets, box1.sizes)
    )


def _check_box_bounds(outer_box_size: torch.Size, inner_box: ChunkStorageMetadata) -> bool:
    return all(
        begin >= 0 and size >= 0 and begin + size <= outer
        for outer, begin, size in zip(outer_box_size, inner_box.offsets, inner_box.sizes)
    )


def _validate_global_plan(global_plan: list[SavePlan], metadata: Metadata) -> list[str]:
    """What is wrong with the plans, a line each: chunks outside, chunks that overlap, parts nobody writes.

    With one plan parts may be missing: it may be one rank's of several that do not coordinate.
    """
    problems = []
    for fqn, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, BytesStorageMetadata) or len(entry.size) == 0:
            continue
        boxes: list[_engine.Chunk] = [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in entry.chunks]
        found = _engine.cover_problem(tuple(entry.size), boxes)
        if found is None or (found[0] == "hole" and len(global_plan) <= 1):
            continue
        logger.warning("%s: %s", fqn, found[1])
        problems.append(f"{fqn}: {found[1]}")
    return problems


def _names() -> Any:
    """The module under which users, and mock.patch, know these functions: torch's when it is installed there."""
    import sys

    from . import _install

    own = sys.modules[__name__]
    torchs = sys.modules.get("torch.distributed.checkpoint.default_planner", own)
    return torchs if _install.is_installed() else own
