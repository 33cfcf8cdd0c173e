"""numpy's basic indexing, taken apart: which elements are to be read, and what is left to do with them.

>>> from cairn._index import select
>>> select((3, ..., slice(None, None, -2)), (8, 4, 5))
([(3, 1, 1), (0, 4, 1), (0, 3, 2)], (0, Ellipsis, slice(None, None, -1)))
"""

from __future__ import annotations

import operator
from typing import Any

from ._errors import BadIndex, error

Range = tuple[int, int, int]  # start, count, step >= 1


def select(index: Any, shape: tuple[int, ...]) -> tuple[list[Range], tuple[Any, ...]]:
    """The range of each dimension, and the index to apply to the array of them.

    That second index only turns a dimension round, drops one that has a single element, or adds one; so the
    result is what numpy makes of `index`, and nothing was read in vain.
    """
    parts = index if isinstance(index, tuple) else (index,)
    dims = sum(part is not None and part is not Ellipsis for part in parts)
    if dims > len(shape):
        raise _bad(f"too many indices: the tensor has {len(shape)} dimensions, the index {dims}")
    if sum(part is Ellipsis for part in parts) > 1:
        raise _bad("an index can have a single ellipsis ('...')")
    ranges: list[Range] = []
    then: list[Any] = []
    for part in parts:
        if part is None:
            then.append(None)
        elif part is Ellipsis:
            ranges += [(0, size, 1) for size in shape[len(ranges) : len(ranges) + len(shape) - dims]]
            then.append(Ellipsis)
        else:
            chosen, rest = _one(part, shape[len(ranges)], len(ranges))
            ranges.append(chosen)
            then.append(rest)
    ranges += [(0, size, 1) for size in shape[len(ranges) :]]
    return ranges, tuple(then)


def _one(part: Any, size: int, dim: int) -> tuple[Range, Any]:
    if isinstance(part, slice):
        wanted = range(*part.indices(size))
        if not wanted:
            return (0, 0, 1), slice(None)
        if wanted.step > 0:
            return (wanted.start, len(wanted), wanted.step), slice(None)
        return (wanted[-1], len(wanted), -wanted.step), slice(None, None, -1)
    if isinstance(part, bool) or not hasattr(part, "__index__") or getattr(part, "shape", ()) != ():
        raise _bad(
            f"a stored tensor is indexed by numbers, slices, None and '...', not by {type(part).__name__}; "
            "read it first: numpy.asarray(tensor)[index]"
        )
    at = operator.index(part)
    if not -size <= at < size:
        raise _bad(f"index {at} is out of bounds for dimension {dim}, which has {size} elements")
    return (at % size, 1, 1), 0


def _bad(message: str) -> Exception:
    return error("invalid_argument", message, kind=BadIndex)
