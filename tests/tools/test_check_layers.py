"""tools/check_layers.py finds each kind of violation, names its line, and lets good code pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

GOOD = {
    "include/cairn/error.h": "#include <string>\n",
    "include/cairn/tensor.h": '#include "cairn/error.h"\n',
    "include/cairn/checkpoint.h": '#include "cairn/tensor.h"\n',
    "src/base/bytes.h": '#include "cairn/error.h"\n',
    "src/tensor/box.cc": '#include "base/bytes.h"\n#include "cairn/tensor.h"\n',
    "src/state/path.h": '#include "base/bytes.h"\n',
    "src/format/zip.h": '#include "base/bytes.h"\n#include "state/path.h"\n',
    "src/plan/dedup.h": '#include "state/path.h"\n',
    "src/load/load.cc": '#include "format/zip.h"\n#include "plan/dedup.h"\n#include "cairn/checkpoint.h"\n',
    "cli/main.cc": '#include <vector>\n\n#include "cairn/checkpoint.h"\n#include "text.h"\n',
    "cli/text.h": "#include <string>\n",
    "examples/inspect.cc": "#include <cairn/checkpoint.h>\n",
    "src/storage/posix.cc": "#include <fcntl.h>\n#include <filesystem>\n",
    "src/load/load_test.cc": "#include <filesystem>\n",
    "python/src/bind.cc": "#include <filesystem>\n",
    "python/cairn/__init__.py": "from . import _engine\nfrom ._plain import save\n",
    "python/cairn/_plain.py": "import os\n\nfrom . import _engine\nfrom ._errors import Error\n",
    "python/cairn/_errors.py": "",
    "python/cairn/torch/_saving.py": "import torch\n\nfrom .. import _engine\nfrom . import filesystem\n",
    "python/cairn/torch/filesystem.py": "from .._errors import Error\n",
    "tests/any_test.cc": '#include "format/zip.h"\n',
}


def check(root: Path, files: dict[str, str]) -> tuple[int, list[str]]:
    """Exit status and lines of the checker on a tree of these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "check_layers.py"), str(root)], text=True, capture_output=True
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_code_that_keeps_the_layers_passes(tmp_path: Path) -> None:
    assert check(tmp_path, GOOD) == (0, [])


def test_this_project_keeps_the_layers() -> None:
    assert check(ROOT, {}) == (0, [])


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        pytest.param("src/base/bad.h", '\n#include "format/zip.h"\n', 2, id="upward"),
        pytest.param("src/format/bad.cc", '#include "plan/dedup.h"\n', 1, id="sibling"),
        pytest.param("src/base/bad.cc", '#include "../format/zip.h"\n', 1, id="upward by a relative path"),
        pytest.param("src/base/bad.cc", '#include "save/not_there.h"\n', 1, id="upward to a missing file"),
        pytest.param("src/base/bad.cc", '#include "cairn/checkpoint.h"\n', 1, id="public header of a higher layer"),
        pytest.param("src/base/bad_test.cc", '#include "format/zip.h"\n', 1, id="unit test above its layer"),
        pytest.param("src/misc/bad.cc", '#include "base/bytes.h"\n', 1, id="folder that is no layer"),
        pytest.param("include/cairn/bad.h", "// x\n// y\n#include \"base/bytes.h\"\n", 3, id="public to private"),
        pytest.param("cli/bad.cc", '#include "base/bytes.h"\n', 1, id="command to private"),
        pytest.param("cli/bad.cc", "  #  include <format/zip.h>\n", 1, id="odd spacing and brackets"),
        pytest.param("python/src/bad.cc", '#include "format/zip.h"\n', 1, id="Python module to private"),
        pytest.param("src/save/bad.cc", "\n#include <fcntl.h>\n", 2, id="files above storage"),
        pytest.param("cli/bad.cc", "#include <fstream>\n", 1, id="files in the command"),
        pytest.param("src/save/bad.cc", "#include <unistd.h>\nint f() { return ::unlink(name); }\n", 2, id="unistd.h"),
        pytest.param("python/src/bad.cc", "#include <sys/stat.h>\n", 1, id="files in the Python module"),
        pytest.param("python/cairn/_errors.py", "\nfrom . import _plain\n", 2, id="Python upward"),
        pytest.param("python/cairn/torch/filesystem.py", "from ._saving import x\n", 1, id="Python upward by name"),
        pytest.param("python/cairn/_plain.py", "import os\nimport torch\n", 2, id="torch outside cairn.torch"),
        pytest.param("python/cairn/_plain.py", "\nopen('x')\n", 2, id="Python opens a file"),
        pytest.param("python/cairn/torch/filesystem.py", "import os\nos.replace('a', 'b')\n", 2, id="Python renames"),
        pytest.param("python/cairn/_errors.py", "def f(p):\n    return p.read_bytes()\n", 2, id="Python reads by Path"),
        pytest.param("python/cairn/_errors.py", "import os\nos.path.isfile('a')\n", 2, id="Python asks for a file"),
        pytest.param("python/cairn/bad.py", "", 1, id="Python module without a place"),
        pytest.param("examples/bad.cc", '#include "../cli/text.h"\n', 1, id="example to the command"),
    ],
)
def test_a_planted_violation_is_found_at_its_line(tmp_path: Path, file: str, text: str, line: int) -> None:
    status, lines = check(tmp_path, {**GOOD, file: text})
    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith(f"{file}:{line}: ")


def test_a_cycle_is_found_and_spelled_out(tmp_path: Path) -> None:
    circle = {
        "src/base/a.h": '#include "base/b.h"\n',
        "src/base/b.h": '#pragma once\n#include "base/c.h"\n',
        "src/base/c.h": '#include "base/a.h"\n',
    }
    status, lines = check(tmp_path, {**GOOD, **circle})
    assert status == 1
    assert lines == [
        "src/base/c.h:1: include cycle: src/base/a.h -> src/base/b.h -> src/base/c.h -> src/base/a.h"
    ]


def test_public_headers_may_not_run_in_a_circle(tmp_path: Path) -> None:
    status, lines = check(tmp_path, {**GOOD, "include/cairn/error.h": '#include "cairn/tensor.h"\n'})
    assert status == 1
    assert len(lines) == 1
    assert "include cycle" in lines[0]
