"""install() and uninstall(), and that an installed cairn does the work itself."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock
import torch.distributed.checkpoint.state_dict_saver as saver

import cairn.torch
from ranks import run_ranks
from torch_states import KINDS, check, make

pytestmark = pytest.mark.filterwarnings("ignore")

DATA = ("__init__", "__eq__", "__getstate__", "<dictcomp>")
ORIGINALS = {name: getattr(stock, name) for name in ("save", "load", "async_save", "FileSystemWriter")}


def test_install_replaces_names_everywhere_and_uninstall_puts_them_back() -> None:
    framework = types.ModuleType("a_framework")
    framework.save = stock.save
    framework.Writer = stock.FileSystemWriter
    sys.modules["a_framework"] = framework
    try:
        cairn.torch.install()
        cairn.torch.install()
        assert stock.save is cairn.torch.save and saver.save is cairn.torch.save
        assert framework.save is cairn.torch.save and framework.Writer is cairn.torch.FileSystemWriter
        assert stock.Metadata is cairn.torch.Metadata
        cairn.torch.uninstall()
        assert {name: getattr(stock, name) for name in ORIGINALS} == ORIGINALS
        assert framework.save is ORIGINALS["save"]
        with cairn.torch.installed():
            assert stock.load is cairn.torch.load
        assert stock.load is ORIGINALS["load"]
    finally:
        cairn.torch.uninstall()
        del sys.modules["a_framework"]


def _entered(rank: int, folder: str) -> list[str]:
    """The functions of torch's that drive, write, read or publish, of those that ran during saves and loads. Planners of
    the user's may call torch's own planners; nothing else may, without one."""
    import warnings

    warnings.simplefilter("ignore")
    cairn.torch.install()
    planning = ("default_planner", "planner_helpers", "_dedup_save_plans", "_dedup_tensors")
    driving = ("state_dict_saver", "state_dict_loader")
    of_files = ("write_data", "_write_data", "_write_item", "_write_files_from_queue", "finish", "read_data",
                "read_metadata", "create_stream", "rename", "rm_file")
    native = {f"torch/distributed/checkpoint/{name}.py" for name in planning}
    always = {f"torch/distributed/checkpoint/{name}.py" for name in driving}
    is_native = True
    seen: set[str] = set()

    def watch(frame, event, argument):
        name = frame.f_code.co_filename
        part = name[name.find("torch/distributed") :]
        called = frame.f_code.co_name
        forbidden = part in always or (is_native and part in native)
        forbidden = forbidden or (part == "torch/distributed/checkpoint/filesystem.py" and called in of_files)
        # Dataclasses live in these files too: data types, not algorithms.
        if event == "call" and forbidden and called not in DATA:
            seen.add(f"{part}:{called}")

    class Open(stock.DefaultSavePlanner):
        def create_local_plan(self):
            return super().create_local_plan()

    class OpenLoad(stock.DefaultLoadPlanner):
        def create_local_plan(self):
            return super().create_local_plan()

    states = [(kind, make(kind, True), make(kind, False), make(kind, False)) for kind in KINDS]
    sys.setprofile(watch)
    try:
        for kind, full, one, other in states:
            path = f"{folder}/{kind}"
            is_native = False
            stock.save({kind: full}, checkpoint_id=path, planner=Open())
            again = {kind: other}
            stock.load(again, checkpoint_id=path, planner=OpenLoad())
            is_native = True
            stock.save({kind: full}, checkpoint_id=path)
            loaded = {kind: one}
            stock.load(loaded, checkpoint_id=path)
            stock.async_save({kind: full}, checkpoint_id=path).result()
            sys.setprofile(None)
            check(kind, loaded[kind])
            check(kind, again[kind])
            sys.setprofile(watch)
    finally:
        sys.setprofile(None)
    return sorted(seen)


def test_torchs_own_algorithms_are_never_entered(tmp_path: Path) -> None:
    assert run_ranks(2, _entered, str(tmp_path)) == [[], []]


SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed.checkpoint as dcp
dcp.save({"w": torch.ones(3)}, checkpoint_id=sys.argv[1])
loaded = {"w": torch.zeros(3)}
dcp.load(loaded, checkpoint_id=sys.argv[1])
print(loaded["w"].sum().item(), dcp.save.__module__, __name__)
"""


def test_a_script_runs_with_cairn_installed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "cairn.torch", str(script), str(tmp_path / "checkpoint")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout == "3.0 cairn.torch.state_dict_saver __main__\n", ran.stderr
    assert list((tmp_path / "checkpoint").glob(".cairn-manifest.*"))


def test_safe_refuses_more_than_plain_data(tmp_path: Path) -> None:
    cairn.torch.save({"plain": {"a": [1, 2]}, "object": Path("x")}, checkpoint_id=tmp_path)
    try:
        cairn.torch.install(safe=True)
        loaded = {"plain": {"a": []}}
        stock.load(loaded, checkpoint_id=tmp_path)
        assert loaded == {"plain": {"a": [1, 2]}}
        with pytest.raises(Exception, match="PosixPath|weights_only"):
            stock.load({"object": None}, checkpoint_id=tmp_path)
    finally:
        cairn.torch.uninstall()
