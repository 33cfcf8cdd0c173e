#!/usr/bin/env bash
# peers.sh: what `make bench ONLY=s3` measures cairn against, in build/peers: those alone, beside the torch of PYTHON
# (.venv's).
set -euo pipefail
cd "$(dirname "$0")/.."
base=${PYTHON:-.venv/bin/python}
python=build/peers/bin/python
wanted="$(sha256sum <bench/peers.txt) $PWD"
[ "$(cat build/peers/.installed 2>/dev/null)" = "$wanted" ] && exit 0

echo "peers: making build/peers"
"$base" -m venv --clear build/peers
# Behind their own packages come those of the other one, torch among them.
theirs=$("$base" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
own=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir('$theirs')" >"$own/of-base.pth"
"$python" -m pip install -qq --disable-pip-version-check --no-input -r bench/peers.txt
printf '%s\n' "$wanted" >build/peers/.installed
