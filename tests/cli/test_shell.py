"""The command among pipes, terminals and shells."""

import os
import re
import shutil
import subprocess

from command import built, ok, torch
from programs import CLI, GOLDEN, ROOT
from terminal import at_terminal

SEES = ()  # none of the sources: tests/once.py

pytestmark = built


def test_a_reader_that_goes_away_ends_it_quietly(stored, tmp_path):
    torch.save({"w": torch.arange(500_000)}, tmp_path / "long.pt")
    command = f"'{CLI}' show '{tmp_path / 'long.pt'}' w --full | head -n 1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600)
    assert result.stdout.splitlines() == ["w  int64 [500000]", "0"]
    assert result.stderr == ""


def test_a_full_disk_is_reported():
    with open("/dev/full", "w") as full:
        result = subprocess.run([CLI, "ls", GOLDEN], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert "cannot write to standard output: No space left on device (io)" in result.stderr


def on_terminal(args, **environment):
    """What the command prints when its output is a terminal of 60 columns."""
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"} | environment
    return at_terminal("stdout", [CLI, *map(str, args)], columns=60, env=env).terminal


def test_colour_only_on_a_terminal_that_wants_it():
    assert "\x1b[1m" in on_terminal(["ls", GOLDEN])
    assert "\x1b" not in on_terminal(["ls", GOLDEN], NO_COLOR="1")
    assert "\x1b" not in on_terminal(["ls", GOLDEN], TERM="dumb")
    assert "\x1b" not in ok("ls", GOLDEN)


def test_values_wrap_at_the_width_of_the_terminal():
    lines = on_terminal(["show", GOLDEN, "model.r", "--no-stats"], NO_COLOR="1").splitlines()
    assert len(lines) == 3 and all(len(line) <= 60 for line in lines)


def test_help_has_examples_and_exit_codes():
    text = ok("--help")
    names = re.findall(r"^  ([a-z]+) {2,}\S", text[text.index("Subcommands:") :], re.MULTILINE)
    assert {"ls", "convert", "completion"} < set(names)
    for name in names:
        assert f"`cairn {name} " in (ROOT / "docs/cli.md").read_text()
        page = ok(name, "--help")
        assert f"Usage: cairn {name} " in page
        assert page.count(f"\n  cairn {name} ") + page.count(f"(cairn {name} ") >= 2
        assert "Exit codes: 0" in page
    assert "Exit codes: 0" in text


def test_a_scheme_that_nobody_knows_is_answered_as_the_page_says():
    asked = subprocess.run([CLI, "ls", "gopher://run/step-1"], capture_output=True, text=True)
    assert asked.returncode == 1
    assert f"\n{asked.stderr}```" in (ROOT / "docs/cli.md").read_text()


def test_version_says_what_is_in():
    version = (ROOT / "VERSION").read_text().strip()
    lines = ok("--version").splitlines()
    assert lines[0] == f"cairn {version}"
    assert {line.split()[0]: line.split()[1] for line in lines[1:]}.keys() == {"zlib", "isa-l", "libdeflate", "xxhash", "zstd", "liburing", "s3"}


def test_the_bash_completion_completes(tmp_path):
    script = tmp_path / "cairn.bash"
    script.write_text(ok("completion", "bash"))
    subprocess.run(["bash", "-n", script], check=True)

    def complete(*words):
        quoted = " ".join(f"'{w}'" for w in ("cairn", *words))
        code = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _cairn; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        return subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=tmp_path).stdout.split()

    assert complete("i") == ["info"]
    assert {"--tree", "--json", "--long", "--sort"} <= set(complete("ls", "--"))
    assert complete("ls", "--sort", "s") == ["size"]
    assert complete("completion", "z") == ["zsh"]
    assert complete("ls", "cai") == ["cairn.bash"]


def test_the_zsh_completion_parses(tmp_path):
    text = ok("completion", "zsh")
    assert text.startswith("#compdef cairn\n")
    assert "'--json[" in text and "'ls:List the tensors" in text
    if shutil.which("zsh"):
        (tmp_path / "_cairn").write_text(text)
        subprocess.run(["zsh", "-n", tmp_path / "_cairn"], check=True)
