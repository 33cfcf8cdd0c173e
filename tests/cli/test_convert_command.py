"""cairn convert."""

import json
import os
import signal
import subprocess
import time

import pytest
from command import KINDS, built, failure, json_of, ok, save_dcp, tensors, torch
from programs import CLI
from saved import cairn

pytestmark = built


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_becomes_a_torch_file(stored, tmp_path, kind):
    text = ok("convert", stored[kind], tmp_path / "m.pt")
    assert "7 tensors, 0 objects, 1 file" in text
    assert {row["name"]: row["shape"] for row in json_of("ls", tmp_path / "m.pt")["tensors"]} == {
        name: list(t.shape) for name, t in tensors().items()
    }


def test_options_reach_the_converter(stored, tmp_path):
    rules = tmp_path / "names.txt"
    rules.write_text("# new names\n\n^model\\.(.*) -> net.\\1\n")
    report = json_of(
        "convert", stored["dcp"], tmp_path / "hub", "--to", "safetensors", "--keys", "model.*", "--exclude", "*.10.*",
        "--map", rules, "--dtype", "*.embed.*=float16", "--shards", "2", "--budget", "64MiB", "--threads", "2",
    )  # fmt: skip
    assert report["to"] == "huggingface" and report["dry_run"] is False
    names = {row["name"]: row["dtype"] for row in report["tensors"]}
    assert names["net.embed.weight"] == "float16" and names["net.layers.0.w"] == "bfloat16" and len(names) == 5
    assert sorted(file["name"] for file in report["files"]) == sorted(os.listdir(tmp_path / "hub"))
    assert {file["name"]: file["bytes"] for file in report["files"]} == {
        name: (tmp_path / "hub" / name).stat().st_size for name in os.listdir(tmp_path / "hub")
    }


def test_a_dry_run_shows_names_and_writes_nothing(stored, tmp_path):
    rules = tmp_path / "names.txt"
    rules.write_text("embed -> wte\n")
    text = ok("convert", stored["dcp"], tmp_path / "m.pt", "--map", rules, "--dtype", "scale=float32", "--dry-run")
    assert "model.embed.weight -> model.wte.weight  float32 [40, 30]  m.pt" in text
    assert "scale  float64 [] -> float32  m.pt" in text
    assert os.listdir(tmp_path) == ["names.txt"]


def test_dcp_with_ranks_files_and_zstd(stored, tmp_path):
    ok("convert", stored["torch"], tmp_path / "dcp", "--ranks", "2", "--files", "1", "--zstd")
    facts = ok("info", tmp_path / "dcp")
    assert "zstd" in facts
    assert "no problem found" in ok("verify", tmp_path / "dcp")


def test_what_it_refuses(stored, odd, tmp_path):
    (tmp_path / "there.pt").write_text("mine")
    assert "is there already" in failure(1, "convert", stored["dcp"], tmp_path / "there.pt")
    assert "'fraction'" in failure(1, "convert", odd, tmp_path / "m.safetensors")
    assert "no element type 'float17'" in failure(2, "convert", stored["dcp"], tmp_path / "m.pt", "--dtype", "float17")
    assert "no format 'onnx'" in failure(2, "convert", stored["dcp"], tmp_path / "m.pt", "--to", "onnx")
    (tmp_path / "bad.txt").write_text("no arrow\n")
    assert "bad.txt:1" in failure(2, "convert", stored["dcp"], tmp_path / "m.pt", "--map", tmp_path / "bad.txt")
    (tmp_path / "bad.txt").write_text("(open -> x\n")
    assert "no regular expression" in failure(2, "convert", stored["dcp"], tmp_path / "m.pt", "--map", tmp_path / "bad.txt")
    assert sorted(os.listdir(tmp_path)) == ["bad.txt", "there.pt"]


def test_objects_are_left_out_when_asked(odd, tmp_path):
    report = json_of("convert", odd, tmp_path / "m.safetensors", "--skip-objects", "--exclude", "complex")
    assert report["dropped"] == ["text", "numbers", "fraction"]


def test_ctrl_c_removes_what_was_made(tmp_path):
    save_dcp({f"w{i}": torch.randn(1 << 20) for i in range(48)}, tmp_path / "dcp")
    for name in ("m.pt", "m.safetensors", "deep/dcp"):
        process = subprocess.Popen([CLI, "convert", tmp_path / "dcp", tmp_path / name], stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 300
        while process.poll() is None and not any(tmp_path.rglob("*.cairn-partial")) and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
        if process.returncode == 0:  # it was faster
            continue
        assert process.returncode == -signal.SIGINT and "what was made is removed" in err
        assert os.listdir(tmp_path) == ["dcp"] or not (tmp_path / name.split("/")[0]).exists()


def test_completion_knows_it():
    assert "--max-shard-size" in ok("completion", "bash")
    assert "convert" in ok("completion", "zsh")


def test_help_has_examples():
    text = ok("convert", "--help")
    assert "cairn convert weights.pt run/step-0 --ranks 8" in text and "Exit codes" in text


def test_errors_are_json_too(tmp_path):
    result = cairn("convert", tmp_path / "nothing", tmp_path / "m.pt", "--json")
    assert result.returncode == 1 and json.loads(result.stdout)["error"]["code"] == "not_found"
