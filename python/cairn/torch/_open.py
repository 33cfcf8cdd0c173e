"""Saves and loads with code of the caller's in them: the hooks that the engine's steps call, in torch's order.

Every method runs in the caller's thread, inside a step that all ranks share: what it raises reaches them all.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any, cast

from torch.distributed.checkpoint.metadata import Metadata

from .. import Error, _engine
from . import _dist, _native, _objects, _progress
from ._errors import as_checkpoint_exception
from ._report import logger
from ._stateful import Failed
from .filesystem import FileSystemReader, FileSystemWriter


class OpenSave:
    def __init__(self, state_dict: Any, writer: Any, planner: Any, use_collectives: bool) -> None:
        self.state_dict = state_dict
        self.writer = writer
        self.planner = planner
        self.use_collectives = use_collectives
        self.by_engine = isinstance(writer, FileSystemWriter)
        self.metadata: Metadata | None = None

    def run(self, process_group: Any, coordinator_rank: int, no_dist: bool, report: dict[str, Any]) -> Metadata:
        group, options = _dist.options_of(no_dist, process_group)
        options.update(_progress.engine_options())
        options.update(coordinator_rank=coordinator_rank, use_collectives=self.use_collectives)
        with as_checkpoint_exception("write"):
            saved = _engine.save_with_hooks(self, group, options)
        told = saved.pop("told")
        report.update(saved)
        if self.metadata is not None:
            return self.metadata
        return told if told is not None else _native.LazyMetadata(self.writer, self.writer.save_id)

    def local_plan(self, role: Any) -> Any:
        if isinstance(self.state_dict, Failed):
            raise self.state_dict.error
        if self.by_engine:
            self.writer.begin(role)
        meta = self.writer.storage_meta()
        if "storage_meta" in inspect.signature(self.planner.set_up_planner).parameters:
            leads = role.is_coordinator
            self.planner.set_up_planner(state_dict=self.state_dict, storage_meta=meta, is_coordinator=leads)
        else:
            warnings.warn(
                "The function definition for SavePlanner.set_up_planner has been updated to include the "
                "storage_meta argument. Please update your implementation to include this parameter.",
                stacklevel=2,
            )
            self.planner.set_up_planner(self.state_dict, role.is_coordinator)
        set_up = self.writer.set_up_storage_writer
        if _dist.takes_kwargs(set_up):
            set_up(role.is_coordinator, rank=role.rank, use_collectives=self.use_collectives)
        else:
            set_up(role.is_coordinator)
        return self.writer.prepare_local_plan(self.planner.create_local_plan())

    def global_plan(self, plans: list[Any]) -> list[Any]:
        plans, self.metadata = self.planner.create_global_plan(plans)
        prepared: list[Any] = self.writer.prepare_global_plan(plans)
        return prepared

    def write(self, mine: Any) -> Any:
        writing = self.writer.write_data(self.planner.finish_plan(mine), self.planner)
        writing.wait()
        return writing.value()

    def finish(self, results: list[Any]) -> Metadata | None:
        """What the other ranks are told: nothing, when they can read it themselves."""
        metadata = cast(Metadata, self.metadata)
        self.writer.finish(metadata=metadata, results=results)
        described = getattr(type(self.writer), "finish", None) is FileSystemWriter.finish
        return None if described else metadata

    def retire_collective(self) -> None:
        if self.by_engine:
            self.writer.retire_collective()

    def abandon(self) -> None:
        if self.by_engine:
            self.writer.abandon()

    def is_published(self) -> bool:
        return self.by_engine and self.writer.is_published()


class OpenLoad:
    def __init__(self, state_dict: Any, reader: Any, planner: Any) -> None:
        self.state_dict = state_dict
        self.reader = reader
        self.planner = planner
        self.by_engine = isinstance(reader, FileSystemReader)

    def run(self, process_group: Any, coordinator_rank: int, no_dist: bool) -> None:
        group, options = _dist.options_of(no_dist, process_group)
        options.update(_progress.engine_options())
        options.update(coordinator_rank=coordinator_rank)
        try:
            with as_checkpoint_exception("read"):
                _engine.load_with_hooks(self, group, options)
        finally:
            if self.by_engine:
                self.reader.end()

    def describe(self) -> bytes:
        """On the coordinator: what it has read, for all ranks to know the same checkpoint."""
        return self.reader.describe() if self.by_engine else b""

    def _metadata(self, rank: int) -> tuple[Metadata, bool]:
        """The checkpoint's description, or this rank's own where nobody coordinated the save."""
        read = self.reader.read_metadata
        try:
            return read(), True
        except Exception as error:  # noqa: BLE001 - a user's reader may raise anything
            first = error
        takes_rank = _dist.takes_kwargs(read)
        if isinstance(first, Error) and (first.code != "not_found" or not takes_rank):
            raise first  # it says more than that there is none
        logger.info("Global metadata is not found. Falling back to rank local metadata.")
        second: BaseException | None = None
        if takes_rank:
            try:
                return read(rank=rank), False
            except Exception as error:  # noqa: BLE001
                second = error
        raise AssertionError(
            f"metadata is None; global metadata read failed: {first!r}; rank local metadata read failed: {second!r}"
        ) from first

    def local_plan(self, description: bytes, role: Any) -> Any:
        if isinstance(self.state_dict, Failed):
            raise self.state_dict.error
        if self.by_engine:
            self.reader.begin(description, role)
        metadata, use_collectives = self._metadata(role.rank)
        self.planner.set_up_planner(self.state_dict, metadata, role.is_coordinator)
        set_up = self.reader.set_up_storage_reader
        if _dist.takes_kwargs(set_up):
            set_up(metadata, role.is_coordinator, rank=role.rank, use_collectives=use_collectives)
        else:
            set_up(metadata, role.is_coordinator)
        return self.reader.prepare_local_plan(self.planner.create_local_plan())

    def global_plan(self, plans: list[Any]) -> list[Any]:
        prepared: list[Any] = self.reader.prepare_global_plan(self.planner.create_global_plan(plans))
        return prepared

    def was_replaced(self, failed: bool) -> bool:
        reader = self.reader._engine_reader if self.by_engine else None
        return reader is not None and reader.was_replaced(failed)

    def read(self, mine: Any) -> None:
        plan = self.planner.finish_plan(mine)
        with _objects.guarded(self.planner):
            self.reader.read_data(plan, self.planner).wait()
