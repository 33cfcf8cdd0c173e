#!/usr/bin/env bash
# device.sh [ARGUMENTS of gpu_save]: builds the library and bench/gpu_save.cc with nothing but g++, and runs it. For
# machines with a GPU and without CMake.
#
# DEPS is a folder with include/ (fmt, nlohmann, isa-l, ...) and lib/ for what the system lacks; fmt may be headers
# alone. Optional libraries are used when they are found. GTEST is the folder of gtest's sources (with src/ and
# include/): then the device's own tests are built and run first.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/device
mkdir -p "$out"
flags=(-std=c++20 -O3 -g1 -Wall -Wextra -Iinclude -Isrc -Ibench -DFMT_HEADER_ONLY
  "-DCAIRN_VERSION=\"$(cat VERSION)\"" "-DCAIRN_SOURCE_DIR=\"$PWD\"")
libraries=(-lz -lpthread -ldl)
if [ -n "${DEPS:-}" ]; then
  flags+=("-I$DEPS/include")
  libraries=("-L$DEPS/lib" "-Wl,-rpath,$DEPS/lib" "${libraries[@]}")
fi
optional() { # NAME header library
  if echo "#include <$2>
int main() {}" | g++ "${flags[@]}" -x c++ - "${libraries[@]}" "-l$3" -o /dev/null 2>/dev/null; then
    flags+=("-DCAIRN_HAVE_$1")
    libraries+=("-l$3")
    echo "device.sh: with $3"
  fi
}
optional ISAL isa-l/crc.h isal
optional ZSTD zstd.h zstd
optional LIBURING liburing.h uring

find src -name '*.cc' ! -name '*_test.cc' ! -path src/group/mpi.cc | sort >"$out/sources"
compile() { # source...
  printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c '
    object=$0/$(echo "$1" | tr / _).o
    [ "$object" -nt "$1" ] && [ -z "${REBUILD:-}" ] || g++ "${@:2}" -c "$1" -o "$object"' "$out" {} "${flags[@]}"
}
objects() { for source in "$@"; do echo "$out/$(echo "$source" | tr / _).o"; done; }
mapfile -t sources <"$out/sources"
compile "${sources[@]}" bench/gpu_save.cc
mapfile -t built < <(objects "${sources[@]}")
g++ "$out/bench_gpu_save.cc.o" "${built[@]}" "${libraries[@]}" -o "$out/gpu_save"
echo "device.sh: built $out/gpu_save in $SECONDS s"

if [ -n "${GTEST:-}" ]; then
  g++ "${flags[@]}" "-I$GTEST" "-I$GTEST/include" src/device/device_test.cc "$GTEST/src/gtest-all.cc" \
    "$GTEST/src/gtest_main.cc" "${built[@]}" "${libraries[@]}" -o "$out/device_test"
  "$out/device_test" --gtest_brief=1 || echo "device.sh: the device's tests FAILED"
fi
"$out/gpu_save" "$@"
