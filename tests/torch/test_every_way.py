"""What must hold on every way into a save or load, one test a promise: what is stored, and who is asked for it.

The ways and what is left out are in matrix.py; the other promises in test_every_way_*.py and
test_every_place.py.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fsspec.implementations.memory import MemoryFileSystem
from torch.distributed._shard.sharded_tensor import Shard as LocalShard
from torch.distributed._shard.sharded_tensor import init_from_local_shards
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

import matrix
from matrix import Way, dcp, every_way, failure_of, mesh, numbers, stock, together
from own_parts import Coded, Written

pytestmark = pytest.mark.filterwarnings("ignore")

SEES = ("docs",)


@pytest.fixture(autouse=True)
def nothing_in_memory() -> Iterator[None]:
    yield
    MemoryFileSystem.store.clear()


# --- the table ---


def test_the_matrix_is_counted(record_property: Any) -> None:
    import test_every_place  # noqa: F401
    import test_every_way_killed  # noqa: F401
    import test_every_way_limits  # noqa: F401
    import test_every_way_waits  # noqa: F401

    every = {(promise, way) for promise in matrix.PROMISES for way in matrix.WAYS}
    assert set(matrix.LEFT_OUT) <= every
    assert matrix.TRIED == every - set(matrix.LEFT_OUT)
    assert len(matrix.LEFT_OUT) <= 40 and all(matrix.LEFT_OUT.values())
    record_property("said", f"{len(matrix.TRIED)} promises and ways tried, {len(matrix.LEFT_OUT)} left out")


def test_the_page_for_users_names_every_way() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs/migrating-from-dcp.md").read_text()
    table = page.split("## What holds on which way")[1].split("\n## ")[0]
    ways = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    assert [way.told for way in matrix.WAYS.values() if way.told not in ways] == []
    for told, *files in matrix.ELSEWHERE.values():
        assert told in ways and all((root / file).exists() for file in files)


# --- 1 ---


def of_rank(rank: int, version: int) -> dict[str, Any]:
    """One name, other shapes, other values, other objects; and a tensor that only one of the ranks has."""
    return {
        "same": torch.full((4,), float(10 * version + rank)),
        "shape": torch.arange(3.0 + rank) + 100 * rank + version,
        "object": ["rank", rank, "version", version],
        f"only{rank}": torch.full((2, 2), float(rank + version)),
    }


def save_own(way: Way, rank: int, folder: str, version: int) -> None:
    way.save(of_rank(rank, version), folder, use_collectives=False)


def load_own(way: Way, rank: int, folder: str, version: int, side: str = "cairn") -> None:
    into = {name: torch.zeros_like(v) if torch.is_tensor(v) else None for name, v in of_rank(rank, 0).items()}
    way.load(into, folder, {"cairn": dcp, "stock": stock}[side])
    for name, value in of_rank(rank, version).items():
        found = into[name]
        assert torch.equal(found, value) if torch.is_tensor(value) else found == value, (name, found, value)


def save_as_one(way: Way, rank: int, folder: str, version: int) -> None:
    way.save(way.state(version), folder, use_collectives=True)
    assert numbers(way.load(way.state(0), folder)) == {version}


@every_way("1 rank-local")
def test_each_rank_loads_its_own(tmp_path: Path, way: Way) -> None:
    folder = str(tmp_path / "id")
    together(way, 2, save_own, folder, 1)
    together(way, 2, save_own, folder, 2)
    for side in ("cairn", "stock"):
        together(way, 2, load_own, folder, 2, side)
    if way.own_format:
        return  # what takes the place of what is the format's affair
    together(way, 2, save_as_one, folder, 3)
    together(way, 2, save_own, folder, 4)
    together(way, 2, load_own, folder, 4)


# --- 2 ---


def save_partial(way: Way, rank: int, folder: str) -> str:
    value = DTensor.from_local(torch.ones(2), mesh(), [Partial()], run_check=False)
    return str(failure_of(lambda: way.save({"w": torch.ones(2), "the.grad": value}, folder)))


@every_way("2 partial")
def test_a_partial_dtensor_is_refused_before_anything_is_written(tmp_path: Path, way: Way) -> None:
    for said in together(way, 2, save_partial, str(tmp_path / "id")):
        assert "partial" in said.lower(), said
        assert "the.grad" in said or way.name == "own planner", said  # whose own error it is
    left = os.listdir(tmp_path / "id") if (tmp_path / "id").exists() else []
    assert [name for name in left if "lock" not in name] == []


# --- 3 ---

ROWS = 12


def cut_up(way: Way, rank: int, filled: bool) -> dict[str, Any]:
    """Twelve rows over the ranks, by tensors of all kinds."""
    size = matrix.size_of_group()
    mine = slice(rank * ROWS // size, (rank + 1) * ROWS // size)
    whole = torch.arange(ROWS * 3.0).reshape(ROWS, 3) + 1
    codes = torch.arange(ROWS * 3, dtype=torch.uint8).reshape(ROWS, 3) + 1
    scale = torch.arange(ROWS * 1.0) + 0.5
    if not filled:
        whole, codes, scale = torch.zeros_like(whole), torch.zeros_like(codes), torch.zeros_like(scale)
    shard = LocalShard.from_tensor_and_offsets(whole[mine].clone(), [mine.start, 0], torch.distributed.get_rank())
    made: dict[str, Any] = {
        "dtensor": distribute_tensor(whole, mesh(), [Shard(0)]),
        "sharded": init_from_local_shards([shard], ROWS, 3, process_group=matrix.GROUP),
        "written": whole.clone().as_subclass(Written),
    }
    if way.objects:  # safetensors know no classes
        local = Coded(codes[mine].clone(), scale[mine].clone())
        made["coded"] = DTensor.from_local(local, mesh(), [Shard(0)], run_check=False)
    return made


def parts_of(state: dict[str, Any]) -> list[torch.Tensor]:
    parts = [state["dtensor"].to_local(), state["sharded"].local_shards()[0].tensor, state["written"].as_subclass(torch.Tensor)]
    if "coded" in state:
        local = state["coded"]._local_tensor
        parts += [local.codes, local.scale]
    return parts


def save_kinds(way: Way, rank: int, folder: str, side: str) -> None:
    way.save(cut_up(way, rank, True), folder, {"cairn": dcp, "stock": stock}[side])


def load_kinds(way: Way, rank: int, folder: str) -> None:
    into = way.load(cut_up(way, rank, False), folder)
    for found, expected in zip(parts_of(into), parts_of(cut_up(way, rank, True))):
        assert torch.equal(found, expected), (found, expected)


@every_way("3 kinds")
def test_tensors_of_all_kinds_are_loaded_by_other_ranks(tmp_path: Path, way: Way) -> None:
    for side in ("cairn", "stock"):
        together(way, 2, save_kinds, str(tmp_path / side), side)
        together(way, 3, load_kinds, str(tmp_path / side))


# --- 4 ---

LARGE = 18_000_000  # floats: 72 MB, more than the engine writes at once


def recording(base: type, hooks: list[str], seen: list[Any]) -> type:
    """A planner that notes what its hooks are given and give, as far as the base has them."""

    def noting(name: str) -> Any:
        def hook(self: Any, *args: Any) -> Any:
            result = getattr(base, name)(self, *args)
            item = args[0]
            index = getattr(item, "dest_index", None) or getattr(item, "index", None) or item
            index = index if hasattr(index, "fqn") else item
            shown = [tuple(each.shape) if torch.is_tensor(each) else type(each).__name__ for each in (*args[1:], result)]
            if isinstance(result, io.BytesIO):
                shown = shown[:-1] + ["bytes"]
            seen.append((name, index.fqn, *shown))
            return result

        return hook

    return type("Recording", (base,), {name: noting(name) for name in hooks if hasattr(base, name)})


def hooked(way: Way, folder: str, side: Any) -> tuple[list[Any], list[Any], bool]:
    saved: list[Any] = []
    loaded: list[Any] = []
    save = recording(way.planner_to_save(side), ["lookup_object", "transform_object", "resolve_data"], saved)
    load = recording(
        way.planner_to_load(side),
        ["load_bytes", "lookup_tensor", "transform_tensor", "resolve_tensor", "commit_tensor"],
        loaded,
    )
    large = torch.arange(LARGE, dtype=torch.float32)
    way.save(way.state(1, large=large), folder, side, planner=save())
    into = way.load(way.state(0, large=torch.zeros(LARGE)), folder, side, planner=load())
    return sorted(saved, key=repr), sorted(loaded, key=repr), numbers(into) == {1} and torch.equal(into["large"], large)


@every_way("4 hooks")
def test_hooks_see_what_stocks_see(tmp_path: Path, way: Way) -> None:
    saved, loaded, right = hooked(way, str(tmp_path / "cairn"), dcp)
    expected_saved, expected_loaded, stock_right = hooked(way, str(tmp_path / "stock"), stock)
    assert saved == expected_saved
    assert loaded == expected_loaded
    assert right and stock_right


# --- 15 ---


class Counted:
    """Mixed into a planner."""

    plans = 0

    def create_local_plan(self) -> Any:
        type(self).plans += 1
        return super().create_local_plan()


def save_again_and_again(way: Way, rank: int, folder: str) -> int:
    base = way.planner_to_save()
    planner = type("Caching", (Counted, base), {})
    remembers = {"enable_plan_caching": True} if hasattr(base, "lookup_object") else {}
    for number in range(1, 7):
        more = {"more": torch.full((number // 3 + 2,), float(number))}  # the plan changes at the third and the sixth
        way.save(way.state(number, **more), folder, planner=planner(**remembers))
        into = way.load(way.state(0, more=torch.zeros(number // 3 + 2)), folder)
        assert numbers(into) == {number} and (into["more"] == number).all(), number
    return planner.plans


@every_way("15 caching")
def test_a_remembered_plan_serves_every_save(tmp_path: Path, way: Way) -> None:
    # Each save asks the planner: whether its plan is still the same, only the planner can say.
    assert set(together(way, 2, save_again_and_again, str(tmp_path / "id"))) == {6}
