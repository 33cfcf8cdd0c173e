"""Ranks for tests: processes that talk over gloo and run one function each."""

from __future__ import annotations

import io
import multiprocessing
import os
import tempfile
import traceback
from typing import Any, Callable

import torch
import torch.distributed as dist

PATIENCE = 2400  # seconds for all ranks together


def run_ranks(size: int, body: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Calls `body(rank, *arguments)` on every rank and returns what they returned. One that fails fails here."""
    # Forked, because importing torch takes longer than most of these tests.
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    with tempfile.NamedTemporaryFile(prefix="cairn-ranks-") as meeting:
        processes = [
            context.Process(target=_run, args=(rank, size, meeting.name + ".store", answers, body, arguments))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(PATIENCE)
        late = [i for i, process in enumerate(processes) if process.is_alive()]
        for i in late:
            processes[i].kill()
        if os.path.exists(meeting.name + ".store"):
            os.unlink(meeting.name + ".store")
    found: dict[int, Any] = {}
    while not answers.empty():
        rank, failure, value = answers.get()
        if failure is not None:
            raise AssertionError(f"rank {rank} failed:\n{failure}")
        found[rank] = torch.load(io.BytesIO(value), weights_only=False)
    if late or len(found) != size:
        raise AssertionError(f"ranks {late} hung; {sorted(found)} of {size} answered")
    return [found[rank] for rank in range(size)]


def _packed(value: Any) -> bytes:
    """Tensors as bytes: torch would share memory of a process that is about to end."""
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def _run(rank: int, size: int, store: str, answers: Any, body: Callable[..., Any], arguments: Any) -> None:
    try:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
        value = body(rank, *arguments)
        dist.barrier()
        dist.destroy_process_group()
        answers.put((rank, None, _packed(value)))
    except BaseException:  # noqa: BLE001 - the parent raises it
        answers.put((rank, traceback.format_exc(), None))
