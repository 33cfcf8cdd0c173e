"""What a user of torch.distributed.checkpoint touches is there, and is torch's where it is data."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint.metadata import Metadata

import cairn.torch as dcp

pytestmark = pytest.mark.filterwarnings("ignore")

# Underscore modules that frameworks import, too.
USED = (
    "_async_executor _async_process_executor _async_thread_executor _checkpointer _consolidate_hf_safetensors "
    "_dedup_save_plans _dedup_tensors _extension _fsspec_filesystem _hf_utils _nested_dict _sharded_tensor_utils "
    "_state_dict_stager _storage_utils _traverse _version"
).split()
MODULES = sorted({found.name for found in pkgutil.iter_modules(stock.__path__) if found.name[0] != "_"} | set(USED))

# Keywords that cairn has and torch does not.
MORE = {"save": {"progress"}, "load": {"progress"}, "BroadcastingTorchSaveReader": {"direct"}}


def signature(value: Any) -> Any:
    """Names, kinds and defaults; the words of annotations may differ."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    more = MORE.get(getattr(value, "__name__", ""), set())
    return [(each.name, each.kind, repr(each.default)) for each in parameters if each.name not in more]


def defined_in(module: Any) -> dict[str, Any]:
    """What a module itself defines and shows: functions, classes, and the public methods of these."""
    found = {}
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__ or not callable(value):
            continue
        found[name] = value
        if inspect.isclass(value):
            methods = ((key, each) for key, each in vars(value).items() if not key.startswith("_") and callable(each))
            found.update({f"{name}.{key}": each for key, each in methods})
    return found


@pytest.mark.parametrize("name", MODULES)
def test_every_submodule_of_torchs_has_the_same_names_and_signatures(name: str) -> None:
    ours = importlib.import_module(f"cairn.torch.{name}")
    theirs = importlib.import_module(f"torch.distributed.checkpoint.{name}")
    assert getattr(dcp, name) is ours
    assert set(getattr(theirs, "__all__", [])) <= set(dir(ours))
    different = []
    for path, value in defined_in(theirs).items():
        mine: Any = ours
        for part in path.split("."):
            mine = getattr(mine, part, None)
        if mine is None or signature(mine) != signature(value):
            different.append((path, signature(mine) if mine is not None else "missing", signature(value)))
    assert different == []


def test_the_package_has_torchs_names() -> None:
    public = {name for name, value in vars(stock).items() if name[0] != "_" and not inspect.ismodule(value)}
    assert public <= set(dir(dcp))
    for name in public:
        if callable(getattr(stock, name)):
            assert signature(getattr(dcp, name)) == signature(getattr(stock, name)), name


def saved(tmp_path: Path) -> Metadata:
    return dcp.save({"w": torch.ones(2), "n": 1}, checkpoint_id=tmp_path)


def test_metadata_is_a_dataclass_like_torchs(tmp_path: Path) -> None:
    expected = stock.save({"w": torch.ones(2), "n": 1}, checkpoint_id=str(tmp_path / "stock"))
    assert set(vars(saved(tmp_path))) == set(vars(expected))
    changed = dataclasses.replace(saved(tmp_path), planner_data=None)
    assert type(changed) is Metadata and changed.planner_data is None and "w" in changed.state_dict_metadata
    for made in (copy.copy(saved(tmp_path)), copy.deepcopy(saved(tmp_path)), pickle.loads(pickle.dumps(saved(tmp_path)))):
        assert "w" in made.state_dict_metadata and "w" in repr(made)
    fresh = saved(tmp_path)
    fresh.planner_data = {"x": ("x",)}
    assert fresh.planner_data == {"x": ("x",)} and fresh == fresh


def test_a_checkpointer_saves_and_loads_through_cairn(tmp_path: Path) -> None:
    from cairn.torch._checkpointer import _Checkpointer

    made = _Checkpointer(dcp.FileSystemWriter(tmp_path), dcp.FileSystemReader(tmp_path), no_dist=True)
    for number, save in ((1.0, made.save), (2.0, lambda state: made.async_save(state).result())):
        save({"w": torch.full((3,), number)})
        assert (tmp_path / ".cairn-manifest").exists() or list(tmp_path.glob("*cairn-manifest*"))
        into = {"w": torch.zeros(3)}
        made.load(into)
        assert into["w"].tolist() == [number] * 3
