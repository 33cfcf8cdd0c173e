"""What is in a description beside DCP's own: a planner's data, attributes, places of another class.

It comes back as stock's pickle.load gives it, as long as it is plain data and dataclasses derived from torch's; and
whatever it says, nothing of it is run.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import sys
import types
from collections import OrderedDict
from pathlib import Path
from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint._hf_utils import _HFStorageInfo
from torch.distributed.checkpoint.filesystem import _StorageInfo, _StoragePrefix
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, WriteItem, WriteItemType

import cairn
import cairn.torch as dcp
from cairn.torch._fsspec_filesystem import FsspecReader

pytestmark = pytest.mark.filterwarnings("ignore")

RAN: list[str] = []  # by code that no description may reach


# --- classes of somebody's own ---


@dataclasses.dataclass
class OwnChunk(ChunkStorageMetadata):
    owner: str = ""
    weights: list[float] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class OwnItem(WriteItem):
    note: Any = None


@dataclasses.dataclass
class OwnInfo(_StorageInfo):
    digest: str = ""


class OwnProperties(TensorProperties):
    pass


class OwnMetadata(Metadata):
    pass


class OwnEntry(TensorStorageMetadata):
    pass


class Outer:
    @dataclasses.dataclass
    class Inner(_StoragePrefix):
        more: int = 0


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Meta(type):
    def __call__(cls, *args: Any) -> Any:
        RAN.append("metaclass")
        return super().__call__(*args)

    def __getattribute__(cls, name: str) -> Any:
        if name != "__name__":
            RAN.append(f"metaclass, {name}")
        return super().__getattribute__(name)


class Watched(ChunkStorageMetadata):
    """Everything it does is seen."""

    def __new__(cls, *args: Any) -> Any:
        RAN.append("__new__")
        return super().__new__(cls)

    def __init__(self, *args: Any) -> None:
        RAN.append("__init__")

    def __post_init__(self) -> None:
        RAN.append("__post_init__")

    def __setattr__(self, name: str, value: Any) -> None:
        RAN.append("__setattr__")

    def __getattribute__(self, name: str) -> Any:
        RAN.append("__getattribute__")
        return super().__getattribute__(name)

    def __hash__(self) -> int:
        RAN.append("__hash__")
        return 1

    def __eq__(self, other: object) -> bool:
        RAN.append("__eq__")
        return True

    def _set(self, value: Any) -> None:
        RAN.append("property")

    seen = property(lambda self: RAN.append("property"), _set)


class WatchedClass(ChunkStorageMetadata, metaclass=Meta):
    pass


class Sets(ChunkStorageMetadata):
    def __setstate__(self, state: Any) -> None:
        RAN.append("__setstate__")


class Dies(ChunkStorageMetadata):
    def __del__(self) -> None:
        RAN.append("__del__")


class Runs:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def run(*_: Any) -> None:
    RAN.append("function")


def made(cls: Any, **attributes: Any) -> Any:
    """An object that nothing of was run for."""
    new = object.__new__(cls)
    object.__getattribute__(new, "__dict__").update(attributes)
    return new


# --- what comes back ---


def nested(depth: int, inner: Any = None) -> Any:
    for _ in range(depth):
        inner = [inner, 1]
    return inner


PROPERTIES = TensorProperties(torch.bfloat16, torch.strided, True, torch.channels_last, False)
SHARED = ["shared"]


def plain() -> Any:
    return {
        "scalars": [None, True, False, 0, -(2**63), 2**64 - 1, 2**70, -(2**65), 2.5, float("inf"), "", "é\U0001f600"],
        "bytes": (b"", b"\x00\xff", bytearray(b"\x00\xffa"), bytearray()),
        7: {"empty": ((), [], {}), "fours": (1, 2, 3, 4)},
        "deep": nested(50),
        "sets": [set(), {1, "a"}, frozenset(), frozenset({(1, 2), frozenset({None})})],
        "keys": {None: 1, (1, ("a", b"b")): 2, 2.5: 3, True: 4, 2**70: 5, frozenset({1}): 6, b"k": 7},
        "ordered": OrderedDict(b=1, a=OrderedDict()),
    }


def of_torch() -> Any:
    return {
        "sizes": [torch.Size([]), torch.Size([2, 3, 4, 5])],
        "constants": [torch.float32, torch.float8_e4m3fn, torch.quint8, torch.strided, torch.sparse_csr],
        "enums": [WriteItemType.SHARD, LoadItemType.BYTE_IO],
        MetadataIndex("w", torch.Size([0]), 3): TensorStorageMetadata(PROPERTIES, torch.Size([2]), []),
        torch.float16: BytesStorageMetadata(),
        WriteItemType.TENSOR: _HFStorageInfo("a", torch.Size([2]), torch.float32),
    }


def derived() -> Any:
    chunk = OwnChunk(torch.Size([0]), torch.Size([4]), "me", [0.5])
    item = OwnItem(MetadataIndex("w"), WriteItemType.BYTE_IO, note={"chunk": chunk})
    properties = made(OwnProperties, **vars(PROPERTIES))
    return {"w": chunk, "x": [chunk, item], "p": properties, "i": OwnInfo("f", 1, 2, digest="d")}


DATA = [plain, of_torch, derived]


def again(data: Any) -> Any:
    """As Python's pickle gives it back: some of torch's classes leave out what is None."""
    return pickle.loads(pickle.dumps(data))


def require_same(a: Any, b: Any, where: str = "it") -> None:
    assert type(a) is type(b), where
    if isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            require_same(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b)):
            require_same(x, y, f"{where}[{i}]")
    elif dataclasses.is_dataclass(a):
        require_same(dict(sorted(vars(a).items())), dict(sorted(vars(b).items())), where)
    else:
        assert a == b, where


def state() -> dict[str, Any]:
    return {"w": torch.arange(6.0), "step": 3}


def changed(folder: Path, change: Callable[[Any], Any], protocol: int | None = None) -> Path:
    """A checkpoint of stock's with another description."""
    stock.save(state(), checkpoint_id=folder)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata = change(metadata) or metadata
    (folder / ".metadata").write_bytes(pickle.dumps(metadata, protocol))
    RAN.clear()
    return folder


