#!/usr/bin/env bash
# lint.sh JOBS: every check that needs no test run. All of them are run, then the worst one decides.
# lint.sh quick: those that take seconds.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-2} status=0

check() {
  local name=$1
  shift
  if "$@"; then echo "lint: $name: ok"; else echo "lint: $name: FAILED"; status=1; fi
}
format() { tools/sources.sh | xargs clang-format-14 --dry-run -Werror; }

# Words that are meant: misspelled names in tests of suggestions, names of the code.
spelling() {
  git ls-files -z | grep -zvE '^(fuzz/corpus|tests/golden)/|\.svg$' |
    xargs -0 .venv/bin/codespell --ignore-words-list wieght,modle,lod,abd,kno,kinf,ende
}

# clang-tidy wants the command of each file by itself.
tidy() {
  cmake --preset lint >/dev/null && python3 tools/tidy.py --jobs "$jobs" --build build/lint
}

check layers python3 tools/check_layers.py
check paths python3 tools/check_paths.py
check format format
check ruff .venv/bin/ruff check --quiet python tools
check ruff-format .venv/bin/ruff format --check --quiet python tools
check mypy .venv/bin/mypy --no-error-summary --cache-dir build/mypy python/cairn tools
check spelling spelling
[ "$jobs" = quick ] || check clang-tidy tidy
exit $status
