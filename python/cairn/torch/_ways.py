"""Which way a save or load goes: native, when planner and storage are cairn's as they stand, or open."""

from __future__ import annotations

from typing import Any

from ._torch_save import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner
from .default_planner import DefaultLoadPlanner, DefaultSavePlanner
from .filesystem import FileSystemReader, FileSystemWriter

# Hooks that the engine calls by itself: a subclass that overrides only these stays native.
_CHEAP_SAVE_HOOKS = {"lookup_object", "transform_object"}
_STEPS_OF_SAVING = {
    "set_up_planner",
    "create_local_plan",
    "create_global_plan",
    "finish_plan",
    "resolve_data",
    "_dedup_save_plans",
    "_create_global_plan",
}


def overridden(value: Any, base: type, names: set[str]) -> list[str]:
    """Which of the names mean something else for the object than for the base class."""
    found = [name for name in names if getattr(type(value), name, None) is not getattr(base, name)]
    return sorted(found + [name for name in names if name in getattr(value, "__dict__", {})])


def why_save_is_open(planner: Any, writer: Any) -> str | None:
    """None for a save that can be native."""
    if planner is not None:
        if not isinstance(planner, DefaultSavePlanner):
            return f"the planner is a {type(planner).__qualname__}"
        if names := overridden(planner, DefaultSavePlanner, _STEPS_OF_SAVING):
            return f"{type(planner).__qualname__} overrides {', '.join(names)}"
    if type(writer) is not FileSystemWriter:
        return f"the storage writer is a {type(writer).__qualname__}"
    return writer.why_open()


def save_hooks(planner: Any) -> bool:
    return planner is not None and bool(overridden(planner, DefaultSavePlanner, _CHEAP_SAVE_HOOKS))


def why_load_is_open(planner: Any, reader: Any) -> str | None:
    # The engine knows what a file of torch.save holds and need not take the destination's word for it.
    planners: tuple[type, ...] = (DefaultLoadPlanner, DynamicMetaLoadPlanner)
    if type(reader) is not BroadcastingTorchSaveReader:
        planners = planners[:1]
    if planner is not None and type(planner) not in planners:
        return f"the planner is a {type(planner).__qualname__}"
    if type(reader) not in (FileSystemReader, BroadcastingTorchSaveReader):
        return f"the storage reader is a {type(reader).__qualname__}"
    reason: str | None = reader.why_open()
    return reason
