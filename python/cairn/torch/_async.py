"""Saves in the background.

A native save is staged and written by the engine's own threads, one save after the other for each group, over
connections that nobody else talks on. A stager of the user's, or an open save, gets a Python thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Callable

import torch.distributed as dist
from torch.distributed.checkpoint.staging import AsyncStager, DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse

from .. import _engine
from . import _dist, _native, _tensors, _ways
from ._errors import as_checkpoint_exception
from ._group import connect
from ._report import reporting
from ._saving import _save_state_dict, _stateful_to_state_dict
from ._stateful import Failed, made


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
    """What the background saves of one process group share: they are written one after the other, over connections of
    their own, so that they never mix with a save or load of the training's thread."""

    def __init__(self, group: Any | None) -> None:
        self.group = group
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cairn-async-save")
        self._last: Future[Any] | None = None  # of those that run in the pool
        self._savers: dict[bool, Any] = {}

    def at_work(self) -> Callable[[], None]:
        """From here on the others hear that this rank takes part, until what is returned is called."""
        return (lambda: None) if self.group is None else self.group.at_work().end

    def submit(self, save: Callable[[], Any], end: Callable[[], None]) -> Future[Any]:
        """A save with code of the caller's in it gets a thread of Python's."""

        def run() -> Any:
            try:
                for saver in self._savers.values():
                    saver.drain()
                return save()
            finally:
                end()

        self._last = self._pool.submit(run)
        return self._last

    def saver(self, overlapped: bool) -> Any:
        # The same ranks, the same connections: saves of another kind end first.
        if self._last is not None:
            futures.wait([self._last])
        for other, saver in self._savers.items():
            if other != overlapped:
                saver.drain()
        if overlapped not in self._savers:
            self._savers[overlapped] = _engine.Saver(self.group, {"overlapped": overlapped})
        return self._savers[overlapped]

    def guard(self) -> None:
        for saver in self._savers.values():
            saver.guard()


_backgrounds = _dist.Connected(lambda group: _Background(None if group is None else connect(group)))


def _background(process_group: Any, alone: bool) -> _Background:
    shared: _Background = _backgrounds.alone() if alone else _backgrounds.of(process_group)
    return shared


@contextmanager
def guard() -> Iterator[None]:
    """Held around the step that changes the state: waits while a snapshot is still being copied.

    >>> with cairn.torch.guard():
    ...     optimizer.step()
    """
    for background in _backgrounds.all():
        background.guard()
    yield


def prepare(state_dict: dict[str, Any], process_group: Any | None = None, *, overlapped: bool = False) -> None:
    """Does ahead of time what the first async_save of such a state would do: takes the memory for the snapshot,
    and pins it for GPUs. All ranks call it.

    >>> cairn.torch.prepare({"model": model, "optim": optim})
    """
    alone = not (dist.is_available() and dist.is_initialized())
    prepared = _native.prepare(_stateful_to_state_dict(state_dict), None)
    if prepared.error is not None:
        raise prepared.error
    _background(process_group, alone).saver(overlapped).prepare(prepared.state)


def start(
    state_dict: dict[str, Any],
    writer: Any,
    *,
    planner: Any | None,
    process_group: Any | None,
    kind: AsyncCheckpointerType,
    stager: Any | None,
    no_dist: bool,
    use_collectives: bool,
) -> Future[Any] | AsyncSaveResponse:
    reason = _ways.why_save_is_open(planner, writer)
    if stager is None and _ways.stages_by_itself(writer):
        stager = writer
    overlapped = isinstance(stager, OverlappedStager)
    background = _background(process_group, no_dist)
    end = background.at_work()
    with ExitStack() as until_begun:
        until_begun.callback(end)  # from then on the save's own thread does that
        state = made(lambda: _stateful_to_state_dict(state_dict), no_dist)
        if (stager is None or overlapped) and reason is None and not _ways.save_hooks(planner):
            return _start_native(
                background,
                until_begun,
                end,
                state,
                writer,
                planner,
                process_group,
                no_dist,
                use_collectives,
                overlapped,
            )
        owned = None
        if stager is None or overlapped:
            if isinstance(writer, AsyncStager):
                stager = writer
            else:
                stager = owned = DefaultStager(StagingOptions(False, False, False, False))
                until_begun.callback(owned.close)

        def stage() -> Any:
            if isinstance(state, Failed):
                raise state.error
            return stager.stage(state)

        def run() -> Any:
            staged_state = made(staged.result, no_dist) if isinstance(staged, Future) else staged
            return _save_state_dict(
                staged_state,
                writer,
                background.group,
                no_dist=no_dist,
                planner=planner,
                use_collectives=use_collectives,
            )

        staged = made(stage)
        if isinstance(staged, Failed) and no_dist:
            raise staged.error
        uploaded = background.submit(run, end)
        until_begun.pop_all()
    if owned is not None:
        uploaded.add_done_callback(lambda _: owned.close())
    if isinstance(staged, Failed):
        raise staged.error  # the other ranks hear of it from the save
    if isinstance(staged, Future):
        return AsyncSaveResponse(staging_completion=_completion_of(staged), upload_completion=uploaded)
    if overlapped:  # the caller's own code is in it, and the snapshot is taken already
        whole: Future[Any] = Future()
        whole.set_result(None)
        return AsyncSaveResponse(staging_completion=whole, upload_completion=uploaded)
    if stager.should_synchronize_after_execute:
        stager.synchronize_staging()
    return uploaded


def _completion_of(staged: Future[Any]) -> Future[Any]:
    """Done when the staging is, with its failure if it failed, and without its result."""
    done: Future[Any] = Future()

    def tell(ended: Future[Any]) -> None:
        error = ended.exception()
        done.set_exception(error) if error is not None else done.set_result(None)

    staged.add_done_callback(tell)
    return done


def _start_native(
    background: _Background,
    until_begun: ExitStack,
    end: Callable[[], None],
    state_dict: Any,
    writer: Any,
    planner: Any,
    process_group: Any,
    no_dist: bool,
    use_collectives: bool,
    overlapped: bool,
) -> Future[Any] | AsyncSaveResponse:
    saver = background.saver(overlapped)
    path, where = os.fspath(writer.path), writer.engine_path()
    options, state_dict = _native.options_of(writer, state_dict, no_dist)
    options["use_collectives"] = use_collectives
    if not no_dist:
        options["deadline"] = _dist.DEADLINE
    staged: Future[Any] = Future()
    saved: Future[Any] = Future()
    staged.set_running_or_notify_cancel()
    saved.set_running_or_notify_cancel()
    prepared = _native.prepare(state_dict, planner, keep=True)
    engine = _native.engine_planner(planner, prepared, process_group, no_dist, use_collectives, may_cache=False)
    with as_checkpoint_exception("stage"):
        pending = saver.save(prepared.state, engine, where, _tensors.encode, prepared.resolve, options)
    # Not a daemon: the interpreter waits for it at its end, and so for the checkpoint.
    waiting = (pending, writer, path, staged, saved, end)
    threading.Thread(target=_wait, args=waiting, name="cairn-async-save").start()
    until_begun.pop_all()
    if prepared.error is not None:
        raise prepared.error  # the other ranks hear of it from the save
    return AsyncSaveResponse(staging_completion=staged, upload_completion=saved) if overlapped else saved


def _wait(
    pending: Any, writer: Any, path: str, staged: Future[Any], saved: Future[Any], end: Callable[[], None]
) -> None:
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
    finally:
        end()
