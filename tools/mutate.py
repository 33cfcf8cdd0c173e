#!/usr/bin/env python3
"""Plants small mistakes in the code that must not have any, and sees which of them the unit tests notice.

    tools/mutate.py [--count 50] [--seed 1] [--only PART] [--from FILE] [--build build/debug] [--list]

A mutant is one change in one place of a parser, of the messages between ranks or of publishing a checkpoint: a
condition negated, a call left out, a number one larger or smaller, a comparison exchanged. Sources are not touched:
the changed file is compiled by itself and linked in front of the library into the test program of its layer, which
then runs the tests that have to do with it. A line a mutant: killed, survived (with what was changed), or not built
(it does not compile; such a one counts for nothing). The last line is the share that was killed, as JSON. Places where
a change is none that anybody could see are left out: LEFT_OUT names each with the reason.

--from takes mutants from a file of such lines (those of an earlier run, say) instead of drawing them. Lines must be
where they were; one that means several places of its line stands for all of them.

Needs the debug preset: cmake --preset debug && ninja -C build/debug format_test plan_test storage_test engine_test.
Another one (asan, as in `make test`) goes with --build.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 120  # one test program; a mutant that takes longer hangs, and is killed

# What is mutated: files, and who tries them: (program, tests), one after the other until one fails.
PICKLE = [("format_test", "Pickle*:Disassemble*:DcpMetadata*:TorchFile*:TorchLeaves*:WriteTorchFile*:StorageKeys*")]
ZIP = [("format_test", "Zip*:TorchFile*:KnownArchives*:TensorBlob*:WriteTorchFile*")]
TARGETS: list[tuple[str, list[tuple[str, str]]]] = [
    ("src/save/publish.cc", [("storage_test", "*"), ("engine_test", "Save.*:Faults.*:Gc.*:Verify.*:RankLocal.*")]),
    ("src/plan/wire_*.cc", [("plan_test", "Wire*:PlanCache*")]),
    ("src/format/zip_*.cc", ZIP),
    ("src/format/pickle_*.cc", PICKLE),
    ("src/format/manifest.cc", [("format_test", "Manifest*:ChecksumStream*")]),
    ("src/format/safetensors.cc", [("format_test", "Safetensors*:RelativePath*")]),
]

# Where a change shows in nothing that is promised: file, source text (there once), the part of it whose changes are
# left out, what stands there instead (None: whatever), why.
SAME_BYTES = "size of a buffer or of what is read at once: the bytes are the same"
MEMORY = "when memory is asked for or given back: the bytes are the same"
CACHE = "how much is remembered to save time: the plans are the same"
LEFT_OUT: list[tuple[str, str, str, str | None, str]] = [
    ("src/format/zip_reader.cc", "kDirectoryPiece = 64 << 10", "64 << 10", None, SAME_BYTES),
    ("src/format/zip_reader.cc", "kTailPiece = 4 << 10", "4 << 10", None, SAME_BYTES),
    ("src/format/zip_reader.cc", "kHeaderPiece = 4 << 10", "4 << 10", None, SAME_BYTES),
    ("src/format/zip_record.cc", "kPiece = 1 << 20", "1 << 20", None, SAME_BYTES),
    ("src/format/zip_record.cc", "out[16 << 10]", "16 << 10", None, SAME_BYTES),
    ("src/format/pickle_input.cc", "if (size_ <= kPiece) {", "size_ <= kPiece", None, MEMORY),
    ("src/format/pickle_input.cc", "if (size_ <= kKeepWhole) madvise", "size_ <= kKeepWhole", None, MEMORY),
    (
        "src/format/pickle_input.cc",
        "size_ > kKeepWhole && kept >= forgotten_ + 2 * kPiece",
        "size_ > kKeepWhole && kept >= forgotten_ + 2 * kPiece",
        None,
        MEMORY,
    ),
    ("src/format/pickle_machine.cc", "new_words(1), big_endian_double", "1", "2", "a word that nobody uses"),
    ("src/format/pickle_machine.cc", "*new_words(1) = top().bits", "1", "2", "a word that nobody uses"),
    (
        "src/format/pickle_machine.cc",
        "q < input_.end() && q < op_at_",
        " < ",
        " <= ",
        "zeros lie behind the end (Input's slack), and a zero is no line break",
    ),
    (
        "src/format/pickle_machine.cc",
        "if (q >= input_.end() || *q",
        " >= ",
        " > ",
        "zeros lie behind the end (Input's slack), and a zero is no line break",
    ),
    ("src/format/pickle_memo.cc", "kObjects = 64", "64", None, "how many objects are read again at once"),
    (
        "src/format/pickle_memo.cc",
        "{first_number, begin, end, 1, false}",
        "1",
        None,
        "how many objects are read again at once",
    ),
    (
        "src/format/manifest.cc",
        "section.reserve(kFileBytes + file.name.size() + blocks * (strong_ ? 20 : 4)",
        "20",
        None,
        MEMORY,
    ),
    (
        "src/format/zip_writer.cc",
        "2 * kMostAlignment",
        "2",
        None,
        "how far below 2^64 a size is refused: there is no such file",
    ),
    (
        "src/format/pickle_nodes.cc",
        "value >= -kInlineIntMax && value <= kInlineIntMax",
        " >= ",
        " > ",
        "a number is the same inside a Ref and beside it",
    ),
    (
        "src/format/pickle_nodes.cc",
        "value >= -kInlineIntMax && value <= kInlineIntMax",
        " <= ",
        " < ",
        "a number is the same inside a Ref and beside it",
    ),
    ("src/format/pickle_value.cc", "i + 1 < utf8.size()", "1", "0", "strings are UTF-8: a byte follows 0xC2 and 0xC3"),
    ("src/format/pickle_writer.cc", "} else if (v >= 0 && v < 65536)", "0", "1", "0 was written before"),
    ("src/format/pickle_writer.cc", "int bytes = 5;", "5", "4", "what fits in four bytes was written before"),
    ("src/format/pickle_writer.cc", "while (bytes < 8 &&", "8", "9", "every number fits in eight bytes"),
    ("src/format/pickle_writer.cc", "while (bytes < 8 &&", " < ", " <= ", "every number fits in eight bytes"),
    ("src/format/pickle_writer.cc", "2 * numbers_.size()", "2", None, "how a table grows"),
    ("src/plan/wire_decode.cc", "kMostRemembered = 1024", "1024", None, CACHE),
    ("src/plan/wire_decode.cc", "names_.size() > kMostRemembered", "names_.size() > kMostRemembered", None, CACHE),
    (
        "src/plan/wire_decode.cc",
        "problem != std::errc() || end",
        " || ",
        " && ",
        "a number that was not read whole is never spelled like its text, which is asked as well",
    ),
    ("src/plan/wire_decode.cc", "missing.size() < 100", "100", None, "how many ranks a message names"),
    ("src/plan/wire_decode.cc", "missing.size() < 100", " < ", None, "how many ranks a message names"),
    ("src/plan/wire_encode.cc", "if (size >= std::numeric_limits", " >= ", " > ", "only a plan of 4 GiB shows it"),
    ("src/plan/wire_load.cc", "std::uint32_t type = 0;", "0", None, "set before it is read, always"),
    ("src/plan/wire_results.cc", "std::uint32_t name = 0;", "0", None, "set before it is read, always"),
]

PAIRS = [(" < ", " <= "), (" > ", " >= "), (" == ", " != "), (" && ", " || ")]
SWAPS = {**dict(PAIRS), **{second: first for first, second in PAIRS}}


@dataclass(frozen=True)
class Mutant:
    file: Path
    begin: int
    end: int
    text: str
    tests: tuple[tuple[str, str], ...]

    def line(self) -> int:
        return self.file.read_text().count("\n", 0, self.begin) + 1

    def source(self) -> str:
        text = self.file.read_text()
        return text[: self.begin] + self.text + text[self.end :]

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.file.read_text()[self.begin : self.end], self.text))
        return f"{self.file.relative_to(ROOT)}:{self.line()}: {old}  ->  {new or 'nothing'}"


def masked(text: str) -> str:
    """The same text with comments, strings, directives and static_asserts blanked, so that places stay."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "\0", found[0])

    pattern = r'//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^#[^\n]*|static_assert\([^;]*;|^template[^\n]*'
    return re.sub(pattern, blank, text, flags=re.M)


