"""install(safe=True): whatever a checkpoint says, and whichever way it is read, nothing in it is run.

Each checkpoint of the corpus touches a file when it is unpickled. Without `safe` the same loads touch it where it is an
object that was saved, so that they are known to reach the place; never where it is in the description.
"""

from __future__ import annotations

import io
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock
import torch.distributed.checkpoint.format_utils as format_utils
from torch.testing._internal.distributed.checkpoint_utils import get_test_extension_registry

import cairn
import cairn.torch

pytestmark = pytest.mark.filterwarnings("ignore")

# Torch's own, as somebody holds them whom install() does not reach.
TORCHS = {"planner": stock.DefaultLoadPlanner, "reader": stock.FileSystemReader}


class Touch:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return (os.mkdir, (self.path,))


# --- the corpus: (folder, what is touched) ---


def _plain(folder: Path) -> None:
    stock.save({"w": torch.ones(3), "step": 3}, checkpoint_id=folder)


def _rewrite(folder: Path, change: Callable[[Any], None], name: str = ".metadata") -> None:
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    change(metadata)
    (folder / ".metadata").unlink()
    (folder / name).write_bytes(pickle.dumps(metadata))


def in_planner_data(folder: Path, mark: Path) -> None:
    _plain(folder)
    _rewrite(folder, lambda metadata: setattr(metadata, "planner_data", Touch(mark)))


def in_an_attribute(folder: Path, mark: Path) -> None:
    _plain(folder)
    _rewrite(folder, lambda metadata: setattr(metadata, "mark", Touch(mark)))


def in_the_places(folder: Path, mark: Path) -> None:
    _plain(folder)

    def change(metadata: Any) -> None:
        metadata.storage_data = {**metadata.storage_data, "more": Touch(mark)}

    _rewrite(folder, change)


def in_a_dtype(folder: Path, mark: Path) -> None:
    _plain(folder)

    def change(metadata: Any) -> None:
        metadata.state_dict_metadata["w"].properties.dtype = Touch(mark)

    _rewrite(folder, change)


def in_rank_local_metadata(folder: Path, mark: Path) -> None:
    _plain(folder)
    _rewrite(folder, lambda metadata: setattr(metadata, "planner_data", Touch(mark)), "__0.metadata")


def in_an_object(folder: Path, mark: Path) -> None:
    stock.save({"w": torch.ones(3), "step": Touch(mark)}, checkpoint_id=folder)


def in_a_tensor(folder: Path, mark: Path) -> None:
    _plain(folder)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    [place] = [place for index, place in metadata.storage_data.items() if index.fqn == "w"]
    archive = io.BytesIO()
    torch.save(Touch(mark), archive)
    with open(folder / place.relative_path, "ab") as stream:
        place.offset, place.length = stream.tell(), len(archive.getvalue())
        stream.write(archive.getvalue())
    _rewrite(folder, lambda old: vars(old).update(vars(metadata)))


CORPUS = [
    in_planner_data, in_an_attribute, in_the_places, in_a_dtype, in_rank_local_metadata, in_an_object, in_a_tensor,
]


# --- the ways to read it, with cairn installed ---


def _loads(folder: Path, **how: Any) -> None:
    stock.load({"w": torch.zeros(3), "step": 0}, **how)


def by_default(folder: Path) -> None:
    _loads(folder, checkpoint_id=folder)


def with_an_own_planner(folder: Path) -> None:
    class Own(stock.DefaultLoadPlanner):
        def load_bytes(self, read_item: Any, value: Any) -> None:
            torch.load(value, weights_only=False)

    _loads(folder, checkpoint_id=folder, planner=Own())


def with_torchs_planner(folder: Path) -> None:
    _loads(folder, checkpoint_id=folder, planner=TORCHS["planner"]())


def with_a_derived_reader(folder: Path) -> None:
    class Own(stock.FileSystemReader):
        pass

    _loads(folder, storage_reader=Own(folder))


def with_torchs_reader(folder: Path) -> None:
    _loads(folder, storage_reader=TORCHS["reader"](folder))


def with_a_reader_derived_before(folder: Path) -> None:
    class Own(TORCHS["reader"]):
        def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
            return super().read_metadata(*args, **kwargs)

    _loads(folder, storage_reader=Own(folder))


def through_fsspec(folder: Path) -> None:
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

    _loads(folder, storage_reader=FsspecReader(f"file://{folder}"))


def with_a_registry(folder: Path) -> None:
    registry = get_test_extension_registry()
    _loads(folder, storage_reader=stock.FileSystemReader(folder, _extension_registry=registry))
    _loads(folder, storage_reader=stock.FileSystemReader(folder, _extension_registry=registry), planner=TORCHS["planner"]())


def of_all_keys(folder: Path) -> None:
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

    _load_state_dict_from_keys(checkpoint_id=folder)