def with_planner_data(folder: Path, data: Any, protocol: int | None = None) -> Path:
    return changed(folder, lambda metadata: setattr(metadata, "planner_data", data), protocol)


def described(folder: Path) -> Any:
    return dcp.FileSystemReader(folder).read_metadata()


def require_loads(folder: Path, load: Any = dcp.load) -> None:
    loaded = {"w": torch.zeros(6), "step": 0}
    load(loaded, checkpoint_id=folder)
    assert loaded["w"].tolist() == list(range(6)) and loaded["step"] == 3


class Leaves(stock.DefaultSavePlanner):
    """Leaves data of its own in the description."""

    def __init__(self, data: Any, **attributes: Any) -> None:
        super().__init__()
        self.data, self.attributes = data, attributes

    def create_global_plan(self, all_plans: Any) -> Any:
        plans, metadata = super().create_global_plan(all_plans)
        if self.data is not None:
            metadata = dataclasses.replace(metadata, planner_data=self.data)
        vars(metadata).update(self.attributes)
        return plans, metadata


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("data", DATA)
def test_what_stocks_planner_left_is_read(tmp_path: Path, data: Any, protocol: int) -> None:
    folder = with_planner_data(tmp_path / "it", data(), protocol)
    require_same(pickle.loads((folder / ".metadata").read_bytes()).planner_data, described(folder).planner_data)
    require_loads(folder)


@pytest.mark.parametrize("data", DATA)
def test_what_a_planner_leaves_stock_reads_and_so_do_we(tmp_path: Path, data: Any) -> None:
    dcp.save(state(), checkpoint_id=tmp_path, planner=Leaves(data(), mcore_data={"w": data()}))
    for read in (stock.FileSystemReader(tmp_path).read_metadata(), described(tmp_path)):
        require_same(again(data()), read.planner_data)
        require_same(again({"w": data()}), read.mcore_data)
    require_loads(tmp_path)
    require_loads(tmp_path, stock.load)


