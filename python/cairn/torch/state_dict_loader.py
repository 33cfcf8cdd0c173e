"""load, with torch's signature."""

from __future__ import annotations

import os
import warnings
from typing import Any

from torch.distributed.checkpoint.planner import LoadPlanner
from torch.distributed.checkpoint.utils import _api_bc_check, _profile

from . import _dist, _native, _objects, _progress, _ways
from ._errors import CheckpointError
from ._open import OpenLoad
from ._report import reporting
from ._stateful import is_stateful, made
from ._storage_utils import _storage_setup
from .default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner

__all__ = ["load", "load_state_dict"]


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: Any,
    process_group: Any | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """Deprecated in torch: `load`, without expanding Stateful objects and with a coordinator of choice."""
    warnings.warn("'load_state_dict' is deprecated; please use 'load' instead.", FutureWarning, stacklevel=2)
    storage_reader.reset()
    with _profile(), _dist.taking_part(no_dist, process_group):
        _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


@_api_bc_check  # type: ignore[untyped-decorator]
def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: Any | None = None,
    planner: LoadPlanner | None = None,
    process_group: Any | None = None,
    no_dist: bool = False,
    progress: bool = False,
) -> None:
    """Loads a checkpoint into a state: tensors are filled in place, objects replaced, Stateful objects are given
    their states. Any number of ranks, cut in any way, whoever saved it.

    The arguments are those of `torch.distributed.checkpoint.load`. With `progress` rank 0 shows a bar while it reads,
    if stderr is a terminal.

    >>> cairn.torch.load({"model": model, "step": 0}, checkpoint_id="run/step-7")
    """
    alone = _dist.is_alone(no_dist, "load")
    storage_reader = _storage_setup(storage_reader, checkpoint_id, reader=True)
    with _profile(), _progress.shown(progress, "load"):
        # Sorted, so that all ranks ask their Stateful objects in the same order.
        keys = sorted(state_dict)
        stateful = {key for key in keys if is_stateful(state_dict[key])}

        def expand() -> dict[str, Any]:
            return {key: state_dict[key].state_dict() if key in stateful else state_dict[key] for key in keys}

        with _dist.taking_part(alone, process_group):
            parts = made(expand, alone)
            _load_state_dict(parts, storage_reader, process_group, no_dist=alone, planner=planner)
        for key in keys:
            if key in stateful:
                state_dict[key].load_state_dict(parts[key])
            else:
                state_dict[key] = parts[key]


def _load_state_dict_from_keys(
    keys: set[str] | str | None = None,
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: Any | None = None,
    process_group: Any | None = None,
) -> dict[str, Any]:
    """A new state with all of a checkpoint, or what `keys` name: flat names, or the beginnings of paths."""
    alone = _dist.is_alone(False, "load")
    storage_reader = _storage_setup(storage_reader, checkpoint_id, reader=True)
    state: dict[str, Any] = {}
    planner = _EmptyStateDictLoadPlanner({keys} if isinstance(keys, str) else keys or None)
    with _dist.taking_part(alone, process_group):
        _load_state_dict(state, storage_reader, process_group, no_dist=alone, planner=planner)
    return state


def _load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: Any,
    process_group: Any | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    reason = _ways.why_load_is_open(planner, storage_reader)
    with reporting("load", getattr(storage_reader, "checkpoint_id", None)) as report:
        if reason is None:
            report["way"] = "native"
            try:
                _native.load(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner, report)
                return
            except CheckpointError as error:
                # The same on all ranks, so all go on the other way.
                if error.code != "unsupported":
                    raise
                reason = f"only torch can read an item: {error.message}"
        report.update(way="open", because=reason)
        _objects.require_safe_reader(storage_reader)
        planner = planner if planner is not None else DefaultLoadPlanner()
        OpenLoad(state_dict, storage_reader, planner).run(process_group, coordinator_rank, no_dist)
