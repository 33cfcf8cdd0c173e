"""Every way into a save or load, and the promises that hold on each, but for what is left out."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Callable, Optional

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("fsspec")
pytest.importorskip("safetensors")
pytest.importorskip("zstandard")

import torch._dynamo  # noqa: F401 - each rank's first DTensor would import it, for a second
import torch.distributed as dist
import torch.distributed.checkpoint as stock
import torch.distributed.checkpoint._fsspec_filesystem
import torch.distributed.tensor
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.device_mesh import DeviceMesh

import cairn.torch as dcp
import own_parts
from ranks import Ranks, hard_limit

warnings.simplefilter("ignore")

GROUP: Any = None  # in a rank: the process group that saves, where it is not all ranks

# --- parts that are derived from stock's or from cairn's, whichever side is asked ---


@functools.lru_cache
def derived(base: type, *hooks: str) -> type:
    """A subclass that overrides `hooks`, each of which calls the base's; none of them: a subclass that does nothing."""

    def calling(name: str) -> Any:
        def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(base, name)(self, *args, **kwargs)

        return hook

    return type(f"Derived{base.__name__}", (base,), {name: calling(name) for name in hooks})


def fsspec(side: Any) -> Any:
    import cairn.torch._fsspec_filesystem as ours
    import torch.distributed.checkpoint._fsspec_filesystem as theirs

    return ours if side is dcp else theirs


def _is_url(place: Any) -> bool:
    return isinstance(place, str) and "://" in place


# --- the ways ---


@dataclass(frozen=True)
class Way:
    """How a save or load is called. `side` is the package asked: cairn's or stock's."""

    name: str
    told: str  # what the table of docs/migrating-from-dcp.md calls it
    writer: Optional[Callable[[Any, Any], Any]] = None  # (side, folder); None: by checkpoint_id
    reader: Optional[Callable[[Any, Any], Any]] = None
    save_planner: Optional[Callable[[Any], type]] = None
    load_planner: Optional[Callable[[Any], type]] = None
    place: Callable[[Any], Any] = lambda folder: folder  # as the storage is told of a folder
    ranks: int = 4  # at most
    objects: bool = True  # more than tensors can be saved
    own_format: bool = False  # whose bytes are the user's affair
    background: dict[str, Any] = field(default_factory=dict)  # arguments of async_save, and "async"
    save_options: dict[str, Any] = field(default_factory=dict)
    no_dist: bool = False
    subgroup: bool = False
    installed: bool = False

    # Parts of a call, of which tests derive.

    def new_writer(self, folder: Any, side: Any = dcp) -> Any:
        with self.names(side) as asked:
            place = self.place(folder)
            if self.writer:
                return self.writer(asked, place)
            return (fsspec(asked).FsspecWriter if _is_url(place) else asked.FileSystemWriter)(place)

    def new_reader(self, folder: Any, side: Any = dcp) -> Any:
        with self.names(side) as asked:
            place = self.place(folder)
            if self.reader:
                return self.reader(asked, place)
            return (fsspec(asked).FsspecReader if _is_url(place) else asked.FileSystemReader)(place)

    def planner_to_save(self, side: Any = dcp) -> type:
        with self.names(side) as asked:
            return self.save_planner(asked) if self.save_planner else asked.DefaultSavePlanner

    def planner_to_load(self, side: Any = dcp) -> type:
        with self.names(side) as asked:
            return self.load_planner(asked) if self.load_planner else asked.DefaultLoadPlanner

    @contextmanager
    def names(self, side: Any) -> Iterator[Any]:
        """The package whose names are asked: torch's own, with cairn's behind them, where cairn is installed."""
        if not self.installed or side is stock:
            yield side
            return
        with nullcontext() if stock.save is dcp.save else dcp.installed():
            yield stock

    # Calls.

    def _call(self, given: dict[str, Any], folder: Any, kind: str, side: Any, alone: bool) -> dict[str, Any]:
        storage, planner = f"storage_{kind}", given.pop("planner", None)
        make = self.new_writer if kind == "writer" else self.new_reader
        planners = self.save_planner if kind == "writer" else self.load_planner
        if planners is not None and planner is None:
            planner = (self.planner_to_save if kind == "writer" else self.planner_to_load)(side)()
        if storage not in given:
            own = self.writer if kind == "writer" else self.reader
            given[storage if own else "checkpoint_id"] = make(folder, side) if own else self.place(folder)
        if planner is not None:
            given["planner"] = planner
        if GROUP is not None and not alone:
            given.setdefault("process_group", GROUP)
        if self.no_dist or alone:
            given["no_dist"] = True
        return given

    def start(self, state: Any, folder: Any, side: Any = dcp, alone: bool = False, **given: Any) -> Any:
        """A save that may go on in the background: its future, or None. `alone`: of one process, whatever its ranks."""
        with self.names(side) as asked:
            given = self._call({**self.save_options, **given}, folder, "writer", side, alone)
            if not self.background or side is stock:  # stock is asked for what is stored, not when
                asked.save(state, **given)
                return None
            more = {name: make(side) for name, make in self.background.items() if name != "async"}
            answer = asked.async_save(state, **given, **more)
            return getattr(answer, "upload_completion", answer)

    def save(self, state: Any, folder: Any, side: Any = dcp, alone: bool = False, **given: Any) -> None:
        future = self.start(state, folder, side, alone, **given)
        if future is not None:
            future.result(timeout=hard_limit())

    def load(self, state: Any, folder: Any, side: Any = dcp, alone: bool = False, **given: Any) -> Any:
        with self.names(side) as asked:
            asked.load(state, **self._call(given, folder, "reader", side, alone))
        return state

    def in_background(self) -> "Way":
        """The same through async_save."""
        from dataclasses import replace

        return self if self.background else replace(self, background={"async": None})

    # States.

    def state(self, number: float, **more: Any) -> dict[str, Any]:
        """All of it says `number`."""
        made: dict[str, Any] = {f"w{i}": torch.full((64, 65), float(number)) for i in range(5)}
        made["part"] = {"v": torch.full((7,), float(number))}
        return {**made, "step": number, **more} if self.objects else {**made, **more}


