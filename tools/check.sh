#!/usr/bin/env bash
# check.sh JOBS [ROOM...]: the unit tests of these rooms (src/ROOM, or cli), without sanitizers: for the minute after an
# edit. Without a room: of those that differ from the last commit, or from the one before it when nothing differs.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$1
shift

rooms_of() { sed -nE 's#^src/([a-z]+)/.*#\1#p; s#^(cli)/.*#\1#p' | sort -u; }
rooms=("$@")
[ "${#rooms[@]}" -gt 0 ] || mapfile -t rooms < <({ git diff --name-only HEAD; git ls-files -o --exclude-standard; } | rooms_of)
[ "${#rooms[@]}" -gt 0 ] || mapfile -t rooms < <(git diff --name-only HEAD~1 | rooms_of)

programs=()
for room in "${rooms[@]}"; do
  if compgen -G "src/$room/*_test.cc" >/dev/null || { [ "$room" = cli ] && compgen -G 'cli/*_test.cc' >/dev/null; }; then
    programs+=("${room}_test")
  fi
done
if [ "${#programs[@]}" -eq 0 ]; then
  echo "check: no room with unit tests was edited"
  exit 0
fi
echo "check: ${programs[*]}"
tools/build.sh check "$jobs" "${programs[@]}"
for program in "${programs[@]}"; do build/check/tests/"$program" --gtest_brief=1; done
