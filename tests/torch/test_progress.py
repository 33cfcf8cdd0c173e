"""The bar of save and load: for people at a terminal, and nobody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from terminal import at_terminal

SCRIPT = """
import sys
if {without_tqdm}: sys.modules["tqdm"] = None
import torch, cairn.torch
state = {{"w": torch.arange(1 << 22)}}
cairn.torch.save(state, checkpoint_id={path!r}, no_dist=True, progress=True)
cairn.torch.load(state, checkpoint_id={path!r}, no_dist=True, progress=True)
print("through")
"""


def run(path: Path, without_tqdm: bool, is_terminal: bool) -> str:
    """What the script left on stderr."""
    script = SCRIPT.format(path=str(path / "step-1"), without_tqdm=without_tqdm)
    command = [sys.executable, "-W", "ignore", "-c", script]
    if not is_terminal:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
        assert done.stdout == "through\n", done.stderr
        return done.stderr
    shown = at_terminal("stderr", command)
    assert shown.other == "through\n", shown.terminal
    return shown.terminal


@pytest.mark.parametrize("without_tqdm", [False, True])
def test_a_terminal_sees_both_bars_come_and_go(tmp_path: Path, without_tqdm: bool) -> None:
    seen = run(tmp_path, without_tqdm, is_terminal=True)
    assert "save" in seen and "load" in seen
    last_line = seen.replace("\n", "\r").rstrip("\r").split("\r")[-1]
    assert last_line.replace("\x1b[K", "").strip() == "", f"the bar is still there: {last_line!r}"


def test_a_log_file_sees_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, without_tqdm=False, is_terminal=False) == ""
