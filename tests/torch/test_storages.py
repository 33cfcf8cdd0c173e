"""Storages that users of DCP write or set up themselves work unchanged: writers, readers, file systems, transforms."""

from __future__ import annotations

import io
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import LoadPlan, SavePlan
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future
from torch.testing._internal.distributed.checkpoint_utils import Rot13Example, get_test_extension_registry

import cairn
import cairn.torch as dcp
from test_hooks import empty, same, state

pytestmark = pytest.mark.filterwarnings("ignore")


# --- storages ---


class DictStorage(StorageWriter, StorageReader):
    """A storage with the oldest signatures: everything in a dict."""

    def __init__(self) -> None:
        self.items: dict[MetadataIndex, Any] = {}
        self.metadata: Metadata | None = None
        self.calls: list[str] = []

    def reset(self, checkpoint_id=None) -> None:
        self.calls.append("reset")

    def set_up_storage_writer(self, is_coordinator: bool) -> None:
        self.calls.append("set_up_storage_writer")

    def prepare_local_plan(self, plan):
        self.calls.append("prepare_local_plan")
        return plan

    def prepare_global_plan(self, plans):
        self.calls.append("prepare_global_plan")
        return plans

    def write_data(self, plan: SavePlan, planner) -> Future:
        self.calls.append("write_data")
        results = []
        for item in plan.items:
            data = planner.resolve_data(item)
            self.items[item.index] = data.getvalue() if isinstance(data, io.BytesIO) else data.clone()
            results.append(WriteResult(item.index, 0, None))
        future: Future = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results) -> None:
        self.calls.append("finish")
        self.metadata = metadata

    def read_metadata(self) -> Metadata:
        return self.metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool) -> None:
        self.calls.append("set_up_storage_reader")

    def read_data(self, plan: LoadPlan, planner) -> Future:
        for item in plan.items:
            stored = self.items[item.storage_index]
            if isinstance(stored, bytes):
                planner.load_bytes(item, io.BytesIO(stored))
                continue
            target = planner.resolve_tensor(item)
            part = stored
            for dim, (at, length) in enumerate(zip(item.storage_offsets, item.lengths)):
                part = part.narrow(dim, at, length)
            target.copy_(part)
            planner.commit_tensor(item, target)
        future: Future = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id) -> bool:
        return True


def test_a_storage_of_the_users_is_called_as_dcp_calls_it() -> None:
    storage = DictStorage()
    dcp.save(state(), storage_writer=storage)
    assert storage.calls == [
        "set_up_storage_writer",
        "prepare_local_plan",
        "prepare_global_plan",
        "write_data",
        "finish",
    ]
    assert isinstance(storage.metadata.state_dict_metadata["step"], BytesStorageMetadata)
    loaded = empty()
    dcp.load(loaded, storage_reader=storage)
    assert same(loaded, state())


class RecordingFileSystem(dcp.filesystem.FileSystem):
    """A file system of the user's, which counts what is opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    @contextmanager
    def create_stream(self, path, mode):
        self.opened.append(f"{mode} {os.path.basename(path)}")
        with super().create_stream(path, mode) as stream:
            yield stream


def test_a_file_system_of_the_users_sees_every_file(tmp_path: Path) -> None:
    writer = dcp.FileSystemWriter(tmp_path)
    writer.fs = RecordingFileSystem()
    dcp.save(state(), storage_writer=writer)
    data = f"__0_0.{writer.save_id}.distcp"
    assert any(data in each and each[0] in "wx" for each in writer.fs.opened)
    assert any("metadata" in each and each[0] in "wx" for each in writer.fs.opened)
    reader = dcp.FileSystemReader(tmp_path)
    reader.fs = RecordingFileSystem()
    loaded = empty()
    dcp.load(loaded, storage_reader=reader)
    assert same(loaded, state())
    assert {"rb .metadata", f"rb {data}"} <= set(reader.fs.opened)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stream_transform_of_the_users(tmp_path: Path, threads: int) -> None:
    writer = dcp.FileSystemWriter(tmp_path, _extensions=[Rot13Example()], thread_count=threads)
    dcp.save(state(), storage_writer=writer)
    loaded = empty()
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path, _extension_registry=get_test_extension_registry()))
    assert same(loaded, state())


def test_zstd_is_native(tmp_path: Path) -> None:
    from torch.distributed.checkpoint._extension import ZStandard

    dcp.save(state(), storage_writer=dcp.FileSystemWriter(tmp_path, _extensions=[ZStandard()]))
    assert dcp.last_report()["way"] == "native"
    loaded = empty()
    dcp.load(loaded, checkpoint_id=tmp_path)
    assert same(loaded, state())
    loaded = empty()
    torch.distributed.checkpoint.load(loaded, checkpoint_id=tmp_path)
    assert same(loaded, state())


def test_a_file_for_every_item(tmp_path: Path) -> None:
    dcp.save(state(), storage_writer=dcp.FileSystemWriter(tmp_path, single_file_per_rank=False))
    assert len(list(tmp_path.glob("__0_*.distcp"))) == 3
    loaded = empty()
    dcp.load(loaded, checkpoint_id=tmp_path)
    assert same(loaded, state())


def test_fsspec_keeps_a_checkpoint_in_memory() -> None:
    pytest.importorskip("fsspec")
    dcp.save(state(), checkpoint_id="memory://cairn-test")
    loaded = empty()
    dcp.load(loaded, checkpoint_id="memory://cairn-test")
    assert same(loaded, state())


class Failing(dcp.FileSystemWriter):
    def write_data(self, plan, planner):
        raise OSError("no disk")


def test_a_failure_in_a_hook_is_a_checkpoint_exception_and_leaves_the_old_one(tmp_path: Path) -> None:
    dcp.save(state(), checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException, match="no disk"):
        dcp.save(empty(), storage_writer=Failing(tmp_path))
    loaded = empty()
    dcp.load(loaded, checkpoint_id=tmp_path)
    assert same(loaded, state())


class OwnBytes(dcp.FileSystemWriter):
    """Writes the data itself with torch's helper, under names of its own, and leaves the rest to cairn."""

    def write_data(self, plan, planner):
        from torch.distributed.checkpoint.filesystem import SerializationFormat, _write_item

        name = f"{plan.storage_data.prefix}0.distcp"
        with open(os.path.join(self.path, name), "wb") as stream:
            results = [
                _write_item(self.transforms, stream, planner.resolve_data(item), item, name,
                            SerializationFormat.TORCH_SAVE)
                for item in plan.items
            ]
        future: Future = Future()
        future.set_result(results)
        return future