def closing(text: str, at: int) -> int:
    """The place of the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return at


def places(text: str) -> Iterator[tuple[int, int, str]]:
    """Every change: from, to, what stands there instead."""
    code = masked(text)
    for found in re.finditer(r"\bif (?:constexpr )?(?=\()", code):
        begin, end = found.end() + 1, closing(code, found.end())
        if ";" not in code[begin:end]:  # no declaration inside
            yield begin, end, f"!({text[begin:end]})"
    for found in re.finditer(r"^ +(?:[a-z_]\w*(?:\.|->|::))*[a-z_]\w*(?=\()", code, re.M):
        end = closing(code, found.end()) + 1
        word = found[0].strip()
        if code[end : end + 1] == ";" and word not in ("if", "while", "for", "switch", "return", "throw"):
            yield found.start() + len(found[0]) - len(found[0].lstrip()), end, ""
    for found in re.finditer(r"(?<![\w.])(\d+)(?=U?L*\b(?!\.))", code):
        for other in (int(found[1]) + 1, int(found[1]) - 1):
            if other >= 0:
                yield found.start(1), found.end(1), str(other)
    for old, new in SWAPS.items():
        for found in re.finditer(re.escape(old), code):
            yield found.start(), found.end(), new


def left_out(file: Path, text: str) -> list[tuple[int, int, str | None]]:
    """From, to and the change of every place of this file that LEFT_OUT names. Each row must find its source once."""
    found = []
    for name, source, part, instead, _ in LEFT_OUT:
        if name != str(file.relative_to(ROOT)):
            continue
        if text.count(source) != 1:
            sys.exit(f"LEFT_OUT: {name} has '{source}' {text.count(source)} times, not once")
        begin = text.index(source) + source.index(part)
        found.append((begin, begin + len(part), instead))
    return found


def mutants(only: str) -> list[Mutant]:
    found = []
    for pattern, tests in TARGETS:
        for file in sorted(ROOT.glob(pattern)):
            if file.name.endswith("_test.cc") or only not in str(file):
                continue
            text = file.read_text()
            skipped = left_out(file, text)
            for begin, end, new in places(text):
                if not any(b <= begin and end <= e and instead in (None, new) for b, e, instead in skipped):
                    found.append(Mutant(file, begin, end, new, tuple(tests)))
    return found


def named(found: list[Mutant], lines: list[str]) -> list[Mutant]:
    """Those that the lines name; says which lines name none (because they are left out, or the source has changed)."""
    wanted = {" ".join(re.sub(r"^(killed|survived|not built) ", "", line).split()) for line in lines if ": " in line}
    chosen = [mutant for mutant in found if " ".join(str(mutant).split()) in wanted]
    for line in sorted(wanted - {" ".join(str(mutant).split()) for mutant in chosen}):
        print(f"none       {line}", flush=True)
    return chosen


class Build:
    """Compiles one changed file and links it in front of the library."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = json.loads((folder / "compile_commands.json").read_text())
        self.commands = {row["file"]: row["command"] for row in rows}
        self.links: dict[str, str] = {}

    def compiles(self, mutant: Mutant, scratch: Path) -> bool:
        source, made = scratch / mutant.file.name, scratch / "mutant.o"
        source.write_text(mutant.source())
        words = [w for w in shlex.split(self.commands[str(mutant.file)]) if Path(w).name != "ccache" and w != "-Werror"]
        words[words.index("-o") + 1] = str(made)
        words[words.index(str(mutant.file))] = str(source)
        return subprocess.run([*words, "-w"], cwd=self.folder, capture_output=True).returncode == 0

    def link(self, program: str, scratch: Path) -> Path:
        if program not in self.links:
            said = subprocess.run(
                ["ninja", "-t", "commands", program], cwd=self.folder, text=True, stdout=subprocess.PIPE, check=True
            )
            self.links[program] = next(c for c in reversed(said.stdout.splitlines()) if f"-o tests/{program} " in c)
        # The first part of "compile && tell ctest about it".
        words = shlex.split(self.links[program].split(" && ")[1])
        at = words.index("-o")
        words[at + 1] = str(scratch / program)
        words.insert(at, str(scratch / "mutant.o"))
        subprocess.run(words, cwd=self.folder, check=True, capture_output=True)
        return scratch / program


