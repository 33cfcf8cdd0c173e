"""File systems and transforms that are written in Python, under the engine's own writer and reader."""

from __future__ import annotations

import io
import os
import pickle
import random
import signal
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

import numpy
import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension, ZStandard
from torch.distributed.checkpoint.filesystem import FileSystem as Local
from torch.distributed.checkpoint.filesystem import FileSystemBase, _StorageReaderTransforms, _StorageWriterTransforms

import cairn
from cairn import _engine

KILLS = 12


def state(number: int) -> dict[str, Any]:
    large = numpy.full((900, 1000), number, "float32")  # several megabytes
    return {"large": large, **{f"w{i}": numpy.full(40, number, "int32") for i in range(5)}, "step": number}


def save(number: int, files: Any, **options: Any) -> Any:
    return cairn.save(state(number), "here", files=files, **options)


def loaded(files: Any, **options: Any) -> int:
    """The one number that the whole checkpoint is made of."""
    found = cairn.load(None, "here", files=files, **options)
    numbers = {int(found["step"]), *(float(x) for key in found if key != "step" for x in numpy.unique(found[key]))}
    assert len(numbers) == 1 and found["large"].shape == (900, 1000), numbers
    return int(numbers.pop())


# --- file systems ---


class OwnLocal(Local):
    """A user's: it may do anything, so it is asked."""


