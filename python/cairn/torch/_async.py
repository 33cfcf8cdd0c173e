"""Saves in the background.

A native save is staged and written by the engine's own threads, one save after the other for each group, over
a process group that nobody else talks on. A stager of the user's, or an open save, gets a Python thread.
"""

from __future__ import annotations

import os
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Iterator, Optional

import torch.distributed as dist
from torch.distributed.checkpoint.staging import AsyncStager, DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse

from .. import _engine
from . import _dist, _native, _objects, _ways, state_dict_saver
from ._errors import as_checkpoint_exception
from ._group import Exchange
from ._report import reporting


class OverlappedStager:
    """Given as `async_stager`: async_save returns at once and copies the snapshot beside the training.

    The state must not change until `staging_completion` of the answer is done; `guard` waits for it.

    >>> saved = cairn.torch.async_save(state, checkpoint_id="run/7", async_stager=cairn.torch.OverlappedStager())
    >>> loss = forward_and_backward()
    >>> with cairn.torch.guard():
    ...     optimizer.step()
    >>> saved.upload_completion.result()
    """


class _Background:
    """What the saves of one process group share: they are written one after the other."""

    def __init__(self, process_group: Any, alone: bool) -> None:
        self.group = None if alone else _engine.Group(Exchange(_private_group(process_group)))
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="cairn-async-save")
        self._savers: dict[bool, Any] = {}

    def saver(self, overlapped: bool) -> Any:
        if overlapped not in self._savers:
            if self._savers:
                raise RuntimeError("the saves of one group are either all overlapped or all not")
            self._savers[overlapped] = _engine.Saver(self.group, {"overlapped": overlapped})
        return self._savers[overlapped]

    def guard(self) -> None:
        for saver in self._savers.values():
            saver.guard()


_backgrounds: "weakref.WeakKeyDictionary[Any, _Background]" = weakref.WeakKeyDictionary()
_alone: Optional[_Background] = None
_lock = threading.Lock()


def _forget() -> None:
    """In a forked process: the threads of these saves are its parent's."""
    global _alone, _backgrounds, _lock
    _alone, _backgrounds, _lock = None, weakref.WeakKeyDictionary(), threading.Lock()


os.register_at_fork(after_in_child=_forget)


def _private_group(process_group: Any) -> Any:
    """The same ranks over connections of their own, so that collectives of the training never mix with ours."""
    group = process_group if process_group is not None else dist.group.WORLD
    ranks = dist.get_process_group_ranks(group)
    return dist.new_group(ranks, backend="gloo", use_local_synchronization=True)


def _background(process_group: Any, alone: bool) -> _Background:
    global _alone
    with _lock:
        if alone:
            _alone = _alone or _Background(None, True)
            return _alone
        group = process_group if process_group is not None else dist.group.WORLD
        if group not in _backgrounds:
            _backgrounds[group] = _Background(process_group, False)
        return _backgrounds[group]


@contextmanager
def guard() -> Iterator[None]:
    """Held around the step that changes the state: waits while a snapshot is still being copied.

    >>> with cairn.torch.guard():
    ...     optimizer.step()
    """
    for background in [*_backgrounds.values(), *([_alone] if _alone else [])]:
        background.guard()
    yield


def prepare(state_dict: dict[str, Any], process_group: Optional[Any] = None, *, overlapped: bool = False) -> None:
    """Does ahead of time what the first async_save of such a state would do: takes the memory for the snapshot,
    and pins it for GPUs. All ranks call it.

    >>> cairn.torch.prepare({"model": model, "optim": optim})
    """
    alone = not (dist.is_available() and dist.is_initialized())
    state, _ = _native.prepare(state_dict_saver._stateful_to_state_dict(state_dict), None)
    _background(process_group, alone).saver(overlapped).prepare(state)


def start(
    state_dict: dict[str, Any],
    writer: Any,
    *,
    planner: Optional[Any],
    process_group: Optional[Any],
    kind: AsyncCheckpointerType,
    stager: Optional[Any],
    no_dist: bool,
    use_collectives: bool,
) -> Future | AsyncSaveResponse:
    reason = _ways.why_save_is_open(planner, writer)
    overlapped = isinstance(stager, OverlappedStager)
    if (stager is None or overlapped) and reason is None and not _ways.save_hooks(planner):
        return _start_native(state_dict, writer, planner, process_group, no_dist, use_collectives, overlapped)
    owned = None
    if stager is None or overlapped:
        if isinstance(writer, AsyncStager):
            stager = writer
        else:
            stager = owned = DefaultStager(StagingOptions(False, False, False, False))
    try:
        staged = stager.stage(state_dict)
    except BaseException:
        if owned is not None:
            owned.close()
        raise

    def run() -> Any:
        state = staged.result() if isinstance(staged, Future) else staged
        return state_dict_saver._save_state_dict(
            state, writer, process_group, no_dist=no_dist, planner=planner, use_collectives=use_collectives
        )

    uploaded = _background(process_group, no_dist).pool.submit(run)
    if owned is not None:
        uploaded.add_done_callback(lambda _: owned.close())
    if isinstance(staged, Future):
        return AsyncSaveResponse(staging_completion=_completion_of(staged), upload_completion=uploaded)
    if stager.should_synchronize_after_execute:
        stager.synchronize_staging()
    return uploaded


def _completion_of(staged: Future) -> Future:
    """Done when the staging is, with its failure if it failed, and without its result."""
    done: Future = Future()

    def tell(ended: Future) -> None:
        error = ended.exception()
        done.set_exception(error) if error is not None else done.set_result(None)

    staged.add_done_callback(tell)
    return done


def _start_native(
    state_dict: dict[str, Any],
    writer: Any,
    planner: Any,
    process_group: Any,
    no_dist: bool,
    use_collectives: bool,
    overlapped: bool,
) -> Future | AsyncSaveResponse:
    saver = _background(process_group, no_dist).saver(overlapped)
    path = os.fspath(writer.path)
    options = {**writer.engine_options(), "use_collectives": use_collectives}
    if not no_dist:
        options["deadline"] = _dist.timeout_of(process_group)
    state, resolve = _native.prepare(state_dict, planner)
    engine = _native.engine_planner(planner, process_group, no_dist, use_collectives, may_cache=False)
    with as_checkpoint_exception("stage"):
        pending = saver.save(state, engine, path, _objects.encode, resolve, options)
    staged, saved = Future(), Future()
    staged.set_running_or_notify_cancel()
    saved.set_running_or_notify_cancel()

    # Not a daemon: the interpreter waits for it at its end, and so for the checkpoint.
    threading.Thread(target=_wait, args=(pending, writer, path, staged, saved), name="cairn-async-save").start()
    return AsyncSaveResponse(staging_completion=staged, upload_completion=saved) if overlapped else saved


def _wait(pending: Any, writer: Any, path: str, staged: Future, saved: Future) -> None:
    try:
        with reporting("async_save", path) as report, as_checkpoint_exception("write"):
            report["way"] = "native"
            pending.wait_staged()
            staged.set_result(None)
            metadata = _native.finished(writer, path, pending.wait(), report)
    except BaseException as error:  # noqa: BLE001 - whoever asks the futures gets it
        if not staged.done():
            staged.set_exception(error)
        saved.set_exception(error)
    else:
        saved.set_result(metadata)
