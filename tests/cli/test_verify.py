"""`cairn verify` on checkpoints that torch and cairn wrote, sound and damaged."""

import json
import os
import random
import shutil
import subprocess
import zipfile

import pytest
from programs import CLI, GOLDEN
from saved import BUILT, cairn, save
from terminal import at_terminal

pytestmark = pytest.mark.skipif(not BUILT, reason="cairn and cairn_probe have not been built")


def verified(path, code):
    """The report on a checkpoint, as JSON; the command must end with this exit code."""
    result = cairn("verify", path, "--json")
    assert result.returncode == code, (result.stdout, result.stderr)
    assert result.stderr == ""
    return json.loads(result.stdout)


def kinds(report):
    return {problem["kind"] for problem in report["problems"]}


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << (bit % 8)
    path.write_bytes(data)


@pytest.fixture
def ours(tmp_path):
    """A checkpoint of cairn's own: metadata, manifest, two data files."""
    path = tmp_path / "step-1000"
    save(path)
    return path


@pytest.fixture
def torchs(tmp_path):
    path = tmp_path / "golden"
    shutil.copytree(GOLDEN, path)
    return path


def data_files(path):
    return sorted(path.glob("*.distcp"))


def test_a_sound_checkpoint_is_fine(ours):
    result = cairn("verify", ours)
    assert result.returncode == 0
    assert "no problem found" in result.stdout
    assert "not checked" not in result.stdout
    report = verified(ours, 0)
    assert report["ok"] and report["problems"] == [] and report["unchecked"] == []
    assert report["files"] == 4 and report["format"] == "dcp"
    assert report["bytes_checked"] == sum(
        f.stat().st_size for f in ours.iterdir() if "manifest" not in f.name)


def test_torchs_checkpoint_is_fine_as_far_as_it_can_be_checked(torchs):
    report = verified(torchs, 0)
    assert report["ok"] and report["tensors"] == 4 and report["objects"] == 7
    assert report["bytes_checked"] > 0
    assert [u["bytes"] for u in report["unchecked"]] == [(torchs / ".metadata").stat().st_size]


def test_every_flipped_bit_is_found(ours):
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    for file in sorted(ours.iterdir()):
        for _ in range(8):
            bit = chance.randrange(file.stat().st_size * 8)
            flip(file, bit)
            assert not verified(ours, 1)["ok"], (file, bit, seed)
            flip(file, bit)
    verified(ours, 0)


