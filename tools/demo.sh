#!/usr/bin/env bash
# Looks into a checkpoint from the tests and into three that torch writes on the spot.
set -euo pipefail
cd "$(dirname "$0")/.."
golden=tests/golden/torch-2.11-two-ranks
mkdir -p build
work=$(mktemp -d build/demo.XXXXXX)
trap 'rm -rf "$work"' EXIT
PATH=$PWD/build/release:$PATH

explain() { printf '\n# %s\n' "$*"; }
show() {
  local word line='$'
  for word; do
    case $word in *[!A-Za-z0-9_./-]*) line+=" '$word'" ;; *) line+=" $word" ;; esac
  done
  printf '%s\n' "$line"
  "$@"
}

explain "Two ranks of torch 2.11 saved this directory together. What is in it?"
show cairn ls $golden
explain "How large is it, who wrote it, is anything odd?"
show cairn info $golden
explain "Two rows of a tensor that is cut over both ranks; only their bytes are read."
show cairn show $golden 'model.w[3:5]'

explain "torch writes one state in three formats: dcp.save, torch.save, safetensors."
cat >"$work/write.py" <<'PY'
import sys
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

folder = sys.argv[1]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
weights = {name: value.detach() for name, value in model.state_dict().items()}
state = {"model": weights, "step": 7, "lr": 0.5}
dcp.save(state, checkpoint_id=f"{folder}/step-7")
torch.save(state, f"{folder}/step-7.pt")
save_file(weights, f"{folder}/model.safetensors")
PY
.venv/bin/python -W ignore "$work/write.py" "$work"
cd "$work"
explain "The directory that dcp.save made"
show cairn ls step-7
explain "The same state as a torch.save file, nested at the dots of its names"
show cairn ls step-7.pt --tree
explain "The weights as safetensors, the largest first"
show cairn ls model.safetensors --sort size
explain "Values, statistics and a histogram; no Python runs for this"
show cairn show step-7 'model.0.weight'