def numbers(state: dict[str, Any]) -> set[float]:
    """All that a state of `Way.state` says; one number when it is whole."""
    found = {float(state["step"])} if "step" in state else set()
    for tensor in (*(state[f"w{i}"] for i in range(5)), state["part"]["v"]):
        found.update(tensor.unique().tolist())
    return found


WAYS = {
    way.name: way
    for way in (
        Way("default", "default: cairn's planners"),
        Way(
            "own plan step",
            "an own `SavePlanner` or `LoadPlanner`",
            save_planner=lambda side: derived(side.DefaultSavePlanner, "create_local_plan", "resolve_data"),
            load_planner=lambda side: derived(side.DefaultLoadPlanner, "create_local_plan", "resolve_tensor"),
        ),
        Way(
            "own planner",
            "an own `SavePlanner` or `LoadPlanner`",
            save_planner=lambda side: own_parts.OwnSavePlanner,
            load_planner=lambda side: own_parts.OwnLoadPlanner,
        ),
        Way(
            "derived storage",
            "a subclass of `FileSystemWriter`",
            writer=lambda side, folder: derived(side.FileSystemWriter)(folder),
            reader=lambda side, folder: derived(side.FileSystemReader)(folder),
        ),
        Way(
            "own write_data",
            "a subclass of `FileSystemWriter`",
            writer=lambda side, folder: derived(side.FileSystemWriter, "write_data", "finish")(folder),
            reader=lambda side, folder: derived(side.FileSystemReader, "read_data", "read_metadata")(folder),
        ),
        Way(
            "own storage",
            "a `StorageWriter` or `StorageReader` from scratch",
            writer=lambda side, folder: own_parts.OwnWriter(folder),
            reader=lambda side, folder: own_parts.OwnReader(folder),
            own_format=True,
        ),
        Way(
            "file for every item",
            "`single_file_per_rank=False`",
            writer=lambda side, folder: side.FileSystemWriter(folder, single_file_per_rank=False),
        ),
        Way(
            "zstd",
            "`_extensions`",
            writer=lambda side, folder: side.FileSystemWriter(folder, _extensions=[ZStandard()]),
        ),
        Way(
            "own transform",
            "`_extensions`",
            writer=lambda side, folder: side.FileSystemWriter(folder, _extensions=[own_parts.Turned()]),
            reader=lambda side, folder: side.FileSystemReader(folder, _extension_registry=own_parts.registry()),
        ),
        Way(
            "fsspec",
            "`FsspecWriter`",
            writer=lambda side, folder: fsspec(side).FsspecWriter(folder),
            reader=lambda side, folder: fsspec(side).FsspecReader(folder),
            place=lambda folder: f"file://{folder}",
        ),
        Way("memory", "`memory://`", place=lambda folder: f"memory://{folder}", ranks=1),
        Way(
            "Hugging Face",
            "`HuggingFaceStorageWriter`",
            writer=lambda side, folder: side.HuggingFaceStorageWriter(str(folder), save_distributed=True),
            reader=lambda side, folder: side.HuggingFaceStorageReader(str(folder)),
            objects=False,
        ),
        Way("no_dist", "`no_dist=True`", ranks=1, no_dist=True),
        Way("rank-local", "`use_collectives=False`", save_options={"use_collectives": False}),
        Way("subgroup", "`process_group=`", subgroup=True),
        Way("async thread", "`async_save`", background={"async": None}),
        Way(
            "async process",
            "`AsyncCheckpointerType.PROCESS`",
            background={"async_checkpointer_type": lambda side: dcp.AsyncCheckpointerType.PROCESS},
        ),
        Way("own stager", "`AsyncStager`", background={"async_stager": lambda side: own_parts.OwnStager()}),
        Way("installed", "`install()`", installed=True),
    )
}

