"""A stored tensor answers numpy's basic indexing as the array itself would, and reads no more than that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import GOLDEN

import cairn

SHAPE = (5, 4, 6)
CUBE = numpy.arange(120, dtype="int32").reshape(SHAPE)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> cairn.Checkpoint:
    path = tmp_path_factory.mktemp("open") / "ckpt"
    dtypes = (
        "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64 complex128"
    )
    typed = {name: numpy.arange(3).astype(name) for name in dtypes.split()}
    state = {"cube": CUBE, "scalar": numpy.array(2.5), "none": numpy.zeros((0, 3)), "typed": typed}
    cairn.save(state, path, durable=False)
    return cairn.open(path)


def a_part(size: int) -> st.SearchStrategy:
    bound = st.none() | st.integers(-size - 2, size + 2)
    step = st.none() | st.integers(-3, 3).filter(lambda n: n != 0)
    return st.builds(slice, bound, bound, step) | st.integers(-size, size - 1)


@st.composite
def an_index(draw: st.DrawFn) -> tuple:
    dims = draw(st.integers(0, len(SHAPE)))
    first = draw(st.integers(0, dims))  # these lead; behind an ellipsis come the others, which end the shape
    parts = [draw(a_part(size)) for size in SHAPE[:first]]
    if first < dims or draw(st.booleans()):
        parts += [Ellipsis, *(draw(a_part(size)) for size in SHAPE[len(SHAPE) - dims + first :])]
    for _ in range(draw(st.integers(0, 2))):
        parts.insert(draw(st.integers(0, len(parts))), None)
    return tuple(parts)


@settings(max_examples=300, deadline=None)
@given(index=an_index())
def test_an_index_gives_what_numpy_gives(stored: cairn.Checkpoint, index: tuple) -> None:
    got, wanted = stored["cube"][index], CUBE[index]
    assert type(got) is type(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    assert numpy.array_equal(got, wanted)


@pytest.mark.parametrize("index", [2, numpy.int64(-1), slice(1, 3), Ellipsis, None])
def test_an_index_need_not_be_a_tuple(stored: cairn.Checkpoint, index: object) -> None:
    assert numpy.array_equal(stored["cube"][index], CUBE[index])  # type: ignore[index]


@pytest.mark.parametrize("index", [5, -6, (0, 4), (0, 0, 0, 0), (..., ...)])
def test_an_index_outside_the_tensor_is_an_index_error(stored: cairn.Checkpoint, index: object) -> None:
    with pytest.raises(IndexError):
        CUBE[index]  # type: ignore[index]
    with pytest.raises(IndexError) as caught:
        stored["cube"][index]
    assert isinstance(caught.value, cairn.Error)
    assert caught.value.code == "invalid_argument"


@pytest.mark.parametrize("index", [[0, 1], numpy.array([0, 1]), True, (0, [1]), CUBE > 3, 1.0, "x"])
def test_fancy_indices_are_refused_and_say_what_to_do(stored: cairn.Checkpoint, index: object) -> None:
    with pytest.raises(cairn.Error, match=r"numpy\.asarray"):
        stored["cube"][index]


def test_a_tensor_is_described_before_it_is_read(stored: cairn.Checkpoint) -> None:
    cube = stored["cube"]
    assert (cube.name, cube.dtype, cube.shape, cube.nbytes) == ("cube", "int32", SHAPE, 480)
    assert (cube.ndim, cube.size, len(cube)) == (3, 120, 5)
    assert numpy.empty(cube.shape, cube.dtype).nbytes == cube.nbytes


def test_a_tensor_becomes_an_array(stored: cairn.Checkpoint) -> None:
    assert numpy.array_equal(numpy.asarray(stored["cube"]), CUBE)
    assert numpy.asarray(stored["cube"], "float64").dtype == "float64"
    assert [int(part.sum()) for part in stored["cube"]] == [int(part.sum()) for part in CUBE]
    with pytest.raises(ValueError, match="without a copy"):
        stored["cube"].__array__(copy=False)


def test_what_was_read_belongs_to_the_reader(stored: cairn.Checkpoint) -> None:
    part = stored["cube"][0]
    part += 1
    assert numpy.array_equal(stored["cube"][0], CUBE[0])


def test_a_tensor_without_dimensions_and_one_without_elements(stored: cairn.Checkpoint) -> None:
    assert stored["scalar"][...] == 2.5
    assert stored["scalar"][()] == 2.5
    assert stored["none"][:, 1:].shape == (0, 2)
    with pytest.raises(TypeError):
        len(stored["scalar"])


def test_every_type_that_numpy_has_comes_back(stored: cairn.Checkpoint) -> None:
    for name in (name for name in stored if name.startswith("typed.")):
        read = stored[name][...]
        assert read.dtype.name == stored[name].dtype == name.removeprefix("typed.")
        assert numpy.array_equal(read, numpy.arange(3).astype(read.dtype))


def test_a_checkpoint_is_a_mapping(stored: cairn.Checkpoint) -> None:
    assert list(stored)[:3] == stored.names()[:3] == ["cube", "scalar", "none"]
    assert len(stored) == len(stored.keys()) == len(stored.names())
    assert "cube" in stored
    assert "nope" not in stored
    assert 3 not in stored
    assert {name: tensor.shape for name, tensor in stored.items()}["cube"] == SHAPE
    assert stored.get("nope") is None
    assert stored == stored != cairn.open(stored.path)
    assert repr(stored["cube"]) == "<tensor 'cube' int32 (5, 4, 6)>"


def test_a_missing_name_is_a_key_error_with_near_names(stored: cairn.Checkpoint) -> None:
    with pytest.raises(KeyError) as caught:
        stored["cubes"]
    assert isinstance(caught.value, cairn.Error)
    assert (caught.value.code, caught.value.tensor) == ("not_found", "cubes")
    assert str(caught.value) == "tensor 'cubes': no such tensor, did you mean 'cube'? (not_found)"


def test_the_name_of_an_object_says_how_to_read_it() -> None:
    with pytest.raises(KeyError, match=r"ckpt\.object\('step'\)"):
        cairn.open(GOLDEN)["step"]


def test_only_the_bytes_of_a_slice_are_read(tmp_path: Path) -> None:
    size = 1 << 20
    cairn.save({"w": numpy.zeros((8, size), "uint8")}, tmp_path / "x", durable=False)
    tensor = f"cairn.open({str(tmp_path / 'x')!r})['w']"
    assert bytes_read(f"{tensor}[...]") >= 8 * size
    assert bytes_read(f"{tensor}[3, 5:10]") < size / 8


def bytes_read(expression: str) -> int:
    """Bytes that a process reads for the expression, beyond what it has read before."""
    program = (
        "import cairn, numpy, cairn._arrays\n"
        "read = lambda: int(open('/proc/self/io').readline().split()[1])\n"
        f"before = read(); {expression}; print(read() - before)"
    )
    return int(
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    )


# --- element types that numpy lacks ---


@pytest.fixture
def no_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)


@pytest.mark.usefixtures("no_ml_dtypes")
def test_bfloat16_without_ml_dtypes_is_an_error_that_names_the_ways_round() -> None:
    tensor = cairn.open(GOLDEN)["model.r"]
    assert tensor.dtype == "bfloat16"
    with pytest.raises(cairn.Error, match=r"pip install ml_dtypes.*astype\('float32'\).*bits") as caught:
        tensor[:]
    assert (caught.value.code, caught.value.tensor) == ("unsupported", "model.r")


@pytest.mark.usefixtures("no_ml_dtypes")
def test_bfloat16_is_converted_or_given_as_bits() -> None:
    tensor = cairn.open(GOLDEN)["model.r"]
    values = numpy.arange(16, dtype="float32")
    assert numpy.array_equal(tensor.astype("float32")[2:5], values[2:5])
    assert numpy.array_equal(numpy.asarray(tensor, "float64"), values)
    bits = tensor.bits
    assert (bits.dtype, bits.nbytes, tensor.astype("float32").nbytes) == ("uint16", 32, 64)
    assert numpy.array_equal(bits[::-1], (values.view("uint32") >> 16).astype("uint16")[::-1])
    assert numpy.asarray(bits, "int64").dtype == "int64"


def test_bfloat16_with_ml_dtypes_goes_both_ways(tmp_path: Path) -> None:
    import ml_dtypes

    read = cairn.open(GOLDEN)["model.r"][:]
    assert read.dtype == ml_dtypes.bfloat16
    assert read[3] == 3
    eight = numpy.array([0.5, -2], ml_dtypes.float8_e4m3fn)
    cairn.save({"r": read, "eight": eight}, tmp_path / "x", durable=False)
    again = cairn.open(tmp_path / "x")
    assert (again["r"].dtype, again["eight"].dtype) == ("bfloat16", "float8_e4m3fn")
    assert numpy.array_equal(again["eight"][...], eight)


# --- objects ---


def test_plain_objects_are_python_data() -> None:
    ckpt = cairn.open(GOLDEN)
    values = [ckpt.object(name) for name in ("step", "lr", "name", "nested.none", "nested.tuple")]
    assert values == [7, 0.5, "hello", None, (1, "b")]


def test_a_foreign_object_is_an_error_and_is_never_built(tmp_path: Path) -> None:
    import torch

    class Trap:
        def __reduce__(self) -> tuple:
            return (os.mkdir, (str(tmp_path / "ran"),))

    torch.save({"ok": 1, "trap": Trap()}, tmp_path / "x.pt")
    ckpt = cairn.open(tmp_path / "x.pt")
    names = [row["name"] for row in ckpt.objects()]
    assert ckpt.object("ok") == 1
    with pytest.raises(cairn.Error, match="only the code that wrote it") as caught:
        ckpt.object(next(name for name in names if name.startswith("trap")))
    assert caught.value.code == "unsupported"
    assert not (tmp_path / "ran").exists()


def test_an_unknown_object_is_not_found() -> None:
    with pytest.raises(cairn.Error, match="did you mean 'step'") as caught:
        cairn.open(GOLDEN).object("steps")
    assert caught.value.code == "not_found"
