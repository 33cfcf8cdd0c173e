"""`torch.distributed.checkpoint.format_utils` on cairn's engine: bytes stream, nothing is unpickled.

python -m cairn.torch.format_utils {torch_to_dcp|dcp_to_torch} SRC DST
"""

from __future__ import annotations

import argparse
import os
from enum import Enum
from typing import Any

import torch
import torch.distributed.checkpoint.format_utils as _torch

from .. import Error, convert
from . import _objects
from ._torch_save import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner
from .default_planner import _EmptyStateDictLoadPlanner
from .filesystem import FileSystemReader
from .state_dict_loader import _load_state_dict

__all__ = [
    "BroadcastingTorchSaveReader",
    "DynamicMetaLoadPlanner",
    "FormatMode",
    "dcp_to_torch_save",
    "torch_save_to_dcp",
]

# Taken now: cairn.torch.install() puts the function below in its place.
_torch_save_to_dcp = _torch.torch_save_to_dcp


class FormatMode(Enum):
    TORCH_TO_DCP = "torch_to_dcp"
    DCP_TO_TORCH = "dcp_to_torch"


def dcp_to_torch_save(dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str]) -> None:
    """Writes a DCP checkpoint as one torch.save file, in little memory. A file that is there is replaced."""
    try:
        convert(dcp_checkpoint_dir, torch_save_path, to="torch", overwrite=True)
    except Error as error:
        if error.code != "unsupported" or _objects.is_safe():
            raise
        whole: dict[str, Any] = {}  # has tensors that only Python can put together
        reader, planner = FileSystemReader(dcp_checkpoint_dir), _EmptyStateDictLoadPlanner()
        _load_state_dict(whole, storage_reader=reader, planner=planner, no_dist=True)
        torch.save(whole, torch_save_path)


def torch_save_to_dcp(torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]) -> None:
    """Writes a torch.save file as a DCP checkpoint, in little memory. A checkpoint that is there is replaced."""
    try:
        convert(torch_save_path, dcp_checkpoint_dir, to="dcp", overwrite=True)
    except Error as error:
        if error.code != "unsupported" or _objects.is_safe():
            raise  # torch's own function unpickles
        _torch_save_to_dcp(torch_save_path, dcp_checkpoint_dir)  # files from before torch 1.6


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m cairn.torch.format_utils")
    parser.add_argument("mode", help="Conversion mode", choices=[mode.value for mode in FormatMode])
    parser.add_argument("src", help="Path to the source model")
    parser.add_argument("dst", help="Path to the destination model")
    args = parser.parse_args()
    print(f"Converting checkpoint from {args.src} to {args.dst} using method: '{args.mode}'")
    try:
        (torch_save_to_dcp if args.mode == FormatMode.TORCH_TO_DCP.value else dcp_to_torch_save)(args.src, args.dst)
    except Error as error:
        if error.code != "not_found":
            raise
        print(f"No checkpoint found at {args.src}. Skipping conversion.")


if __name__ == "__main__":
    _main()