@pytest.mark.parametrize("data", DATA)
def test_attributes_that_stock_wrote_are_read(tmp_path: Path, data: Any) -> None:
    def change(metadata: Any) -> None:
        metadata.mcore_data, metadata.more = data(), 7

    found = described(changed(tmp_path / "it", change))
    require_same(again(data()), found.mcore_data)
    assert found.more == 7 and found.planner_data == {"w": ("w",), "step": ("step",)}


def test_the_description_a_load_leaves_behind_has_them(tmp_path: Path) -> None:
    folder = changed(tmp_path / "it", lambda metadata: setattr(metadata, "mcore_data", derived()))
    planner = stock.DefaultLoadPlanner()
    dcp.load({"w": torch.zeros(6)}, checkpoint_id=folder, planner=planner)
    require_same(again(derived()), planner.metadata.mcore_data)


def own_places(metadata: Any) -> None:
    metadata.storage_data = {
        index: OwnInfo(place.relative_path, place.offset, place.length, digest=f"of {index.fqn}")
        for index, place in metadata.storage_data.items()
    }


def test_places_of_another_class_that_stock_wrote_are_read(tmp_path: Path) -> None:
    folder = changed(tmp_path / "it", own_places)
    require_same(pickle.loads((folder / ".metadata").read_bytes()).storage_data, described(folder).storage_data)
    assert {place.digest for place in described(folder).storage_data.values()} == {"of w", "of step"}


class OwnPlacesWriter(dcp.FileSystemWriter):
    def write_data(self, plan: Any, planner: Any) -> Any:
        future = super().write_data(plan, planner)
        done = torch.futures.Future()
        done.set_result([
            dataclasses.replace(each, storage_data=OwnInfo(**vars(each.storage_data), digest=f"of {each.index.fqn}"))
            for each in future.value()
        ])
        return done


def test_places_of_another_class_that_a_writer_made_stock_reads_and_so_do_we(tmp_path: Path) -> None:
    dcp.save(state(), storage_writer=OwnPlacesWriter(tmp_path))
    for read in (stock.FileSystemReader(tmp_path).read_metadata(), described(tmp_path)):
        assert {type(place) for place in read.storage_data.values()} == {OwnInfo}
        assert {place.digest for place in read.storage_data.values()} == {"of w", "of step"}
    require_loads(tmp_path, stock.load)


def test_a_description_of_derived_classes_is_read(tmp_path: Path) -> None:
    def change(metadata: Any) -> Any:
        metadata.state_dict_metadata["w"] = made(OwnEntry, **vars(metadata.state_dict_metadata["w"]))
        return made(OwnMetadata, **vars(metadata))

    folder = changed(tmp_path / "it", change)
    stocks, ours = pickle.loads((folder / ".metadata").read_bytes()), described(folder)
    ours.storage_meta = stocks.storage_meta  # the reader puts an id of its own there
    require_same(stocks, ours)


def test_a_class_in_a_class_is_found(tmp_path: Path) -> None:
    folder = with_planner_data(tmp_path / "it", [Outer.Inner("p", 3)])
    require_same([Outer.Inner("p", 3)], described(folder).planner_data)


# --- sharing, cycles, limits ---


def test_what_is_shared_stays_shared(tmp_path: Path) -> None:
    chunk = OwnChunk(torch.Size([0]), torch.Size([1]))
    data = {"a": SHARED, "b": SHARED, "c": [chunk, chunk], "d": OwnChunk(torch.Size([0]), torch.Size([1]), "", SHARED)}
    with_planner_data(tmp_path / "stocks", data)
    dcp.save(state(), checkpoint_id=tmp_path / "ours", planner=Leaves(data))
    for folder in (tmp_path / "stocks", tmp_path / "ours"):
        found = described(folder).planner_data
        assert found["a"] is found["b"] and found["a"] is found["d"].weights and found["a"] == SHARED
        assert found["c"][0] is found["c"][1]