def test_the_damaged_tensor_is_named(ours):
    chunk = json.loads(cairn("ls", ours, "optim.exp_avg", "--json", "--long").stdout)["tensors"][0]["chunks"][0]
    flip(ours / chunk["file"], 8 * (chunk["offset"] + chunk["length"] // 2))
    report = verified(ours, 1)
    assert [(p["kind"], p["file"], p["tensor"]) for p in report["problems"]] == [
        ("flipped", chunk["file"], "optim.exp_avg")]
    text = cairn("verify", ours)
    assert text.returncode == 1
    assert f"{chunk['file']}: 'optim.exp_avg': at byte {chunk['offset']}" in text.stdout
    assert "1 problem" in text.stdout


def test_a_flip_in_a_record_of_torchs_is_found(torchs):
    """Everything with a CRC is checked, wherever it lies."""
    for file in data_files(torchs):
        whole = file.read_bytes()
        chunks = json.loads(cairn("ls", torchs, "--json", "--long").stdout)["tensors"]
        for tensor in chunks:
            for chunk in tensor["chunks"]:
                if chunk["file"] != file.name:
                    continue
                archive = whole[chunk["offset"]:chunk["offset"] + chunk["length"]]
                at = archive.index(b"PK\3\4", 4)  # the second record; the first is data.pkl
                flip(file, 8 * (chunk["offset"] + at - 30))
                assert tensor["name"] in {p["tensor"] for p in verified(torchs, 1)["problems"]}
                file.write_bytes(whole)
    verified(torchs, 0)


def test_missing_short_and_long_files_are_found(ours):
    for damage, kind in [
        (lambda f: f.unlink(), "missing"),
        (lambda f: f.write_bytes(f.read_bytes()[:-1]), "short"),
        (lambda f: f.write_bytes(f.read_bytes() + b"x"), "long"),
    ]:
        for file in data_files(ours):
            whole = file.read_bytes()
            damage(file)
            report = verified(ours, 1)
            assert kind in kinds(report) and file.name in {p["file"] for p in report["problems"]}
            file.write_bytes(whole)


def test_a_file_of_another_save_is_found(ours, tmp_path):
    other = tmp_path / "other"
    save(other, version=2)
    for mine, theirs in zip(data_files(ours), data_files(other)):
        whole = mine.read_bytes()
        mine.write_bytes(theirs.read_bytes())
        assert not verified(ours, 1)["ok"]
        mine.write_bytes(whole)
    shutil.copy(other / ".metadata", ours / ".metadata")
    assert not verified(ours, 1)["ok"]


def test_a_broken_description_is_a_problem_and_no_crash(ours, torchs):
    for path in (ours, torchs):
        (path / ".metadata").write_bytes(b"rubbish")
        assert "unreadable" in kinds(verified(path, 1))


def test_checkpoints_of_single_ranks(tmp_path):
    path = tmp_path / "local"
    save(path, ranks=3, collectives=False)
    report = verified(path, 0)
    assert report["files"] == 9 and report["unchecked"] == []
    (path / "__1.metadata").unlink()
    assert "uncovered" in kinds(verified(path, 1))


def test_other_formats(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.arange(1000.0)}, tmp_path / "w.pt")
    assert verified(tmp_path / "w.pt", 0)["bytes_checked"] > 4000
    with zipfile.ZipFile(tmp_path / "w.pt") as archive:
        record = next(i for i in archive.infolist() if i.filename.endswith("data/0"))
    flip(tmp_path / "w.pt", 8 * (record.header_offset + 1000))
    assert kinds(verified(tmp_path / "w.pt", 1)) == {"flipped"}
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({"w": torch.arange(10.0)}, tmp_path / "w.safetensors")
    report = verified(tmp_path / "w.safetensors", 0)
    assert report["bytes_checked"] == 0
    assert report["unchecked"][0]["bytes"] == (tmp_path / "w.safetensors").stat().st_size


def test_debris_is_told_and_is_no_problem(ours):
    (ours / ("__0_0." + "a" * 32 + ".distcp")).write_bytes(b"12345")
    result = cairn("verify", ours)
    assert result.returncode == 0
    assert "left over    5 B in 1 file" in result.stdout
    assert verified(ours, 0)["debris"] == [{"file": "__0_0." + "a" * 32 + ".distcp", "bytes": 5}]


def test_what_is_not_there_is_an_error(tmp_path):
    result = cairn("verify", tmp_path / "none", "--json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["error"]["code"] == "not_found"
    assert cairn("verify", tmp_path).returncode == 1


def test_wrong_usage(ours):
    assert cairn("verify").returncode == 2
    assert cairn("verify", ours, "-j", "0").returncode == 2
    assert cairn("verify", ours, "-j", "3").returncode == 0


def test_problems_count_even_when_nobody_reads_them(ours):
    data_files(ours)[0].unlink()
    reader, writer = os.pipe()
    os.close(reader)
    assert subprocess.run([CLI, "verify", ours], stdout=writer, timeout=600).returncode == 1
    os.close(writer)


def test_names_cannot_talk_to_the_terminal(torchs):
    data = (torchs / ".metadata").read_bytes()
    assert data.count(b"__0_0.distcp") >= 1
    (torchs / ".metadata").write_bytes(data.replace(b"__0_0.distcp", b"__0_\x1b.distcp"))
    result = cairn("verify", torchs)
    assert result.returncode == 1 and "\x1b" not in result.stdout + result.stderr


def test_a_terminal_sees_how_far_it_is(ours):
    shown = at_terminal("stderr", [CLI, "verify", ours])
    assert shown.returncode == 0
    assert shown.terminal.startswith("\rverify [") and shown.terminal.endswith("\r\x1b[K")
