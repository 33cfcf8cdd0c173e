#!/bin/sh
# Runs every libFuzzer program for a while: tools/fuzz.sh [SECONDS] [BUILD] [TARGET...]
#
# SECONDS  for each program (FUZZ_SECONDS or SECONDS in the environment, else 60)
# BUILD    a build made with the fuzz preset (build/fuzz); nothing is built here
# TARGET   names such as pickle or zip; all by default
#
# Seeds are real files (fuzz/make_corpus.py), the attack corpus and fuzz/corpus/<target>. Found inputs stay
# in BUILD/../fuzz-corpus between runs, findings in BUILD/../fuzz-findings. Exit status 1 when there is one.
# The last line is "total RUNS", the inputs tried by all programs, for whoever adds them up.
# PYTHON names an interpreter with torch and safetensors; without them the real seeds are left out.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
seconds=${1:-${FUZZ_SECONDS:-${SECONDS:-60}}}
build=${2:-$root/build/fuzz}
[ $# -ge 1 ] && shift
[ $# -ge 1 ] && shift
corpus=$(dirname "$build")/fuzz-corpus
findings=$(dirname "$build")/fuzz-findings
if ! ls "$build"/fuzz/fuzz_* > /dev/null 2>&1; then
  echo "no fuzz programs in $build/fuzz: build the fuzz preset first" >&2
  exit 2
fi
mkdir -p "$corpus/seeds" "$corpus/attacks" "$findings"

python=${PYTHON:-$root/.venv/bin/python}
[ -x "$python" ] || python=python3
python3 "$root/tests/attack/make_attacks.py" "$corpus/attacks" || exit 2
"$python" "$root/fuzz/make_corpus.py" "$corpus/seeds" || echo "no real seeds: $python lacks torch or safetensors"

# The attack files for a target, by the kinds in attacks.tsv.
attacks_for() {
  case $1 in
    pickle) kinds='^(pickle)$' ;;
    metadata) kinds='^(metadata)$' ;;
    torch_file) kinds='^(torch|blob)$' ;;
    zip) kinds='^(torch|blob|deflate|strict-crc)$' ;;
    safetensors) kinds='^(safetensors)$' ;;
    safetensors_index) kinds='^(index)$' ;;
    manifest) kinds='^(manifest)$' ;;
    json) kinds='^(index)$' ;;
    *) return ;;
  esac
  awk -F'\t' -v kinds="$kinds" '$2 ~ kinds { print $1 }' "$corpus/attacks/attacks.tsv"
}

# What was freed and is held back to find its later use counts as memory of the process too.
export ASAN_OPTIONS="quarantine_size_mb=16:${ASAN_OPTIONS:-}"

fuzz_one() {
  target=$1
  mkdir -p "$corpus/$target" "$findings/$target"
  for name in $(attacks_for "$target"); do
    # Large ones only slow the fuzzer down; the attack test runs them.
    file=$corpus/attacks/$name
    [ "$(wc -c < "$file")" -le 16384 ] && cp "$file" "$corpus/$target/attack-$name"
  done
  set -- "$corpus/$target"
  for seeds in "$corpus/seeds/$target" "$root/fuzz/corpus/$target"; do
    [ -d "$seeds" ] && set -- "$@" "$seeds"
  done
  "$build/fuzz/fuzz_$target" -max_total_time="$seconds" -rss_limit_mb=256 -malloc_limit_mb=128 -timeout=1 \
    -max_len=16384 -print_final_stats=1 -artifact_prefix="$findings/$target/" "$@" \
    > "$findings/$target.log" 2>&1
  echo $? > "$findings/$target.status"
}

targets=${*:-$(cd "$build/fuzz" && ls fuzz_* | grep -v '\.' | sed 's/^fuzz_//')}
running=0
for target in $targets; do
  fuzz_one "$target" &
  running=$((running + 1))
  if [ $running -eq 2 ]; then wait; running=0; fi
done
wait

status=0
total=0
printf '%-20s %12s %10s %9s\n' target runs exec/s findings
for target in $targets; do
  log=$findings/$target.log
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log" | tail -1)
  found=$(find "$findings/$target" -type f | wc -l)
  total=$((total + ${runs:-0}))
  printf '%-20s %12s %10s %9s\n' "$target" "${runs:--}" "${rate:--}" "$found"
  if [ "$found" -gt 0 ] || [ "$(cat "$findings/$target.status")" -ne 0 ]; then
    status=1
    grep -m1 -E 'ERROR|broken property|runtime error' "$log" || tail -n 5 "$log"
  fi
done
printf '%-20s %12s\n' total "$total"
exit $status
