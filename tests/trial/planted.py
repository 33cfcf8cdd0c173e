"""A bug, planted: the trials linked with sources to which a patch was applied.

Only what the patch changes is compiled again: the file, or the batch of files that it is compiled with (unity builds),
in place of the same object of the trials; or of the library, from which the trials take what has no points.
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
LIBRARY = "CMakeFiles/cairn"  # what its objects' names begin with there


class Planted:
    def __init__(self, patch: Path, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory.resolve()
        shutil.copytree(ROOT / "src", self._directory / "src")
        _run(["git", "apply", "--unsafe-paths", f"--directory={self._directory}", patch], cwd="/")
        changed = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE)
        entries = {str(_output(entry)): entry for entry in (_compiles(ROOT / name) for name in changed)}
        self._objects = {output: self._compile(entry, changed) for output, entry in entries.items()}

    def link(self, program: str) -> Path:
        """The folder in which `program` now is, with the bug in it."""
        commands = _run(["ninja", "-C", WORKPLACE, "-t", "commands", f"tests/{program}"]).splitlines()
        words = commands[-1]
        built = {**self._objects, f"-o tests/{program}": f"-o {self._directory / program}"}  # in this order
        for before, after in built.items():
            if before.startswith(LIBRARY):  # whoever comes before the library is taken
                words = words.replace(f" -o tests/{program} ", f" {after} -o tests/{program} ")
                continue
            assert f" {before} " in words, f"{before}: {words}"
            words = words.replace(f" {before} ", f" {after} ")
        _run(["sh", "-c", words], cwd=WORKPLACE)
        return self._directory

    def _compile(self, entry: dict[str, str], changed: list[str]) -> Path:
        """One object, with the changed sources."""
        source = Path(entry["file"])
        text = source.read_text() if source.is_relative_to(WORKPLACE) else f'#include "{source}"\n'
        for name in changed:
            text = text.replace(str(ROOT / name), str(self._directory / name))
        batch = self._directory / source.name
        batch.write_text(text)
        built = self._directory / Path(entry["output"]).name
        words = [*shlex.split(entry["command"]), "-O0"]  # the last one counts; harnesses take seconds, compilers more
        words[words.index("-o") + 1] = str(built)
        words[words.index("-c") + 1] = str(batch)
        _run(words, cwd=entry["directory"])
        return built


def _output(entry: dict[str, str]) -> Path:
    """As links name it: relative to where ninja works."""
    return Path(entry["directory"], entry["output"]).relative_to(WORKPLACE)


def _compiles(source: Path) -> dict[str, str]:
    """The entry of the compilation database by which the trials get a source."""
    entries = json.loads((WORKPLACE / "compile_commands.json").read_text())
    own = [entry for entry in entries if "/cairn_trial.dir/" in entry["output"]]
    for entry in [*own, *(entry for entry in entries if str(_output(entry)).startswith(LIBRARY))]:
        file = Path(entry["file"])
        if file == source or (file.is_relative_to(WORKPLACE) and str(source) in file.read_text()):
            return entry
    raise LookupError(f"{source} is no part of the trials")


def _run(words: list, cwd: object = None) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, text=True, capture_output=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout
