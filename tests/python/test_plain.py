"""cairn.save and cairn.load without torch: what comes back, what is refused, what Ctrl-C leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy
import pytest
from programs import CLI, GOLDEN

import cairn

PLAIN = [None, True, -3, 2**80, -(2**70), 1.5, "text", b"bytes", [1, [2, "x"]], (1, (2.0, None)), [], ()]


def a_state(fill: float = 1.0) -> dict[str, Any]:
    return {
        "model": {"w": numpy.full((3, 4), fill, "float32"), "b": numpy.full(5, fill)},
        "optim": {
            "state": {0: {"step": int(fill), "m": numpy.full(2, fill)}, 1: {"step": 2, "m": numpy.zeros(2)}}
        },
        "layers": [numpy.full(2, fill), {"scale": fill}],
        "empty": {},
        "betas": (0.9, fill),
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, numpy.ndarray):
        return isinstance(b, numpy.ndarray) and a.dtype == b.dtype and numpy.array_equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def save(state: dict[str, Any], path: Path, **options: Any) -> Any:
    return cairn.save(state, path, durable=False, **options)


def test_a_new_state_is_what_was_saved_with_names_for_keys(tmp_path: Path) -> None:
    report = save(a_state(), tmp_path)
    assert len(report["save_id"]) == 32
    assert 0 < report["bytes"] <= sum(file.stat().st_size for file in tmp_path.glob("*.distcp"))
    expected = a_state()
    expected["optim"]["state"] = {str(key): value for key, value in expected["optim"]["state"].items()}
    assert same(cairn.load(None, tmp_path), expected)


@pytest.mark.parametrize("scheme", ["file://", "memory://"])
def test_a_url_is_as_good_as_a_path(tmp_path: Path, scheme: str) -> None:
    root = scheme + quote(str(tmp_path)) if scheme == "file://" else f"memory://{tmp_path.name}"
    cairn.save(a_state(3.0), f"{root}/a step")
    assert same(cairn.load(None, f"{root}/a step")["model"], a_state(3.0)["model"])
    assert cairn.verify(f"{root}/a step")["ok"]
    cairn.convert(f"{root}/a step", f"{root}/flat.pt")
    assert [tensor["name"] for tensor in cairn.ls(f"{root}/flat.pt")["tensors"]]
    assert cairn.gc(f"{root}/a step")["files"] == []
    with pytest.raises(cairn.Error, match="memory://"):
        cairn.open("gopher://run")


def test_a_load_fills_the_arrays_and_containers_that_are_there(tmp_path: Path) -> None:
    save(a_state(7), tmp_path)
    state = a_state(0)
    held = [state["model"]["w"], state["layers"], state["optim"]["state"][0], state["empty"]]
    assert cairn.load(state, tmp_path) is state
    assert same(state, a_state(7))
    now = [state["model"]["w"], state["layers"], state["optim"]["state"][0], state["empty"]]
    assert all(a is b for a, b in zip(held, now))


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_come_back_as_they_are(tmp_path: Path, value: Any) -> None:
    save({"x": {"y": value}}, tmp_path)
    assert same(cairn.load(None, tmp_path), {"x": {"y": value}})
    assert same(cairn.load({"x": {"y": "another"}}, tmp_path), {"x": {"y": value}})


def test_arrays_may_lie_in_memory_as_they_like(tmp_path: Path) -> None:
    whole = numpy.arange(24.0).reshape(4, 6)
    save({"t": whole.T, "part": whole[1::2, ::-1], "wide": numpy.broadcast_to(whole[0], (3, 6))}, tmp_path)
    memory = numpy.zeros((4, 12))
    state = {"t": numpy.zeros((4, 6)).T, "part": memory[::2, ::-2], "wide": numpy.zeros((3, 6), order="F")}
    cairn.load(state, tmp_path)
    assert numpy.array_equal(state["t"], whole.T)
    assert numpy.array_equal(state["part"], whole[1::2, ::-1])
    assert numpy.array_equal(memory[::2, ::-2], whole[1::2, ::-1])
    assert not memory[1::2].any()
    assert numpy.array_equal(state["wide"], numpy.tile(whole[0], (3, 1)))


def test_elements_are_converted_to_the_type_that_is_there(tmp_path: Path) -> None:
    save({"x": numpy.array([1.5, -2.0])}, tmp_path)
    assert cairn.load({"x": numpy.zeros(2, "float16")}, tmp_path)["x"].tolist() == [1.5, -2.0]


def test_scalars_of_numpy_become_pythons(tmp_path: Path) -> None:
    save(
        {"f": numpy.float32(0.5), "d": numpy.float64(0.1), "u": numpy.uint64(2**64 - 1), "b": numpy.bool_(1)},
        tmp_path,
    )
    assert same(cairn.load(None, tmp_path), {"f": 0.5, "d": 0.1, "u": 2**64 - 1, "b": True})


def test_keys_choose_what_a_new_state_holds(tmp_path: Path) -> None:
    save(a_state(), tmp_path)
    assert list(cairn.load(None, tmp_path, keys=["model"])["model"]) == ["w", "b"]
    assert list(cairn.load(None, tmp_path, keys=("model.b", "betas"))) == ["model", "betas"]
    with pytest.raises(cairn.Error, match="keys"):
        cairn.load({}, tmp_path, keys=["model"])


def test_what_the_checkpoint_lacks_is_an_error_unless_allowed(tmp_path: Path) -> None:
    save({"w": numpy.ones(2)}, tmp_path)
    with pytest.raises(cairn.Error, match=r"^planning a load: Missing key.* v\. Did you mean 'w'") as caught:
        cairn.load({"v": numpy.zeros(2)}, tmp_path)
    assert caught.value.code == "not_found"
    state = {"w": numpy.zeros(2), "v": numpy.zeros(2), "n": 1}
    cairn.load(state, tmp_path, allow_partial=True)
    assert same(state, {"w": numpy.ones(2), "v": numpy.zeros(2), "n": 1})


class Foreign:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Foreign(), "Foreign is neither a numpy array nor a plain value"),
        (1j, "complex is neither"),
        ((numpy.ones(1),), "a list can hold arrays too"),
        (numpy.ones(2, ">f4"), "cannot hold elements of the type"),
        (numpy.array([None]), "cannot hold elements of the type"),
        (numpy.zeros(2, [("a", "f4")]), "cannot hold elements of the type"),
        (numpy.zeros(4, [("a", "u1"), ("b", "f4")])["b"], "copy it"),
        (numpy.ma.masked_array([1]), "MaskedArray is neither"),
        ({1.5: 2}, "keys of a state"),
        ({1: 2, "1": 3}, "two keys"),
    ],
)
def test_what_is_no_plain_value_is_refused_by_name(tmp_path: Path, value: Any, text: str) -> None:
    with pytest.raises(cairn.Error, match=text) as caught:
        save({"outer": {"x": value}}, tmp_path / "x")
    assert caught.value.tensor.startswith("outer.x")
    assert not (tmp_path / "x").exists()


def test_tensors_of_torch_are_sent_to_cairn_torch(tmp_path: Path) -> None:
    import torch

    with pytest.raises(cairn.Error, match=r"torch\.Tensor is neither.*cairn\.torch saves"):
        save({"x": torch.ones(1)}, tmp_path)


def test_a_state_that_holds_itself_is_an_error(tmp_path: Path) -> None:
    state: dict[str, Any] = {}
    state["again"] = [state]
    with pytest.raises(cairn.Error, match="does it hold itself"):
        save(state, tmp_path)
    with pytest.raises(cairn.Error, match="a state is a dict, not a list"):
        cairn.save([1], tmp_path)  # type: ignore[arg-type]


def test_a_read_only_array_cannot_be_loaded_into(tmp_path: Path) -> None:
    save({"w": numpy.ones(2)}, tmp_path)
    fixed = numpy.zeros(2)
    fixed.flags.writeable = False
    with pytest.raises(cairn.Error, match="read-only") as caught:
        cairn.load({"w": fixed}, tmp_path)
    assert caught.value.tensor == "w"


def test_options_reach_the_engine_and_others_are_errors(tmp_path: Path) -> None:
    save(a_state(), tmp_path, files_per_rank=1, transforms=["zstd"])
    assert len(list(tmp_path.glob("*.distcp"))) == 1
    with pytest.raises(cairn.Error) as caught:
        save(a_state(), tmp_path, overwrite=False)
    assert caught.value.code == "conflict"
    with pytest.raises(cairn.Error, match="there is no option 'threads'"):
        save({}, tmp_path, threads=1)
    with pytest.raises(cairn.Error, match="option 'files_per_rank' cannot be 'many'"):
        save({}, tmp_path, files_per_rank="many")
    told: list[tuple[str, int, int]] = []
    cairn.load(a_state(), tmp_path, verify="full", progress=lambda *now: told.append(now))
    assert told[-1][0] == "read"
    assert told[-1][1] == told[-1][2] > 0


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torch_reads_what_was_saved_without_it(tmp_path: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    save(a_state(3), tmp_path)
    state = {"model": {"w": torch.zeros(3, 4), "b": torch.zeros(5, dtype=torch.float64)}, "betas": None}
    dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
    assert torch.equal(state["model"]["w"], torch.full((3, 4), 3.0))
    assert state["betas"] == (0.9, 3)


def test_what_torch_saved_is_loaded_without_it() -> None:
    import ml_dtypes

    state = cairn.load(None, GOLDEN)
    assert numpy.array_equal(state["model"]["w"], numpy.arange(64, dtype="float32").reshape(8, 8))
    assert state["model"]["r"].dtype == ml_dtypes.bfloat16
    assert same(
        state["nested"], {"list": [1, 2, {"a": numpy.zeros(2, "float32")}], "none": None, "tuple": (1, "b")}
    )


def test_a_new_state_needs_a_type_for_every_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(cairn.Error, match="pip install ml_dtypes") as caught:
        cairn.load(None, GOLDEN)
    assert caught.value.tensor == "model.r"
    state = {"model": {"r": numpy.zeros(16, "float32")}}
    assert cairn.load(state, GOLDEN)["model"]["r"][15] == 15


# --- verify, gc ---


def json_of(*command: object) -> Any:
    done = subprocess.run([str(word) for word in (CLI, *command)], capture_output=True, text=True)
    return json.loads(done.stdout)


def test_verify_is_what_the_command_prints_as_json(tmp_path: Path) -> None:
    save(a_state(), tmp_path)
    assert cairn.verify(tmp_path) == json_of("verify", "--json", tmp_path)
    assert cairn.verify(tmp_path)["ok"]
    data = max(tmp_path.glob("*.distcp"), key=lambda file: file.stat().st_size)
    bytes_ = bytearray(data.read_bytes())
    bytes_[len(bytes_) // 2] ^= 1
    data.write_bytes(bytes_)
    told: list[Any] = []
    report = cairn.verify(tmp_path, threads=1, progress=lambda *now: told.append(now))
    assert report == json_of("verify", "--json", tmp_path)
    assert (report["ok"], report["problems"][0]["kind"]) == (False, "flipped")
    assert told[-1][0] == "verify"


def test_gc_removes_what_a_dead_save_left(tmp_path: Path) -> None:
    save(a_state(), tmp_path)
    left = tmp_path / f"__0_0.{'0' * 31}1.distcp.{'0' * 15}1.cairn-partial"
    left.write_bytes(b"x" * 100)
    wanted = json_of("gc", "--dry-run", "--json", tmp_path)
    assert wanted["bytes"] == 100
    assert cairn.gc(tmp_path, dry_run=True) == wanted
    assert left.exists()
    assert cairn.gc(tmp_path)["files"] == wanted["files"]
    assert not left.exists()
    assert cairn.verify(tmp_path)["ok"]


# --- threads and signals ---


def test_other_threads_run_during_a_save(tmp_path: Path) -> None:
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks
    save({"w": numpy.zeros(4 << 20, "uint8")}, tmp_path, bytes_per_second=8 << 20)
    during = ticks - before
    done.set()
    thread.join()
    assert during > 20


SLOW_SAVE = """
import cairn, numpy, sys
print("begun", flush=True)
cairn.save({"w": numpy.ones(64 << 20, "uint8")}, sys.argv[1], bytes_per_second=1 << 20)
"""


def test_ctrl_c_stops_a_save_and_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    save({"w": numpy.full(3, 7)}, tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_SAVE, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("*.cairn-partial")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, errors = process.communicate(timeout=600)
    assert time.monotonic() - begun < 20  # the whole save takes a minute
    assert "KeyboardInterrupt" in errors
    assert cairn.load(None, tmp_path)["w"].tolist() == [7, 7, 7]
    assert cairn.verify(tmp_path)["debris"] == []
