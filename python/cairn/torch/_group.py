"""The exchanges of the engine over a process group of torch.distributed: bytes in, bytes out.

Whatever the backend, a rank sends the length of its bytes first and then the bytes, in pieces that keep the
coordinator's memory small: a round of a gather holds `_ROUND` bytes of every rank at most. A rank that is still at
work when the others wait sends `_AT_WORK` for a length, again and again, and they wait on: a process group's
time-out is for ranks that are silent.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_ROUND = 4 << 20
_AT_WORK = -1


def device_of(group: Any) -> torch.device:
    """Where the tensors of a collective must be: on the CPU, unless the group can only do GPUs. Then it is the
    caller's own GPU: the threads that make the collectives would know of the first one only."""
    from torch.distributed.distributed_c10d import _get_object_coll_device

    device = torch.device(_get_object_coll_device(group))
    if device.type == "cpu" or device.index is not None:
        return device
    return torch.device(device.type, torch.get_device_module(device.type).current_device())


def timeout_of(process_group: Any | None) -> float:
    """How long the group waits for a rank that is silent, in seconds."""
    from torch.distributed.distributed_c10d import _get_default_group

    group = process_group if process_group is not None else _get_default_group()
    try:
        return group._get_backend(device_of(group)).options._timeout.total_seconds()
    except (AttributeError, RuntimeError):
        return 1800.0


class Exchange:
    """What python/src/group.h asks for. All ranks of the group make the same calls in the same order."""

    def __init__(self, group: Any | None) -> None:
        # A group that its owner lets go is not kept alive here. The default one is None.
        self._group_of = (lambda: None) if group is None else weakref.ref(group)
        self._device = device_of(group)
        self._silence = timeout_of(group)
        # Often enough for one to be lost on the way. Threads that a GPU's backend does not know make none.
        self.heartbeat = min(self._silence / 4, 60.0) if self._device.type == "cpu" else 0.0
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    @property
    def _group(self) -> Any | None:
        return self._group_of()

    def sign_of_life(self, root: int | None) -> None:
        """This rank is at work, and others wait: in a gather, or for the root's word."""
        if root is None:
            self._lengths(_AT_WORK, self._silence)
        elif self.rank == root:
            self._broadcast(self._numbers([_AT_WORK] * self.size), root, self._silence)

    def gather(self, mine: bytes, root: int, seconds: float) -> list[bytes]:
        lengths = self._all_lengths(len(mine), seconds)
        parts = self._rounds(lengths, lambda at, size: self._gather_round(mine, at, size, root, seconds))
        return _joined(parts, lengths) if self.rank == root else []

    def all_gather(self, mine: bytes, seconds: float) -> list[bytes]:
        lengths = self._all_lengths(len(mine), seconds)
        parts = self._rounds(lengths, lambda at, size: self._all_gather_round(mine, at, size, seconds))
        return _joined(parts, lengths)

    def scatter(self, parts: list[bytes], root: int, seconds: float) -> bytes:
        lengths = self._root_lengths([len(part) for part in parts], root, seconds)
        rounds = self._rounds(lengths, lambda at, size: [self._scatter_round(parts, at, size, root, seconds)])
        return b"".join(received[0] for received in rounds)[: lengths[self.rank]]

    def broadcast(self, mine: bytes, root: int, seconds: float) -> bytes:
        size = self._root_lengths([len(mine)] * self.size, root, seconds)[0]
        if size == 0:
            return b""
        if self.rank != root:
            mine = b""
        return _bytes(self._broadcast(self._tensor(mine, 0, size), root, seconds))

    def barrier(self, seconds: float) -> None:
        self._all_lengths(0, seconds)

    # One collective each; all wait for at most `seconds`.

    def _wait(self, work: Any, seconds: float) -> None:
        if work is None:
            return
        seconds = min(seconds, self._silence)
        if work.wait(timedelta(seconds=seconds)) is False:
            raise RuntimeError(f"a collective did not end in {seconds:.0f} s")

    def _all_lengths(self, mine: int, seconds: float) -> list[int]:
        """Everybody's, when nobody is at work any more."""
        until = time.monotonic() + seconds
        while True:
            lengths = self._lengths(mine, _left(until))
            if _AT_WORK not in lengths:
                return lengths

    def _root_lengths(self, mine: list[int], root: int, seconds: float) -> list[int]:
        """The root's, when it is no longer at work."""
        until = time.monotonic() + seconds
        while True:
            said = self._numbers(mine if self.rank == root else [0] * self.size)
            lengths = self._broadcast(said, root, _left(until)).tolist()
            if _AT_WORK not in lengths:
                return lengths

    def _numbers(self, numbers: list[int]) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int64).to(self._device)

    def _lengths(self, mine: int, seconds: float) -> list[int]:
        length = torch.tensor([mine], dtype=torch.int64, device=self._device)
        lengths = [torch.zeros_like(length) for _ in range(self.size)]
        self._wait(dist.all_gather(lengths, length, group=self._group, async_op=True), seconds)
        return [int(each[0]) for each in lengths]

    def _broadcast(self, tensor: torch.Tensor, root: int, seconds: float) -> torch.Tensor:
        work = dist.broadcast(tensor, group=self._group, group_src=root, async_op=True)
        self._wait(work, seconds)
        return tensor

    def _gather_round(self, mine: bytes, at: int, size: int, root: int, seconds: float) -> list[bytes]:
        tensor = self._tensor(mine, at, size)
        parts = [torch.empty_like(tensor) for _ in range(self.size)] if self.rank == root else None
        self._wait(dist.gather(tensor, parts, group=self._group, group_dst=root, async_op=True), seconds)
        return [_bytes(part) for part in parts or []]

    def _all_gather_round(self, mine: bytes, at: int, size: int, seconds: float) -> list[bytes]:
        tensor = self._tensor(mine, at, size)
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        self._wait(dist.all_gather(parts, tensor, group=self._group, async_op=True), seconds)
        return [_bytes(part) for part in parts]

    def _scatter_round(self, parts: list[bytes], at: int, size: int, root: int, seconds: float) -> bytes:
        tensor = self._tensor(b"", 0, size)
        sent = [self._tensor(part, at, size) for part in parts] if self.rank == root else None
        self._wait(dist.scatter(tensor, sent, group=self._group, group_src=root, async_op=True), seconds)
        return _bytes(tensor)

    def _rounds(self, lengths: list[int], one: Any) -> list[Any]:
        longest = max(lengths)
        return [one(at, min(_ROUND, longest - at)) for at in range(0, longest, _ROUND)]

    def _tensor(self, data: bytes, at: int, size: int) -> torch.Tensor:
        """`size` bytes of `data` from `at`, filled up with zeros."""
        part = bytearray(data[at : at + size])
        part.extend(bytes(size - len(part)))
        return torch.frombuffer(part, dtype=torch.uint8).to(self._device)


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise RuntimeError("the deadline of the whole has passed, though all ranks are alive")
    return left


def _bytes(tensor: torch.Tensor) -> bytes:
    host = tensor.cpu()
    return ctypes.string_at(host.data_ptr(), host.numel())


def _joined(rounds: list[list[bytes]], lengths: list[int]) -> list[bytes]:
    return [b"".join(parts[i] for parts in rounds)[:length] for i, length in enumerate(lengths)]
