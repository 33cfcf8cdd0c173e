#!/usr/bin/env bash
# Runs a test program: once.sh PROGRAM [ARGUMENT...]. Where CAIRN_ONCE is set, exits with 77 instead (ctest says
# "Skipped") when this very program has passed before, on this very tree. once.py says the same of Python tests.
set -uo pipefail
tree=$(git ls-files -co --exclude-standard -z 2>/dev/null | xargs -0r sha256sum)
key=$({ cat "$1"; echo "$tree"; } | sha256sum)
if [[ -n ${CAIRN_ONCE:-} && -n $tree && $(cat "$1.passed" 2>/dev/null) == "$key" ]]; then
  echo "has passed before"
  exit 77
fi
"$@" || exit
echo "$key" >"$1.passed"
