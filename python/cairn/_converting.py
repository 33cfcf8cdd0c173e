"""Converting checkpoints from one format to another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import _engine

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._engine import ConvertOptions, ConvertReport


def convert(
    source: str | os.PathLike[str], destination: str | os.PathLike[str], **options: Unpack[ConvertOptions]
) -> ConvertReport:
    """Converts between DCP directories, torch.save files, safetensors files and directories of them.

    >>> report = cairn.convert("step-7", "weights.pt")
    >>> report["to"], [tensor["name"] for tensor in report["tensors"]]
    ('torch', ['model.w'])
    >>> report = cairn.convert("step-7", "w.safetensors", keys=["model.*"], map={"^model.": ""}, dtype="bfloat16")
    >>> report["tensors"][0]["name"], report["tensors"][0]["dtype"]
    ('w', 'bfloat16')

    The destination's name says the format (*.safetensors, *.pt, *.pth, *.bin, *.ckpt, else DCP), or `to` does:
    "dcp", "torch", "safetensors", "huggingface". Bytes stream within `memory_budget`; the destination appears
    whole, read back and durable, or not at all.

    Options: keys=[GLOB], exclude=[GLOB], map={REGEX: REPLACEMENT}, dtype="bfloat16" or {GLOB: DTYPE},
    skip_objects=True, overwrite=True, dry_run=True, verify=False, durable=False, threads=N,
    memory_budget=BYTES, progress=f(phase, done, total); for directories of safetensors files shards=N,
    max_shard_size=BYTES, file_of={NAME: N}, only_files=[N], index=False, metadata={KEY: TEXT}; for DCP ranks=N,
    files=N, transforms=["zstd"], max_item_bytes=BYTES.
    """
    return _engine.convert(os.fspath(source), os.fspath(destination), options)