# Tried by programs of their own, because no Python is in them.
ELSEWHERE = {"C++ subclasses over MPI": ("MPI", "tests/mpi/test_mpi_kills.py", "tests/mpi/test_save.py")}

# --- promises ---

PROMISES = {
    "1 rank-local": "each rank loads its own; shapes may differ",
    "2 partial": "Partial() is refused before anything is written, by name",
    "3 kinds": "tensors of classes of their own, saved by 2 ranks and loaded by 3",
    "4 hooks": "hooks see what stock's see, once an item, and large tensors whole",
    "5 kills": "a killed save leaves the old one or the new one, whole",
    "6 two jobs": "of two jobs on one id whose locks do not meet, the last to succeed is there",
    "7 readers": "a load during overwrites gets one version, everywhere",
    "8 limits": "what is written can be read back, by cairn and by stock",
    "9 objects": "safe=True runs nothing that an object says",
    "9 metadata": "the description is never unpickled, safe or not",
    "10 endless": "cyclic and very deep states are an exception",
    "10 shared": "tuples that are shared many times take little",
    "11 errors": "what fails on one rank is raised on every rank, under its own name",
    "12 long": "a save that takes longer than the group's time-out succeeds while all are alive",
    "12 killed": "a rank that is killed is an error on the others",
    "13 beside": "background saves do not mix with the training's collectives",
    "13 groups": "background saves on many groups leave no thread and no descriptor",
    "14 exit": "forked children end while a save of their parent is under way",
    "14 lock": "a forked worker does not keep the lock of a killed trainer",
    "15 caching": "plans that are remembered serve every save",
    "16 places": "file systems that lack much, and files that are links",
    "17 paths": "paths of all kinds",
    "17 keys": "keys that are enums",
    "17 quantised": "stock's quantised tensors load as stock loads them",
}
UNTRIED = {"18 NCCL": "no machine with two GPUs here"}

_MEMORY = "lives in one process"

