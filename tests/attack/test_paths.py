"""No path from a file leaves the checkpoint: not by `..`, not from the root, not through a folder that is a link. A link
under a file's own bare name is the user's, and is followed when reading. What is no file where a file belongs is a typed
error at once, never a wait and never somebody else's bytes.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import assemble
import numpy
import pytest

import cairn

SECRET = assemble.torch_file()  # what a checkpoint must not be able to read
TENSOR = assemble.safetensors({"w": assemble.entry()})
HUB = "model-00001-of-00001.safetensors"
DATA = "__0_0.distcp"


def dcp(folder: Path, relative: str, length: int = len(SECRET)) -> Path:
    """A checkpoint of one tensor that is said to lie in the file `relative`."""
    folder.mkdir()
    storage = assemble.dict_of(
        (assemble.index("w", assemble.size(0), assemble.number(0)), assemble.place(relative, 0, length))
    )
    (folder / ".metadata").write_bytes(assemble.metadata(storage=storage))
    return folder


def hub(folder: Path, relative: str) -> Path:
    folder.mkdir()
    index = {"metadata": {"total_size": 16}, "weight_map": {"w": relative}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def error_of(action: Callable[[], object]) -> cairn.Error:
    with pytest.raises(cairn.Error) as raised:
        action()
    return raised.value


def codes(path: Path, tmp_path: Path) -> set[str]:
    """What reading, verifying and converting it say; none of them may work, or leave anything. Nor may loading."""
    state = {"w": numpy.zeros(4, dtype="float32")}
    error_of(lambda: cairn.load(state, path))  # of a directory only, by another code: not_found where others say io
    errors = [
        error_of(lambda: cairn.open(path).read("w")).code,
        error_of(lambda: cairn.convert(path, tmp_path / "out.safetensors")).code,
        error_of(lambda: cairn.convert(path, tmp_path / "out")).code,
    ]
    assert (state["w"] == 0).all()
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.safetensors").exists()
    try:
        report = cairn.verify(path)
    except cairn.Error as e:
        errors.append(e.code)
    else:
        assert not report["ok"], report
    return set(errors)


def test_the_checkpoints_of_these_tests_are_good_but_for_their_paths(tmp_path: Path) -> None:
    (dcp(tmp_path / "dcp", DATA) / DATA).write_bytes(SECRET)
    (hub(tmp_path / "hub", HUB) / HUB).write_bytes(TENSOR)
    for name in ("dcp", "hub"):
        assert cairn.open(tmp_path / name).read("w")[0] == "float32"
        assert cairn.verify(tmp_path / name)["ok"]


OUTSIDE = ["../secret", "../../secret", "a/../../secret", "/{root}/secret", "./secret", "a//b", "", "..", ".", "a\0b"]


@pytest.mark.parametrize("relative", OUTSIDE)
@pytest.mark.parametrize("make", [dcp, hub])
def test_a_path_that_leaves_the_checkpoint_is_corrupt(
    make: Callable[[Path, str], Path], relative: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(SECRET if make is dcp else TENSOR)
    path = make(tmp_path / "ckpt", relative.replace("/{root}", str(tmp_path)))
    assert codes(path, tmp_path) == {"corrupt"}


def require_read(path: Path, tmp_path: Path) -> None:
    """It loads, opens, verifies and converts."""
    state = {"w": numpy.full(4, numpy.nan, dtype="float32")}
    cairn.load(state, path)
    assert cairn.open(path).read("w")[2] == state["w"].tobytes()
    assert cairn.verify(path)["ok"] and not numpy.isnan(state["w"]).any()
    cairn.convert(path, tmp_path / "out.safetensors", durable=False)
    assert cairn.open(tmp_path / "out.safetensors").read("w")[2] == state["w"].tobytes()


def test_a_data_file_that_is_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(SECRET)
    path = dcp(tmp_path / "ckpt", DATA)
    (path / DATA).symlink_to(tmp_path / "elsewhere")
    require_read(path, tmp_path)


def test_a_data_file_in_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    path = dcp(tmp_path / "ckpt", "way/" + DATA)
    (path / "way").mkdir()
    (path / "way" / DATA).symlink_to(tmp_path / "secret")
    assert codes(path, tmp_path) == {"io"}
    assert "symbolic link" in error_of(lambda: cairn.open(path).read("w")).message


@pytest.mark.parametrize("name", [".metadata", DATA])
def test_gc_removes_nothing_that_a_linked_metadata_names(name: str, tmp_path: Path) -> None:
    cairn.save({"w": numpy.zeros(4, dtype="float32")}, tmp_path / "ckpt", durable=False)
    moved = next(each for each in (tmp_path / "ckpt").iterdir() if each.name.endswith(name[-7:]))
    moved.rename(tmp_path / "elsewhere")
    moved.symlink_to(tmp_path / "elsewhere")
    assert cairn.gc(tmp_path / "ckpt")["files"] == []
    require_read(tmp_path / "ckpt", tmp_path)


@pytest.mark.parametrize("make", [dcp, hub])
def test_a_folder_that_is_a_link_is_not_followed(make: Callable[[Path, str], Path], tmp_path: Path) -> None:
    (tmp_path / "out-there").mkdir()
    (tmp_path / "out-there/secret").write_bytes(SECRET if make is dcp else TENSOR)
    path = make(tmp_path / "ckpt", "way/secret")
    (path / "way").symlink_to(tmp_path / "out-there")
    assert codes(path, tmp_path) == {"io"}


def test_a_metadata_that_is_a_link_is_followed(tmp_path: Path) -> None:
    (dcp(tmp_path / "other", DATA) / DATA).write_bytes(SECRET)
    path = tmp_path / "ckpt"
    path.mkdir()
    (path / ".metadata").symlink_to(tmp_path / "other/.metadata")
    (path / DATA).write_bytes(SECRET)
    require_read(path, tmp_path)


@pytest.mark.parametrize("name", [".metadata", DATA])
def test_a_link_to_what_is_no_file_is_an_error_at_once(name: str, tmp_path: Path) -> None:
    path = dcp(tmp_path / "ckpt", DATA)
    (path / DATA).write_bytes(SECRET)
    os.mkfifo(tmp_path / "pipe")
    (path / name).unlink()
    (path / name).symlink_to(tmp_path / "pipe")
    assert codes(path, tmp_path) <= {"io", "not_found"}


def put_fifo(at: Path) -> None:
    os.mkfifo(at)


def put_folder(at: Path) -> None:
    at.mkdir()


def put_device(at: Path) -> None:
    try:
        os.mknod(at, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero: bytes without end
    except PermissionError:
        pytest.skip("only root makes device nodes")


THINGS = [put_fifo, put_folder, put_device]


@pytest.mark.parametrize("put", THINGS)
@pytest.mark.parametrize("make, name", [(dcp, DATA), (hub, HUB)])
def test_what_is_no_file_is_an_error_at_once(
    make: Callable[[Path, str], Path], name: str, put: Callable[[Path], None], tmp_path: Path
) -> None:
    path = make(tmp_path / "ckpt", name)
    put(path / name)
    assert codes(path, tmp_path) <= {"io", "not_found"}


@pytest.mark.parametrize("put", THINGS)
@pytest.mark.parametrize("name", [".metadata", "model.safetensors.index.json", "model.safetensors"])
def test_an_index_that_is_no_file_is_an_error_at_once(name: str, put: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "ckpt"
    path.mkdir()
    put(path / name)
    assert codes(path, tmp_path) <= {"io", "not_found", "unsupported"}


def test_a_link_that_leads_nowhere_is_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "ckpt"
    path.mkdir()
    (path / "model.safetensors").symlink_to("../blobs/0123")
    assert codes(path, tmp_path) == {"not_found"}


@pytest.mark.parametrize("put", [put_fifo, put_device])
def test_a_single_file_that_is_none_is_an_error_at_once(put: Callable[[Path], None], tmp_path: Path) -> None:
    put(tmp_path / "m.safetensors")
    assert codes(tmp_path / "m.safetensors", tmp_path) == {"io"}


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "..", "a\0b"])
@pytest.mark.parametrize("to", ["dcp", "safetensors", "huggingface", "torch"])
def test_names_of_tensors_name_no_files(name: str, to: str, tmp_path: Path) -> None:
    """A name is text wherever it is written to; nothing appears outside the destination."""
    source = tmp_path / "m.safetensors"
    source.write_bytes(assemble.safetensors({name: assemble.entry()}))
    suffix = {"safetensors": ".safetensors", "torch": ".pt"}.get(to, "")
    out = tmp_path / "inside" / "out"
    out.parent.mkdir()
    cairn.convert(source, f"{out}{suffix}", to=to, durable=False)
    assert {p.name for p in tmp_path.iterdir()} == {"m.safetensors", "inside"}
    assert [p.name for p in out.parent.iterdir()] == [f"out{suffix}"]
    assert cairn.open(f"{out}{suffix}").read(name)[2] == bytes(16)


def test_convert_does_not_write_through_a_link(tmp_path: Path) -> None:
    """A file that is there under the destination's name is replaced, not what a link leads to."""
    source = tmp_path / "m.safetensors"
    source.write_bytes(TENSOR)
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "out.safetensors").symlink_to(tmp_path / "victim")
    try:
        cairn.convert(source, tmp_path / "out.safetensors", overwrite=True, durable=False)
    except cairn.Error as e:
        assert e.code in ("conflict", "io")
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize("name", [".metadata", DATA])
def test_a_save_does_not_write_through_a_link(name: str, tmp_path: Path) -> None:
    path = tmp_path / "ckpt"
    path.mkdir()
    (tmp_path / "victim").write_text("precious")
    (path / name).symlink_to(tmp_path / "victim")
    try:
        cairn.save({"w": numpy.zeros(4)}, path, durable=False)
    except cairn.Error as e:
        assert e.code in ("conflict", "io")
    assert (tmp_path / "victim").read_text() == "precious"
