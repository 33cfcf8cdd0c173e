"""The compiled part of cairn; `import cairn` gives all of it."""

import os
from typing import TypedDict

__version__: str

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
    file: str | None
    tensor: str | None
    offset: int | None  # byte in `file`
    os_error: int | None  # errno

class Checkpoint:
    """An open checkpoint of any format. Several threads may read it at once."""

    @property
    def format(self) -> str:
        """"dcp", "torch", "safetensors" or "huggingface"."""
    def names(self) -> list[str]:
        """The tensors' names, in stored order."""
    def tensors(self) -> list[TensorSummary]: ...
    def objects(self) -> list[ObjectSummary]: ...
    def info(self, name: str) -> TensorSummary: ...
    def read(self, name: str, slice: str = "") -> tuple[str, tuple[int, ...], bytes]:
        """Element type, shape and elements, of the whole tensor or of a slice of it ("[0:16, ::2]")."""

def open(path: str | os.PathLike[str]) -> Checkpoint: ...