def passes(program: Path, tests: str) -> bool:
    command: list[str | Path] = [program, f"--gtest_filter={tests}", "--gtest_brief=1", "--gtest_fail_fast"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def verdict(build: Build, mutant: Mutant) -> str:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if not build.compiles(mutant, scratch):
            return "not built"
        survived = all(passes(build.link(program, scratch), tests) for program, tests in mutant.tests)
        return "survived" if survived else "killed"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=50)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", default="", help="part of a file's path")
    options.add_argument("--from", type=Path, dest="lines", help="a file of mutants, as this program prints them")
    options.add_argument("--build", type=Path, default=ROOT / "build/debug")
    options.add_argument("--list", action="store_true", help="print them, try none")
    given = options.parse_args()
    found = mutants(given.only)
    if given.lines:
        chosen = named(found, given.lines.read_text().splitlines())
    else:
        chosen = random.Random(given.seed).sample(found, min(given.count, len(found)))
    if given.list:
        print(*chosen, sep="\n")
        return 0
    build = Build(given.build.resolve())
    for program, tests in sorted({test for mutant in chosen for test in mutant.tests}):
        if not passes(build.folder / "tests" / program, tests):
            sys.exit(f"{program} --gtest_filter={tests} fails without a mutant")
    counts = {"killed": 0, "survived": 0, "not built": 0}
    for mutant in chosen:
        outcome = verdict(build, mutant)
        counts[outcome] += 1
        print(f"{outcome:9}  {mutant}", flush=True)
    tried = counts["killed"] + counts["survived"]
    share = round(counts["killed"] / max(tried, 1), 3)
    print(json.dumps({"seed": given.seed, "places": len(found), **counts, "share_killed": share}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
