"""Hugging Face's safetensors directories: torch's HuggingFaceStorageWriter and -Reader on cairn's engine.

The engine writes, finds and reads the tensors. torch's own code is left with what the engine did not find itself: a
list of files or places that the caller made.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import torch
from torch.distributed.checkpoint import hf_storage as _torchs
from torch.distributed.checkpoint._hf_utils import SHARDED_DIR_NAME, _HFStorageInfo

# Taken now: cairn.torch.install() puts the classes here in their place.
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader as _Reader
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter as _Writer
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .. import _engine
from .._errors import error
from . import _convert
from ._consolidate_hf_safetensors import consolidate_safetensors_files, offer_safetensors
from ._tensors import as_planned
from .filesystem import FileSystem, FileSystemReader, FileSystemWriter, done

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]


def __getattr__(name: str) -> Any:
    return getattr(_torchs, name)


def _elements(item: Any, data: Any) -> Any:
    """What a planner resolved, as safetensors know it: without a class, unless that keeps the elements elsewhere."""
    if isinstance(data, torch.Tensor) and not is_traceable_wrapper_subclass(data):
        data = data.as_subclass(torch.Tensor)
    return as_planned(item, data)


class HuggingFaceStorageWriter(FileSystemWriter, _Writer):
    """Writes tensors as safetensors files that torch, transformers and everybody else can read.

    The arguments are torch's. Without `save_distributed` one rank has everything, and an index is written last.
    With it every rank writes its shards; `enable_consolidation` keeps those in `path/sharded` and puts whole tensors
    into `path`. What is there before stays until the new files are complete.
    """

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(checkpoint_id)
        if checkpoint_id and self.enable_consolidation:
            self.consolidated_output_path = str(self.path)
            self.path = self.fs.concat_path(self.path, SHARDED_DIR_NAME)

    __init__ = _Writer.__init__

    def why_open(self) -> str | None:
        return "the storage is Hugging Face's"

    def _require_format(self) -> None:
        """Any: safetensors are what it writes."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.fs.mkdir(self.path)
        objects = [item.index.fqn for item in plan.items if item.type == WriteItemType.BYTE_IO]
        if objects:
            named = ", ".join(map(repr, objects[:5])) + (f" and {len(objects) - 5} more" if len(objects) > 5 else "")
            raise error("unsupported", f"safetensors hold tensors only, not {named}: leave them out", objects[0])
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        if not self.save_distributed:
            self._require_one_writer(plans)
        first = 1 if self.use_collectives else (self.rank or 0) + 1
        prepared = []
        for i, plan in enumerate(plans, start=first):
            data: dict[str, Any] = {}
            if self.fqn_to_index_mapping is not None:
                data["fqn_to_index_mapping"] = self.fqn_to_index_mapping
            if self.save_distributed:
                data.update(shard_index=i, shard_count=max(len(plans), i))
            prepared.append(dataclasses.replace(plan, storage_data=data))
        return prepared

    def _require_one_writer(self, plans: list[SavePlan]) -> None:
        writers: dict[int, int] = {}
        for rank, plan in enumerate(plans):
            for index, items in self._split_by_storage_plan(self.fqn_to_index_mapping, plan.items).items():
                if items and writers.setdefault(index, rank) != rank:
                    raise ValueError(
                        f"ranks {writers[index]} and {rank} would both write file {index}, the second one "
                        f"{items[0].index.fqn!r}: let one rank save alone, or use save_distributed=True"
                    )

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        if not plan.items:
            return done([])
        data = plan.storage_data or {}
        mapping, shard = data.get("fqn_to_index_mapping"), data.get("shard_index")
        self._split_by_storage_plan(mapping, plan.items)  # KeyError for a tensor without a file
        offer_safetensors()
        count = data.get("shard_count", shard or 1)
        self._set_up_hf(mapping, shard is not None, (shard or 1) - 1, max(count, shard or 1))
        written = self._write_by_engine(plan, planner, _elements)
        for each in written:
            each.storage_data.offset = 0  # as torch says: a tensor is found by its name
        return done(written)

    def _set_up_hf(self, mapping: dict[str, int] | None, sharded: bool, rank: int, count: int) -> None:
        options: _engine.WriteOptions = {"files_per_rank": self.thread_count if self.thread_count > 1 else 0}
        self._engine_writer = _engine.hf_writer(os.fspath(self.path), mapping or {}, sharded, options)
        self._engine_writer.set_up(_engine.WriterRole(self.save_id, rank, count, self.is_coordinator, True))

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        if self._engine_writer is None:  # this rank had nothing to write
            self._set_up_hf(self.fqn_to_index_mapping, self.save_distributed, 0, 1)
        self._engine_writer.finish([], None, *_convert.from_results(results))
        self._engine_writer = None
        if self.save_distributed and self.enable_consolidation:
            mapping = self.fqn_to_index_mapping
            consolidate_safetensors_files(
                input_dir=str(self.path),
                output_dir=str(self.consolidated_output_path),
                fqn_to_index_mapping=mapping or dict.fromkeys(metadata.state_dict_metadata, 1),
                num_threads=self.thread_count_consolidation,
            )


class HuggingFaceStorageReader(FileSystemReader, _Reader):
    """Reads tensors of any directory of safetensors files: the bytes that are needed, in parallel.

    `thread_count` is taken for torch's sake; the engine chooses by itself.
    """

    _own_places: dict[Any, Any] | None = None  # what the engine found

    __init__ = _Reader.__init__

    def why_open(self) -> str | None:
        return "the storage is Hugging Face's"

    def _open_engine(self) -> Any:
        return _engine.hf_reader(os.fspath(self.path))

    def _is_listed_by_engine(self) -> bool:
        return type(self.fs) is FileSystem and "ls" not in vars(self.fs)  # else the list of files is the caller's

    def read_metadata(self) -> Metadata:
        if not self._is_listed_by_engine():
            self._engine_reader = None
            listed: Metadata = _Reader.read_metadata(self)
            return listed
        self._engine_reader, found = self._opened()
        entries: dict[str, Any] = {row[0]: _convert.to_entry(row) for row in found.entries()}
        places = {}
        for row in found.places():
            fqn, offset, _, file = row[:4]
            entry = entries[fqn]
            sizes = next((chunk.sizes for chunk in entry.chunks if tuple(chunk.offsets) == tuple(offset)), entry.size)
            index = MetadataIndex(fqn, torch.Size(offset))
            places[index] = _HFStorageInfo(
                os.fspath(self.fs.concat_path(self.path, file)), sizes, entry.properties.dtype
            )
        self._own_places = places
        meta = StorageMeta(load_id=self.load_id)
        return Metadata(state_dict_metadata=entries, storage_data=places, storage_meta=meta)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        if self._engine_reader is None or self.storage_data is not self._own_places:
            read: Future[None] = _Reader.read_data(self, plan, planner)
            return read
        self._engine_reader.read(plan.items, planner)
        return done(None)
