#!/usr/bin/env python3
"""Runs the benchmarks, prints their rows as one table and writes them to build/bench.json.

A part is a program in build/release/bench/ or a script in bench/parts/. It prints one JSON object per
line, a row:

  name    "ls.100k_wall": the part's own prefix first
  cairn   what we measured, in `unit`
  stock   the same by stock PyTorch in the same run, where there is such a thing
  limit   the same by the machine alone (copying as many bytes with no format), where that makes sense
  ratio   how many times better than stock or limit, when that is what the row is about
  target  what `ratio`, or else `cairn`, should reach; `better` ("lower" or "higher") says in which
          direction, by default higher for a ratio and lower for all else
  ok      whether it does; filled in here
  note    a few words, optional

Other lines a part prints go to the screen. CAIRN_BENCH_ONLY holds the wanted prefix, so that a part can
leave out work nobody asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
COLUMNS = ("name", "cairn", "unit", "stock", "limit", "ratio", "target", "ok", "note")

Row = dict[str, Any]


def parts() -> list[list[str]]:
    """The command line of every part."""
    programs = [[str(path)] for path in sorted((BUILD / "bench").glob("*")) if _is_program(path)]
    scripts = [[sys.executable, str(path)] for path in sorted((ROOT / "bench" / "parts").glob("*.py"))]
    return programs + scripts


def rows_of(command: list[str], only: str) -> tuple[list[Row], bool]:
    """The rows one part prints, and whether it ended well."""
    env = {**os.environ, "CAIRN_BENCH_ONLY": only}
    rows = []
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                print(line, end="", flush=True)
                continue
            row = judged(json.loads(line))
            if row["name"].startswith(only):
                rows.append(row)
    return rows, process.returncode == 0


def judged(row: Row) -> Row:
    """The row with `ok`, if it has a target."""
    if row.get("target") is None:
        return row
    value = row.get("ratio", row["cairn"])
    better = row.get("better", "higher" if "ratio" in row else "lower")
    return {**row, "better": better, "ok": value <= row["target"] if better == "lower" else value >= row["target"]}


def table(rows: list[Row]) -> str:
    """The rows as aligned text; columns that nobody uses are left out."""
    used = [column for column in COLUMNS if any(row.get(column) is not None for row in rows)]
    lines = [used] + [[_cell(column, row) for column in used] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(used))]
    text = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in ("name", "unit", "ok", "note") else cell.rjust(width)
            for column, cell, width in zip(used, line, widths)
        ]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)


def _cell(column: str, row: Row) -> str:
    value = row.get(column)
    if value is None:
        return ""
    if column == "ok":
        return "ok" if value else "MISSED"
    if column == "target":
        better = row.get("better", "lower")
        return f"{'<=' if better == 'lower' else '>='} {value:g}"
    if column == "ratio":
        return f"{value:.3g}x"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK) and path.suffix == ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only rows whose name starts with this")
    args = parser.parse_args()

    rows: list[Row] = []
    failed = []
    for command in parts():
        new_rows, ended_well = rows_of(command, args.only)
        rows += new_rows
        if not ended_well:
            failed.append(command[-1])
    print(table(rows) if rows else f"no row starts with '{args.only}'")
    (ROOT / "build" / "bench.json").write_text(json.dumps(rows, indent=1) + "\n")
    for command in failed:
        print(f"bench: {command} failed", file=sys.stderr)
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
