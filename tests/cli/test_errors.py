"""What the command says when it cannot do what it was asked."""

import json
import os
import shutil

import pytest
from command import built, failure, ok
from programs import GOLDEN
from saved import cairn

pytestmark = built


def check_json_error(code, *args):
    result = cairn(*args, "--json")
    error = json.loads(result.stdout)["error"]
    assert list(error) == ["code", "message", "file", "offset", "tensor"]
    assert error["code"] == code
    return error


@pytest.mark.parametrize("command", ["ls", "info"])
def test_what_is_no_checkpoint_is_said_in_one_line(tmp_path, command):
    assert "(not_found)" in failure(1, command, tmp_path / "nowhere")
    assert check_json_error("not_found", command, tmp_path / "nowhere")["file"].endswith("nowhere")
    text = tmp_path / "notes.txt"
    text.write_text("no checkpoint at all")
    assert "(unsupported)" in failure(1, command, text)
    empty = tmp_path / "empty"
    empty.mkdir()
    failure(1, command, empty)
    without = tmp_path / "without"
    without.mkdir()
    shutil.copy(GOLDEN / "__0_0.distcp", without)
    assert ".metadata" in failure(1, command, without)


def test_truncated_files_are_corrupt(stored, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(GOLDEN, broken)
    (broken / ".metadata").chmod(0o644)
    os.truncate(broken / ".metadata", 1000)
    assert "(corrupt)" in failure(1, "ls", broken)
    assert check_json_error("corrupt", "ls", broken)["offset"] is not None
    for kind in ("torch", "safetensors"):
        copy = tmp_path / stored[kind].name
        shutil.copy(stored[kind], copy)
        os.truncate(copy, copy.stat().st_size // 2)
        assert "(corrupt)" in failure(1, "ls", copy)


def test_a_truncated_data_file_fails_only_what_lies_there(tmp_path):
    path = tmp_path / "ckpt"
    shutil.copytree(GOLDEN, path)
    (path / "__0_0.distcp").chmod(0o644)
    os.truncate(path / "__0_0.distcp", 700)
    assert "__0_0.distcp" in failure(1, "show", path, "model.w")
    assert "15." in ok("show", path, "model.r")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_an_io_error(tmp_path):
    file = tmp_path / "closed.pt"
    file.write_bytes(b"PK\3\4")
    file.chmod(0)
    assert "Permission denied (io)" in failure(1, "ls", file)


def test_unknown_names_come_with_suggestions(stored):
    assert "'model.layers.0.w'" in failure(1, "show", stored["dcp"], "model.layer.0.w")
    assert "'model.embed.weight'" in failure(1, "show", stored["torch"], "embed.weight")
    assert "'step'" in failure(1, "show", GOLDEN, "stp")


@pytest.mark.parametrize("bad", ["[9999]", "[a]", "[0:1:0]", "[0, 0, 0]", "[1:2"])
def test_bad_slices_are_usage_errors(stored, bad):
    name = "model.embed.weight" + bad
    if bad.endswith("]"):
        assert "(invalid_argument)" in failure(2, "show", stored["dcp"], name)
        assert check_json_error("invalid_argument", "show", stored["dcp"], name)["tensor"] == "model.embed.weight"
    else:
        failure(1, "show", stored["dcp"], name)  # no slice: a name that does not exist


def test_objects_take_no_slice():
    assert "takes no slice" in failure(2, "show", GOLDEN, "step[0]")


@pytest.mark.parametrize(
    "args, expected",
    [
        ([], "no command"),
        (["lss"], "did you mean 'ls'"),
        (["frobnicate"], "unknown command"),
        (["ls"], "PATH"),
        (["ls", "x", "--jsno"], "'--json'"),
        (["ls", "--jsno"], "'--json'"),
        (["ls", "x", "y", "z"], "'z'"),
        (["ls", "x", "--sort", "colour"], "--sort"),
        (["ls", "x", "--depth", "2"], "--tree"),
        (["ls", "x", "--tree", "--json"], "--tree"),
        (["show", "x"], "NAME"),
        (["show", "x", "y", "--precision", "many"], "--precision"),
        (["completion", "fish"], "fish"),
    ],
)
def test_wrong_usage_ends_with_2(args, expected):
    assert expected in failure(2, *args)
