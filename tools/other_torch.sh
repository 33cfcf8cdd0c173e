#!/usr/bin/env bash
# other_torch.sh VERSION [PYTEST ARGUMENT...]: tries cairn.torch with another release of torch (2.15: the newest 2.15.x), in
# .venv-torch-VERSION, which it makes when it is not there: that torch alone, beside the other packages of .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 folder=.venv-torch-$1
shift

if [ "$(cat "$folder/.installed" 2>/dev/null)" != "$PWD" ]; then
  echo "conformance: making $folder"
  .venv/bin/python -m venv --clear "$folder"
  # 2.15 is any 2.15.x, 2.15.0 is that one.
  wanted=$version
  [[ $version = *.*.* ]] || wanted=$version.*
  "$folder/bin/python" -m pip install -qq --disable-pip-version-check --no-input "torch==$wanted"
  # Behind its own packages come those of .venv, and what the .pth files there name.
  theirs=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  own=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "import site; site.addsitedir('$theirs')" >"$own/of-venv.pth"
  printf '%s\n' "$PWD" >"$folder/.installed"
fi
# Names and signatures; both ways between stock and cairn on 1, 2 and 4 ranks; background saves; planners of the user's.
[ $# -gt 0 ] || set -- tests/conformance/other_torch.py tests/torch/test_{cross,async,hooks}.py
"$folder/bin/python" -c 'import torch; print("conformance: torch", torch.__version__)'
exec "$folder/bin/python" -m pytest -p no:cacheprovider "$@"
