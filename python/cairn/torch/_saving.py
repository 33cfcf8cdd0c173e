"""One save, at once or in the background: by the engine, or through a planner or a storage of the user's."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from typing import Any, cast

from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlanner
from torch.distributed.checkpoint.utils import _DistWrapper

from . import _dist, _native, _ways
from ._report import reporting
from ._stateful import Failed, is_stateful
from .default_planner import DefaultSavePlanner
from .filesystem import _Prefix


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
        return _OpenSave(state_dict, storage_writer, planner, process_group, coordinator_rank, no_dist).run(
            use_collectives
        )


class _OpenSave:
    """A save whose planner or storage is the user's: their hooks are called in torch's order."""

    def __init__(
        self, state_dict: Any, writer: Any, planner: Any, process_group: Any, coordinator_rank: int, no_dist: bool
    ) -> None:
        self.state_dict = state_dict
        self.writer = writer
        self.planner = planner
        self.ranks = _DistWrapper(process_group, not no_dist, coordinator_rank)
        self.metadata: Metadata | None = None

    def run(self, use_collectives: bool) -> Metadata:
        try:
            return self._together() if use_collectives else self._alone()
        except BaseException:
            abandon = getattr(self.writer, "abandon", None)
            if abandon is not None:
                abandon()
            raise

    def _together(self) -> Metadata:
        mine = self.ranks.reduce_scatter("plan", lambda: self._local_plan(True), self._global_plan)
        return self.ranks.all_reduce("write", lambda: self._write(mine), self._finish)

    def _alone(self) -> Metadata:
        def whole() -> None:
            mine = self._global_plan([self._local_plan(False)])[0]
            self._finish([self._write(mine)])

        def retire() -> None:
            if self.ranks.is_coordinator:
                self.writer.retire_collective()

        self.ranks.all_gather("save", whole)
        if hasattr(self.writer, "retire_collective"):
            self.ranks.all_gather("retire", retire)
        return cast(Metadata, self.metadata)

    def _local_plan(self, use_collectives: bool) -> Any:
        if isinstance(self.state_dict, Failed):
            raise self.state_dict.error
        storage_meta = self.writer.storage_meta()
        is_coordinator = self.ranks.is_coordinator
        if "storage_meta" in inspect.signature(self.planner.set_up_planner).parameters:
            self.planner.set_up_planner(
                state_dict=self.state_dict, storage_meta=storage_meta, is_coordinator=is_coordinator
            )
        else:
            warnings.warn(
                "The function definition for SavePlanner.set_up_planner has been updated to include the "
                "storage_meta argument. Please update your implementation to include this parameter.",
                stacklevel=2,
            )
            self.planner.set_up_planner(self.state_dict, is_coordinator)
        if _dist.takes_kwargs(self.writer.set_up_storage_writer):
            self.writer.set_up_storage_writer(is_coordinator, rank=self.ranks.rank, use_collectives=use_collectives)
        else:
            self.writer.set_up_storage_writer(is_coordinator)
        return self.writer.prepare_local_plan(self.planner.create_local_plan())

    def _global_plan(self, plans: list[Any]) -> list[Any]:
        plans, self.metadata = self.planner.create_global_plan(plans)
        prepared: list[Any] = self.writer.prepare_global_plan(plans)
        return prepared

    def _write(self, mine: Any) -> Any:
        plan = self.planner.finish_plan(mine)
        if isinstance(plan.storage_data, _Prefix) and isinstance(mine.storage_data, _Prefix):
            # A plan that was kept from the last save has the last save's.
            plan = dataclasses.replace(plan, storage_data=mine.storage_data)
        writing = self.writer.write_data(plan, self.planner)
        writing.wait()
        return writing.value()

    def _finish(self, results: list[Any]) -> Metadata:
        metadata = cast(Metadata, self.metadata)
        self.writer.finish(metadata=metadata, results=results)
        return metadata
