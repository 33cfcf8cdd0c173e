"""An open checkpoint, and its tensors as arrays that still lie in their files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _engine
from ._errors import NoSuchTensor, error
from ._index import select

if TYPE_CHECKING:
    from ._engine import ObjectSummary, TensorSummary


class StoredTensor:
    """A tensor of a checkpoint: described, not read. Indexing it reads what the index asks for, and no more.

    >>> tensor = cairn.open("tests/golden/torch-2.11-two-ranks")["model.w"]
    >>> tensor
    <tensor 'model.w' float32 (8, 8)>
    >>> tensor.nbytes
    256
    >>> tensor[6:, ::4]
    array([[48., 52.],
           [56., 60.]], dtype=float32)
    >>> tensor[0, -1]
    np.float32(7.0)
    >>> numpy.asarray(tensor).sum()
    np.float32(2016.0)

    Indices are those of numpy's basic indexing: numbers, slices of any step, `...` and `None`. For others
    (lists, masks) read the tensor first: `numpy.asarray(tensor)[mask]`. Each read gives a new array.

    numpy has no word for bfloat16 and the 8-bit floats. Where the package ml_dtypes is installed, arrays have
    its types. Where it is not, reading them is an error rather than a riddle, and there are two ways round:
    `tensor.astype("float32")[...]` converts as it reads, exactly; `tensor.bits[...]` gives the bare bits.
    """

    __slots__ = ("_at", "_bits", "_checkpoint", "_stored", "dtype", "name", "nbytes", "shape")

    name: str
    dtype: str  # as torch and numpy name it: "float32", "bfloat16", ...
    shape: tuple[int, ...]
    nbytes: int

    def __init__(self, checkpoint: _engine.Checkpoint, name: str, found: tuple[int, str, tuple[int, ...], int]):
        self._checkpoint = checkpoint
        self.name = name
        self._at, self.dtype, self.shape, self.nbytes = found
        self._stored = self.dtype
        self._bits = False

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def bits(self) -> StoredTensor:
        """The same tensor, its elements as unsigned integers of their size.

        >>> cairn.open("tests/golden/torch-2.11-two-ranks")["model.r"].bits[:4]
        array([    0, 16256, 16384, 16448], dtype=uint16)
        """
        from ._arrays import bits_of

        same = self._same(bits_of(self._stored).name)
        same._bits = True
        return same

    def astype(self, dtype: Any) -> StoredTensor:
        """The same tensor, its elements converted when they are read, as torch converts them.

        >>> cairn.open("tests/golden/torch-2.11-two-ranks")["model.r"].astype("float32")[:4]
        array([0., 1., 2., 3.], dtype=float32)
        """
        from ._arrays import name_of

        if self._bits:
            raise error("invalid_argument", "bits are not converted; read them first", self.name)
        return self._same(name_of(dtype))

    def _same(self, dtype: str) -> StoredTensor:
        from ._arrays import dtype_of

        same = StoredTensor(self._checkpoint, self.name, (self._at, self._stored, self.shape, 0))
        same.dtype = dtype
        same.nbytes = self.size * dtype_of(dtype).itemsize
        return same

    def __getitem__(self, index: Any) -> Any:
        from ._arrays import from_elements

        ranges, then = select(index, self.shape)
        wanted = None if self._bits or self.dtype == self._stored else self.dtype
        elements = self._checkpoint.read_part(self._at, ranges, wanted)
        return from_elements(self.dtype, tuple(count for _, count, _ in ranges), elements, self.name)[then]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("a tensor that lies in a file cannot become an array without a copy")
        if dtype is None:
            return self[...]
        from ._arrays import has_dtype

        if self._bits or has_dtype(self._stored):
            return self[...].astype(dtype, copy=False)
        return self.astype(dtype)[...]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Along the first dimension, a read each."""
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<tensor {self.name!r} {self.dtype} {self.shape}>"


class Checkpoint(Mapping[str, StoredTensor]):
    """An open checkpoint of any format: a mapping of names to tensors, and objects beside them.

    >>> ckpt = cairn.open("tests/golden/torch-2.11-two-ranks")
    >>> list(ckpt)
    ['model.w', 'model.r', 'model.plain', 'nested.list.2.a']
    >>> "model.w" in ckpt, len(ckpt)
    (True, 4)
    >>> {name: tensor.shape for name, tensor in ckpt.items() if tensor.dtype == "float32"}
    {'model.w': (8, 8), 'nested.list.2.a': (2,)}
    >>> ckpt.object("step")
    7

    Several threads may read it at once; files are read without the GIL.
    """

    __slots__ = ("_engine", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._engine = _engine.open(self.path)

    @property
    def format(self) -> str:
        """ "dcp", "torch", "safetensors" or "huggingface"."""
        return self._engine.format

    def __getitem__(self, name: str) -> StoredTensor:
        """A tensor; nothing of it is read yet. Error, which is also a KeyError, where there is none."""
        found = self._engine.find(name)
        if found is None:
            raise self._missing(name)
        return StoredTensor(self._engine, name, found)

    def _missing(self, name: str) -> Exception:
        if any(row["name"] == name for row in self._engine.objects()):
            text = f"this is an object, not a tensor: ckpt.object({name!r}) reads it"
            return error("not_found", text, name, NoSuchTensor)
        try:
            self._engine.info(name)
        except _engine.Error as e:
            return error(e.code, e.message, name, NoSuchTensor)
        raise AssertionError(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._engine.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._engine.names())

    def __len__(self) -> int:
        return len(self._engine)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def names(self) -> list[str]:
        """The tensors' names, in stored order."""
        return self._engine.names()

    def tensors(self) -> list[TensorSummary]:
        """What each tensor is and where its pieces lie, as `cairn ls --json` has it."""
        return self._engine.tensors()

    def info(self, name: str) -> TensorSummary:
        """One row of tensors()."""
        return self._engine.info(name)

    def objects(self) -> list[ObjectSummary]:
        """Names and sizes of all that is no tensor."""
        return self._engine.objects()

    def object(self, name: str) -> Any:
        """The value of an object: None, bool, int, float, str, bytes, and lists, tuples and dicts of them.

        Nothing that a file says is ever run, so instances of classes are not built: they are an Error that
        names the class. `cairn show PATH NAME` prints what is known of them.

        >>> cairn.open("tests/golden/torch-2.11-two-ranks").object("nested.tuple")
        (1, 'b')
        """
        return self._engine.object(name)

    def read(self, name: str, slice: str = "") -> tuple[str, tuple[int, ...], bytes]:
        """Element type, shape and elements, of a tensor or a slice of it ("[0:16, ::2]"), without numpy."""
        return self._engine.read(name, slice)

    def __repr__(self) -> str:
        return f"<checkpoint {self.path!r} {self.format}: {len(self)} tensors, {len(self.objects())} objects>"
