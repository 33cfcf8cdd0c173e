#!/usr/bin/env bash
# frameworks.sh [PYTEST ARGUMENT...]: runs tests/frameworks in .venv-frameworks, which it makes when it is not there: the
# frameworks alone, beside the torch and the cairn of .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv-frameworks/bin/python
wanted="$(sha256sum <tests/frameworks/requirements.txt) $PWD"

if [ "$(cat .venv-frameworks/.installed 2>/dev/null)" != "$wanted" ]; then
  echo "frameworks: making .venv-frameworks"
  .venv/bin/python -m venv --clear .venv-frameworks
  # Behind its own packages come those of .venv, and what the .pth files there name.
  theirs=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  own=$($python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "import site; site.addsitedir('$theirs')" >"$own/of-venv.pth"
  # Without what they depend on: torch is there, and nothing else may decide which.
  $python -m pip install -qq --disable-pip-version-check --no-input --no-deps -r tests/frameworks/requirements.txt
  printf '%s\n' "$wanted" >.venv-frameworks/.installed
fi
[ $# -gt 0 ] || set -- tests/frameworks
exec $python -m pytest -p no:cacheprovider "$@"
