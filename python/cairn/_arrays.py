"""Arrays of numpy and the engine's element types. Imported, and numpy with it, when the first array is met."""

from __future__ import annotations

from typing import Any

try:
    import numpy
except ImportError:
    raise ImportError(
        "cairn needs numpy for arrays, and it is not installed (pip install numpy)", name="numpy"
    ) from None

from ._errors import error

_OF_NUMPY = frozenset(
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64 complex128".split()
)
_OF_ML_DTYPES = frozenset("bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split())
_ITEM_SIZES = {"bfloat16": 2, "complex32": 4}  # of the types numpy lacks; the others have one byte

# (dtype, address, shape, strides in elements)
Description = tuple[str, int, tuple[int, ...], tuple[int, ...]]


def bits_of(name: str) -> numpy.dtype[Any]:
    """The unsigned integer that is as large as an element."""
    size = numpy.dtype(name).itemsize if name in _OF_NUMPY else _ITEM_SIZES.get(name, 1)
    if size > 8:
        raise error("unsupported", f"no integer is as large as a {name}")
    return numpy.dtype(f"u{size}")


def has_dtype(name: str) -> bool:
    """Whether numpy by itself has the element type."""
    return name in _OF_NUMPY


def dtype_of(name: str, tensor: str | None = None) -> numpy.dtype[Any]:
    """numpy's dtype of an element type; that of ml_dtypes for those that numpy lacks."""
    if name in _OF_NUMPY:
        return numpy.dtype(name)
    bits = f"cairn.open(path)['{tensor or 'name'}'].bits has its elements as {bits_of(name)}"
    if name not in _OF_ML_DTYPES:
        raise error("unsupported", f"numpy has no {name}; {bits}", tensor)
    try:
        import ml_dtypes  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise error(
            "unsupported",
            f"numpy has no {name}: `pip install ml_dtypes` gives it one; "
            f".astype('float32') converts as it reads; {bits}",
            tensor,
        ) from None
    found: numpy.dtype[Any] = numpy.dtype(getattr(ml_dtypes, name))
    return found


def name_of(dtype: str | type | numpy.dtype[Any], tensor: str | None = None) -> str:
    """The engine's name of a dtype of numpy or ml_dtypes."""
    found = numpy.dtype(dtype)
    known = found.name in _OF_NUMPY or (found.name in _OF_ML_DTYPES and found.type.__module__ == "ml_dtypes")
    if known and found.isnative and found.fields is None:
        return found.name
    raise error("unsupported", f"a checkpoint cannot hold elements of the type {found!r}", tensor)


def from_elements(name: str, shape: tuple[int, ...], elements: Any, tensor: str | None = None) -> Any:
    """The array of elements that the engine has read."""
    return elements.view(dtype_of(name, tensor)).reshape(shape)


def for_saving(value: Any, name: str) -> Description | Any:
    """What cairn.save takes an object of the state for."""
    if isinstance(value, numpy.generic) and type(value.item()) in (bool, int, float, str, bytes):
        return value.item()
    return _describe(value, name)


def for_loading(value: Any, name: str) -> Description | Any:
    """The same for cairn.load: an array must be one that can be written to."""
    if isinstance(value, numpy.ndarray) and not value.flags.writeable:
        raise error("invalid_argument", "the array is read-only; a load fills arrays in place", name)
    return for_saving(value, name)


def _describe(value: Any, name: str) -> Description:
    if not isinstance(value, numpy.ndarray) or isinstance(value, numpy.ma.MaskedArray):
        raise error("unsupported", _why_not(value), name)
    size = value.itemsize
    if any(stride % size for stride in value.strides):
        raise error("unsupported", "the array's elements do not lie at multiples of their size: copy it", name)
    strides = tuple(stride // size for stride in value.strides)
    return name_of(value.dtype, name), value.__array_interface__["data"][0], value.shape, strides


def _why_not(value: Any) -> str:
    if isinstance(value, tuple):
        return "a tuple can hold plain values only; a list can hold arrays too"
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    hint = "; cairn.torch saves and loads such things" if kind.__module__.startswith("torch") else ""
    return (
        f"{name} is neither a numpy array nor a plain value "
        f"(None, bool, int, float, str, bytes, and lists, tuples and dicts of them){hint}"
    )
