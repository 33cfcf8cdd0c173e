"""What must hold on every way in, wherever the checkpoint lies: beside other jobs and readers, on file systems that
lack much, under paths and keys of all kinds."""

from __future__ import annotations

import enum
import multiprocessing
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import mounts
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist

import matrix
from matrix import Way, dcp, every_way, failure_of, numbers, stock, together
from ranks import hard_limit

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """One folder as two machines see it, whose file system lacks all that one can lack; and as it is."""
    mounts.skip_without_mounts()
    base = tmp_path_factory.mktemp("machines")
    (base / "folder").mkdir()
    with ExitStack() as stack:
        points = [stack.enter_context(mounts.mounted(base / "folder", base / name, *mounts.ALL)) for name in "ab"]
        yield [*points, base / "folder"]


# --- 6 ---

ROUNDS = 8


def job(way: Way, folder: str, numbers_of_mine: list[int], start: Any, answers: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    said = []
    for number in numbers_of_mine:
        start.wait(hard_limit())
        error = failure_of(lambda number=number: way.save(way.state(number), folder))
        failures = [each for each, _ in getattr(error, "failures", {}).values()] or [error]
        said.append("" if error is None else getattr(failures[0], "code", repr(error)))
        start.wait(hard_limit())
        start.wait(hard_limit())  # while the test looks
    answers.send(said)


@every_way("6 two jobs")
def test_of_two_jobs_whose_locks_do_not_meet_a_winner_is_there(machines: list[Path], way: Way) -> None:
    *points, real = machines
    context = multiprocessing.get_context("fork")
    start = context.Barrier(3)
    of_jobs = [[10 * i + which for i in range(1, ROUNDS + 1)] for which in (1, 2)]
    pipes = [context.Pipe(duplex=False) for _ in points]
    jobs = [
        context.Process(target=job, args=(way, f"{point}/{way.name}", mine, start, sender))
        for point, mine, (_, sender) in zip(points, of_jobs, pipes)
    ]
    for each in jobs:
        each.start()
    found = []
    try:
        for _ in range(ROUNDS):
            start.wait(hard_limit())
            start.wait(hard_limit())
            found.append(numbers(way.load(way.state(0), real / way.name)))
            start.wait(hard_limit())
        said = [receiver.recv() for receiver, _ in pipes]
    finally:
        for each in jobs:
            each.kill()
            each.join()
    before: set[float] = set()
    for i in range(ROUNDS):
        winners = {float(of_jobs[which][i]) for which in (0, 1) if said[which][i] == ""}
        assert {said[0][i], said[1][i]} <= {"", "conflict"}, said
        assert len(found[i]) == 1 and found[i] <= (winners or before), (found[i], winners, said)
        before = found[i]


# --- 7 ---

LOADS = 8


def overwritten_in_the_middle(way: Way, rank: int, folder: str) -> set[float]:
    """Rank 0 saves another version when everybody has planned the load of the first."""
    base = way.planner_to_load()
    overwritten = []

    def plan(self: Any, plan: Any) -> Any:
        if not overwritten:
            overwritten.append(True)
            if rank == 0:
                way.save(way.state(2), folder, alone=True)
        return base.finish_plan(self, plan)

    planner = type("Overwritten", (base,), {"finish_plan": plan})
    return numbers(way.load(way.state(0), folder, planner=planner()))


def save_for_ever(way: Way, folder: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for number in range(1, 1_000_000):
        way.save(way.state(number), folder, alone=True)


def load_a_few_times(way: Way, rank: int, folder: str) -> list[set[float]]:
    return [numbers(way.load(way.state(0), folder)) for _ in range(LOADS)]


@every_way("7 readers")
def test_a_load_during_overwrites_gets_one_version_on_all_ranks(tmp_path: Path, way: Way) -> None:
    size = 1 if way.save_options else 2  # ranks that save for themselves are not to agree
    folder = str(tmp_path / "id")
    way.save(way.state(1), folder, alone=True)
    middle = together(way, size, overwritten_in_the_middle, folder)
    assert middle[0] in ({1.0}, {2.0}) and all(each == middle[0] for each in middle), middle
    writer = multiprocessing.get_context("fork").Process(target=save_for_ever, args=(way, folder))
    writer.start()
    try:
        for same in zip(*together(way, size, load_a_few_times, folder)):
            assert len(same[0]) == 1 and all(each == same[0] for each in same), same
    finally:
        writer.kill()
        writer.join()


def overwritten_every_time(way: Way, rank: int, folder: str) -> Any:
    base = way.planner_to_load()

    def plan(self: Any) -> Any:
        made = base.create_local_plan(self)
        if rank == 0:
            way.save(way.state(2), folder, alone=True)
        dist.barrier()
        return made

    planner = type("Overwritten", (base,), {"create_local_plan": plan})
    into = way.state(0)
    error = failure_of(lambda: way.load(into, folder, planner=planner()))
    return {getattr(each, "code", repr(each)) for each, _ in error.failures.values()} if error else numbers(into)


def test_a_load_that_is_overwritten_every_time_is_a_conflict_in_the_end(tmp_path: Path) -> None:
    way = matrix.WAYS["own plan step"]
    way.save(way.state(1), tmp_path)
    for found in together(way, 2, overwritten_every_time, str(tmp_path)):
        assert found in ({"conflict"}, {1.0}, {2.0}), found


# --- 16 ---


@every_way("16 places")
def test_a_file_system_that_lacks_much_will_do(machines: list[Path], way: Way) -> None:
    folder = machines[0] / f"{way.name} alone"
    for number in (1, 2):
        way.save(way.state(number), folder)
        assert numbers(way.load(way.state(0), folder)) == {number}
    if hasattr(way.new_writer(folder), "sync_files"):
        writer = way.new_writer(folder)
        writer.sync_files = False
        way.save(way.state(3), folder, storage_writer=writer)
        assert numbers(way.load(way.state(0), folder)) == {3}
        assert numbers(way.load(way.state(0), folder, stock)) == {3}
    behind_links(way, machines[2] / f"{way.name} linked")


def behind_links(way: Way, folder: Path) -> None:
    """Links in front of files are followed by a load, and never written through."""
    way.save(way.state(1), folder)
    elsewhere = folder.parent / f"{folder.name} elsewhere"
    elsewhere.mkdir()
    for file in [file for file in folder.iterdir() if "lock" not in file.name]:
        file.rename(elsewhere / file.name)
        file.symlink_to(elsewhere / file.name)
    before = {file.name: file.read_bytes() for file in elsewhere.iterdir()}
    assert numbers(way.load(way.state(0), folder)) == {1}
    way.save(way.state(2), folder)
    assert {file.name: file.read_bytes() for file in elsewhere.iterdir()} == before
    assert numbers(way.load(way.state(0), folder)) == {2}


# --- 17 ---


@every_way("17 paths")
def test_paths_of_all_kinds(tmp_path: Path, way: Way) -> None:
    paths: list[Any] = [tmp_path / "path", os.fsdecode(os.fsencode(tmp_path) + b"/x\xff-\xc3\xa4")]
    if way.place(tmp_path) == tmp_path and way.objects and not way.own_format:  # URLs and Hugging Face's are text
        paths.append(os.fsencode(tmp_path) + b"/b\xfe")
    for path in paths:
        way.save(way.state(1), path)
        assert numbers(way.load(way.state(0), path)) == {1}, path
        if isinstance(path, Path) or (isinstance(path, str) and way.objects):  # others stock does not know
            assert numbers(way.load(way.state(0), path, stock)) == {1}, path
    assert len(os.listdir(os.fsencode(tmp_path))) == len(paths)


class Name(str, enum.Enum):
    WEIGHT = "weight"


@every_way("17 keys")
def test_keys_that_are_enums_have_stocks_names(tmp_path: Path, way: Way) -> None:
    for saver, loader in ((dcp, dcp), (dcp, stock), (stock, dcp)):
        folder = tmp_path / f"{saver.__name__} {loader.__name__}"
        way.save(way.state(1, model={Name.WEIGHT: torch.ones(3)}), folder, saver)
        into = way.load(way.state(0, model={Name.WEIGHT: torch.zeros(3)}), folder, loader)
        assert numbers(into) == {1} and torch.equal(into["model"][Name.WEIGHT], torch.ones(3))


def quantised(values: torch.Tensor, per_channel: bool) -> torch.Tensor:
    if per_channel:
        scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.zeros(3, dtype=torch.int64)
        return torch.quantize_per_channel(values, scales, zeros, 0, torch.qint8)
    return torch.quantize_per_tensor(values, 0.5, 3, torch.quint8)


@every_way("17 quantised")
def test_quantised_tensors_of_stocks_load_as_stock_loads_them(tmp_path: Path, way: Way) -> None:
    for per_channel in (False, True):
        folder = tmp_path / str(per_channel)
        saved = quantised(torch.arange(12.0).reshape(3, 4), per_channel)
        way.save(way.state(1, q=saved), folder, stock)
        found = [
            way.load(way.state(0, q=quantised(torch.zeros(3, 4), per_channel)), folder, side) for side in (stock, dcp)
        ]
        for into in found:
            assert numbers(into) == {1} and torch.equal(into["q"].dequantize(), saved.dequantize())
