"""The compiled part of cairn. `import cairn` and `import cairn.torch` are the faces to use; this may change.

Rows of metadata and plans are plain tuples; python/src/metadata.h says what is in them.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypedDict

import numpy

__version__: str

_Path: TypeAlias = "str | os.PathLike[str]"
_Numbers = Sequence[int]
_Progress = Callable[[str, int, int], object]  # phase, bytes done, bytes in all

# --- what a checkpoint holds ---

class ChunkPlace(TypedDict):
    """A stored piece of a tensor: which part of it, and where its bytes lie."""

    offsets: list[int]
    sizes: list[int]
    file: str
    offset: int
    length: int  # as stored, with whatever the format wraps around the elements

class TensorSummary(TypedDict):
    name: str
    dtype: str  # as torch names it: "float32", "bfloat16", ...
    shape: list[int]
    bytes: int  # elements x bytes per element
    chunks: list[ChunkPlace]

class ObjectSummary(TypedDict):
    name: str
    bytes: int  # as stored

class Listing(TypedDict):
    format: str
    tensors: list[TensorSummary]
    objects: list[ObjectSummary]
    total_bytes: int

class Error(Exception):
    """Anything that cairn cannot do."""

    code: str  # "not_found", "corrupt", "unsupported", "invalid_argument", "io", "limit", ...
    message: str  # without the place
    file: str | None
    tensor: str | None  # or object
    offset: int | None  # byte in `file`
    rank: int | None
    os_error: int | None  # errno
    step: str | None  # "plan", "write", "read", ... when several ranks were at work
    failures: dict[int, Error] | None  # and which of them failed
    cause: bytes | None  # what the caller's own code raised, pickled

class Checkpoint:
    """An open checkpoint of any format. Several threads may read it at once."""

    @property
    def format(self) -> str: ...
    def __len__(self) -> int: ...
    def names(self) -> list[str]: ...
    def tensors(self) -> list[TensorSummary]: ...
    def objects(self) -> list[ObjectSummary]: ...
    def info(self, name: str) -> TensorSummary: ...
    def read(self, name: str, slice: str = "") -> tuple[str, tuple[int, ...], bytes]: ...
    def find(self, name: str) -> tuple[int, str, tuple[int, ...], int] | None:
        """Position, dtype, shape and bytes of a tensor."""
    def read_part(
        self, at: int, ranges: list[tuple[int, int, int]], dtype: str | None = None
    ) -> numpy.ndarray[Any, numpy.dtype[numpy.uint8]]:
        """The elements at (start, count, step) of each dimension, converted to `dtype`, as bytes."""
    def object(self, name: str) -> Any: ...

def open(path: _Path) -> Checkpoint: ...

# --- without torch ---

class WriteOptions(TypedDict, total=False):
    overwrite: bool
    files_per_rank: int
    durable: bool
    checksums: bool
    strong_hashes: bool
    transforms: list[str]
    memory_budget: int
    bytes_per_second: int
    low_space: str  # "error", "warn", "ignore"

class SaveOptions(WriteOptions, total=False):
    coordinator_rank: int
    use_collectives: bool
    deadline: float  # seconds
    progress: _Progress | None

class LoadOptions(TypedDict, total=False):
    coordinator_rank: int
    deadline: float
    verify: str  # "none", "usual", "full"
    threads: int
    memory_budget: int
    allow_partial: bool
    flatten: bool
    read_once: bool
    progress: _Progress | None

class SaveReport(TypedDict):
    save_id: str
    bytes: int
    warnings: list[str]

class ReadReport(TypedDict):
    """Bytes of files."""

    needed: int
    read: int
    verified: int
    unverified: int
    restarts: int

class FileRow(TypedDict):
    file: str
    bytes: int

class UncheckedRow(TypedDict):
    why: str
    bytes: int

class ProblemRow(TypedDict):
    kind: str  # "missing", "short", "long", "flipped", "swapped", "foreign", ...
    file: str | None
    tensor: str | None
    offset: int | None
    text: str

class VerifyReport(TypedDict):
    ok: bool
    format: str
    files: int
    tensors: int
    objects: int
    items: int
    bytes_checked: int
    unchecked: list[UncheckedRow]
    debris: list[FileRow]
    problems: list[ProblemRow]
    problems_left_out: int

class GcReport(TypedDict):
    dry_run: bool
    bytes: int
    files: list[FileRow]

# An array's (dtype, address, shape, strides in elements), or a plain value.
_Describe = Callable[[Any, str], Any]

def save_plain(state: dict[Any, Any], path: _Path, describe: _Describe, options: SaveOptions) -> SaveReport: ...
def load_plain(state: dict[Any, Any], path: _Path, describe: _Describe, options: LoadOptions) -> ReadReport: ...
def load_plain_new(
    path: _Path,
    keys: list[str] | None,
    of_tensor: Callable[[str, tuple[int, ...], Any, str], Any],
    options: LoadOptions,
) -> dict[str, Any]:
    """`of_tensor` makes an array of dtype, shape, bytes and name."""

def verify(path: _Path, threads: int = 0, progress: _Progress | None = None) -> VerifyReport: ...
def gc(path: _Path, dry_run: bool = False, force: bool = False) -> GcReport: ...

# --- converting ---

class ConvertOptions(TypedDict, total=False):
    to: str | None  # "dcp", "torch", "safetensors", "huggingface"
    keys: Sequence[str]
    exclude: Sequence[str]
    map: dict[str, str] | Sequence[tuple[str, str]]
    dtype: str | dict[str, str] | Sequence[tuple[str, str]]
    skip_objects: bool
    shards: int
    max_shard_size: int
    file_of: dict[str, int]
    only_files: Sequence[int] | None
    index: bool
    metadata: dict[str, str] | Sequence[tuple[str, str]]
    ranks: int
    files: int
    transforms: Sequence[str]
    max_item_bytes: int
    memory_budget: int
    threads: int
    overwrite: bool
    verify: bool
    durable: bool
    dry_run: bool
    progress: _Progress | None

ConvertedTensor = TypedDict(
    "ConvertedTensor",
    {
        "from": str,
        "name": str,
        "from_dtype": str,
        "dtype": str,
        "shape": list[int],
        "bytes": int,
        "file": str,
    },
)
ConvertedObject = TypedDict("ConvertedObject", {"from": str, "name": str})

class ConvertedFile(TypedDict):
    name: str
    bytes: int

ConvertReport = TypedDict(
    "ConvertReport",
    {
        "from": str,
        "to": str,
        "dry_run": bool,
        "bytes": int,
        "verified": int,
        "read_back": int,
        "files": list[ConvertedFile],
        "tensors": list[ConvertedTensor],
        "objects": list[ConvertedObject],
        "dropped": list[str],
    },
)

def convert(source: _Path, destination: _Path, options: ConvertOptions) -> ConvertReport: ...

# --- for cairn.torch ---

Entry = tuple[Any, ...]
Place = tuple[Any, ...]
Item = tuple[Any, ...]
Read = tuple[Any, ...]
Chunk = tuple[_Numbers, _Numbers]  # offsets, sizes

class State:
    """A nested state of torch, cut into entries.

    `of_tensor` and `of_object` are asked (value, name) about what is neither a plain tensor nor plain data:
    they give (global size, [(offsets, sizes, plain tensor, tensor for Python to encode or None), ...]), False
    where this rank has no part in it, or None for what is to be pickled.
    """

    def __init__(
        self,
        state: dict[str, Any],
        of_tensor: Callable[[Any, str], Any],
        of_object: Callable[[Any, str], Any] | None,
        flatten: bool = True,
    ) -> None: ...
    def __len__(self) -> int: ...
    def has_pieces(self) -> bool:
        """Whether there are pieces of tensors that only Python can encode."""
    def names(self) -> list[str]: ...
    def put(self, name: str, value: Any) -> None: ...

class Exchange(Protocol):
    """How ranks talk: bytes in, bytes out, each within so many seconds."""

    rank: int
    size: int
    heartbeat: float  # seconds between two signs of life, 0 for none
    def sign_of_life(self, root: int | None) -> None: ...
    def gather(self, mine: bytes, root: int, seconds: float) -> list[bytes]: ...
    def scatter(self, parts: list[bytes], root: int, seconds: float) -> bytes: ...
    def broadcast(self, mine: bytes, root: int, seconds: float) -> bytes: ...
    def all_gather(self, mine: bytes, seconds: float) -> list[bytes]: ...
    def barrier(self, seconds: float) -> None: ...

class Group:
    def __init__(self, exchange: Exchange) -> None: ...
    def all_gather(self, mine: bytes, seconds: float) -> list[bytes]: ...

class SavePlanner:
    """Kept from save to save where plans are cached."""

    def __init__(self, flatten: bool, lowest_rank: bool, cache: bool, allow_partial: bool, split: bool) -> None: ...
    def fail(self, exception: BaseException) -> None:
        """The next save fails, on all ranks, for this one's exception."""

