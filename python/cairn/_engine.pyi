"""The compiled part of cairn. `import cairn` and `import cairn.torch` are the faces to use; this may change.

Rows of metadata and plans are plain tuples; python/src/metadata.h says what is in them.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypedDict

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
    doing: str | None  # at what it failed
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
    file_per_item: bool
    durable: bool
    checksums: bool
    strong_hashes: bool
    transforms: list[str]
    transform: Transforms | None
    memory_budget: int
    bytes_per_second: int
    low_space: str  # "error", "warn", "ignore"

class SaveOptions(WriteOptions, total=False):
    coordinator_rank: int
    use_collectives: bool
    deadline: float  # seconds
    progress: _Progress | None
    files: Files | None

class LoadOptions(TypedDict, total=False):
    follow_links: bool
    coordinator_rank: int
    deadline: float
    verify: str  # "none", "usual", "full"
    threads: int
    memory_budget: int
    allow_partial: bool
    flatten: bool
    read_once: bool
    progress: _Progress | None
    files: Files | None
    transform: Transforms | None

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

def has_object_stores() -> bool:
    """Whether s3:// URLs work in this build."""

def read_file(url: str) -> bytes: ...
def write_file(url: str, bytes: bytes, replace: bool = True) -> None: ...
def file_exists(url: str) -> bool: ...
def remove_file(url: str) -> None: ...
def rename_file(url: str, to: str) -> None: ...
def list_folder(url: str) -> list[str]: ...

class Files:
    """A folder of a file system that is written in Python (torch's FileSystemBase), for "files" in the options. A
    directory of this machine, when the object is nothing else than that."""

    def __init__(self, fs: Any, path: Any, create: bool = False, follow_links: bool = True) -> None: ...
    @property
    def root(self) -> str: ...
    @property
    def is_exclusive(self) -> bool:
        """Whether of two that save here at the same time one is told. The first who asks tries it out."""
    def gc(self, dry_run: bool = False, force: bool = False) -> list[str]:
        """Removes what dead saves left; `force` where there are no locks, by who knows that no save is under way."""

class Transforms:
    """torch's _StorageWriterTransforms or _StorageReaderTransforms, or of somebody's own: for "transform"."""

    def __init__(self, transforms: Any) -> None: ...

Entry = tuple[Any, ...]
Place = tuple[Any, ...]

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
    def freeze(self, encode: Callable[[Any], bytes]) -> None:
        """Its objects are as they are now, whatever becomes of them."""

    def has_pieces(self) -> bool:
        """Whether there are pieces of tensors that only Python can encode."""
    def names(self) -> list[str]: ...
    def put(self, name: str, value: Any) -> None: ...

class Listener:
    """A port of this process, where the other ranks of a group will connect to."""

    def __init__(self) -> None: ...
    @property
    def addresses(self) -> str: ...

class AtWork:
    """Until it ends or goes, the others hear that this rank is at work."""

    def end(self) -> None: ...

class Group:
    """Ranks that talk over TCP; `addresses` are those of all of them, `key` is 16 bytes that only they know."""

    def __init__(self, listener: Listener, rank: int, addresses: list[str], key: bytes, silence: float) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def at_work(self) -> AtWork: ...
    def all_gather(self, mine: bytes, seconds: float) -> list[bytes]: ...

def random_group_key() -> bytes: ...

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
        """The path of each entry; False: something else, see foreign_planner_data."""
    @property
    def has_foreign_places(self) -> bool:
        """Whether objects of somebody's own say where the items are; places() has none then."""
    def foreign_planner_data(self, file: str) -> Any:
        """What another planner left. Nothing is run: "unsupported" for objects of other classes than
        torch.distributed.checkpoint's dataclasses and those derived from them that are imported already. `file` stands
        for the description in errors."""
    def foreign_places(self, file: str) -> Any: ...
    def extra(self, file: str) -> dict[str, Any]:
        """Attributes that are none of DCP's."""
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
    failure: BaseException | None,
    finish: Callable[[dict[str, bytes]], None],
) -> ReadReport:
    """Fills the tensors, then calls `finish` with the archives of the objects. What it raises reaches all ranks."""

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

class WriterRole:
    """Who a rank is in a save, and which save it is."""

    def __init__(self, save_id: str, rank: int, world_size: int, is_coordinator: bool, collective: bool) -> None: ...
    @property
    def save_id(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def is_coordinator(self) -> bool: ...
    @property
    def collective(self) -> bool: ...

class ReaderRole:
    def __init__(self, rank: int = 0, world_size: int = 1, is_coordinator: bool = True) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def is_coordinator(self) -> bool: ...

def save_with_hooks(hooks: Any, group: Group | None, options: dict[str, Any]) -> dict[str, Any]:
    """A save whose steps call the hooks of cairn.torch._open.OpenSave."""

def load_with_hooks(hooks: Any, group: Group | None, options: dict[str, Any]) -> int:
    """The same for a load. How often it began again, because the checkpoint was replaced meanwhile."""

class Writer:
    """Writes a checkpoint step by step, for planners and storages that are written in Python."""

    def __init__(self, options: SaveOptions) -> None: ...
    def set_up(self, role: WriterRole) -> None: ...
    def write(self, items: list[Any], planner: Any, encode: Callable[[Any, Any], Any]) -> tuple[list[Any], bytes]:
        """torch's WriteResults for its WriteItems, and an attachment for finish(). The planner's resolve_data gives the
        data; `encode(item, tensor)` makes bytes or a plain tensor of what the engine cannot read as it stands."""
    def finish(
        self,
        entries: list[Entry],
        planner_data: dict[str, tuple[str | int, ...]] | bytes | None,
        ranks: list[tuple[list[Place], bytes]],
        places: bytes | None,
        extra: dict[str, bytes] = ...,
    ) -> None:
        """`places` is a pickle of all of them, when they are of a kind that the engine does not know."""
    def retire_collective(self) -> None: ...
    def abandon(self) -> None: ...
    def is_published(self) -> bool: ...
    def warnings(self) -> list[str]: ...

def object_of_pickle(pickle: bytes, file: str) -> Any:
    """A whole description in one that the engine has no type for, as Metadata.foreign_planner_data makes a part."""

class Reader:
    """Reads a checkpoint step by step."""

    def __init__(self, options: LoadOptions) -> None: ...
    def describe(self) -> bytes:
        """What every rank has to know of the checkpoint: one rank asks, all set_up() with it."""
    def set_up(self, description: bytes, role: ReaderRole) -> Metadata: ...
    def metadata(self, rank: int = 0, world_size: int = 1) -> Metadata:
        """Both at once, for a rank that reads by itself."""
    def was_replaced(self, failed: bool) -> bool:
        """Whether another checkpoint has taken its place; asked after a failure, or when all is read."""
    def read(self, items: list[Any], planner: Any, places: dict[Any, Any] | None = None) -> bool:
        """torch's ReadItems into what the planner's resolve_tensor gives; objects go to its load_bytes. False, and
        nothing is read, when they lie elsewhere by `places` than the checkpoint says."""

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
