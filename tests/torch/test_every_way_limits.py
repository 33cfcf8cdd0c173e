"""What must hold on every way in: what is written can be read back, nothing in a file is run, and no state is too much."""

from __future__ import annotations

import os
import pickle
import resource
from pathlib import Path
from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.checkpoint import CheckpointException

import matrix
from matrix import Way, dcp, every_way, failure_of, numbers, stock, together

pytestmark = pytest.mark.filterwarnings("ignore")

# --- 8 ---

LONG_NAME = "k" * 65_536
TOO_LONG = "k" * 65_537


def large_objects() -> dict[str, Any]:
    nested: Any = ("end",)
    for _ in range(90):
        nested = (nested,)
    return {
        "text": "x" * (17 << 20),
        "bytes": b"y" * (17 << 20),
        "numbers": tuple(range(100_000)),
        "nothing": (None,) * 300_000,
        "nested": nested,
    }


def files_in(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if "lock" not in name) if folder.exists() else []


@every_way("8 limits")
def test_what_is_written_can_be_read_back(tmp_path: Path, way: Way) -> None:
    more = large_objects() if way.objects else {}
    way.save(way.state(1, **{LONG_NAME: torch.arange(5.0)}, **more), tmp_path / "id")
    for side in (dcp, stock):
        into = way.state(0, **{LONG_NAME: torch.zeros(5)}, **dict.fromkeys(more))
        way.load(into, tmp_path / "id", side)
        assert numbers(into) == {1} and torch.equal(into[LONG_NAME], torch.arange(5.0))
        for name, value in more.items():
            assert into[name] == value, name
    if way.own_format:
        return  # whose limits are its own
    error = failure_of(lambda: way.save(way.state(2, **{TOO_LONG: torch.ones(2)}), tmp_path / "too long"))
    assert isinstance(error, CheckpointException) and "65536" in str(error) and "kkk" in str(error)
    if way.name != "memory":
        assert files_in(tmp_path / "too long") == []


@pytest.mark.slow
def test_three_million_nothings_and_zeros_that_pack_well(tmp_path: Path) -> None:
    way = matrix.WAYS["zstd"]
    way.save({"w": torch.zeros(200 << 20, dtype=torch.uint8), "nothing": [None] * 3_000_000}, tmp_path)
    for side in (dcp, stock):
        into = {"w": torch.ones(200 << 20, dtype=torch.uint8), "nothing": None}
        way.load(into, tmp_path, side)
        assert not into["w"].any() and into["nothing"] == [None] * 3_000_000


# --- 9 ---


class Touch:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return (os.mkdir, (self.path,))


@every_way("9 objects")
def test_safe_loads_run_nothing_that_an_object_says(tmp_path: Path, way: Way) -> None:
    mark = tmp_path / "mark"
    way.save(way.state(1, odd=Touch(mark)), tmp_path / "id")
    assert not mark.exists()
    with dcp.installed(safe=True):
        into = way.state(0, odd=None)
        error = failure_of(lambda: way.load(into, tmp_path / "id"))
        assert not mark.exists()
        assert error is None or "mkdir" in str(error), error  # what it would have run is named
        assert numbers(way.load(way.state(0), tmp_path / "id")) == {1}
    failure_of(lambda: way.load(way.state(0, odd=None), tmp_path / "id"))
    assert mark.exists(), "without safe it is loaded as stock loads it: else nothing was tried"


def in_planner_data(metadata: Any, touch: Touch) -> None:
    metadata.planner_data = touch


def in_an_attribute(metadata: Any, touch: Touch) -> None:
    metadata.mark = touch


def in_the_places(metadata: Any, touch: Touch) -> None:
    metadata.storage_data = {**metadata.storage_data, "more": touch}


def in_a_dtype(metadata: Any, touch: Touch) -> None:
    metadata.state_dict_metadata["w0"].properties.dtype = touch


HIDING: list[Callable[[Any, Touch], None]] = [in_planner_data, in_an_attribute, in_the_places, in_a_dtype]


@every_way("9 metadata")
def test_a_description_is_never_unpickled(tmp_path: Path, way: Way) -> None:
    mark = tmp_path / "mark"
    ran = []
    for hide in HIDING:
        folder = tmp_path / hide.__name__
        way.save(way.state(1), folder, stock)
        [file] = folder.glob("*.metadata")
        metadata = pickle.loads(file.read_bytes())
        hide(metadata, Touch(mark))
        file.write_bytes(pickle.dumps(metadata))
        for safe in (True, False):
            with dcp.installed(safe=safe):
                failure_of(lambda folder=folder: way.load(way.state(0), folder))  # refused, or loaded
                failure_of(lambda folder=folder: way.new_reader(folder).read_metadata())
            if mark.exists():
                ran.append(f"{hide.__name__}, safe={safe}")
                mark.rmdir()
    assert ran == []


# --- 10 ---


def endless() -> dict[str, Any]:
    deep: dict[str, Any] = {"dict": {"w": torch.ones(1)}, "list": [torch.ones(1)], "tuple": (1,)}
    for _ in range(100_000):
        deep = {"dict": {"d": deep["dict"]}, "list": [deep["list"]], "tuple": (deep["tuple"],)}
    own_dict: dict[str, Any] = {}
    own_dict["d"] = own_dict
    own_list: list[Any] = []
    own_list.append(own_list)
    return {**{f"deep {kind}": value for kind, value in deep.items()}, "own dict": own_dict, "own list": own_list}


def save_endless(way: Way, rank: int, folder: str) -> dict[str, str]:
    said = {}
    for kind, value in endless().items():
        error = failure_of(lambda value=value, kind=kind: way.save({"x": value}, f"{folder}/{kind}"))
        if isinstance(error, CheckpointException):
            error = error.failures[0][0]
        said[kind] = type(error).__name__ + ": " + str(error)[:200]
    return said


@every_way("10 endless")
def test_a_state_without_end_is_an_exception(tmp_path: Path, way: Way) -> None:
    # On a rank of its own, because what must not happen is that it ends with a signal.
    [said] = together(way, 1, save_endless, str(tmp_path))
    if way.name == "own planner":
        said.pop("own list")  # an object to this planner, and pickles can hold themselves
    for kind, error in said.items():
        refused = "tensors only" in error and not way.objects
        assert "ecursion" in error or "ested" in error or refused, (kind, error)


def shared(depth: int) -> Any:
    made: Any = (1, 2)
    for _ in range(depth):
        made = (made, made)
    return made


def save_shared(way: Way, rank: int, folder: str) -> tuple[int, int]:
    """How much memory it took, and how much it takes on the disk."""
    way.save(way.state(1, t=shared(4)), folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    way.save(way.state(2, t=shared(24)), folder)
    into = way.load(way.state(0, t=None), folder)
    assert numbers(into) == {2}
    for _ in range(24):
        assert len(into["t"]) == 2
        into["t"] = into["t"][0]
    assert into["t"] == (1, 2)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (after - before) << 10, sum(file.stat().st_size for file in Path(folder).glob("*"))


@every_way("10 shared")
def test_a_tuple_that_is_shared_many_times_takes_little(tmp_path: Path, way: Way) -> None:
    [(memory, disk)] = together(way, 1, save_shared, str(tmp_path / "id"))
    assert memory < 100 << 20 and disk < 1 << 20
