"""Hugging Face's safetensors directories: torch's HuggingFaceStorageWriter and -Reader on cairn's engine.

The engine writes, finds and reads the tensors. The `safetensors` package is asked only for what the engine did not
find itself: a list of files or places that the caller made.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import SerializationFormat, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from .. import _engine
from .._errors import error
from . import _convert, _hf_utils, _streams
from ._consolidate_hf_safetensors import consolidate_safetensors_files
from .filesystem import FileSystem, FileSystemReader, FileSystemWriter, _Results

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes tensors as safetensors files that torch, transformers and everybody else can read.

    The arguments are torch's. Without `save_distributed` one rank has everything, and an index is written last.
    With it every rank writes its shards; `enable_consolidation` keeps those in `path/sharded` and puts whole tensors
    into `path`. What is there before stays until the new files are complete.
    """

    def __init__(
        self,
        path: str,
        fqn_to_index_mapping: dict[str, int] | None = None,
        thread_count: int = 1,
        save_distributed: bool = False,
        enable_consolidation: bool = False,
        thread_count_consolidation: int = 1,
    ) -> None:
        super().__init__(path=path, thread_count=thread_count)
        self.serialization_format = SerializationFormat.SAFETENSORS
        self.fqn_to_index_mapping = fqn_to_index_mapping
        self.save_distributed = save_distributed
        self.enable_consolidation = enable_consolidation
        self.thread_count_consolidation = thread_count_consolidation
        self.consolidated_output_path: str | None = None
        self._set_path(path)

    def _set_path(self, path: str | os.PathLike[str]) -> None:
        self.path = self.fs.init_path(path)
        if self.enable_consolidation:
            self.consolidated_output_path = str(self.path)
            self.path = self.fs.concat_path(self.path, _hf_utils.SHARDED_DIR_NAME)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset()
        if checkpoint_id:
            self._set_path(checkpoint_id)

    def why_open(self) -> str | None:
        return "the storage is Hugging Face's"

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
            data: dict[str, Any] = {"save_id": self.save_id}
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
            return _done([])
        data = plan.storage_data or {}
        mapping, shard = data.get("fqn_to_index_mapping"), data.get("shard_index")
        self._split_by_storage_plan(mapping, plan.items)  # KeyError for a tensor without a file
        _hf_utils.offer_safetensors()
        self.save_id = data.get("save_id") or self.save_id
        count = data.get("shard_count", shard or 1)
        self._set_up_hf(mapping, shard is not None, (shard or 1) - 1, max(count, shard or 1))
        items = plan.items

        def resolve(position: int) -> Any:
            data: Any = planner.resolve_data(items[position])  # a tensor: prepare_local_plan refuses objects
            return _streams.as_planned(items[position], data)

        places, attachment = self._engine_writer.write([_convert.from_write_item(item) for item in items], resolve)
        results = _Results()
        for row in sorted(places, key=lambda row: row[2]):
            _, place = _convert.to_place(row)
            index = items[row[2]].index
            results.append(WriteResult(index, place.length, _StorageInfo(place.relative_path, 0, place.length)))
        results.attachment = attachment
        return _done(results)

    def _set_up_hf(self, mapping: dict[str, int] | None, sharded: bool, rank: int, count: int) -> None:
        options: _engine.WriteOptions = {"files_per_rank": self.thread_count if self.thread_count > 1 else 0}
        self._engine_writer = _engine.hf_writer(os.fspath(self.path), mapping or {}, sharded, options)
        self._engine_writer.set_up(self.save_id, rank, count, self.is_coordinator, True)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        if self._engine_writer is None:  # this rank had nothing to write
            self._set_up_hf(self.fqn_to_index_mapping, self.save_distributed, 0, 1)
        ranks = [
            ([_convert.from_place(each.index, each.storage_data) for each in rank], getattr(rank, "attachment", b""))
            for rank in results
        ]
        self._engine_writer.finish([], None, ranks)
        self._engine_writer = None
        if self.save_distributed and self.enable_consolidation:
            mapping = self.fqn_to_index_mapping
            consolidate_safetensors_files(
                input_dir=str(self.path),
                output_dir=str(self.consolidated_output_path),
                fqn_to_index_mapping=mapping or dict.fromkeys(metadata.state_dict_metadata, 1),
                num_threads=self.thread_count_consolidation,
            )

    def _split_by_storage_plan(
        self, storage_plan: dict[str, int] | None, items: list[WriteItem]
    ) -> dict[int, list[WriteItem]]:
        """Items by the number of their file."""
        if storage_plan is None:
            return {1: items}
        groups: dict[int, list[WriteItem]] = {}
        for item in items:
            groups.setdefault(storage_plan[item.index.fqn], []).append(item)
        return groups

    @property
    def metadata_path(self) -> str:
        return _hf_utils._metadata_fn


