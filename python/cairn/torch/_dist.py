"""Process groups: whether there is one, and the engine's end of it."""

from __future__ import annotations

import inspect
import os
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from .. import _engine
from ._group import connect

# Seconds for a whole save or load. How long a rank may be silent is the process group's time-out.
DEADLINE = 24 * 3600.0


class Connected:
    """What is made once for each process group, by all of its ranks, and given back when the group goes."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._alone: Any | None = None  # what is made of None: for those without a group
        self._made: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a forked process: the connections and threads are its parent's."""
        self._alone = None
        self._made.clear()

    def alone(self) -> Any:
        if self._alone is None:
            self._alone = self._make(None)
        return self._alone

    def of(self, process_group: Any | None) -> Any:
        group = process_group if process_group is not None else dist.group.WORLD
        # Who destroyed a group may still hold it; so may what was made in an earlier world.
        alive = dist.distributed_c10d._world.pg_map
        for gone in [each for each in self._made if each not in alive and each is not group]:
            del self._made[gone]
        if group not in self._made:
            self._made[group] = self._make(group)
        return self._made[group]

    def all(self) -> list[Any]:
        return [*self._made.values(), *([] if self._alone is None else [self._alone])]


_groups = Connected(connect)


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
    return process_group if isinstance(process_group, _engine.Group) else _groups.of(process_group)


@contextmanager
def taking_part(no_dist: bool, process_group: Any | None) -> Iterator[None]:
    """Around a whole save or load, from the questions to the state on: the others hear that this rank is at it, however
    long that takes. So the group's connections are made first."""
    working = None if no_dist else engine_group(process_group).at_work()
    try:
        yield
    finally:
        if working is not None:
            working.end()


def options_of(no_dist: bool, process_group: Any | None) -> tuple[Any | None, dict[str, Any]]:
    """The group of a save or load, and what the engine is told about it."""
    return (None, {}) if no_dist else (engine_group(process_group), {"deadline": DEADLINE})


def takes_kwargs(method: Any) -> bool:
    """Whether a hook of the user's has torch's newer signature, with **kwargs."""
    return "kwargs" in inspect.signature(method).parameters


def rank_in(process_group: Any | None) -> int:
    """This process's rank in the group, from 0, as the engine counts."""
    return process_group.rank if isinstance(process_group, _engine.Group) else dist.get_rank(process_group)
