"""The Python package says the same as the command, reads what torch wrote, and raises cairn.Error."""

from __future__ import annotations

import doctest
import importlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from programs import CLI, GOLDEN, ROOT

import cairn

SEES = ()  # none of the sources: tests/once.py


def test_the_version_is_the_one_in_the_file_version() -> None:
    assert cairn.__version__ == (ROOT / "VERSION").read_text().strip()


def test_ls_is_what_the_command_prints_as_json() -> None:
    printed = subprocess.run([CLI, "ls", "--json", GOLDEN], check=True, capture_output=True).stdout
    assert cairn.ls(GOLDEN) == json.loads(printed)


def test_names_are_the_tensors_in_stored_order() -> None:
    checkpoint = cairn.open(GOLDEN)
    assert checkpoint.format == "dcp"
    assert checkpoint.names() == [row["name"] for row in cairn.ls(GOLDEN)["tensors"]]
    assert {"model.w", "model.r", "model.plain"} <= set(checkpoint.names())


def test_a_tensor_cut_over_two_ranks_is_read_as_one() -> None:
    import numpy

    checkpoint = cairn.open(GOLDEN)
    assert len(checkpoint.info("model.w")["chunks"]) == 2
    dtype, shape, data = checkpoint.read("model.w")
    assert (dtype, shape) == ("float32", (8, 8))
    assert numpy.array_equal(numpy.frombuffer(data, "<f4"), numpy.arange(64))


def test_a_slice_is_what_numpy_would_take() -> None:
    import numpy

    dtype, shape, data = cairn.open(GOLDEN).read("model.w", "[2:7:2, 5:]")
    expected = numpy.arange(64, dtype="<f4").reshape(8, 8)[2:7:2, 5:]
    assert (dtype, shape) == ("float32", expected.shape)
    assert data == expected.tobytes()


def test_a_safetensors_file_is_read_as_safetensors_wrote_it(tmp_path: Path) -> None:
    import numpy
    import safetensors.numpy

    values = {"a": numpy.arange(6, dtype="<i2").reshape(2, 3), "empty": numpy.zeros((0, 4), "<f8")}
    safetensors.numpy.save_file(values, tmp_path / "x.safetensors")
    checkpoint = cairn.open(tmp_path / "x.safetensors")
    assert sorted(checkpoint.names()) == ["a", "empty"]
    assert checkpoint.read("a") == ("int16", (2, 3), values["a"].tobytes())
    assert checkpoint.read("empty") == ("float64", (0, 4), b"")


def test_nothing_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(cairn.Error) as caught:
        cairn.open(tmp_path / "nothing")
    assert caught.value.code == "not_found"
    assert "nothing" in str(caught.value)


def test_an_unknown_tensor_is_not_found_by_name() -> None:
    checkpoint = cairn.open(GOLDEN)
    for ask in (checkpoint.info, checkpoint.read):
        with pytest.raises(cairn.Error) as caught:
            ask("model.nope")
        assert (caught.value.code, caught.value.tensor) == ("not_found", "model.nope")


def test_a_broken_file_is_corrupt_and_named(tmp_path: Path) -> None:
    import numpy
    import safetensors.numpy

    broken = tmp_path / "x.safetensors"
    data = safetensors.numpy.save({"a": numpy.arange(6)})
    broken.write_bytes(data[:-1])
    with pytest.raises(cairn.Error) as caught:
        cairn.open(broken)
    assert (caught.value.code, caught.value.file) == ("corrupt", str(broken))


def test_a_bad_slice_is_an_invalid_argument() -> None:
    with pytest.raises(cairn.Error) as caught:
        cairn.open(GOLDEN).read("model.w", "[0:x]")
    assert caught.value.code == "invalid_argument"


def test_threads_may_read_one_checkpoint_at_once() -> None:
    checkpoint = cairn.open(GOLDEN)
    expected = checkpoint.read("model.w")
    wrong = []

    def work() -> None:
        for _ in range(200):
            if checkpoint.read("model.w") != expected:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_neither_torch_nor_numpy_is_imported_before_an_array_is_met(tmp_path: Path) -> None:
    program = (
        "import cairn, sys; ckpt = cairn.open(sys.argv[1]); ckpt['model.w'].shape; ckpt.object('step')\n"
        "cairn.save({'a': {'b': [1, 'c']}}, sys.argv[2]); cairn.load({'a': {'b': 0}}, sys.argv[2])\n"
        "print([m for m in ('torch', 'numpy') if m in sys.modules])"
    )
    command = [sys.executable, "-c", program, GOLDEN, tmp_path]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


@pytest.fixture
def beside_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder that examples may write to, with the checkpoints they read in their place."""
    import numpy

    (tmp_path / "tests").symlink_to(ROOT / "tests")
    state = {"model": {"w": numpy.ones((4, 2), "float32")}, "step": 7, "betas": (0.9, 0.999)}
    cairn.save(state, tmp_path / "step-7", durable=False)
    monkeypatch.chdir(tmp_path)


def names() -> dict[str, object]:
    import numpy

    return {"cairn": cairn, "numpy": numpy}


@pytest.mark.usefixtures("beside_tests")
@pytest.mark.parametrize("name", ["", "._checkpoint", "._index", "._plain"])
def test_the_examples_of_docstrings_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"cairn{name}"), extraglobs=names())
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.usefixtures("beside_tests")
@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_examples_of_the_pages_hold(page: str) -> None:
    # The line that closes a block would count as output.
    text = "\n".join(
        "" if line.startswith("```") else line for line in (ROOT / page).read_text().splitlines()
    )
    examples = doctest.DocTestParser().get_doctest(text, names(), page, page, 0)
    result = doctest.DocTestRunner().run(examples)
    assert result.attempted > 0
    assert result.failed == 0
