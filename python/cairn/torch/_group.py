"""The ranks of a process group, as the engine knows them: they talk over TCP connections of its own.

A process group is used once, from the thread that asks: every rank opens a port, and one collective tells everybody all
addresses. From there on nothing of torch.distributed is needed, whatever the backend, and the signs of life that a
long save sends need no GIL.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import _wrap_exception

from .. import Error, _engine
from .._errors import error as made_error
from ._errors import CheckpointError

_ROOM = 2048  # bytes of a rank's word in the collective
_GOOD, _BAD = b"+", b"-"


def device_of(group: Any) -> torch.device:
    """Where the tensors of a collective must be: on the CPU, unless the group can only do GPUs. Then it is the
    caller's own GPU."""
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


def connect(process_group: Any) -> _engine.Group:
    """A group of the engine for the ranks of this one; all of them call it. All get one, or all raise."""
    rank = dist.get_rank(process_group)
    if rank < 0:
        raise ValueError("this rank is not in the process group: only ranks that are can save or load with it")
    listener = None
    try:
        listener = _engine.Listener()
        word = _GOOD + _engine.random_group_key() + listener.addresses.encode()
    except Error as error:
        word = _BAD + str(error).encode()
    words = _told_to_all(word, process_group)
    failures = {each: made_error("io", said[1:].decode()) for each, said in enumerate(words) if said[:1] != _GOOD}
    if failures or listener is None:
        first = min(failures)
        text = f"rank {first} cannot be reached by the others: {failures[first].message}"
        raise CheckpointError(
            made_error("io", text), "connect", {each: _wrap_exception(why) for each, why in failures.items()}
        )
    addresses = [said[17:].decode() for said in words]
    return _engine.Group(listener, rank, addresses, words[0][1:17], timeout_of(process_group))


def _told_to_all(word: bytes, process_group: Any) -> list[bytes]:
    """Everybody's word, by rank, by one collective."""
    size = min(len(word), _ROOM - 2)
    packed = bytearray(size.to_bytes(2, "little") + word[:size])
    packed.extend(bytes(_ROOM - len(packed)))
    mine = torch.frombuffer(packed, dtype=torch.uint8).to(device_of(process_group))
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(process_group))]
    try:
        dist.all_gather(parts, mine, group=process_group)
        words = [bytes(part.tolist()) for part in torch.stack(parts).cpu()]
    except RuntimeError as error:  # what torch.distributed raises when somebody is late or gone
        why = made_error("timeout", f"the ranks could not tell each other their addresses: {error}")
        raise CheckpointError(why, "connect") from error
    return [word[2 : 2 + int.from_bytes(word[:2], "little")] for word in words]
