#!/usr/bin/env python3
"""Runs PyTorch's own tests of torch.distributed.checkpoint on stock PyTorch and on cairn, and compares.

    tests/conformance/run.py /path/to/pytorch                 # a checkout at the 2.13 cut
    tests/conformance/run.py /path/to/pytorch --only test_planner
    tests/conformance/run.py /path/to/pytorch --subclasses    # every planner, writer and reader a subclass

Fails when a test passes on stock and not on cairn, and is not in excused.json with a reason. A result on stock
is kept in build/conformance/ and taken again when the test file has not changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "build" / "conformance"
SUITE = Path("test/distributed/checkpoint")
# Tests that are marked for GPUs and run on gloo as well; the others need FSDP1 or CUDA itself.
OPENED = {
    "e2e/test_e2e_save_and_load.py": "different_ordered|overwrite",
    "test_consolidate_hf_safetensors.py": ".",
    "test_dtensor_checkpoint.py": ".",
    "test_dtensor_resharding.py": ".",
    "test_fsspec.py": "overwrite",
    "test_hf_safetensor_e2e.py": ".",
    "test_save_load_api.py": "same_keys",
    "test_tp_checkpoint.py": ".",
    "test_utils.py": ".",
}
# PyTorch is about to remove these; they share nothing with DCP's format.
LEFT_OUT = "_experimental"
PATIENCE = 9000  # seconds for one file: ten times what the longest takes alone

Outcome = dict[str, str]  # test -> "passed", "failed" or "skipped"


def run_file(checkout: Path, name: str, side: str) -> Outcome:
    """What became of every test of one file."""
    report = WORK / f"{side}-{name.replace('/', '-')}.xml"
    report.unlink(missing_ok=True)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE / "hook"), str(ROOT / "build/release/python")]),
        "CAIRN_CONFORMANCE": side,
        "CAIRN_OPEN_GATES": OPENED.get(name, ""),
        "CAIRN_DEVICE_COUNT": "4" if name == "test_utils.py" else "0",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["-o", "addopts=", f"--rootdir={checkout / 'test'}", f"--junitxml={report}"]
    with open(report.with_suffix(".log"), "w", encoding="utf-8") as log:
        try:
            subprocess.run([*command, str(checkout / SUITE / name)], env=env, cwd=checkout / SUITE, stdout=log,
                           stderr=subprocess.STDOUT, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            return {"(the file)": "failed"}
    return outcomes(report) if report.exists() else {"(the file)": "failed"}


def outcomes(report: Path) -> Outcome:
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').rsplit('.', 1)[-1]}.{case.get('name')}"
        kinds = {child.tag for child in case}
        found[name] = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
    return found


def on_stock(checkout: Path, name: str) -> Outcome:
    text = (checkout / SUITE / name).read_bytes() + (HERE / "hook/sitecustomize.py").read_bytes()
    kept = WORK / f"stock-{hashlib.sha256(text).hexdigest()[:16]}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    found = run_file(checkout, name, "stock")
    if "(the file)" not in found:  # it ran to its end
        kept.write_text(json.dumps(found))
    return found


def count(results: Outcome) -> str:
    values = list(results.values())
    return " / ".join(str(values.count(kind)) for kind in ("passed", "failed", "skipped"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of PyTorch; only test/distributed/checkpoint is used")
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--subclasses", action="store_true",
                        help="with do-nothing subclasses of cairn's planners, writers and readers (hook/subclasses.py)")
    parser.add_argument("--stock-only", action="store_true", help="do not run cairn")
    arguments = parser.parse_args()
    checkout = arguments.checkout.resolve()
    if not (checkout / SUITE).is_dir():
        parser.error(f"{checkout} has no {SUITE}")
    WORK.mkdir(parents=True, exist_ok=True)
    excused = json.loads((HERE / "excused.json").read_text())

    side = "subclasses" if arguments.subclasses else "cairn"
    regressions, passed, reproduced = [], 0, 0
    print(f"{'file':45} {'stock':>14} {side:>14}   (passed / failed / skipped)")
    for path in sorted((checkout / SUITE).rglob("test_*.py")):
        name = str(path.relative_to(checkout / SUITE))
        if arguments.only not in name or name.startswith(LEFT_OUT):
            continue
        stock = on_stock(checkout, name)
        ours = {} if arguments.stock_only else run_file(checkout, name, side)
        print(f"{name:45} {count(stock):>14} {count(ours):>14}", flush=True)
        for test, outcome in stock.items():
            if outcome != "passed" or arguments.stock_only:
                continue
            passed += 1
            if ours.get(test) == "passed":
                reproduced += 1
            elif f"{name}::{test}" in excused:
                print(f"  excused: {test}: {excused[f'{name}::{test}']}")
            else:
                regressions.append(f"{name}::{test}")
    for test in regressions:
        print(f"FAILED {test}")
    print(f"{reproduced} of the {passed} tests that pass on stock pass on cairn; {len(regressions)} do not")
    print(f"{reproduced} passed, {len(regressions)} failed")
    return 1 if regressions else 0


if __name__ == "__main__":
    sys.exit(main())
