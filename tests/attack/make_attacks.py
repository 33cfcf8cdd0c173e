"""Writes the attack corpus: named hostile files, and harmless twins from the other side of each limit.

    python make_attacks.py DIRECTORY

The same bytes every time, standard library only. Each file is a row of attacks.tsv: name, kind, expected
verdict ("ok" or error codes separated by "|", where two are equally right), limits to run it under, reason.
A kind says which reader the file is for: pickle, metadata, torch, blob (one item of a .distcp file),
deflate and strict-crc (zip readers with that option), safetensors, index, manifest.
"""

import pathlib
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import attacks_manifest
import attacks_metadata
import attacks_pickle
import attacks_safetensors
import attacks_zip


class Attack(NamedTuple):
    name: str
    kind: str
    verdict: str
    reason: str
    data: bytes
    limits: str = ""


def attacks():
    modules = (attacks_pickle, attacks_metadata, attacks_zip, attacks_safetensors, attacks_manifest)
    rows = [Attack(*case) for module in modules for case in module.cases()]
    names = [row.name for row in rows]
    assert len(set(names)) == len(names), sorted(n for n in set(names) if names.count(n) > 1)
    return rows


def write(directory):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    rows = attacks()
    for row in rows:
        (directory / row.name).write_bytes(row.data)
    table = ["\t".join((row.name, row.kind, row.verdict, row.limits, row.reason)) for row in rows]
    (directory / "attacks.tsv").write_text("\n".join(table) + "\n")
    return rows


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    written = write(sys.argv[1])
    print(f"{len(written)} files, {sum(row.verdict == 'ok' for row in written)} of them harmless")
