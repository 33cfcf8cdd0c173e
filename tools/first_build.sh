#!/usr/bin/env bash
# first_build.sh PRESET JOBS [TARGET...]: installs what is missing and builds. What only tests and examples need is
# installed while the compiler is at work already.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh build
setsid tools/setup.sh &  # all of it ends with this script, at Ctrl-C too
trap 'kill -- -$! 2>/dev/null || true' EXIT
tools/build.sh "$@"
wait $!
