"""Saves through fsspec, with a file for every item or with transforms of Python's that fail or meet another: the
checkpoint is the old one or the new one. (Those that are killed: test_every_way_killed.py.)"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint._extension import ZStandard
from torch.testing._internal.distributed.checkpoint_utils import Rot13Example, get_test_extension_registry

import cairn
import cairn.torch as dcp
from ranks import run_ranks

pytestmark = pytest.mark.filterwarnings("ignore")

TENSORS = 6


def state(number: int) -> dict[str, Any]:
    return {**{f"w{i}": torch.full((64, 65), float(number)) for i in range(TENSORS)}, "step": number}


def _through_fsspec(folder: str) -> Any:
    pytest.importorskip("fsspec")
    from cairn.torch._fsspec_filesystem import FsspecWriter

    return FsspecWriter(f"file://{folder}", thread_count=2)


WRITERS: dict[str, Callable[[str], Any]] = {
    "fsspec": _through_fsspec,
    "a file for every item": lambda folder: dcp.FileSystemWriter(folder, single_file_per_rank=False),
    "a transform in Python": lambda folder: dcp.FileSystemWriter(folder, _extensions=[Rot13Example()]),
}


def _numbers(load: Callable[..., None], reader: Any) -> set[float]:
    """All that the checkpoint holds, which is one number when it is whole."""
    loaded = state(-1)
    load(loaded, storage_reader=reader)
    found = {float(loaded["step"])}
    for i in range(TENSORS):
        found.update(loaded[f"w{i}"].unique().tolist())
    return found


def stored(folder: Path) -> int:
    registry = get_test_extension_registry()
    by_cairn = _numbers(dcp.load, dcp.FileSystemReader(folder, _extension_registry=registry))
    by_stock = _numbers(stock.load, stock.FileSystemReader(folder, _extension_registry=registry))
    assert by_cairn == by_stock and len(by_cairn) == 1, (by_cairn, by_stock)
    return int(by_cairn.pop())


@pytest.mark.parametrize("kind", WRITERS)
def test_the_old_checkpoints_files_go_when_the_new_one_is_there(tmp_path: Path, kind: str) -> None:
    dcp.save(state(1), checkpoint_id=tmp_path)  # the engine's, with a manifest
    dcp.save(state(2), storage_writer=WRITERS[kind](str(tmp_path)))
    dcp.save(state(3), storage_writer=WRITERS[kind](str(tmp_path)))
    assert stored(tmp_path) == 3
    named = {place.relative_path for place in stock.FileSystemReader(tmp_path).read_metadata().storage_data.values()}
    left = {path.name for path in tmp_path.iterdir() if path.stat().st_size > 0}
    assert {name.split(".")[1] for name in left - named} == {"metadata", "cairn-manifest"}


def test_one_writer_saves_twice_under_different_names(tmp_path: Path) -> None:
    writer = WRITERS["a file for every item"](str(tmp_path))
    dcp.save(state(1), storage_writer=writer)
    first = {path.name for path in tmp_path.glob("*.distcp")}
    dcp.save(state(2), storage_writer=writer)
    assert first.isdisjoint(path.name for path in tmp_path.glob("*.distcp"))
    assert stored(tmp_path) == 2


class MeetsAnother(dcp.DefaultSavePlanner):
    """While its save is under way another one begins in the same place."""

    def finish_plan(self, new_plan):
        dcp.save(state(7), checkpoint_id=self.folder)
        return super().finish_plan(new_plan)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_save_that_meets_another_is_refused_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    dcp.save(state(1), checkpoint_id=tmp_path)
    planner = MeetsAnother()
    planner.folder = str(tmp_path)
    with pytest.raises(stock.CheckpointException) as raised:
        dcp.save(state(2), storage_writer=WRITERS[kind](str(tmp_path)), planner=planner)
    [(failure, _)] = raised.value.failures.values()
    assert isinstance(failure, cairn.Error) and failure.code == "conflict"
    assert stored(tmp_path) == 1
    left = {path.name for path in tmp_path.iterdir()}
    assert sum(name.endswith(".distcp") for name in left) == 1 and not any("partial" in name for name in left)


class FailsOnOne(dcp.DefaultSavePlanner):
    def resolve_data(self, write_item):
        if torch.distributed.get_rank() == 1 and write_item.index.fqn == "r1":
            raise OSError("rank 1 has no data")
        return super().resolve_data(write_item)


def _save_together(rank: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    for number, planner in ((1, None), (2, FailsOnOne())):
        own = {f"r{rank}": torch.full((4,), float(number)), f"s{rank}": torch.full((4,), float(number))}
        writer = dcp.FileSystemWriter(folder, single_file_per_rank=False)
        try:
            dcp.save(own, storage_writer=writer, planner=planner)
        except stock.CheckpointException as error:
            assert number == 2 and "rank 1 has no data" in str(error)
    assert number == 2


def test_a_save_that_fails_on_one_rank_leaves_nothing_on_any(tmp_path: Path) -> None:
    run_ranks(2, _save_together, str(tmp_path))
    files = {path.name for path in tmp_path.glob("*.distcp")}
    assert len(files) == 4 and len({name.split(".")[1] for name in files}) == 1
    loaded = {name: torch.zeros(4) for name in ("r0", "r1", "s0", "s1")}
    stock.load(loaded, checkpoint_id=tmp_path)
    assert all(tensor.tolist() == [1.0] * 4 for tensor in loaded.values())


def _save_alone(rank: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    for number in (1, 2):
        writer = dcp.FileSystemWriter(folder, single_file_per_rank=False)
        dcp.save({"r": torch.full((4,), float(10 * number + rank))}, storage_writer=writer, use_collectives=False)


def _load_alone(rank: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    loaded = {"r": torch.zeros(4)}
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(folder, _extension_registry=get_test_extension_registry()))
    assert loaded["r"].tolist() == [20.0 + rank] * 4


def test_ranks_that_save_alone_replace_what_was_there(tmp_path: Path) -> None:
    # Stock's global checkpoint shares its names with what ranks on their own wrote before.
    stock.save(state(1), checkpoint_id=tmp_path)
    os.link(tmp_path / ".metadata", tmp_path / "__0.metadata")
    run_ranks(2, _save_alone, str(tmp_path))
    assert len(list(tmp_path.glob("__[01]_0.????????????????????????????????.distcp"))) == 2
    assert not (tmp_path / ".metadata").exists()  # all ranks have saved: theirs is the checkpoint
    run_ranks(2, _load_alone, str(tmp_path))


def test_every_item_in_a_compressed_file_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    writer = dcp.FileSystemWriter(tmp_path, single_file_per_rank=False, _extensions=[ZStandard()])
    dcp.save(state(3), storage_writer=writer)
    assert stored(tmp_path) == 3
    assert _numbers(dcp.load, dcp.FileSystemReader(tmp_path)) == {3.0}