LEFT_OUT: dict[tuple[str, str], str] = {
    ("1 rank-local", "Hugging Face"): "safetensors of single ranks have no description of their own, in stock neither",
    ("1 rank-local", "memory"): _MEMORY,
    ("1 rank-local", "no_dist"): "knows no ranks",
    ("2 partial", "memory"): _MEMORY + ", and there are no DTensors of one rank",
    ("2 partial", "no_dist"): "a DTensor is of ranks",
    ("3 kinds", "memory"): _MEMORY,
    ("3 kinds", "no_dist"): "knows no ranks",
    ("3 kinds", "rank-local"): "each rank loads its own: 3 cannot load what 2 saved",
    ("5 kills", "memory"): _MEMORY,
    ("6 two jobs", "memory"): _MEMORY,
    ("6 two jobs", "Hugging Face"): "files have fixed names and no description: each is one job's or the other's",
    ("7 readers", "memory"): _MEMORY,
    ("7 readers", "Hugging Face"): "files have fixed names and no description that says which belong together",
    ("7 readers", "own storage"): "its description is read by the user's own code, by each rank for itself",
    ("9 objects", "Hugging Face"): "holds tensors only",
    ("9 metadata", "Hugging Face"): "has no such description",
    ("9 metadata", "own storage"): "its description is read by the user's own code",
    ("9 metadata", "memory"): "read by the code of fsspec",
    ("10 shared", "Hugging Face"): "holds tensors only",
    ("12 long", "memory"): "knows no ranks",
    ("12 long", "no_dist"): "knows no ranks",
    ("12 killed", "memory"): "knows no ranks",
    ("12 killed", "no_dist"): "knows no ranks",
    ("13 groups", "memory"): "knows no groups",
    ("13 groups", "no_dist"): "knows no groups",
    ("14 lock", "memory"): _MEMORY,
    ("16 places", "memory"): "no file system",
    ("17 paths", "memory"): "no file system",
    ("17 quantised", "Hugging Face"): "safetensors know no quantised tensors",
}

TRIED: set[tuple[str, str]] = set()


def every_way(promise: str) -> Callable[[Any], Any]:
    """Parametrises a test of a promise over the ways that it is tried on."""
    assert promise in PROMISES, promise
    parameters = []
    for way in WAYS.values():
        if (promise, way.name) in LEFT_OUT:
            continue
        TRIED.add((promise, way.name))
        parameters.append(pytest.param(way, id=way.name))
    return pytest.mark.parametrize("way", parameters)


# --- ranks that save together ---


def together(
    way: Way, size: int, body: Callable[..., Any], *arguments: Any, limit: Optional[float] = None, **how: Any
) -> list[Any]:
    """Calls `body(way, rank, *arguments)` on as many of `size` ranks as the way can have."""
    return Together(way, size, body, *arguments, **how).answers(limit)


class Together:
    """Such ranks, which have begun. `silence`: the time-out of their group, in seconds. `dies`: a rank that may."""

    def __init__(
        self, way: Way, size: int, body: Callable[..., Any], *arguments: Any, silence: float = 0,
        dies: Optional[int] = None,
    ) -> None:
        size = min(size, way.ranks)
        self.first = 1 if way.subgroup else 0  # the ranks before it do not save
        self.dies = None if dies is None else self.first + dies
        some_die = dies is not None
        self.ranks = Ranks(
            self.first + size, _member, self.first, silence, way, size, body, arguments, some_die=some_die
        )

    def answers(self, limit: Optional[float] = None) -> list[Any]:
        may_die = () if self.dies is None else (self.dies,)
        return self.ranks.answers(limit or hard_limit(), may_die)[self.first :]


def _member(
    world_rank: int, first: int, silence: float, way: Way, size: int, body: Callable[..., Any], arguments: Any
) -> Any:
    global GROUP
    warnings.simplefilter("ignore")
    if first or silence:
        more = {"timeout": timedelta(seconds=silence)} if silence else {}
        GROUP = dist.new_group(list(range(first, first + size)), **more)
    if world_rank < first:
        return None
    return body(way, world_rank - first, *arguments)


def mesh() -> DeviceMesh:
    """Of the ranks that save together."""
    return DeviceMesh.from_group(GROUP if GROUP is not None else dist.group.WORLD, "cpu")


def size_of_group() -> int:
    return dist.get_world_size(GROUP)


def failure_of(act: Callable[[], Any]) -> Optional[BaseException]:
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - torch's CheckpointException is no Exception
        return error
    return None
