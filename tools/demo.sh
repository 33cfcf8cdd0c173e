#!/usr/bin/env bash
# Four MPI ranks save, one save is killed, three ranks load; then the command and PyTorch look at the result.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
mkdir -p build
work=$(mktemp -d build/demo.XXXXXX)
trap 'rm -rf "$root/$work"' EXIT
PATH=$root/build/release:$PATH
mib=256

explain() { printf '\n# %s\n' "$*"; }
show() {
  local word line='$'
  for word; do
    case $word in *[!A-Za-z0-9_./-]*) line+=" '$word'" ;; *) line+=" $word" ;; esac
  done
  printf '%s\n' "$line"
  "$@"
}
# Open MPI refuses root and more ranks than cores unless it is told.
ranks() {
  local n=$1
  shift
  printf '$ mpirun -n %s %s\n' "$n" "$*"
  mpirun --allow-run-as-root --oversubscribe --mca btl self,vader -n "$n" "$root/build/release/tests/train" "${@:2}"
}
cd "$work"

explain "What this disk takes with no format at all, in files of any number: the limit."
printf '$ cairn bench bench --size %sMiB | grep raw\n' "$mib"
cairn bench bench --size "${mib}MiB" | grep raw

explain "Four ranks train and save step 1, then step 2 over it: the second plan is the first one's, and is not sent."
ranks 4 train save run 1 $mib

explain "They save step 3, slowly, so that there is a middle; then somebody kills them all."
(ranks 4 train save run 3 $mib 40 >killed.txt 2>&1 || true) &
until ls run/*cairn-partial >/dev/null 2>&1; do sleep 0.005; done
pkill -KILL -f "$root/build/release/tests/train save run 3" || true
wait
# mpirun is gone, too; its ranks may still be dying, and until they are dead they hold their lock.
for _ in $(seq 100); do cairn gc run --dry-run >/dev/null 2>&1 && break || sleep 0.1; done
show cairn gc run --dry-run

explain "Step 2 is untouched: three ranks load it, cut by columns instead of rows."
ranks 3 train load run 2 $mib

explain "What is in it, and is it whole?"
show cairn ls run
printf '$ cairn gc run | tail -1\n'
cairn gc run | tail -1
show cairn verify run

explain "PyTorch reads the same directory."
cat >read.py <<'PY'
import torch
import torch.distributed.checkpoint as dcp

state = {"model": {"up": torch.zeros(256 * 64, 1024)}, "step": 0}
dcp.load(state, checkpoint_id="run")
at = torch.arange(256 * 64 * 1024).reshape(-1, 1024)
print("step", state["step"], "- model.up as it was saved:", bool((state["model"]["up"] == (at * 31 + 14) % 1000003).all()))
PY
if [[ -x $root/.venv/bin/python ]]; then
  printf '$ python read.py\n'
  "$root/.venv/bin/python" -W ignore read.py
else
  echo "(no Python with torch here)"
fi
