"""Saving and loading nested dicts of numpy arrays and plain values."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import _engine
from ._errors import error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._engine import GcReport, LoadOptions, SaveOptions, SaveReport, VerifyReport


def save(state: dict[str, Any], path: str | os.PathLike[str], **options: Unpack[SaveOptions]) -> SaveReport:
    """Saves nested dicts and lists of numpy arrays and plain values as a DCP checkpoint, as torch reads it.

    >>> state = {"model": {"w": numpy.ones((4, 2), "float32")}, "step": 7, "betas": (0.9, 0.999)}
    >>> report = cairn.save(state, "step-7")

    Plain values are None, bool, int, float, str, bytes, and lists, tuples and dicts of them; scalars of numpy
    are saved as Python's. Anything else is an Error: nothing is ever pickled that Python would have to run.

    When it returns, the checkpoint is there, whole, and survives a loss of power. When it raises, Ctrl-C
    included, the checkpoint that was there before still is. Options: overwrite=False, durable=False,
    checksums=False, strong_hashes=True, files_per_rank=N, transforms=["zstd"], memory_budget=BYTES,
    bytes_per_second=N, low_space="error", "warn" or "ignore", deadline=SECONDS, progress=f(phase, done, total).
    """
    return _engine.save_plain(_state(state), os.fspath(path), _for_saving, options)


def load(
    state: dict[str, Any] | None,
    path: str | os.PathLike[str],
    keys: Iterable[str] | None = None,
    **options: Unpack[LoadOptions],
) -> dict[str, Any]:
    """Loads a DCP checkpoint into the arrays of `state`, or into new ones when it is None. Returns the state.

    >>> state = {"model": {"w": numpy.zeros((4, 2), "float32")}, "step": 0, "betas": None}
    >>> loaded = cairn.load(state, "step-7")
    >>> loaded is state, state["step"], state["betas"], state["model"]["w"].sum()
    (True, 7, (0.9, 0.999), np.float32(8.0))
    >>> cairn.load(None, "step-7", keys=["model"])["model"]["w"].shape
    (4, 2)

    Arrays are filled in place, whatever their strides, and elements converted where types differ; other
    values are replaced. What the state has and the checkpoint lacks is an Error (allow_partial=True: stays as
    it is); what only the checkpoint has is left there. `keys` chooses entries of a new state: flat names
    ("model.w") or the beginning of some ("model"). Options: verify="none", "usual" or "full", threads=N,
    memory_budget=BYTES, allow_partial=True, deadline=SECONDS, progress=f(phase, done, total).
    """
    if state is None:
        wanted = None if keys is None else list(keys)
        return _engine.load_plain_new(os.fspath(path), wanted, _new_array, options)
    if keys is not None:
        raise error("invalid_argument", "keys choose the entries of a new state; a state that is given says it itself")
    _engine.load_plain(_state(state), os.fspath(path), _for_loading, options)
    return state


def verify(path: str | os.PathLike[str], threads: int = 0, progress: Any = None) -> VerifyReport:
    """Whether every byte of a checkpoint is what was written, as `cairn verify --json` tells it.

    >>> report = cairn.verify("step-7")
    >>> report["ok"], report["items"], report["problems"]
    (True, 3, [])
    """
    return _engine.verify(os.fspath(path), threads, progress)


def gc(path: str | os.PathLike[str], dry_run: bool = False, force: bool = False) -> GcReport:
    """Removes what saves that did not finish left in a directory, or with `dry_run` only says what would go.

    >>> cairn.gc("step-7", dry_run=True)
    {'dry_run': True, 'bytes': 0, 'files': []}

    `force` is for file systems without locks, when the caller knows that no save is under way.
    """
    return _engine.gc(os.fspath(path), dry_run, force)


def _state(state: Any) -> dict[str, Any]:
    if isinstance(state, dict):
        return state
    raise error("invalid_argument", f"a state is a dict, not a {type(state).__name__}")


# numpy is imported when the first array, or the first thing that is no plain value, is met.
def _for_saving(value: Any, name: str) -> Any:
    from ._arrays import for_saving

    return for_saving(value, name)


def _for_loading(value: Any, name: str) -> Any:
    from ._arrays import for_loading

    return for_loading(value, name)


def _new_array(dtype: str, shape: tuple[int, ...], elements: Any, name: str) -> Any:
    from ._arrays import from_elements

    return from_elements(dtype, shape, elements, name)