class Metadata:
    """What a checkpoint holds and where its bytes lie, as rows."""

    def entries(self) -> list[Entry]: ...
    def places(self) -> list[Place]: ...
    def paths(self) -> dict[str, tuple[str | int, ...]] | bool | None:
        """The path of each entry; False: something that only Python can unpickle."""
    @property
    def has_extra(self) -> bool:
        """Whether there are attributes that are none of DCP's."""
    @property
    def has_foreign_places(self) -> bool:
        """Whether only Python can unpickle where the items are; places() has none then."""
    @property
    def version(self) -> str | None: ...
    @property
    def save_id(self) -> str | None: ...
    @property
    def checkpoint_id(self) -> str | None: ...

class TorchSaveReport(SaveReport):
    plan_bytes: int
    bytes_exchanged: int
    metadata: Metadata | None  # on the coordinator

_Encode = Callable[[Any], bytes]
_Resolve: TypeAlias = "Callable[[str, tuple[int, ...] | None, tuple[int, ...] | None], Any] | None"

def save(
    state: State,
    planner: SavePlanner,
    path: _Path,
    group: Group | None,
    encode: _Encode,
    resolve: _Resolve,
    options: SaveOptions,
) -> TorchSaveReport: ...
def load(
    state: State,
    path: _Path,
    group: Group | None,
    options: LoadOptions,
    failure: BaseException | None = None,
) -> tuple[ReadReport, dict[str, bytes]]:
    """The tensors are filled; the archives of the objects are still to be unpickled."""

