#!/usr/bin/env bash
# The same as tools/demo.sh in a bucket: starts Ceph's gateway on loopback, saves with four ranks, kills a save, loads
# with three.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
mkdir -p build
work=$(mktemp -d "$root/build/s3-demo.XXXXXX")
end() {
  "$root/tools/s3_server.sh" stop "$work/server" 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT
PATH=$root/build/s3:$PATH
mib=256

explain() { printf '\n# %s\n' "$*"; }
show() {
  printf '$ %s\n' "$*"
  "$@"
}
# Open MPI refuses root and more ranks than cores unless it is told.
ranks() {
  local n=$1
  shift
  printf '$ mpirun -n %s %s\n' "$n" "$*"
  mpirun --allow-run-as-root --oversubscribe --mca btl self,vader -n "$n" "$root/build/s3/tests/train" "${@:2}"
}
cd "$work"

explain "A server that speaks S3; AWS_ENDPOINT_URL and the keys are in the environment, as for any other tool."
env=$("$root/tools/s3_server.sh" start server)
eval "$env"
PYTHONPATH=$root/tests/s3 python3 -c 'import os; from bucket import Bucket; Bucket(os.environ, "demo").create()'

explain "Four ranks train and save step 1, then step 2 over it."
ranks 4 train save s3://demo/run 1 $mib

explain "They save step 3; then somebody kills them all. What they had sent is there, and nobody sees it."
(ranks 4 train save s3://demo/run 3 $mib 40 >killed.txt 2>&1 || true) &
until cairn gc --dry-run --force s3://demo/run 2>/dev/null | grep -q 'cairn-partial'; do sleep 0.05; done
pkill -KILL -f "$root/build/s3/tests/train save s3://demo/run 3" || true
wait

explain "Step 2 is untouched: three ranks load it, cut by columns instead of rows."
ranks 3 train load s3://demo/run 2 $mib

explain "What is in it, and is it whole?"
show cairn ls s3://demo/run
show cairn verify s3://demo/run
printf '$ cairn gc --force s3://demo/run | tail -1\n'
cairn gc --force s3://demo/run | tail -1
