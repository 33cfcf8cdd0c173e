"""A bug, planted: the trials linked with a source to which a patch was applied.

Only what the patch changes is compiled again, and linked before everything else: of two definitions the linker is told to
take the first.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from programs import ROOT, TRIALS

WORKPLACE = TRIALS.parent  # where ninja works


class Planted:
    def __init__(self, patch: Path, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory.resolve()
        shutil.copytree(ROOT / "src", self._directory / "src")
        _run(["git", "apply", "--unsafe-paths", f"--directory={self._directory}", patch], cwd="/")
        changed = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE)
        self._objects = [self._compile(name) for name in changed]

    def link(self, program: str) -> Path:
        """The folder in which `program` now is, with the bug in it."""
        commands = _run(["ninja", "-C", WORKPLACE, "-t", "commands", f"tests/{program}"]).splitlines()
        objects = " ".join(shlex.quote(str(path)) for path in self._objects)
        line, links = re.subn(r" (\S+\.o) ", rf" -Wl,-z,muldefs {objects} \1 ", commands[-1], count=1)
        line, named = re.subn(rf" -o tests/{program} ", f" -o {shlex.quote(str(self._directory / program))} ", line)
        assert (links, named) == (1, 1), line
        _run(["sh", "-c", line], cwd=WORKPLACE)
        return self._directory

    def _compile(self, name: str) -> Path:
        entry = _compiles(ROOT / name)
        built = (self._directory / name).with_suffix(".o")
        words = shlex.split(entry["command"])
        words[words.index("-o") + 1] = str(built)
        words[words.index("-c") + 1] = str(self._directory / name)
        _run(words, cwd=entry["directory"])
        return built


def _compiles(source: Path) -> dict[str, str]:
    """The entry of the compilation database by which the trials get a source: their own, or the library's."""
    entries = json.loads((WORKPLACE / "compile_commands.json").read_text())
    for entry in sorted(entries, key=lambda entry: "/cairn_trial.dir/" not in entry["output"]):
        file = Path(entry["file"])
        if file == source or (file.is_relative_to(WORKPLACE) and str(source) in file.read_text()):
            return entry
    raise LookupError(f"{source} is no part of the trials")


def _run(words: list, cwd: object = None) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, text=True, capture_output=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout
