"""Process groups: whether there is one, and the engine's end of it."""

from __future__ import annotations

import inspect
import warnings
import weakref
from typing import Any

import torch.distributed as dist

from .. import _engine
from ._group import Exchange

# Seconds for a whole save or load. How long a rank may be silent is the process group's time-out.
DEADLINE = 24 * 3600.0

_groups: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def is_alone(no_dist: bool, operation: str) -> bool:
    """Whether this process works alone; says so when nobody asked for it."""
    if no_dist or not (dist.is_available() and dist.is_initialized()):
        warnings.warn(
            f"torch.distributed is disabled, unavailable or uninitialized, assuming the intent is to "
            f"{operation} in a single process.",
            stacklevel=4,
        )
        return True
    return False


def engine_group(process_group: Any | None) -> Any:
    """The engine's view of a process group, the same for every call: its exchanges are counted."""
    group = process_group if process_group is not None else dist.group.WORLD
    if group not in _groups:
        _groups[group] = _engine.Group(Exchange(process_group))
    return _groups[group]


def options_of(no_dist: bool, process_group: Any | None) -> tuple[Any | None, dict[str, Any]]:
    """The group of a save or load, and what the engine is told about it."""
    return (None, {}) if no_dist else (engine_group(process_group), {"deadline": DEADLINE})


def takes_kwargs(method: Any) -> bool:
    """Whether a hook of the user's has torch's newer signature, with **kwargs."""
    return "kwargs" in inspect.signature(method).parameters


def rank_in(process_group: Any | None) -> int:
    """This process's rank in the group, from 0, as the engine counts."""
    return dist.get_rank(process_group)
