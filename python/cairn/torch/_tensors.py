"""What of a tensor lies on this rank: its pieces, for all the kinds of tensors that PyTorch has.

A piece is `(offsets, sizes, tensor)`: where it begins in the global tensor, how large it is, and its memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint import planner_helpers
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.utils import find_tensor_shard

from . import _objects

try:
    from torch.distributed.tensor import DTensor as DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
except ImportError:  # a torch without distributed
    DTensor = None  # type: ignore[assignment, misc]

try:
    from torch.distributed.checkpoint.protocol import CheckpointableTensor
except ImportError:  # torch 2.13 and older
    CheckpointableTensor = None  # type: ignore[assignment, misc, unused-ignore]


class Piece(NamedTuple):
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    tensor: torch.Tensor


# Where a DTensor's local part lies depends on its shape and spec alone, and asking torch takes longer than
# saving a small tensor. The rank is part of the key because tests change it.
_places: dict[Any, tuple[tuple[int, ...], tuple[int, ...]]] = {}


def place_of_dtensor(tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(sizes, offsets) of the part of a DTensor that is here."""
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    key = (tensor.shape, mesh, tensor.placements, None if coordinate is None else tuple(coordinate))
    if key not in _places:
        if len(_places) > 100_000:
            _places.clear()
        sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, mesh, tensor.placements)
        _places[key] = (tuple(sizes), tuple(offsets))
    return _places[key]


def refuse_partial(tensor: Any, name: str) -> None:
    """A DTensor whose ranks hold addends has no value until they are added up."""
    if any(placement.is_partial() for placement in tensor.placements):
        raise ValueError(
            f"tensor {name!r}: a DTensor with partial placements {tuple(tensor.placements)} cannot be saved or "
            "loaded: every rank holds an addend of it; redistribute it first"
        )


def pieces_of(value: Any, name: str) -> tuple[tuple[int, ...], list[Piece]] | None:
    """(global size, pieces on this rank) of a tensor that is cut over ranks; None for anything else.

    A DTensor whose mesh this rank is not part of has no pieces.
    """
    if DTensor is not None and isinstance(value, DTensor):
        refuse_partial(value, name)
        if value.device_mesh.get_coordinate() is None:
            return tuple(value.shape), []
        local = value._local_tensor
        if not hasattr(local, "__create_chunk_list__"):
            sizes, offsets = place_of_dtensor(value)
            return tuple(value.shape), [Piece(offsets, sizes, local)]
    elif isinstance(value, ShardedTensor):
        return tuple(value.metadata().size), _shards(value, (0,) * len(value.metadata().size))
    elif not _says_how_it_is_cut(value):
        return None
    chunks = planner_helpers._create_chunk_list(value)
    return tuple(getattr(value, "global_shape", None) or value.size()), [
        Piece(tuple(chunk.offsets), tuple(chunk.sizes), _found(value, MetadataIndex(name, chunk.offsets, position)))
        for position, chunk in enumerate(chunks)
    ]


def _says_how_it_is_cut(value: Any) -> bool:
    """By torch's protocols: LocalShardsWrapper does, or a class of the user's."""
    if CheckpointableTensor is not None and isinstance(value, CheckpointableTensor):
        return True
    return hasattr(value, "__create_chunk_list__") and hasattr(value, "__get_tensor_shard__")


def _found(value: Any, index: MetadataIndex) -> torch.Tensor:
    found: torch.Tensor = find_tensor_shard(value, index)
    return found.detach()


def written_pieces_of(value: Any, name: str) -> tuple[tuple[int, ...], list[Piece]] | None:
    """The same for saving, where a class may have hooks for that alone."""
    cut = pieces_of(value, name)
    if cut is not None or not hasattr(value, "__create_write_items__"):
        return cut
    written = [item for item in value.__create_write_items__(name, value) if item.tensor_data is not None]
    if not written:
        return None
    chunks = [(item.tensor_data.chunk, item.index) for item in written]
    pieces = [Piece(tuple(chunk.offsets), tuple(chunk.sizes), _found(value, index)) for chunk, index in chunks]
    return tuple(written[0].tensor_data.size), pieces


def _shards(value: ShardedTensor, begin: tuple[int, ...]) -> list[Piece]:
    """The local shards; those of the inner one, where a shard is a ShardedTensor itself (FSDP over TP)."""
    found = []
    for shard in value.local_shards():
        offsets = tuple(a + b for a, b in zip(begin, shard.metadata.shard_offsets))
        if isinstance(shard.tensor, ShardedTensor):
            found.extend(_shards(shard.tensor, offsets))
        else:
            found.append(Piece(offsets, tuple(shard.metadata.shard_sizes), shard.tensor))
    return found