def the_description(folder: Path) -> None:
    planner = stock.DefaultLoadPlanner()
    stock.load({"w": torch.zeros(3)}, checkpoint_id=folder, planner=planner)
    assert planner.metadata.state_dict_metadata["w"].size == torch.Size([3])
    stock.FileSystemReader(folder).read_metadata()


def as_a_single_file(folder: Path) -> None:
    format_utils.dcp_to_torch_save(folder, folder / "single.pt")


WAYS = [
    by_default, with_an_own_planner, with_torchs_planner, with_a_derived_reader, with_torchs_reader,
    with_a_reader_derived_before, through_fsspec, with_a_registry, of_all_keys, the_description, as_a_single_file,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("make", CORPUS, ids=lambda make: make.__name__)
def test_nothing_is_run(tmp_path: Path, make: Any, way: Any) -> None:
    mark = tmp_path / "mark"
    make(tmp_path / "checkpoint", mark)
    assert not mark.exists()
    with cairn.torch.installed(safe=True), suppress(Exception, stock.CheckpointException):  # refused, or loaded
        way(tmp_path / "checkpoint")
    assert not mark.exists()


@pytest.mark.parametrize("way", [with_torchs_planner, through_fsspec, with_a_registry], ids=lambda way: way.__name__)
def test_without_safe_the_same_loads_run_it(tmp_path: Path, way: Any) -> None:
    mark = tmp_path / "mark"
    in_an_object(tmp_path / "checkpoint", mark)
    with cairn.torch.installed(), suppress(Exception, stock.CheckpointException):  # mkdir fails the second time
        way(tmp_path / "checkpoint")
    assert mark.exists()


OURS = [way for way in WAYS if way not in (with_torchs_reader, with_a_reader_derived_before)]


@pytest.mark.parametrize("way", OURS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("make", CORPUS[:5], ids=lambda make: make.__name__)
def test_without_safe_nothing_of_the_description_is_run(tmp_path: Path, make: Any, way: Any) -> None:
    mark = tmp_path / "mark"
    make(tmp_path / "checkpoint", mark)
    with cairn.torch.installed(), suppress(Exception, stock.CheckpointException):  # refused, or not needed
        way(tmp_path / "checkpoint")
    assert not mark.exists()


def test_what_a_foreign_planner_left_is_left_out(tmp_path: Path) -> None:
    in_planner_data(tmp_path / "checkpoint", tmp_path / "mark")
    with cairn.torch.installed(safe=True):
        for how in ({"checkpoint_id": tmp_path / "checkpoint"}, {"storage_reader": _through_fsspec(tmp_path)}):
            loaded = {"w": torch.zeros(3), "step": 0}
            stock.load(loaded, **how)
            assert loaded["w"].tolist() == [1, 1, 1] and loaded["step"] == 3
        assert stock.FileSystemReader(tmp_path / "checkpoint").read_metadata().planner_data is None


def _through_fsspec(folder: Path) -> Any:
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

    return FsspecReader(f"file://{folder}/checkpoint")


def test_a_refusal_says_what_it_is_about(tmp_path: Path) -> None:
    in_the_places(tmp_path / "places", tmp_path / "mark")
    in_an_object(tmp_path / "object", tmp_path / "mark")
    with cairn.torch.installed(safe=True):
        with pytest.raises(cairn.Error, match=r"places/\.metadata holds what only unpickling could read"):
            stock.FileSystemReader(tmp_path / "places").read_metadata()
        with pytest.raises(stock.CheckpointException, match="tensor 'step': more than plain data and tensors"):
            with_torchs_planner(tmp_path / "object")
        with pytest.raises(cairn.Error, match="FileSystemReader reads as torch's own reader does"):
            with_torchs_reader(tmp_path / "object")
        with pytest.raises(cairn.Error, match="derived_before.<locals>.Own reads as torch's own reader does"):
            with_a_reader_derived_before(tmp_path / "object")


@pytest.mark.parametrize("legacy", [False, True])
def test_a_single_file_is_not_run(tmp_path: Path, legacy: bool) -> None:
    file, mark = tmp_path / "single.pt", tmp_path / "mark"
    torch.save({"w": torch.ones(3), "step": Touch(mark)}, file, _use_new_zipfile_serialization=not legacy)

    def reader() -> Any:
        return format_utils.BroadcastingTorchSaveReader(file)

    with cairn.torch.installed(safe=True):
        for attempt in (
            lambda: format_utils.torch_save_to_dcp(file, tmp_path / "made"),
            lambda: by_default(tmp_path / "made"),
            lambda: _loads(file, storage_reader=reader(), planner=format_utils.DynamicMetaLoadPlanner()),
            lambda: _loads(file, storage_reader=reader(), planner=TORCHS["planner"]()),
        ):
            with suppress(Exception, stock.CheckpointException):
                attempt()
            assert not mark.exists()
        if legacy:
            with pytest.raises(cairn.Error, match="single.pt"):
                format_utils.torch_save_to_dcp(file, tmp_path / "again")
