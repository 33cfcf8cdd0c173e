"""A `torch.save` file loaded into a state that is cut over any number of ranks."""

from __future__ import annotations

import io
import os
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import metadata as described

# Taken now: cairn.torch.install() puts the class below in its place.
from torch.distributed.checkpoint.format_utils import BroadcastingTorchSaveReader as _TorchsReader
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from .. import _engine
from . import _convert
from .default_planner import DefaultLoadPlanner
from .filesystem import done


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a file of `torch.save` on one rank and gives the others the parts they ask for; no rank holds all of it,
    and ranks may ask for different things, objects too.

    With `direct=True` every rank reads its own parts, for files that all can open.

    >>> reader = BroadcastingTorchSaveReader("weights.pt")
    >>> cairn.torch.load(state, storage_reader=reader, planner=DynamicMetaLoadPlanner())
    """

    def __init__(
        self, checkpoint_id: str | os.PathLike[str] | None = None, coordinator_rank: int = 0, *, direct: bool = False
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.coordinator_rank = coordinator_rank
        self.direct = direct
        self.is_coordinator = False

    @property
    def path(self) -> str:
        if self.checkpoint_id is None:
            raise ValueError("a BroadcastingTorchSaveReader needs a checkpoint_id: the path of the file")
        return os.fspath(self.checkpoint_id)

    def why_open(self) -> str | None:
        return None

    def engine_path(self) -> str:
        return self.path

    def engine_options(self) -> dict[str, Any]:
        return {
            "torch_save": "every rank" if self.direct else "coordinator",
            "coordinator_rank": self.coordinator_rank,
        }

    # What follows is asked by planners that are not cairn's: the engine needs none of it.

    def read_metadata(self) -> described.Metadata:
        """Empty: the planner takes the destination's word (`DynamicMetaLoadPlanner`)."""
        return described.Metadata(state_dict_metadata={})

    def set_up_storage_reader(self, metadata: described.Metadata, is_coordinator: bool) -> None:
        self.is_coordinator = is_coordinator

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item, value in zip(plan.items, self._values(plan.items)):
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(value))
                continue
            target = planner.resolve_tensor(item).detach()
            target.copy_(value)
            planner.commit_tensor(item, target)
        return done(None)

    def _values(self, items: list[ReadItem]) -> list[Any]:
        """This rank's items, as the reading rank sent them: tensors, or the bytes of an archive."""
        if self.direct or not dist.is_initialized() or dist.get_world_size() == 1:
            return self._read(items)
        wanted: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(wanted, items)
        reads = dist.get_rank() == self.coordinator_rank
        values: list[Any] = []
        for i in range(max(map(len, wanted))):  # one of each rank's at a time
            answers = [self._answer(theirs[i : i + 1]) for theirs in wanted] if reads else None
            mine: list[Any] = [None]
            dist.scatter_object_list(mine, answers, self.coordinator_rank)
            values += mine
        for value in values:
            if isinstance(value, Exception):
                raise value
        return values[: len(items)]

    def _answer(self, items: list[ReadItem]) -> Any:
        try:
            return self._read(items)[0] if items else None
        except Exception as error:  # noqa: BLE001 - the rank that asked must hear of it
            return error

    def _read(self, items: list[ReadItem]) -> list[Any]:
        reader = _engine.torch_save_reader(self.path)
        found = _Found(_convert.to_metadata(reader.metadata(), os.fspath(self.path)).state_dict_metadata)
        reader.read(items, found)
        return [found.values[id(item)] for item in items]

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self.checkpoint_id = checkpoint_id

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return bool(_TorchsReader.validate_checkpoint_id(checkpoint_id))


class _Found:
    """Keeps what a reader reads: tensors, or the bytes of an archive, by item."""

    def __init__(self, stored: dict[str, Any]) -> None:
        self.stored = stored
        self.values: dict[int, Any] = {}

    def resolve_tensor(self, item: ReadItem) -> torch.Tensor:
        made = torch.empty(item.lengths, dtype=self.stored[item.storage_index.fqn].properties.dtype)
        self.values[id(item)] = made
        return made

    def commit_tensor(self, item: ReadItem, tensor: torch.Tensor) -> None:
        pass

    def load_bytes(self, item: ReadItem, value: io.BytesIO) -> None:
        self.values[id(item)] = value.getvalue()


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Takes the destination's word for what the checkpoint holds: for readers that have no metadata."""

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: described.Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        super().set_up_planner(state_dict, metadata, is_coordinator)
        entries = {name: _described(value) for name, value in self.state_dict.items()}
        self.metadata = described.Metadata(state_dict_metadata=entries)


def _described(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return described.BytesStorageMetadata()
    size = value.size()
    whole = described.ChunkStorageMetadata(torch.Size([0] * len(size)), size)
    return described.TensorStorageMetadata(described.TensorProperties(dtype=value.dtype), size, [whole])
