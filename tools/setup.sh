#!/usr/bin/env bash
# Installs what the build and the tests need and is not there yet: Debian packages, and Python packages
# into .venv. Says nothing and changes nothing when everything is in place.
# setup.sh build: only what is needed to compile: the Debian packages, and nanobind.
# setup.sh servers: also what object stores are built from and tried with (tools/s3_server.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(libfmt-dev nlohmann-json3-dev libcli11-dev libzstd-dev libisal-dev libdeflate-dev libxxhash-dev liburing-dev
          zlib1g-dev libopenmpi-dev openmpi-bin libgtest-dev ccache ninja-build clang-14 lld-14 clang-format-14
          clang-tidy-14 libclang-rt-14-dev pkg-config unzip xfsprogs libfuse3-dev)
[ "${1-}" != servers ] || packages+=(libcurl4-openssl-dev libssl-dev ceph-mon ceph-osd radosgw openssl)

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Two runs at once wait for each other.
mkdir -p build
exec 9>build/.setup.lock
flock 9

command -v python3 >/dev/null || packages+=(python3 python3-venv python3-dev)

# What python3 lacks to make an environment and to compile modules for it.
python_packages() {
  command -v python3 >/dev/null || return 0
  python3 - <<'PY'
import importlib.util, os, sysconfig
if not importlib.util.find_spec("ensurepip") or not importlib.util.find_spec("venv"):
    print("python3-venv")
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    print("python3-dev")
PY
}

debian_packages() {
  command -v dpkg-query >/dev/null || return 0  # another system: CMake says what it misses
  local missing=() installed
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
  for package in "${packages[@]}"; do
    grep -qx "$package installed" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  [ "$(id -u)" -eq 0 ] || fail "these Debian packages are missing, and only root can install them:
  apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

python_environment() {
  local python=.venv/bin/python wanted
  wanted="$(sha256sum <tools/requirements.txt) $PWD"
  [ "$(cat .venv/.installed 2>/dev/null)" = "$wanted" ] && [ -x "$python" ] && return 0
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    say "making .venv with $(python3 --version)"
    python3 -m venv --clear .venv
  fi
  # Compiled below, by all processors at once.
  local pip=("$python" -m pip install -qq --disable-pip-version-check --no-input --no-compile)
  local torch
  if [ "${1-}" = build ]; then
    "${pip[@]}" "$(grep '^nanobind==' tools/requirements.txt)"
    return
  fi
  torch=$(grep '^torch==' tools/requirements.txt)
  say "installing Python packages into .venv ($torch first; this takes a while)"
  "${pip[@]}" "$torch"
  "${pip[@]}" -r tools/requirements.txt
  "$python" -m compileall -q -j 0 -x '/tests?/' .venv/lib >/dev/null || true  # some of it is not for this Python
  # The package as `make build` leaves it, importable by .venv/bin/python.
  "$python" -c 'import pathlib, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "cairn-build.pth").write_text(
    str(pathlib.Path("build/release/python").absolute()) + "\n")'
  printf '%s\n' "$wanted" >.venv/.installed
}

# The interpreter is asked only while .venv is not there yet.
[ -f .venv/.installed ] || mapfile -t -O ${#packages[@]} packages < <(python_packages)
debian_packages
python_environment "${1-}"
[ "${1-}" != servers ] || .venv/bin/python -m pip install -qq --disable-pip-version-check --no-input -r tools/requirements-servers.txt
