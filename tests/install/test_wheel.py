"""The wheel, in a virtual environment that has nothing else: the package, the command, what needs more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy
import pytest
from programs import BUILD

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "torch-2.11-two-ranks"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def run(*command: object, **env: str) -> str:
    """What the command prints; its errors end the test."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], env={**outside, **env}, text=True, capture_output=True, cwd="/"
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed with the tools of .venv from what was built; `make wheel` compiles one that others can install."""
    folder = tmp_path_factory.mktemp("wheel")
    settings = [f"build-dir={folder / 'build'}", f"cmake.define.CAIRN_BUILT={BUILD}"]
    options = ["-qq", "--no-build-isolation", "--no-deps", *(f"--config-settings={word}" for word in settings)]
    run(*PIP, "wheel", *options, "-w", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with the wheel in it, and no torch, no numpy, no pip."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    run(*PIP, "--python", python, "install", "-qq", "--no-deps", "--no-index", wheel)
    return python


@pytest.fixture(scope="module")
def only_numpy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH that adds numpy, and nothing else of .venv."""
    folder = tmp_path_factory.mktemp("numpy")
    installed = Path(numpy.__file__).parents[1]
    for part in ("numpy", "numpy.libs"):
        if (installed / part).exists():
            (folder / part).symlink_to(installed / part)
    return str(folder)


def test_the_wheel_holds_the_whole_package_and_the_command(wheel: Path) -> None:
    listed = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "python/cairn")
    package = {name.removeprefix("python/") for name in listed.split() if (ROOT / name).exists()}
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "cairn/py.typed",
        "cairn/_engine.pyi",
        "cairn/torch/__init__.py",
        "cairn/torch/__main__.py",
    } <= package
    assert package <= held
    others = {name for name in held - package if ".dist-info/" not in name}
    assert {re.sub(r"\..*", "", Path(name).name) for name in others} == {"_engine", "cairn"}


def test_the_command_is_beside_the_interpreter(python: Path) -> None:
    version = (ROOT / "VERSION").read_text().strip()
    assert run(python.parent / "cairn", "--version").startswith(f"cairn {version}\n")
    assert "model.w" in run("cairn", "ls", GOLDEN, PATH=f"{python.parent}:{os.environ['PATH']}")


def test_cairn_works_where_nothing_else_is_installed(python: Path) -> None:
    program = """if True:
        import cairn, sys
        ckpt = cairn.open(sys.argv[1])
        print(cairn.__file__, cairn.__version__)
        print(ckpt.names()[0], ckpt["model.w"].shape, ckpt.object("step"), ckpt.read("model.plain", "[:1]"))
        print(cairn.verify(sys.argv[1])["ok"])
        try:
            ckpt["model.w"][0]
        except ImportError as e:
            print(e)
        try:
            import cairn.torch
        except ImportError as e:
            print(e)
    """
    lines = run(python, "-c", program, GOLDEN).splitlines()
    assert lines[0].startswith(str(python.parents[1]))
    assert lines[1:] == [
        r"model.w (8, 8) 7 ('int64', (1,), b'\x01\x00\x00\x00\x00\x00\x00\x00')",
        "True",
        "cairn needs numpy for arrays, and it is not installed (pip install numpy)",
        "cairn.torch needs PyTorch, which is not installed (pip install torch); "
        "cairn.open, cairn.save and cairn.load work without it, on numpy arrays",
    ]


def test_arrays_are_saved_and_loaded_where_numpy_is_there_too(
    python: Path, only_numpy: str, tmp_path: Path
) -> None:
    program = """if True:
        import cairn, sys
        assert "numpy" not in sys.modules
        import numpy
        cairn.save({"w": numpy.arange(6.0).reshape(2, 3), "step": 3}, sys.argv[1])
        state = {"w": numpy.zeros((2, 3)), "step": 0}
        cairn.load(state, sys.argv[1])
        part = cairn.open(sys.argv[1])["w"][1, ::2]
        print(state["w"].tolist(), state["step"], part, "torch" in sys.modules)
    """
    printed = run(python, "-c", program, tmp_path / "ckpt", PYTHONPATH=only_numpy)
    assert printed == "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] 3 [3. 5.] False\n"


def test_a_script_runs_with_cairn_installed_in_place_of_torchs(python: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import cairn, sys, torch.distributed.checkpoint as dcp\n"
        "print(cairn.__file__, dcp.save.__module__, sys.argv[1:])"
    )
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    printed = run(sys.executable, "-m", "cairn.torch", script, "--steps", 3, PYTHONPATH=str(site))
    assert printed.startswith(str(site))
    assert "cairn.torch" in printed
    assert "['--steps', '3']" in printed