def test_what_is_inside_itself_comes_back_so(tmp_path: Path) -> None:
    chunk = OwnChunk(torch.Size([0]), torch.Size([1]))
    chunk.weights.append(chunk)
    data: dict[str, Any] = {"list": [1], "object": chunk}
    data["list"].append(data["list"])
    data["me"] = data
    found = described(with_planner_data(tmp_path / "it", data)).planner_data
    assert found["me"] is found and found["list"][1] is found["list"]
    assert found["object"].weights[0] is found["object"] and type(found["object"]) is OwnChunk


def test_shared_tuples_are_not_unfolded(tmp_path: Path) -> None:
    data: Any = ("end",)
    for _ in range(40):
        data = (data, data)
    found = described(with_planner_data(tmp_path / "it", data)).planner_data
    for _ in range(40):
        assert found[0] is found[1]
        found = found[0]
    assert found == ("end",)


def failure_of(call: Any) -> cairn.Error:
    with pytest.raises((cairn.Error, stock.CheckpointException)) as raised:
        call()
    error: Any = raised.value
    if isinstance(error, stock.CheckpointException):
        [(error, _)] = error.failures.values()
    assert isinstance(error, cairn.Error)
    return error


def test_beyond_the_limits_neither_written_nor_read(tmp_path: Path) -> None:
    dcp.save(state(), checkpoint_id=tmp_path / "ours", planner=Leaves({"the": "first"}))
    for at, data in enumerate([nested(80), 2**100, {"a" * 70_000: 1}]):
        error = failure_of(lambda data=data: dcp.save(state(), checkpoint_id=tmp_path / "ours", planner=Leaves(data)))
        assert error.code == "limit" and "the planner's data could not be read again" in str(error)
        folder = with_planner_data(tmp_path / str(at), data)
        assert failure_of(lambda folder=folder: described(folder)).code == "limit"
    assert described(tmp_path / "ours").planner_data == {"the": "first"}
    require_loads(tmp_path / "ours")


def test_a_key_that_unfolds_is_refused_before_anybody_hashes_it() -> None:
    # {key: 1}, where the key is a tuple of twice the same tuple, and so on: Python would never be done with it.
    twice = b"".join(b"q" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(40))
    program = b"\x80\x02})" + twice + b"K\x01s."
    with pytest.raises(cairn.Error, match="a key that is far larger than its pickle") as raised:
        cairn._engine.object_of_pickle(program, "f")
    assert raised.value.code == "limit"


def test_a_class_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    dcp.save(state(), checkpoint_id=tmp_path, planner=Leaves({"the": "first"}))
    for planner in (Leaves([Plain(1)]), Leaves(None, mcore_data=Plain(1)), Leaves({"t": torch.ones(1)})):
        error = failure_of(lambda planner=planner: dcp.save(state(), checkpoint_id=tmp_path, planner=planner))
        assert error.code == "unsupported" and "could not be read again" in str(error)
        assert any(name in str(error) for name in (f"{__name__}.Plain", "torch._utils._rebuild_tensor_v2"))
    assert described(tmp_path).planner_data == {"the": "first"}
    require_loads(tmp_path)


# --- nothing is run ---

HOSTILE = {
    f"{os.mkdir.__module__}.mkdir": lambda: Runs(os.mkdir, "never"),
    "builtins.eval": lambda: Runs(eval, "RAN.append('eval')"),
    "builtins.getattr": lambda: Runs(getattr, RAN, "append"),
    f"{__name__}.run": lambda: Runs(run, 1),
    f"{__name__}.Sets": lambda: made(Sets, offsets=torch.Size([1])),
    f"{__name__}.Dies": lambda: made(Dies, offsets=torch.Size([1])),
    f"{__name__}.Plain": lambda: Plain(1),
    "collections.Counter": lambda: __import__("collections").Counter("a"),
    "torch.storage._load_from_bytes": lambda: torch.ones(2).untyped_storage(),
    "torch.distributed.checkpoint.metadata.Metadata": lambda: Metadata,
    "torch.nn": lambda: torch.nn.Linear(1, 1),
}


