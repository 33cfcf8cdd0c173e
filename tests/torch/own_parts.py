"""What users of DCP write themselves, from scratch: planners, a storage in a format of its own, a stager, a transform,
and tensors of classes of their own. Nothing of cairn's is in here."""

from __future__ import annotations

import dataclasses
import io
import os
import uuid
from pathlib import Path
from typing import IO, Any

import torch
from torch.distributed.checkpoint import planner_helpers
from torch.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.distributed.checkpoint.utils import find_state_dict_object
from torch.futures import Future

# --- planners ---


def flat(state: dict[str, Any], before: str = "") -> dict[str, tuple[dict[str, Any], str]]:
    """Where each entry of nested dicts is, by its name."""
    places: dict[str, tuple[dict[str, Any], str]] = {}
    for key, value in state.items():
        name = f"{before}{key.value if hasattr(key, 'value') else key}"
        if isinstance(value, dict):
            places.update(flat(value, name + "."))
        else:
            places[name] = (state, key)
    return places


class OwnSavePlanner(SavePlanner):
    """The first rank that has a thing writes it."""

    calls = 0  # of create_local_plan

    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        self.values = {name: container[key] for name, (container, key) in flat(state_dict).items()}

    def create_local_plan(self):
        self.calls += 1
        items = [planner_helpers._create_write_items(name, value) for name, value in self.values.items()]
        return SavePlan([item for each in items for item in each])

    def create_global_plan(self, all_plans):
        entries: dict[str, Any] = {}
        seen = set()
        plans = []
        for plan in all_plans:
            kept = [item for item in plan.items if item.index not in seen]
            seen.update(item.index for item in kept)
            plans.append(dataclasses.replace(plan, items=kept))
            for item in kept:
                if item.tensor_data is None:
                    entries[item.index.fqn] = BytesStorageMetadata()
                    continue
                data = item.tensor_data
                entry = entries.setdefault(item.index.fqn, TensorStorageMetadata(data.properties, data.size, []))
                entry.chunks.append(data.chunk)
        return plans, Metadata(entries)

    def finish_plan(self, new_plan):
        return new_plan

    def resolve_data(self, write_item):
        value = find_state_dict_object(self.values, write_item.index)
        if write_item.type != WriteItemType.BYTE_IO:
            return value
        stream = io.BytesIO()
        torch.save(value, stream)
        return stream


class OwnLoadPlanner(LoadPlanner):
    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        self.places = flat(state_dict)
        self.metadata = metadata

    def _values(self) -> dict[str, Any]:
        return {name: container[key] for name, (container, key) in self.places.items()}

    def create_local_plan(self):
        items = []
        for name, value in self._values().items():
            if name not in self.metadata.state_dict_metadata:
                raise RuntimeError(f"{name} is not in the checkpoint")
            items += planner_helpers._create_read_items(name, self.metadata.state_dict_metadata[name], value)
        return LoadPlan(items)

    def create_global_plan(self, global_plan):
        return global_plan

    def finish_plan(self, central_plan):
        return central_plan

    def load_bytes(self, read_item, value):
        container, key = self.places[read_item.dest_index.fqn]
        container[key] = torch.load(value, weights_only=False)

    def resolve_bytes(self, read_item):
        raise NotImplementedError

    def resolve_tensor(self, read_item):
        tensor = find_state_dict_object(self._values(), read_item.dest_index)
        return narrowed(tensor, read_item.dest_offsets, read_item.lengths)

    def commit_tensor(self, read_item, tensor):
        pass


def narrowed(tensor: torch.Tensor, offsets: Any, lengths: Any) -> torch.Tensor:
    for dim, (at, length) in enumerate(zip(offsets, lengths)):
        if tensor.size(dim) != length:
            tensor = tensor.narrow(dim, at, length)
    return tensor


# --- a storage: a file of parts for each rank, an index that names them, published by os.replace ---