class Dictionary(FileSystemBase):
    """The least that a file system can be: no listing, no exclusive mode, names are taken once."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        assert mode in ("rb", "wb")
        if mode == "rb":
            if path not in self.files:
                raise KeyError(path)
            yield io.BytesIO(self.files[path])
            return
        stream = io.BytesIO()
        yield stream
        self.files[path] = stream.getvalue()

    def concat_path(self, path: Any, suffix: str) -> str:
        return f"{path}/{suffix}"

    def rename(self, path: Any, new_path: Any) -> None:
        if new_path in self.files:
            raise OSError("the name is taken")
        self.files[new_path] = self.files.pop(path)

    def init_path(self, path: Any) -> Any:
        return path

    def mkdir(self, path: Any) -> None:
        pass

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True

    def exists(self, path: Any) -> bool:
        return path in self.files

    def rm_file(self, path: Any) -> None:
        del self.files[path]

    def names(self) -> set[str]:
        return {path.rsplit("/", 1)[-1] for path in self.files}


def _own_local(folder: Path) -> tuple[Any, Any]:
    return OwnLocal(), folder / "ckpt"


def _dictionary(folder: Path) -> tuple[Any, Any]:
    return Dictionary(), "root"


def _fsspec_memory(folder: Path) -> tuple[Any, Any]:
    pytest.importorskip("fsspec")
    from torch.distributed.checkpoint._fsspec_filesystem import FileSystem

    fs = FileSystem()
    return fs, fs.init_path(f"memory://{folder}/ckpt")


def _fsspec_local(folder: Path) -> tuple[Any, Any]:
    pytest.importorskip("fsspec")
    from torch.distributed.checkpoint._fsspec_filesystem import FileSystem

    class Own(FileSystem):
        pass

    fs = Own()
    return fs, fs.init_path(f"file://{folder}/ckpt")


KINDS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "own local": _own_local,
    "dictionary": _dictionary,
    "fsspec memory": _fsspec_memory,
    "fsspec local": _fsspec_local,
}
KEEPS_APART = {"own local", "fsspec local"}


def names_in(fs: Any, path: Any) -> set[str]:
    if isinstance(fs, Dictionary):
        return fs.names()
    return {os.path.basename(str(name)) for name in fs.ls(path)}


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Any, Any]:
    return (request.param, *KINDS[request.param](tmp_path))


# --- transforms ---


class Deflate(StreamTransformExtension):
    """Bytes through zlib, and a word about how."""

    @staticmethod
    def registry_name() -> str:
        return "stream.deflate@test"

    @staticmethod
    def from_descriptor(version: str) -> Deflate:
        assert version == "1"
        return Deflate()

    def get_descriptor(self) -> str:
        return "stream.deflate@test/1"

    def transform_to(self, output: Any) -> Any:
        class Writer(io.RawIOBase):
            packer = zlib.compressobj(1)

            def writable(self) -> bool:
                return True

            def write(self, data: Any) -> int:
                output.write(self.packer.compress(data))
                return len(memoryview(data))

            def close(self) -> None:
                if not self.closed:
                    output.write(self.packer.flush())
                    output.close()
                super().close()

        return Writer()

    def transform_from(self, input: Any) -> Any:
        class Reader(io.RawIOBase):
            unpacker = zlib.decompressobj()

            def readable(self) -> bool:
                return True

            def readinto(self, buffer: Any) -> int:
                while not self.unpacker.eof:
                    packed = self.unpacker.unconsumed_tail or input.read(10_000)
                    if plain := self.unpacker.decompress(packed, len(buffer)):
                        buffer[: len(plain)] = plain
                        return len(plain)
                    if not packed:
                        break
                return 0

        return Reader()


def registry() -> ExtensionRegistry:
    made = ExtensionRegistry()
    made.register(Deflate)
    return made


def writing(*extensions: Any) -> Any:
    return _engine.Transforms(_StorageWriterTransforms(list(extensions)))


def reading() -> Any:
    return _engine.Transforms(_StorageReaderTransforms(registry()))


WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "a file for every item": lambda: {"file_per_item": True},
    "several files": lambda: {"files_per_rank": 3},
    "zstd": lambda: {"transforms": ["zstd"], "file_per_item": True},
    "a transform": lambda: {"transform": writing(Deflate())},
    "two transforms": lambda: {"transform": writing(Deflate(), Deflate()), "file_per_item": True},
}


# --- saving and loading ---


@pytest.mark.parametrize("way", WAYS)
def test_what_is_saved_is_loaded_and_the_old_files_go(place: tuple[str, Any, Any], way: str) -> None:
    _, fs, path = place
    options = WAYS[way]()
    files = _engine.Files(fs, path, create=True)
    save(1, files, **options)
    assert loaded(files, transform=reading(), verify="full") == 1
    report = save(2, files, **options)
    assert loaded(_engine.Files(fs, path), transform=reading(), verify="full") == 2
    others = {name for name in names_in(fs, path) if report["save_id"] not in name}
    assert others == {".metadata"}


@pytest.mark.parametrize("way", WAYS)
def test_stock_reads_what_was_written(tmp_path: Path, way: str) -> None:
    fs, path = _own_local(tmp_path)
    save(3, _engine.Files(fs, path, create=True), **WAYS[way]())
    found = {"large": torch.zeros(900, 1000), "w0": torch.zeros(40, dtype=torch.int32), "step": 0}
    stock.load(found, storage_reader=stock.FileSystemReader(path, _extension_registry=registry()), no_dist=True)
    assert found["step"] == 3 and (found["large"] == 3).all() and (found["w0"] == 3).all()


@pytest.mark.parametrize("way", ["a transform", "two transforms", "zstd"])
def test_what_stock_wrote_is_read(tmp_path: Path, way: str) -> None:
    pytest.importorskip("zstandard")
    # Two that differ stock undoes in the wrong order.
    extensions = {"a transform": [Deflate()], "two transforms": [Deflate(), Deflate()], "zstd": [ZStandard()]}[way]
    written = {"large": torch.full((900, 1000), 4.0), "w": torch.full((40,), 4), "step": 4}
    for each in (True, False):
        writer = stock.FileSystemWriter(tmp_path, single_file_per_rank=each, _extensions=extensions)
        stock.save(written, storage_writer=writer, no_dist=True)
        assert loaded(_engine.Files(OwnLocal(), tmp_path), transform=reading()) == 4
    places = stock.FileSystemReader(tmp_path).read_metadata().storage_data.values()
    save(5, _engine.Files(OwnLocal(), tmp_path), transform=writing(*extensions))
    mine = stock.FileSystemReader(tmp_path).read_metadata().storage_data.values()
    assert {tuple(each.transform_descriptors) for each in places} == {tuple(e.transform_descriptors) for e in mine}


def test_a_directory_that_is_nothing_else_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, path: Any, mode: str) -> Any:
        raise AssertionError("nobody needs to ask it")

    monkeypatch.setattr(Local, "create_stream", refuse)
    files = _engine.Files(Local(), tmp_path / "a", create=True)
    save(1, files)
    assert loaded(files) == 1
    fsspec = pytest.importorskip("fsspec")
    from torch.distributed.checkpoint._fsspec_filesystem import FileSystem

    fs = FileSystem()
    monkeypatch.setattr(FileSystem, "create_stream", refuse)
    files = _engine.Files(fs, fs.init_path(f"file://{tmp_path}/b"), create=True)
    save(2, files)
    assert files.root == f"{tmp_path}/b" and loaded(files) == 2 and fsspec is not None


# --- two saves, dead saves ---


def test_what_a_place_is_good_for_is_found_out(place: tuple[str, Any, Any]) -> None:
    kind, fs, path = place
    files = _engine.Files(fs, path, create=True)
    assert files.is_exclusive == (kind in KEEPS_APART)
    assert names_in(fs, path) == set()
    report = save(1, files)
    assert bool(report["warnings"]) == (kind not in KEEPS_APART)


class Meets(_StorageWriterTransforms):
    """While its save is under way another one comes by."""

    def __init__(self, meet: Callable[[], Any]) -> None:
        super().__init__()
        self.meet: Callable[[], Any] | None = meet

    def transform_save_stream(self, write_item: Any, raw_stream: Any) -> Any:
        meet, self.meet = self.meet, None
        if meet is not None:
            meet()
        return super().transform_save_stream(write_item, raw_stream)


@pytest.mark.parametrize("first", [False, True])
def test_of_two_saves_one_is_told(place: tuple[str, Any, Any], first: bool) -> None:
    kind, fs, path = place
    if not first:
        save(1, _engine.Files(fs, path, create=True))
    told: list[cairn.Error] = []

    def other() -> None:
        try:
            save(7, _engine.Files(fs, path, create=True))
        except cairn.Error as error:
            told.append(error)

    try:
        save(2, _engine.Files(fs, path, create=True), transform=_engine.Transforms(Meets(other)), files_per_rank=1)
    except cairn.Error as error:
        told.append(error)
    assert len(told) == 1 and told[0].code == "conflict", told
    winner = 2 if kind in KEEPS_APART else 7  # a lock kept the other out, or the other was faster
    assert loaded(_engine.Files(fs, path)) == winner
    assert not [name for name in names_in(fs, path) if "partial" in name or "claim" in name]
    assert sum(name.endswith(".distcp") for name in names_in(fs, path)) == 1


def test_a_file_that_is_taken_away_fails_the_save(place: tuple[str, Any, Any]) -> None:
    kind, fs, path = place
    if kind in KEEPS_APART:
        pytest.skip("who cleans up takes the lock there")
    save(1, _engine.Files(fs, path, create=True))
    before = names_in(fs, path)
    taken: list[str] = []

    class Cleaned(type(fs)):  # type: ignore[misc]
        @contextmanager
        def create_stream(self, where: Any, mode: str) -> Iterator[Any]:
            if mode == "wb" and "manifest" in str(where):
                for name in names_in(fs, path) - before:
                    fs.rm_file(fs.concat_path(path, name))
                    taken.append(name)
            with super().create_stream(where, mode) as stream:
                yield stream

    cleaned = Cleaned()
    cleaned.__dict__.update(fs.__dict__)
    with pytest.raises(cairn.Error, match="removed before the save was done"):
        save(2, _engine.Files(cleaned, path))
    assert taken and loaded(_engine.Files(fs, path)) == 1


@pytest.mark.parametrize("kind", sorted(KEEPS_APART))
def test_what_a_dead_save_left_goes_with_the_next(kind: str, tmp_path: Path) -> None:
    fs, path = KINDS[kind](tmp_path)
    save(1, _engine.Files(fs, path, create=True))
    dead = "0123456789abcdef" * 2
    for name in (f"__0_0.{dead}.distcp", f".cairn-manifest.{dead}", ".metadata.0123456789abcdef.cairn-partial"):
        (tmp_path / "ckpt" / name).write_bytes(b"x")
    (tmp_path / "ckpt" / "notes.txt").write_text("mine")
    report = save(2, _engine.Files(fs, path))
    left = {name for name in names_in(fs, path) if report["save_id"] not in name}
    assert left == {".metadata", "notes.txt"} and loaded(_engine.Files(fs, path)) == 2


def test_what_a_dead_save_left_can_be_removed_where_there_are_no_locks(tmp_path: Path) -> None:
    fs, path = _fsspec_memory(tmp_path)
    files = _engine.Files(fs, path, create=True)
    save(1, files)
    dead = f"__0_0.{'0123456789abcdef' * 2}.distcp"
    with fs.create_stream(fs.concat_path(path, dead), "wb") as stream:
        stream.write(b"x")
    with pytest.raises(cairn.Error, match="use force"):
        files.gc()
    assert files.gc(force=True) == [dead] and loaded(files) == 1


def _save_on_and_on(kind: str, folder: Path, way: str, first: int, told: int) -> None:
    fs, path = KINDS[kind](folder)
    for number in range(first, first + 10_000):
        save(number, _engine.Files(fs, path, create=True), **WAYS[way]())
        os.write(told, number.to_bytes(4, "little"))


@pytest.mark.parametrize("kind, way", [("own local", "a file for every item"), ("fsspec local", "a transform")])
def test_a_killed_save_leaves_the_old_checkpoint_or_the_new_one(kind: str, way: str, tmp_path: Path) -> None:
    dice = random.Random(kind)
    fs, path = KINDS[kind](tmp_path)
    save(0, _engine.Files(fs, path, create=True), **WAYS[way]())
    done = 0
    for _ in range(KILLS):
        out, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _save_on_and_on(kind, tmp_path, way, done + 1, told)
            finally:
                os._exit(1)
        os.close(told)
        done = int.from_bytes(os.read(out, 4), "little")
        time.sleep(dice.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while more := os.read(out, 4):
            done = int.from_bytes(more, "little")
        os.close(out)
        assert loaded(_engine.Files(fs, path), transform=reading(), verify="full") in (done, done + 1)
        done = loaded(_engine.Files(fs, path), transform=reading())


# --- what fails is told ---


class Broken(Exception):
    pass


@pytest.mark.parametrize("where", [".distcp", "manifest", "metadata"])
def test_what_a_file_system_raises_is_told_and_the_old_checkpoint_stays(tmp_path: Path, where: str) -> None:
    class Breaks(Local):
        @contextmanager
        def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
            with super().create_stream(path, mode) as stream:
                yield stream
            if mode != "rb" and where in str(path) and not path.name.startswith(".cairn-try"):
                raise Broken(f"at {mode}")

    fs, path = _own_local(tmp_path)
    save(1, _engine.Files(fs, path, create=True))
    before = names_in(fs, path)
    with pytest.raises(cairn.Error, match="Broken") as raised:
        save(2, _engine.Files(Breaks(), path))
    exception, _ = pickle.loads(raised.value.cause)
    assert isinstance(exception, Broken)
    assert names_in(fs, path) == before and loaded(_engine.Files(fs, path)) == 1


def test_what_a_stream_raises_while_it_is_read_is_told(tmp_path: Path) -> None:
    class Breaks(Local):
        @contextmanager
        def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
            with super().create_stream(path, mode) as stream:
                if str(path).endswith(".distcp"):
                    stream = io.BytesIO(b"")
                    stream.seek = None  # type: ignore[method-assign, assignment]
                yield stream

    class Short(Local):
        @contextmanager
        def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
            with super().create_stream(path, mode) as stream:
                yield io.BytesIO(stream.read()[:-100]) if str(path).endswith(".distcp") else stream

    fs, path = _own_local(tmp_path)
    save(1, _engine.Files(fs, path, create=True))
    with pytest.raises(cairn.Error):
        loaded(_engine.Files(Breaks(), path))
    with pytest.raises(cairn.Error, match="manifest says") as raised:
        loaded(_engine.Files(Short(), path))
    assert "corrupt" in str(raised.value)


def test_what_a_transform_raises_is_told_with_the_name_of_the_tensor(tmp_path: Path) -> None:
    class Refuses(_StorageWriterTransforms):
        def transform_save_stream(self, write_item: Any, raw_stream: Any) -> Any:
            if write_item.index.fqn == "w3":
                raise ValueError(f"not this one: {write_item.tensor_data.size}")
            return super().transform_save_stream(write_item, raw_stream)

    files = _engine.Files(*_own_local(tmp_path), create=True)
    with pytest.raises(cairn.Error, match=r"'w3'.*ValueError: not this one: torch.Size\(\[40\]\)") as raised:
        save(1, files, transform=_engine.Transforms(Refuses()))
    exception, _ = pickle.loads(raised.value.cause)
    assert isinstance(exception, ValueError)
    assert os.listdir(tmp_path / "ckpt") == []


def test_a_failing_disk_is_told_as_such_through_a_transform(tmp_path: Path) -> None:
    class Full(Local):
        @contextmanager
        def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
            with super().create_stream(path, mode) as stream:
                if str(path).endswith(".distcp"):
                    stream = _FullStream()
                yield stream

    with pytest.raises(cairn.Error) as raised:
        save(1, _engine.Files(Full(), tmp_path), transform=writing(Deflate()))
    assert raised.value.os_error == 28 and raised.value.code == "io"


class _FullStream(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raise OSError(28, "No space left on device")


# --- what a transform may do ---


def test_a_readers_transforms_of_somebodys_own_see_every_item(tmp_path: Path) -> None:
    seen: list[str] = []

    class Looks(_StorageReaderTransforms):
        def transform_load_stream(self, read_item: Any, transform_descriptors: Any, raw_stream: Any) -> Any:
            seen.append(read_item.storage_index.fqn)
            assert list(transform_descriptors) == []
            return super().transform_load_stream(read_item, transform_descriptors, raw_stream)

    files = _engine.Files(*_own_local(tmp_path), create=True)
    save(1, files)
    assert loaded(files, transform=_engine.Transforms(Looks())) == 1
    assert sorted(seen) == sorted(state(1))


class Endless(io.RawIOBase):
    given = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        assert size > 0
        Endless.given += size
        return bytes(size)


def test_a_transform_gives_no_more_than_the_metadata_declares(tmp_path: Path) -> None:
    class Bomb(_StorageReaderTransforms):
        def transform_load_stream(self, read_item: Any, transform_descriptors: Any, raw_stream: Any) -> Any:
            return Endless()

    files = _engine.Files(*_own_local(tmp_path), create=True)
    save(1, files, transform=writing(Deflate()))
    for budget in (8 << 20, 256 << 20):
        Endless.given = 0
        with pytest.raises(cairn.Error, match="gives more than"):
            loaded(files, transform=_engine.Transforms(Bomb()), threads=1, memory_budget=budget)
        assert 0 < Endless.given < (1 << 30) + (200 << 20)  # 1 GiB is what an object may have
    assert loaded(files, transform=reading(), memory_budget=8 << 20) == 1


def test_a_stream_that_keeps_what_it_was_given_is_told(tmp_path: Path) -> None:
    class Keeps(io.RawIOBase):
        def __init__(self, to: Any) -> None:
            self.to, self.kept = to, []

        def write(self, data: Any) -> int:
            self.kept.append(data)
            return len(data)

        def close(self) -> None:
            if not self.closed:
                for data in self.kept:
                    self.to.write(data)
            super().close()

    class Late(Deflate):
        def transform_to(self, output: Any) -> Any:
            return Keeps(output)

    with pytest.raises(cairn.Error, match="released memoryview"):
        save(1, _engine.Files(*_own_local(tmp_path), create=True), transform=writing(Late()))