class MarkingPlanner(dcp.DefaultSavePlanner):
    """Leaves an attribute of its own in the Metadata."""

    def create_global_plan(self, all_plans):
        plans, metadata = super().create_global_plan(all_plans)
        metadata.mark = {"plans": len(plans), "kind": frozenset({"own"})}
        return plans, metadata


def test_a_writer_that_writes_the_data_itself_gets_no_manifest(tmp_path: Path) -> None:
    dcp.save(empty(), checkpoint_id=tmp_path)
    for _ in range(2):  # the second time over files of the same names
        dcp.save(state(), storage_writer=OwnBytes(tmp_path))
        assert sorted(path.name for path in tmp_path.iterdir() if "lock" not in path.name) == [
            ".metadata", "__0_0.distcp"]
        for module in (dcp, stock):
            loaded = empty()
            module.load(loaded, checkpoint_id=tmp_path)
            assert same(loaded, state())
    dcp.save(state(), checkpoint_id=tmp_path)
    assert not (tmp_path / "__0_0.distcp").exists()


@pytest.mark.parametrize("writer", [dcp.FileSystemWriter, OwnBytes, stock.FileSystemWriter])
def test_an_attribute_of_the_metadata_stays(tmp_path: Path, writer: type) -> None:
    dcp.save(state(), storage_writer=writer(tmp_path), planner=MarkingPlanner())
    for reader in (dcp.FileSystemReader, stock.FileSystemReader):
        metadata = reader(tmp_path).read_metadata()
        assert metadata.mark == {"plans": 1, "kind": frozenset({"own"})}
        assert "model.w" in metadata.state_dict_metadata
    loaded = empty()
    dcp.load(loaded, checkpoint_id=tmp_path)
    assert same(loaded, state())


class OwnReader(dcp.FileSystemReader):
    """Reads the data itself with cairn's transforms, as torch's reader does."""

    def read_data(self, plan, planner):
        return stock.FileSystemReader.read_data(self, plan, planner)

    def _slice_file(self, file, place):
        return stock.FileSystemReader._slice_file(self, file, place)


def test_a_reader_that_reads_the_data_itself(tmp_path: Path) -> None:
    dcp.save(state(), storage_writer=dcp.FileSystemWriter(tmp_path, single_file_per_rank=False))
    loaded = empty()
    dcp.load(loaded, storage_reader=OwnReader(tmp_path))
    assert same(loaded, state())


def test_storages_take_the_arguments_of_torchs() -> None:
    import inspect

    fsspec = pytest.importorskip("torch.distributed.checkpoint._fsspec_filesystem")
    from cairn.torch import _fsspec_filesystem as own

    for ours, theirs in (
        (dcp.FileSystemWriter, stock.FileSystemWriter),
        (dcp.FileSystemReader, stock.FileSystemReader),
        (own.FsspecWriter, fsspec.FsspecWriter),
        (own.FsspecReader, fsspec.FsspecReader),
    ):
        def parameters(kind: type) -> list[Any]:
            return [(each.name, each.kind, each.default) for each in inspect.signature(kind).parameters.values()]

        assert parameters(ours) == parameters(theirs)
    with pytest.raises(TypeError, match="no_such"):
        dcp.FileSystemWriter("somewhere", no_such=1)
    with pytest.raises(TypeError, match="no_such"):
        dcp.FileSystemReader("somewhere", no_such=1)


def test_safe_loads_refuse_a_description_that_only_unpickling_could_read(tmp_path: Path) -> None:
    def quantised(values: Any) -> Any:
        return torch.quantize_per_tensor(values, 0.5, 3, torch.quint8)

    stock.save({"q": quantised(torch.ones(3, 4))}, checkpoint_id=tmp_path)
    with dcp.installed(safe=True):
        with pytest.raises((cairn.Error, stock.CheckpointException), match=r"\.metadata"):
            stock.load({"q": quantised(torch.zeros(3, 4))}, checkpoint_id=tmp_path)
