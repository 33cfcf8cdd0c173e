"""Ranks for tests: processes that talk over gloo and run one function each."""

from __future__ import annotations

import faulthandler
import io
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Collection
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any, Callable

import torch
import torch.distributed as dist

PATIENCE = 2400  # seconds for all ranks together


def hard_limit(seconds: float = 120.0) -> float:
    """Seconds after which ranks that should have ended long ago hang: more where others want the cores too."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Ranks:
    """Processes that call `body(rank, *arguments)`, one for each rank; they have begun."""

    def __init__(self, size: int, body: Callable[..., Any], *arguments: Any, some_die: bool = False) -> None:
        # Forked, because importing torch takes longer than most of these tests.
        context = multiprocessing.get_context("fork")
        self._meeting = tempfile.mkdtemp(prefix="cairn-ranks-")
        self._answers = []
        self.processes = []
        for rank in range(size):
            receiver, sender = context.Pipe(duplex=False)
            arguments_of_run = (rank, size, f"{self._meeting}/store", sender, some_die, body, arguments)
            process = context.Process(target=_run, args=arguments_of_run)
            process.start()
            sender.close()
            self._answers.append(receiver)
            self.processes.append(process)

    def answers(self, limit: float = PATIENCE, may_die: Collection[int] = ()) -> list[Any]:
        """What the ranks returned; None for those that died and may. One that fails or hangs fails here."""
        until = time.monotonic() + limit
        found: dict[int, Any] = {}
        failures: dict[int, str] = {}
        waiting = set(range(len(self.processes)))
        try:
            while waiting and time.monotonic() < until:
                ends = [end for rank in waiting for end in (self._answers[rank], self.processes[rank].sentinel)]
                wait(ends, max(0.0, until - time.monotonic()))
                for rank in sorted(waiting):
                    failure = self._hear(rank, found, rank in may_die)
                    if failure is not None:
                        failures[rank] = failure
                        until = min(until, time.monotonic() + hard_limit(30))  # the others may wait for it in vain
                    if failure is not None or rank in found:
                        waiting.discard(rank)
            for process in self.processes:
                process.join(max(0.0, until - time.monotonic()))
            late = [rank for rank, process in enumerate(self.processes) if process.is_alive()]
            for rank in late:
                os.kill(self.processes[rank].pid, signal.SIGUSR1)  # says on stderr where it hangs
            if late:
                time.sleep(1)
        finally:
            self.kill()
        told = "".join(f"\nrank {rank} failed: {failure}" for rank, failure in failures.items())
        assert not late, f"ranks {late} hung (of {limit:.0f} s in all); {sorted(found)} answered{told}"
        assert not failures, told
        return [found[rank] for rank in range(len(self.processes))]

    def _hear(self, rank: int, found: dict[int, Any], may_die: bool) -> str | None:
        """Takes a rank's answer, if there is one; returns how it failed, if it did."""
        process = self.processes[rank]
        ended = not process.is_alive()  # asked first: an answer comes before the end
        with suppress(EOFError):
            if not self._answers[rank].poll():
                if not ended:
                    return None
                raise EOFError
            failure, value = self._answers[rank].recv()
            if failure is None:
                found[rank] = torch.load(io.BytesIO(value), weights_only=False)
            return failure
        process.join()
        if may_die:
            found[rank] = None
            return None
        return f"it ended with {process.exitcode} and no answer"

    def kill(self) -> None:
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
        shutil.rmtree(self._meeting, ignore_errors=True)


def run_ranks(size: int, body: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Calls `body(rank, *arguments)` on every rank and returns what they returned. One that fails fails here."""
    return Ranks(size, body, *arguments).answers()


def _packed(value: Any) -> bytes:
    """Tensors as bytes: torch would share memory of a process that is about to end."""
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def _run(
    rank: int, size: int, store: str, answers: Any, some_die: bool, body: Callable[..., Any], arguments: Any
) -> None:
    try:
        faulthandler.register(signal.SIGUSR1, file=2)
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
        value = body(rank, *arguments)
        if not some_die:
            dist.barrier()
            dist.destroy_process_group()
        answers.send((None, _packed(value)))
    except BaseException:  # noqa: BLE001 - the parent raises it
        answers.send((traceback.format_exc(), None))