class Pending:
    """A save in the background."""

    def wait(self) -> TorchSaveReport: ...
    def wait_staged(self) -> None: ...
    def done(self) -> bool: ...
    def cancel(self) -> None: ...
    def progress(self) -> dict[str, Any]: ...

class Saver:
    """The background saves of one group. Options: overlapped, budget, max_in_flight, nice."""

    def __init__(self, group: Group | None, options: dict[str, Any]) -> None: ...
    def save(
        self,
        state: State,
        planner: SavePlanner,
        path: _Path,
        encode: _Encode,
        resolve: _Resolve,
        options: SaveOptions,
    ) -> Pending: ...
    def drain(self) -> None:
        """Waits until no save is under way."""
    def prepare(self, state: State) -> None: ...
    def guard(self) -> None: ...

class Writer:
    """Writes a checkpoint step by step, for planners and storages that are written in Python."""

    def __init__(self, path: _Path, options: WriteOptions) -> None: ...
    def set_up(self, save_id: str, rank: int, world_size: int, is_coordinator: bool, collective: bool) -> None: ...
    def write(self, items: list[Item], resolve: Callable[[int], Any]) -> tuple[list[Place], bytes]:
        """Places of the items, and an attachment for finish(). `resolve` gives bytes or a plain tensor."""
    def finish(
        self,
        entries: list[Entry],
        planner_data: dict[str, tuple[str | int, ...]] | bytes | None,
        ranks: list[tuple[list[Place], bytes]],
        extra: dict[str, bytes] = ...,
    ) -> None: ...
    def retire_collective(self) -> None: ...
    def abandon(self) -> None: ...

class Reader:
    """Reads a checkpoint step by step."""

    def __init__(self, path: _Path, follow_links: bool = True) -> None: ...
    def metadata(self, rank: int = 0, world_size: int = 1) -> Metadata: ...
    def read(self, items: list[Read], resolve: Callable[[int], Any], commit: Callable[[int], Any]) -> dict[int, bytes]:
        """Archives of the objects, by position; the tensors that `resolve` gave are filled."""

def hf_writer(path: _Path, file_of: dict[str, int], sharded: bool, options: WriteOptions) -> Writer:
    """A Writer of safetensors files; `file_of` says which file each tensor goes to, from 1."""

def torch_save_reader(path: _Path) -> Reader:
    """A Reader of a file of torch.save."""

def hf_reader(path: _Path, dequantize_to: str | None = None, block: int = 128) -> Reader:
    """A Reader of a directory of safetensors files; with a dtype's name, one that dequantises."""

def consolidate(
    source: _Path, to: _Path, file_of: dict[str, int], threads: int, group: Group | None = None, seconds: float = 1800.0
) -> None:
    """Whole tensors out of the shards in `source`; all ranks of the group call it."""

def parse_metadata(bytes: bytes, name: str) -> Metadata:
    """What a `.metadata` file holds, of its bytes; runs nothing. `name` stands for the file in errors."""

def dequantize_blocks(elements: Any, row: int, column: int, block: int, scales: Any, to: Any) -> None:
    """Fills `to` with the part of a matrix that begins at (row, column), times the scales of its blocks."""

def dequantize_mxfp4(codes: Any, scales: Any, first: int, to: Any) -> None:
    """Fills `to` with MXFP4 numbers; its rows begin at the number `first` of their rows."""

def dedup(plans: list[list[Item]], lowest_rank: bool) -> list[list[int]]:
    """Which items of each plan stay, by position."""

def cover_problem(size: _Numbers, chunks: list[Chunk]) -> tuple[str, str] | None:
    """What is wrong with chunks that ought to tile a tensor: ("out_of_bounds", "overlap" or "hole", text)."""

def reshard(
    size: _Numbers, stored: list[Chunk], wanted: list[Chunk]
) -> list[tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """For every part they share: wanted, stored, offsets in the one, offsets in the other, lengths."""
