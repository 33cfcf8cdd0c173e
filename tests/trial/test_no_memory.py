"""Memory that runs out: the process may have only so much. test_allocations.py fails them one by one."""

from __future__ import annotations

import json
import resource
from pathlib import Path

from programs import CLI, PROBE, command, plain_build_only
from saved_specs import holds, save, spec_of

pytestmark = plain_build_only("it has an allocator of its own")


def within(mib: int, *args: object):
    """Runs a command that may have so much address space."""
    limit = mib << 20
    return command(*args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))


def test_the_command_says_so_when_the_address_space_is_too_small(tmp_path: Path) -> None:
    run, spec = tmp_path / "run", spec_of(1, 8)
    assert save(run, spec).returncode == 0
    least = next(mib for mib in range(4, 512, 2) if within(mib, CLI, "--version").returncode == 0)
    wanted = {"ls": [run], "verify": [run], "show": [run, "model.w"], "convert": [run, tmp_path / "made.pt"]}
    ended: dict[str, list[int]] = {}
    for name, args in wanted.items():
        for mib in [*range(least, least + 64, 4), *range(least + 64, least + 512, 64)]:
            done = within(mib, CLI, name, *args)
            assert done.returncode in (0, 1), f"{name} within {mib} MiB: {done.returncode} {done.stderr}"
            if done.returncode == 1:
                assert done.stderr.startswith("cairn: ") and done.stderr.count("\n") == 1, done.stderr
                assert "internal" not in done.stderr and "corrupt" not in done.stderr, done.stderr
                assert not (tmp_path / "made.pt").exists(), "a conversion that failed left its destination"
            (tmp_path / "made.pt").unlink(missing_ok=True)
            ended.setdefault(name, []).append(done.returncode)
    print(json.dumps({"least_mib": least, "ended": ended}))
    assert all(codes[-1] == 0 for codes in ended.values()), ended
    assert holds(run, spec)


def test_a_save_says_so_when_the_address_space_is_too_small(tmp_path: Path) -> None:
    run, old, new = tmp_path / "run", spec_of(1, 8), spec_of(2, 8)
    ended = []
    for mib in [*range(20, 100, 4), *range(100, 500, 100)]:
        assert save(run, old).returncode == 0
        done = within(mib, PROBE, "save", run, new)
        assert done.returncode in (0, 1, 127), f"within {mib} MiB: {done.returncode} {done.stderr}"
        assert holds(run, old if done.returncode else new), f"within {mib} MiB: {done.stderr}"
        ended.append(done.returncode)
    print(ended)
    assert 0 in ended and 1 in ended, ended
