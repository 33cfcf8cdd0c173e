"""Which way a save or load goes: native, when planner and storage are cairn's in all that matters, or open."""

from __future__ import annotations

from typing import Any

from ._torch_save import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner
from .default_planner import DefaultLoadPlanner, DefaultSavePlanner
from .filesystem import FileSystemReader, FileSystemWriter

# Hooks that the engine calls by itself: a subclass that overrides only these stays native.
_CHEAP_SAVE_HOOKS = "lookup_object transform_object"
_STEPS_OF_PLANNING = "set_up_planner create_local_plan create_global_plan finish_plan "
_STEPS_OF_SAVING = _STEPS_OF_PLANNING + "resolve_data _dedup_save_plans _create_global_plan"
_STEPS_OF_LOADING = _STEPS_OF_PLANNING + "load_bytes resolve_tensor commit_tensor lookup_tensor transform_tensor"
_STEPS_OF_STORING = "prepare_local_plan prepare_global_plan "
_STEPS_OF_WRITING = _STEPS_OF_STORING + "set_up_storage_writer storage_meta write_data _write_data finish"
_STEPS_OF_READING = _STEPS_OF_STORING + "set_up_storage_reader read_metadata read_data _slice_file"


def overridden(value: Any, base: type, names: str) -> list[str]:
    """Which of the names mean something else for the object than for the base class."""
    found = [name for name in names.split() if getattr(type(value), name, None) is not getattr(base, name)]
    return sorted(found + [name for name in names.split() if name in getattr(value, "__dict__", {})])


def _why(value: Any, base: type, steps: str, what: str) -> str | None:
    if not isinstance(value, base):
        return f"the {what} is a {type(value).__qualname__}"
    names = overridden(value, base, steps)
    return f"{type(value).__qualname__} overrides {', '.join(names)}" if names else None


def why_save_is_open(planner: Any, writer: Any) -> str | None:
    """None for a save that can be native."""
    if planner is not None and (reason := _why(planner, DefaultSavePlanner, _STEPS_OF_SAVING, "planner")):
        return reason
    reason = _why(writer, FileSystemWriter, _STEPS_OF_WRITING, "storage writer")
    return reason if reason is not None else writer.why_open()


def stages_by_itself(writer: Any) -> bool:
    """Whether a writer, which torch asks for the snapshot of a save in the background, has a say in that."""
    names = "stage synchronize_staging should_synchronize_after_execute"
    return isinstance(writer, FileSystemWriter) and bool(overridden(writer, FileSystemWriter, names))


def save_hooks(planner: Any) -> bool:
    return planner is not None and bool(overridden(planner, DefaultSavePlanner, _CHEAP_SAVE_HOOKS))


def why_load_is_open(planner: Any, reader: Any) -> str | None:
    if type(reader) is BroadcastingTorchSaveReader:
        # The engine knows what a file of torch.save holds and need not take the destination's word for it.
        if planner is None or type(planner) is DynamicMetaLoadPlanner:
            return None
        return _why(planner, DefaultLoadPlanner, _STEPS_OF_LOADING, "planner")
    if planner is not None and (reason := _why(planner, DefaultLoadPlanner, _STEPS_OF_LOADING, "planner")):
        return reason
    reason = _why(reader, FileSystemReader, _STEPS_OF_READING, "storage reader")
    return reason if reason is not None else reader.why_open()
