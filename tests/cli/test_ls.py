"""`cairn ls`: names, types, shapes, order, sums."""

import math
import re

import pytest
from command import KINDS, built, failure, json_of, ok, tensors
from programs import GOLDEN

pytestmark = built


@pytest.mark.parametrize("kind", KINDS)
def test_ls_names_every_tensor_with_its_type_and_shape(stored, kind):
    lines = ok("ls", stored[kind]).splitlines()
    assert lines[0].split() == ["name", "dtype", "shape", "bytes", "chunks", "files"]
    rows = {line.split()[0]: line for line in lines[1:-1]}
    assert rows.keys() == tensors().keys()
    for name, tensor in tensors().items():
        assert f" {str(tensor.dtype).removeprefix('torch.')} " in rows[name]
        assert f" {list(tensor.shape)} " in rows[name]
    total = sum(t.nbytes for t in tensors().values())
    assert lines[-1].startswith(f"7 tensors, 0 objects, {total / 1024:.1f} KiB in ")


@pytest.mark.parametrize("kind", KINDS)
def test_ls_json_has_exactly_the_documented_fields(stored, kind):
    listing = json_of("ls", stored[kind])
    assert list(listing) == ["format", "tensors", "objects", "total_bytes"]
    assert listing["format"] == kind
    assert listing["total_bytes"] == sum(t.nbytes for t in tensors().values())
    for row in listing["tensors"]:
        assert list(row) == ["name", "dtype", "shape", "bytes", "chunks"]
        tensor = tensors()[row["name"]]
        assert row["dtype"] == str(tensor.dtype).removeprefix("torch.")
        assert row["shape"] == list(tensor.shape)
        assert row["bytes"] == tensor.nbytes
        for chunk in row["chunks"]:
            assert list(chunk) == ["offsets", "sizes", "file", "offset", "length"]
        assert sum(math.prod(c["sizes"]) for c in row["chunks"]) == tensor.numel()
    assert {row["name"] for row in listing["tensors"]} == tensors().keys()


def test_ls_of_the_golden_checkpoint_shows_chunks_and_objects():
    text = ok("ls", GOLDEN, "--long")
    assert "[0:4, 0:8]  in __0_0.distcp at 0, 1705 bytes" in text
    listing = json_of("ls", GOLDEN)
    assert len(listing["tensors"]) == 4 and len(listing["objects"]) == 7
    w = next(t for t in listing["tensors"] if t["name"] == "model.w")
    assert [c["offsets"] for c in w["chunks"]] == [[0, 0], [4, 0]]
    assert {o["name"] for o in listing["objects"]} >= {"step", "lr", "name", "nested.none"}


def test_ls_glob_takes_dots_and_single_characters(stored):
    def names(glob):
        return [t["name"] for t in json_of("ls", stored["dcp"], glob)["tensors"]]

    assert names("model.layers.?.w") == ["model.layers.0.w", "model.layers.1.w"]
    assert set(names("model.*.w*")) == {n for n in tensors() if re.fullmatch(r"model\..*\.w.*", n)}
    assert names("scale") == ["scale"]
    assert "2 of 7 tensors" in ok("ls", stored["dcp"], "*.b")
    assert "matches 'nothing*'" in failure(1, "ls", stored["dcp"], "nothing*")


def test_ls_sorts_by_size_and_by_natural_name(stored):
    sizes = [t["bytes"] for t in json_of("ls", stored["safetensors"], "--sort", "size")["tensors"]]
    assert sizes == sorted(sizes, reverse=True)
    names = [t["name"] for t in json_of("ls", stored["safetensors"], "--sort", "name")["tensors"]]
    assert names == [
        "model.embed.weight", "model.layers.0.b", "model.layers.0.w", "model.layers.1.b", "model.layers.1.w",
        "model.layers.10.w", "scale",
    ]  # fmt: skip


def human(count):
    return f"{count} B" if count < 1024 else f"{count / 1024:.1f} KiB"


def test_ls_tree_sums_bytes_and_counts(stored):
    rows = [re.split(r"  +", line.strip()) for line in ok("ls", stored["dcp"], "--tree").splitlines()]
    flat = tensors()

    def below(prefix):
        found = [t for n, t in flat.items() if n.startswith(prefix)]
        return human(sum(t.nbytes for t in found)), f"{len(found)} tensors"

    assert ["model", *below("model.")] in rows
    assert ["layers", *below("model.layers.")] in rows
    assert ["0", *below("model.layers.0.")] in rows
    assert ["embed.weight", human(4800), "float32 [40, 30]"] in rows  # a lone child shares its parent's line
    assert len(ok("ls", stored["dcp"], "--tree", "--depth", "1").splitlines()) == 3


def test_names_cannot_reach_the_terminal(odd):
    for command in (["ls"], ["ls", "--tree"], ["ls", "--long"], ["info"]):
        text = ok(command[0], odd, *command[1:])
        assert "\x1b" not in text
    text = ok("ls", odd)
    assert r"evil\x1b[31m\nname" in text
    assert "ünïcode" in text
    assert r'quote"back\\slash' in text
    names = {t["name"] for t in json_of("ls", odd)["tensors"]}
    assert {"evil\x1b[31m\nname", "ünïcode", 'quote"back\\slash'} <= names
    assert "\x1b" not in ok("ls", odd, "--json")
    assert ok("show", odd, "evil\x1b[31m\nname").startswith(r"evil\x1b[31m\nname  float32 [2]")
    assert "\x1b" not in failure(1, "show", odd, "\x1b[31mnone")
    assert "\x1b" not in ok("show", odd, "text")