def in_planner_data(metadata: Any, value: Any) -> None:
    metadata.planner_data = {"deep": [value]}


def in_an_attribute(metadata: Any, value: Any) -> None:
    metadata.mcore_data = [value]


def in_the_places(metadata: Any, value: Any) -> None:
    metadata.storage_data = {**metadata.storage_data, "more": value}


PLACES = [in_planner_data, in_an_attribute, in_the_places]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("put", PLACES)
def test_what_would_run_is_refused_by_its_name(tmp_path: Path, put: Any, name: str) -> None:
    folder = changed(tmp_path / "it", lambda metadata: put(metadata, HOSTILE[name]()))
    RAN.clear()  # the one that was pickled has died by now
    for read in (lambda: described(folder), lambda: FsspecReader(f"file://{folder}").read_metadata()):
        error = failure_of(read)
        assert error.code == "unsupported" and name in str(error) and ".metadata" in str(error)
    assert RAN == [] and not Path("never").exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_nor_is_it_run_where_a_dtype_belongs(tmp_path: Path, name: str) -> None:
    def change(metadata: Any) -> None:
        metadata.state_dict_metadata["w"].properties.dtype = HOSTILE[name]()

    folder = changed(tmp_path / "it", change)
    RAN.clear()
    error = failure_of(lambda: described(folder))
    assert error.code in ("corrupt", "unsupported") and ".metadata" in str(error)
    assert RAN == [] and not Path("never").exists()


@pytest.mark.parametrize("put", PLACES)
def test_an_object_gets_its_attributes_and_nothing_is_run(tmp_path: Path, put: Any) -> None:
    value = made(Watched, offsets=torch.Size([1]), seen=7, __class__="a str")
    folder = changed(tmp_path / "it", lambda metadata: put(metadata, [value, made(WatchedClass, sizes=3)]))
    found = described(folder)
    assert RAN == []
    [watched, other] = {
        in_planner_data: lambda: found.planner_data["deep"][0],
        in_an_attribute: lambda: found.mcore_data[0],
        in_the_places: lambda: found.storage_data["more"],
    }[put]()
    assert type(watched) is Watched and type(other) is WatchedClass
    attributes = object.__getattribute__(watched, "__dict__")
    assert attributes == {"offsets": torch.Size([1]), "seen": 7, "__class__": "a str"}
    RAN.clear()


def test_only_torchs_own_classes_are_asked_for_a_hash(tmp_path: Path) -> None:
    for key in (made(Watched), (1, made(Watched)), made(WriteItem, index="w", type=made(Watched))):
        for data in (lambda key=key: {key: 1}, lambda key=key: {1: frozenset({key})}):
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            with_planner_data(folder, data())
            error = failure_of(lambda folder=folder: described(folder))
            assert error.code == "unsupported" and "a key of a dict or set" in str(error)
            assert RAN == []


def test_modules_are_not_imported_and_not_asked(tmp_path: Path) -> None:
    class Asking(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            RAN.append(name)
            raise AttributeError(name)

    name = "foreign_module_of_a_test"
    module = Asking(name)
    gone = dataclasses.make_dataclass("Gone", [("more", int, 0)], bases=(_StoragePrefix,))
    gone.__module__ = name
    module.Gone = gone  # type: ignore[attr-defined]
    sys.modules[name] = module
    try:
        folder = with_planner_data(tmp_path / "it", gone("p", 3))
        assert type(described(folder).planner_data) is gone
        del module.Gone  # type: ignore[attr-defined]
        RAN.clear()
        assert f"{name}.Gone" in str(failure_of(lambda: described(folder)))
        del sys.modules[name]
        (tmp_path / f"{name}.py").write_text("import pathlib\npathlib.Path('never').touch()\n")
        sys.path.insert(0, str(tmp_path))
        assert f"{name}.Gone" in str(failure_of(lambda: described(folder)))
    finally:
        sys.modules.pop(name, None)
        if str(tmp_path) in sys.path:
            sys.path.remove(str(tmp_path))
    assert RAN == [] and not Path("never").exists()