class OwnWriter(StorageWriter):
    def __init__(self, folder: str) -> None:
        self.folder = os.fspath(folder)

    def reset(self, checkpoint_id=None):
        self.folder = os.fspath(checkpoint_id or self.folder)

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        self.rank = kwargs.get("rank") or 0
        self.index = "index" if kwargs.get("use_collectives", True) else f"index.{self.rank}"

    def prepare_local_plan(self, plan):
        os.makedirs(self.folder, exist_ok=True)
        return plan

    def prepare_global_plan(self, plans):
        save = uuid.uuid4().hex
        alone = self.index != "index"
        return [
            dataclasses.replace(plan, storage_data=f"parts.{self.rank if alone else i}.{save}")
            for i, plan in enumerate(plans)
        ]

    def write_data(self, plan, planner):
        parts = {}
        for item in plan.items:
            data = planner.resolve_data(item)
            parts[item.index] = data.getvalue() if isinstance(data, io.BytesIO) else data.detach()
        with open(os.path.join(self.folder, plan.storage_data), "wb") as stream:
            torch.save(parts, stream)
            stream.flush()
            os.fsync(stream.fileno())
        return done([WriteResult(index, 1, plan.storage_data) for index in parts])

    def finish(self, metadata, results):
        metadata.storage_data = {each.index: each.storage_data for rank in results for each in rank}
        partial = os.path.join(self.folder, f"{self.index}.{uuid.uuid4().hex}")
        torch.save(metadata, partial)
        os.replace(partial, os.path.join(self.folder, self.index))
        parts = sorted(Path(self.folder).glob("parts.*"), key=os.path.getmtime)
        for old in parts[:-50]:  # more than somebody may still be reading
            old.unlink(missing_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True


class OwnReader(StorageReader):
    def __init__(self, folder: str) -> None:
        self.folder = os.fspath(folder)

    def reset(self, checkpoint_id=None):
        self.folder = os.fspath(checkpoint_id or self.folder)

    def read_metadata(self, *args, **kwargs):
        rank = kwargs.get("rank")
        name = "index" if rank is None else f"index.{rank}"
        return torch.load(os.path.join(self.folder, name), weights_only=False)

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        self.storage_data = metadata.storage_data

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def read_data(self, plan, planner):
        files: dict[str, Any] = {}
        for item in plan.items:
            name = self.storage_data[item.storage_index]
            if name not in files:
                files[name] = torch.load(os.path.join(self.folder, name), weights_only=False)
            stored = files[name][item.storage_index]
            if isinstance(stored, bytes):
                planner.load_bytes(item, io.BytesIO(stored))
                continue
            target = planner.resolve_tensor(item).detach()
            target.copy_(narrowed(stored, item.storage_offsets, item.lengths))
            planner.commit_tensor(item, target)
        return done(None)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True


def done(value: Any) -> Future:
    future: Future = Future()
    future.set_result(value)
    return future


# --- a stager, and a transform of streams ---


class OwnStager:
    """Clones what is at hand and hands over the rest."""

    _synchronize_after_execute = False
    should_synchronize_after_execute = False

    def stage(self, state: Any) -> Any:
        if isinstance(state, dict):
            return {key: self.stage(value) for key, value in state.items()}
        return state.clone() if type(state) is torch.Tensor else state

    def synchronize_staging(self) -> None:
        raise AssertionError("nobody asked")

    def close(self) -> None:
        pass


class Turned(StreamTransformExtension):
    """Every byte has its bits turned round."""

    TABLE = bytes(255 - i for i in range(256))

    @staticmethod
    def registry_name() -> str:
        return "turned.cairn-tests"

    @staticmethod
    def from_descriptor(version: str) -> "Turned":
        return Turned()

    def get_descriptor(self) -> str:
        return f"{self.registry_name()}/1"

    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        class Writer(io.RawIOBase):
            def writable(self) -> bool:
                return True

            def write(self, data: Any) -> int:
                output.write(bytes(data).translate(Turned.TABLE))
                return len(data)

        return io.BufferedWriter(Writer(), 1 << 20)

    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        class Reader(io.RawIOBase):
            def readable(self) -> bool:
                return True

            def readinto(self, buffer: Any) -> int:
                data = input.read(len(buffer)).translate(Turned.TABLE)
                buffer[: len(data)] = data
                return len(data)

        return io.BufferedReader(Reader(), 1 << 20)


def registry() -> ExtensionRegistry:
    made = ExtensionRegistry()
    made.register(Turned)
    return made


# --- tensors ---


class Coded(torch.Tensor):
    """Keeps codes, and a scale for each row, in place of its elements: as quantised optimizers do. Can be cut."""

    @staticmethod
    def __new__(cls, codes: torch.Tensor, scale: torch.Tensor) -> "Coded":
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes: torch.Tensor, scale: torch.Tensor) -> None:
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["codes", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], _: Any, __: Any = None, ___: Any = None) -> "Coded":
        return Coded(inner["codes"], inner["scale"])

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Coded({self.codes}, {self.scale})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        mine = args[0]
        if name in ("detach", "alias", "view"):
            return Coded(mine.codes, mine.scale)
        if name in ("clone", "_to_copy"):
            return Coded(mine.codes.clone(), mine.scale.clone())
        if name == "is_pinned":
            return False
        if name == "slice":
            given = list(args[1:4])
            dim, begin, end = given + [0, None, None][len(given) :]
            rows = mine.scale if dim else mine.scale[begin:end]
            return Coded(function(mine.codes, dim, begin, end), rows)
        if name == "copy_":
            mine.codes.copy_(args[1].codes)
            mine.scale.copy_(args[1].scale)
            return mine
        raise NotImplementedError(f"{name} of a Coded tensor")


class Written(torch.Tensor):
    """Says how it is written, and is a tensor like others otherwise."""

    def __create_write_items__(self, fqn: str, object: Any) -> Any:
        return [planner_helpers._create_write_item_for_tensor(fqn, object)]


torch.serialization.add_safe_globals([Coded, Written])
