"""Saves in the background through Python."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

import cairn.torch as dcp

pytestmark = pytest.mark.filterwarnings("ignore")


def test_what_is_written_is_what_the_state_held_at_the_call(tmp_path: Path) -> None:
    state = {"w": torch.zeros(500, 333), "step": torch.tensor(0), "list": [0]}
    state["view"] = state["w"][::2, 5]
    for i in range(20):
        for tensor in (state["w"], state["step"]):
            tensor.fill_(i)
        state["list"][0] = i
        saved = dcp.async_save(state, checkpoint_id=tmp_path / str(i % 2))
        state["w"].fill_(-1)
        state["step"].fill_(-1)
        state["list"][0] = -1
        saved.result()
        loaded = {"w": torch.zeros(500, 333), "step": torch.tensor(0), "list": [0], "view": torch.zeros(250)}
        dcp.load(loaded, checkpoint_id=tmp_path / str(i % 2))
        assert loaded["w"].eq(i).all() and loaded["step"] == i and loaded["list"] == [i] and loaded["view"].eq(i).all()


def test_the_future_is_of_the_metadata_and_carries_failures(tmp_path: Path) -> None:
    saved = dcp.async_save({"w": torch.ones(3)}, checkpoint_id=tmp_path / "a")
    assert isinstance(saved, Future)
    assert list(saved.result().state_dict_metadata) == ["w"]
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(dcp.CheckpointException):
        dcp.async_save({"w": torch.ones(3)}, checkpoint_id=tmp_path / "file" / "below").result()
    dcp.async_save({"w": torch.ones(3)}, checkpoint_id=tmp_path / "a").result()


def test_stagers_of_the_users(tmp_path: Path) -> None:
    stager = DefaultStager(StagingOptions(False, False, True, False))
    response = dcp.async_save({"w": torch.ones(3)}, checkpoint_id=tmp_path / "a", async_stager=stager)
    assert response.staging_completion.result() is None
    assert response.upload_completion.result().version == "1.0.0"
    stager.close()

    class Copying:
        _synchronize_after_execute = False
        should_synchronize_after_execute = False

        def stage(self, state: dict[str, Any]) -> dict[str, Any]:
            return {key: value.clone() for key, value in state.items()}

        def synchronize_staging(self) -> None:
            raise AssertionError("nobody asked")

        def close(self) -> None:
            raise AssertionError("not ours to close")

    state = {"w": torch.ones(3)}
    saved = dcp.async_save(state, checkpoint_id=tmp_path / "b", async_stager=Copying())
    state["w"].zero_()
    saved.result()
    loaded = {"w": torch.zeros(3)}
    dcp.load(loaded, checkpoint_id=tmp_path / "b")
    assert loaded["w"].eq(1).all()


def test_guard_lets_the_state_change(tmp_path: Path) -> None:
    state = {"w": torch.zeros(1000)}
    saved = dcp.async_save(state, checkpoint_id=tmp_path)
    with dcp.guard():
        state["w"].fill_(1)
    saved.result()
    loaded = {"w": torch.ones(1000)}
    dcp.load(loaded, checkpoint_id=tmp_path)
    assert loaded["w"].eq(0).all()


def test_a_second_process_is_not_needed(tmp_path: Path) -> None:
    kind = dcp.AsyncCheckpointerType.PROCESS
    saved = dcp.async_save({"w": torch.ones(3)}, checkpoint_id=tmp_path, async_checkpointer_type=kind)
    assert list(saved.result().state_dict_metadata) == ["w"]


def test_saves_with_cached_plans_do_not_share_a_planner(tmp_path: Path) -> None:
    saves = []
    for i in range(6):
        planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
        state = {"w": torch.full((300, 1000), float(i)), "object": {i}}
        saves.append(dcp.async_save(state, checkpoint_id=tmp_path / str(i), planner=planner))
    for i, saved in enumerate(saves):
        saved.result()
        loaded = {"w": torch.zeros(300, 1000), "object": set()}
        dcp.load(loaded, checkpoint_id=tmp_path / str(i))
        assert loaded["w"].eq(i).all() and loaded["object"] == {i}