class HuggingFaceStorageReader(FileSystemReader):
    """Reads tensors of any directory of safetensors files: the bytes that are needed, in parallel.

    `thread_count` is taken for torch's sake; the engine chooses by itself.
    """

    def __init__(self, path: str, thread_count: int = 1) -> None:
        super().__init__(path=path)
        self.thread_count = thread_count

    def why_open(self) -> str | None:
        return "the storage is Hugging Face's"

    def _open_engine(self) -> Any:
        return _engine.hf_reader(os.fspath(self.path))

    def read_metadata(self) -> Metadata:
        is_own = type(self.fs) is FileSystem and "ls" not in vars(self.fs)
        metadata = self._engine_metadata() if is_own else self._listed_metadata()
        metadata.storage_meta = StorageMeta(load_id=self.load_id)
        return metadata

    def _engine_metadata(self) -> Metadata:
        self._engine_reader = self._open_engine()
        found = self._engine_reader.metadata()
        entries: dict[str, Any] = {row[0]: _convert.to_entry(row) for row in found.entries()}
        places = {}
        for row in found.places():
            fqn, offset, _, file = row[:4]
            entry = entries[fqn]
            sizes = next((chunk.sizes for chunk in entry.chunks if tuple(chunk.offsets) == tuple(offset)), entry.size)
            index = MetadataIndex(fqn, torch.Size(offset))
            places[index] = _hf_utils._HFStorageInfo(os.path.join(self.path, file), sizes, entry.properties.dtype)
        self._own_places = places
        return Metadata(state_dict_metadata=entries, storage_data=places)

    def _listed_metadata(self) -> Metadata:
        """Of the files that the caller's file system lists."""
        from safetensors import safe_open
        from safetensors.torch import _getdtype

        self._engine_reader, self._own_places = None, None
        entries: dict[str, Any] = {}
        places: dict[MetadataIndex, Any] = {}
        fs: Any = self.fs  # a FileSystemBase need not have `ls`; one that lists files does
        for path in fs.ls(self.path):
            if not path.endswith(_hf_utils.SUFFIX):
                continue
            with safe_open(path, framework="pt") as file:
                sharding = json.loads((file.metadata() or {}).get(_hf_utils.CUSTOM_METADATA_KEY) or "{}")
                for fqn in file.keys():  # noqa: SIM118 - it is no dict
                    shape, dtype = file.get_slice(fqn).get_shape(), _getdtype(file.get_slice(fqn).get_dtype())
                    begin = sharding[fqn][_hf_utils.SAVED_OFFSETS_KEY] if sharding else [0] * len(shape)
                    self._add_chunk(entries, fqn, dtype, ChunkStorageMetadata(torch.Size(begin), torch.Size(shape)))
                    index = MetadataIndex(fqn, torch.Size(begin))
                    places[index] = _hf_utils._HFStorageInfo(path, torch.Size(shape), dtype)
        return Metadata(state_dict_metadata=entries, storage_data=places)

    @staticmethod
    def _add_chunk(entries: dict[str, Any], fqn: str, dtype: torch.dtype, chunk: ChunkStorageMetadata) -> None:
        ends = [begin + size for begin, size in zip(chunk.offsets, chunk.sizes)]
        if fqn not in entries:
            entries[fqn] = TensorStorageMetadata(TensorProperties(dtype=dtype), torch.Size(ends), [chunk])
            return
        entries[fqn].chunks.append(chunk)
        entries[fqn].size = torch.Size(map(max, entries[fqn].size, ends))

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        if self._engine_reader is not None and self.storage_data is self._own_places:
            self._read_by_engine(plan, planner)
        else:
            self._read_by_safetensors(plan, planner)
        return _done(None)

    def _read_by_safetensors(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        """From places that the caller made."""
        from safetensors import safe_open

        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_file.setdefault(self.storage_data[item.storage_index].relative_path, []).append(item)
        for path, items in by_file.items():
            with safe_open(filename=path, framework="pt") as file:
                for item in items:
                    self._process_read_request(file, item, planner)

    def _process_read_request(self, f: Any, req: ReadItem, planner: LoadPlanner) -> None:
        tensor = self._stored(f, req)
        target = planner.resolve_tensor(req).detach()
        if target.size() != tensor.size():
            raise AssertionError(f"req {req.storage_index} mismatch sizes {target.size()} vs {tensor.size()}")
        target.copy_(tensor)
        planner.commit_tensor(req, target)

    def _stored(self, f: Any, req: ReadItem) -> torch.Tensor:
        """What an open file has for an item."""
        box = tuple(slice(begin, begin + length) for begin, length in zip(req.storage_offsets, req.lengths))
        stored: torch.Tensor = f.get_slice(req.storage_index.fqn)[box]
        return stored
