#!/usr/bin/env bash
# Prints the C++ files of the project, one per line.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files --cached --others --exclude-standard '*.cc' '*.h' | while read -r file; do
  [ ! -f "$file" ] || printf '%s\n' "$file"
done
