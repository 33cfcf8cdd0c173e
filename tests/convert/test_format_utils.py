"""cairn.torch.format_utils beside stock's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cairn")

import torch.distributed.checkpoint.format_utils as stock

import cairn.torch
from cairn.torch import format_utils
from convert_states import from_torch_file, load, rich, same, save_dcp


def test_both_directions_are_stocks(tmp_path: Path) -> None:
    save_dcp(rich(), tmp_path / "dcp")
    format_utils.dcp_to_torch_save(tmp_path / "dcp", tmp_path / "ours.pt")
    stock.dcp_to_torch_save(tmp_path / "dcp", tmp_path / "stock.pt")
    assert same(load(tmp_path / "ours.pt"), load(tmp_path / "stock.pt"))
    for _ in range(2):  # the second time over the first
        format_utils.torch_save_to_dcp(tmp_path / "stock.pt", tmp_path / "again")
    stock.dcp_to_torch_save(tmp_path / "again", tmp_path / "again.pt")
    assert same(load(tmp_path / "again.pt"), from_torch_file(load(tmp_path / "stock.pt")))


def test_what_only_python_can_read_goes_to_stock(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    format_utils.torch_save_to_dcp(tmp_path / "old.pt", tmp_path / "dcp")
    format_utils.dcp_to_torch_save(tmp_path / "dcp", tmp_path / "new.pt")
    assert same(load(tmp_path / "new.pt"), {"w": torch.ones(3)})


def test_install_puts_them_in_torchs_place() -> None:
    theirs = stock.dcp_to_torch_save
    with cairn.torch.installed():
        assert stock.dcp_to_torch_save is format_utils.dcp_to_torch_save
        assert stock.torch_save_to_dcp is format_utils.torch_save_to_dcp
    assert stock.dcp_to_torch_save is theirs


def run(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cairn.torch.format_utils", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200)


def test_the_command_is_stocks(tmp_path: Path) -> None:
    torch.save({"w": torch.arange(5.0), "n": 3}, tmp_path / "state.pt")
    assert run("torch_to_dcp", tmp_path / "state.pt", tmp_path / "dcp").returncode == 0
    done = run("dcp_to_torch", tmp_path / "dcp", tmp_path / "back.pt")
    assert done.returncode == 0 and "using method: 'dcp_to_torch'" in done.stdout
    assert same(load(tmp_path / "back.pt"), {"w": torch.arange(5.0), "n": 3})
    missing = run("dcp_to_torch", tmp_path / "nothing", tmp_path / "x.pt")
    assert missing.returncode == 0
    assert f"No checkpoint found at {tmp_path / 'nothing'}. Skipping conversion." in missing.stdout
