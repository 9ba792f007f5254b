#!/usr/bin/env bash
# Measures one GPU within eight minutes; writes FOLDER/gpu.jsonl, from which report.py makes tables.
#
#   bash experiments/benchmarks/gpu.sh FOLDER
#   TORCH=torch-env/bin/python bash experiments/benchmarks/gpu.sh FOLDER    # compares training with torch
#   TINY=1 bash experiments/benchmarks/gpu.sh FOLDER                        # tries the script on a CPU
#
# A part ends after 150 seconds, and the script after eight minutes. Parts that fail or do not fit are
# named at the end. The order is that of their importance.
set -uo pipefail
cd "$(dirname "$0")/../.."
folder=$(mkdir -p "$1" && cd "$1" && pwd)
out=$folder/gpu.jsonl
export PYTHONPATH=.:envs
platform=cuda shapes="0.5b 1.5b 7b" rows="8 64 256" load="--shape=0.5b --rows=64 --rows=256" limit=150 total=480
train="--shape=0.5b --rows=8 --tokens=2048 --dtype=bfloat16"
if [ -n "${TINY:-}" ]; then
  platform=cpu shapes=tiny rows="2 4" limit=600 total=3600
  load="--shape=tiny --rows=4 --requests=8 --shortest=8 --longest=32 --bucket=16,4"
  train="--shape=tiny --rows=2 --tokens=64 --dtype=float32"
fi
failed=()

part() {
  echo "== $* ($((SECONDS)) s)"
  local left=$((total - SECONDS))
  if [ "$left" -le 0 ]; then
    failed+=("$* (no time left)")
    return
  fi
  timeout $((left < limit ? left : limit)) "$@" >>"$folder/gpu.log" 2>&1 || failed+=("$*")
}

bench() {
  part python "experiments/benchmarks/$1.py" --out="$out" "${@:2}"
}

# shellcheck disable=SC2086  # options are lists of words
{
  bench request_load $load
  for shape in $shapes; do
    bench decode --shape="$shape" $(printf -- "--rows=%s " $rows) --rounds=1 --dtype=bfloat16
  done
  bench train_step $train --rounds=2 --torch_python="${TORCH:-}"
  bench train_step $train --rounds=2 --torch_python="${TORCH:-}" --lora_rank=16
  AGENTGYM_TEST_PLATFORM=$platform part python -m pytest -q -n 0 tests/models/kernels
}
python experiments/benchmarks/report.py "$out"
for part in ${failed[@]+"${failed[@]}"}; do
  echo "failed: $part (see $folder/gpu.log)"
done
[ ${#failed[@]} -eq 0 ]