def is_plain(tensor: Any) -> bool:
    """Whether the engine can use a tensor's memory as it stands."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and (tensor.is_cpu or tensor.is_cuda)
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def plain_copy(tensor: torch.Tensor) -> torch.Tensor | None:
    """The same elements in a tensor the engine can read; None when there is no such tensor."""
    if is_plain(tensor):
        return tensor
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return None
    if tensor.is_quantized or tensor.is_meta:
        return None
    copied = tensor.detach().cpu().resolve_conj().resolve_neg()
    return copied if is_plain(copied) else None


def for_saving(value: Any, name: str) -> Any:
    """The engine's question about a tensor that is not plain, when it saves."""
    cut = written_pieces_of(value, name)
    if cut is None:
        copied = plain_copy(value) if isinstance(value, torch.Tensor) else None
        if copied is None:
            return None
        return tuple(copied.shape), [((0,) * copied.dim(), tuple(copied.shape), copied, None)]
    size, pieces = cut
    if not pieces:
        return False
    copies = [plain_copy(piece.tensor) for piece in pieces]
    if all(each is not None for each in copies):
        return size, [(piece.offsets, piece.sizes, copy, None) for piece, copy in zip(pieces, copies)], True
    return size, [(piece.offsets, piece.sizes, _outline(piece, name), piece.tensor) for piece in pieces], True


def _outline(piece: Piece, name: str) -> torch.Tensor:
    """A plain tensor of a piece's dtype and sizes, of one element's memory: for plans."""
    outline = torch.zeros((), dtype=piece.tensor.dtype).expand(piece.sizes)
    if not is_plain(outline):
        kind = type(piece.tensor).__qualname__
        raise TypeError(f"tensor {name!r}: a {kind} of {outline.dtype} cannot be saved in pieces")
    return outline


def encode(value: Any) -> bytes:
    """What only Python can encode, as it stands in a checkpoint. A tensor on the CPU, without memory of others."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.layout is torch.strided and value.untyped_storage().size() != value.numel() * value.itemsize:
            value = value.clone()
    return _objects.encode(value)


def as_planned(item: Any, data: Any) -> Any:
    """What a planner resolved for an item, as the engine can read it; an archive, when it is not what was planned."""
    if not isinstance(data, torch.Tensor):
        raise TypeError(f"tensor {item.index.fqn!r}: the planner resolved a {type(data).__qualname__} for it")
    plain = plain_copy(data.detach())
    planned = item.tensor_data
    if plain is not None and plain.dtype == planned.properties.dtype and plain.size() == planned.chunk.sizes:
        return plain
    return encode(data)


class Destinations:
    """The engine's questions when it loads; fill() brings home what had to be read into other memory."""

    def __init__(self) -> None:
        self._borrowed: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def __call__(self, value: Any, name: str) -> Any:
        cut = pieces_of(value, name)
        if cut is None:
            if not isinstance(value, torch.Tensor) or value.is_meta:
                return None
            whole = ((0,) * value.dim(), tuple(value.shape), self._memory_for(value, name), None)
            return tuple(value.shape), [whole]
        size, pieces = cut
        if not pieces:
            return False
        return size, [(offsets, sizes, self._memory_for(each, name), None) for offsets, sizes, each in pieces], True

    def _memory_for(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        if is_plain(tensor):
            return tensor
        # On the CPU, where every dtype the engine knows can be.
        memory = torch.empty(tensor.shape, dtype=torch.float32 if tensor.is_quantized else tensor.dtype)
        self._borrowed.append((name, tensor, memory))
        return memory

    @torch.no_grad()
    def fill(self, objects: dict[str, Any]) -> None:
        """`objects` is what was stored as a pickle: one that is a tensor goes into the tensor that is there."""
        for name, tensor, memory in self._borrowed:
            if name not in objects:
                tensor.copy_(memory)
            elif isinstance(objects[name], torch.Tensor) and objects[name].shape == tensor.shape:
                tensor.copy_(objects.pop(name))


def wait_for_streams() -> None:
    """Until the GPUs have done what the current streams were given: the engine itself waits for default ones."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    for device in range(torch.cuda.device_count()):
        stream = torch.cuda.current_stream(device)
        if stream != torch.cuda.default_stream(device):
            stream.synchronize()
