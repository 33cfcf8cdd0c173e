#!/usr/bin/env bash
# How much of the library the unit tests run through: tools/coverage.sh [JOBS]
#
# Builds the coverage preset (gcc --coverage, build/coverage), runs the unit tests once and prints lines and branches
# for each layer, then for the two parts that must be covered best: publishing a checkpoint, and the parsers.
# Branches that only an exception takes are left out: every call that may throw would count as two.
# Needs gcovr (Debian: gcovr). build/coverage/lines.txt has the lines that no test reaches.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-2} folder=build/coverage
command -v gcovr >/dev/null || { echo "coverage: gcovr is missing: apt-get install gcovr" >&2; exit 2; }

tools/build.sh coverage "$jobs" unit
find "$folder" -name '*.gcda' -delete
ctest --test-dir "$folder" -j "$jobs" -LE fuzz --output-on-failure --no-tests=error >"$folder/ctest.log" ||
  { tail -n 40 "$folder/ctest.log"; exit 1; }

gcovr -j "$jobs" --root . --object-directory "$folder" --filter src/ --exclude '.*_test\.cc' --exclude '.*/test_[a-z_]*\.h' \
  --exclude-directories '.*/CMakeFiles/[0-9].*' --exclude-throw-branches --exclude-unreachable-branches --gcov-ignore-parse-errors \
  --json-summary "$folder/summary.json" --txt "$folder/lines.txt"
python3 - "$folder/summary.json" <<'PY'
import json, re, sys

files = json.load(open(sys.argv[1]))["files"]
groups = {}
for file in files:
    groups.setdefault(file["filename"].split("/")[1], []).append(file)
groups = dict(sorted(groups.items()))
parts = {
    "publish": r"src/save/(publish|hf_publish|dcp_writer|debris)\.cc|src/checkpoint/dcp_names\.cc|src/group/steps\.cc",
    "parsers": r"src/format/(zip_|pickle_|dcp_|json_|manifest|safetensors|sharding|storage_|torch_)[a-z_]*\.(cc|h)|src/plan/wire_.*",
}
for name, pattern in parts.items():
    groups[name] = [file for file in files if re.fullmatch(pattern, file["filename"])]
groups["all"] = files
print(f"{'':10} {'lines':>17} {'branches':>17}")
for name, group in groups.items():
    def share(kind):
        covered, total = (sum(file[f"{kind}_{what}"] for file in group) for what in ("covered", "total"))
        return f"{covered:6}/{total:<6}{100 * covered / max(total, 1):5.1f}%"
    print(f"{name:10} {share('line')} {share('branch')}")
PY
