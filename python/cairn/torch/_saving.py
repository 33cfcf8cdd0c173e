"""One save, at once or in the background: by the engine, or through a planner or a storage of the user's."""

from __future__ import annotations

from typing import Any

from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlanner

from . import _native, _ways
from ._open import OpenSave
from ._report import reporting
from ._stateful import is_stateful
from .default_planner import DefaultSavePlanner


def _stateful_to_state_dict(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Asks the Stateful objects at the top for their states."""
    return {key: value.state_dict() if is_stateful(value) else value for key, value in state_dict.items()}


def _save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: Any,
    process_group: Any | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
    use_collectives: bool = True,
) -> Metadata:
    reason = _ways.why_save_is_open(planner, storage_writer)
    with reporting("save", getattr(storage_writer, "checkpoint_id", None)) as report:
        if reason is None:
            report["way"] = "native"
            return _native.save(
                state_dict, storage_writer, process_group, coordinator_rank, no_dist, planner, use_collectives, report
            )
        report.update(way="open", because=reason)
        planner = planner if planner is not None else DefaultSavePlanner()
        open_save = OpenSave(state_dict, storage_writer, planner, use_collectives)
        return open_save.run(process_group, coordinator_rank, no_dist, report)
