#!/usr/bin/env bash
# build.sh PRESET JOBS [TARGET...]: configures build/PRESET once and builds it, or parts of it; ninja reconfigures
# by itself later.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1 jobs=$2 folder=build/$1
shift 2

if [ ! -f "$folder/build.ninja" ] || [ CMakePresets.json -nt "$folder/build.ninja" ]; then
  mkdir -p "$folder"
  if ! cmake --preset "$preset" >"$folder/configure.log" 2>&1; then
    cat "$folder/configure.log" >&2
    exit 1
  fi
fi
echo "build: $folder"
ninja -C "$folder" -j "$jobs" --quiet "$@"
[ "$SECONDS" -lt 5 ] || echo "build: done in $SECONDS s"
