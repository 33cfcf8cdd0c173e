"""`cairn info`: what a checkpoint is and what looks odd."""

import os
import shutil

import pytest
from command import KINDS, built, json_of, ok, tensors
from programs import GOLDEN

pytestmark = built


@pytest.mark.parametrize("kind", KINDS)
def test_info_counts_what_is_there(stored, kind):
    summary = json_of("info", stored[kind])
    flat = tensors()
    assert summary["format"] == kind
    assert summary["tensors"] == 7
    assert summary["elements"] == sum(t.numel() for t in flat.values())
    assert summary["tensor_bytes"] == sum(t.nbytes for t in flat.values())
    assert summary["largest"][0]["name"] == "model.embed.weight"
    assert {d["dtype"]: d["tensors"] for d in summary["dtypes"]}["float32"] == 2
    assert summary["odd"] == []
    assert "looks odd\n  nothing\n" in ok("info", stored[kind])


def odd_kinds(path):
    return {(o["kind"], o["subject"]) for o in json_of("info", path)["odd"]}


def test_info_notices_missing_short_and_superfluous_files(tmp_path):
    path = tmp_path / "ckpt"
    shutil.copytree(GOLDEN, path)
    for file in path.iterdir():
        file.chmod(0o644)
    (path / "__0_0.distcp").unlink()
    os.truncate(path / "__1_0.distcp", 15000)
    (path / "__7_0.distcp").write_bytes(b"left over")
    assert odd_kinds(path) == {
        ("missing_file", "__0_0.distcp"),
        ("short_file", "__1_0.distcp"),
        ("unreferenced_file", "__7_0.distcp"),
    }
    text = ok("info", path)
    assert "__0_0.distcp: missing; 1705 bytes of it are needed" in text
    assert "__1_0.distcp: has 15000 bytes; 15263 are needed" in text


def test_info_notices_holes_overlaps_lost_chunks_and_foreign_planner_data(tmp_path):
    import pickle

    path = tmp_path / "ckpt"
    shutil.copytree(GOLDEN, path)
    (path / ".metadata").chmod(0o644)
    metadata = pickle.loads((path / ".metadata").read_bytes())
    del metadata.state_dict_metadata["model.w"].chunks[1]
    plain = metadata.state_dict_metadata["model.plain"]
    plain.chunks.append(plain.chunks[0])
    metadata.storage_data = {k: v for k, v in metadata.storage_data.items() if k.fqn != "model.r"}
    metadata.planner_data = {"paths": [1, 2]}
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    found = odd_kinds(path)
    assert ("bad_cover", "model.w") in found
    assert ("bad_cover", "model.plain") in found
    assert ("chunk_without_place", "model.r") in found
    assert ("foreign_planner_data", "") in found
