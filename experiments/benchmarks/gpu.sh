#!/usr/bin/env bash
# Measures one GPU within eight minutes; FOLDER/gpu.jsonl has the results and FOLDER/gpu.md tables.
#
#   bash experiments/benchmarks/gpu.sh FOLDER
#
# Variables:
#   MODEL=DIR      weights for the RL steps; random ones of the 0.5B shape without it
#   TORCH=PYTHON   interpreter that has torch, transformers and peft, for comparisons
#   WHEELS=DIR     folder of their wheels, installed if there is no TORCH; without both they are
#                  installed from the package index, in ~/.cache, while the first parts run
#   TOTAL=SECONDS  limit of the whole script, by default 480
#   TINY=1         tries the script on a CPU
#
# The order is that of importance, and a part ends after 150 seconds. Parts that fail or do not fit
# are named at the end; a second call with the same folder runs them alone. If the script is ended,
# the results so far remain, also those of a part that measures several things.
set -uo pipefail
cd "$(dirname "$0")/../.."
folder=$(mkdir -p "$1" && cd "$1" && pwd)
out=$folder/gpu.jsonl
export PYTHONPATH=.:envs
limit=150 total=${TOTAL:-480}
rl="--model=${MODEL:-qwen2.5-0.5b}"
load="--shape=0.5b --rows=64 --rows=256" rows="8 64 256" shapes="0.5b 1.5b 7b"
train="--shape=0.5b --rows=8 --tokens=2048 --dtype=bfloat16"
tests="tests/models/kernels"
if [ -n "${TINY:-}" ]; then
  limit=600 total=${TOTAL:-3600}
  rl="--tiny --environments=babyai --steps=1"
  load="--shape=tiny --rows=4 --requests=8 --shortest=8 --longest=32 --bucket=16,4" rows=2 shapes=tiny
  train="--shape=tiny --rows=2 --tokens=64 --dtype=bfloat16"
  tests="tests/models/kernels -k cudnn"
fi
failed=() child='' installing=''
touch "$out" "$folder/done"

report() {
  python experiments/benchmarks/report.py "$out" | tee "$folder/gpu.md"
  for part in ${failed[@]+"${failed[@]}"}; do
    echo "failed: $part (see $folder/gpu.log)"
  done
}
trap report EXIT
trap 'kill $child $installing 2>/dev/null; failed+=("the script was ended"); exit 143' TERM INT

part() {
  local left=$((total - SECONDS))
  if grep -qxF -- "$*" "$folder/done"; then
    echo "== $* (measured before)"
    return
  fi
  echo "== $* ($SECONDS s)"
  if [ "$left" -gt 0 ]; then
    timeout --kill-after=5 $((left < limit ? left : limit)) "$@" >>"$folder/gpu.log" 2>&1 &
    child=$!
    wait "$child" && echo "$*" >>"$folder/done" && return
    left=$((total - SECONDS))
  fi
  failed+=("$*$([ "$left" -gt 0 ] || echo ' (no time left)')")
  return 1
}

bench() {
  part python "experiments/benchmarks/$1.py" --out="$out" "${@:2}"
}

install_torch() {
  local where=()
  [ -z "${WHEELS:-}" ] || where=(--no-index --find-links="$WHEELS")
  python -m venv "$1" && timeout 200 "$1/bin/pip" install -q --retries=0 --timeout=10 \
    ${where[@]+"${where[@]}"} torch transformers peft
}

torch=${TORCH:-} torch_env=~/.cache/agentgym_jax/benchmarks/torch-env
can_import='import torch, transformers, peft'
for python in "$torch_env/bin/python" python; do
  if [ -z "$torch" ] && "$python" -c "$can_import" 2>/dev/null; then torch=$(command -v "$python"); fi
done
if [ -z "$torch" ] && { [ -z "${TINY:-}" ] || [ -n "${WHEELS:-}" ]; }; then
  install_torch "$torch_env" >>"$folder/gpu.log" 2>&1 &
  installing=$!
fi

# Compares with torch, or measures alone if torch fails.
compared() {
  if [ -n "$torch" ]; then bench "$@" --torch_python="$torch" && return; fi
  bench "$@"
}

# shellcheck disable=SC2086  # options are lists of words
{
  for variant in new old; do bench rl_step $rl --variant="$variant"; done
  if [ -n "$installing" ] && wait "$installing" && "$torch_env/bin/python" -c "$can_import"; then
    torch=$torch_env/bin/python
  fi 2>>"$folder/gpu.log"
  [ -n "$torch" ] || echo "torch is not measured: it is neither installed nor found in an index or WHEELS"
  compared train_step $train --rounds=2
  bench train_step $train --rounds=2 --attention=cudnn
  [ -n "${TINY:-}" ] || bench attention_kernels --kernels=packed
  for variant in drafts int8 both; do bench rl_step $rl --variant="$variant"; done
  AGENTGYM_TEST_PLATFORM=$([ -n "${TINY:-}" ] && echo cpu || echo cuda) JAX_DEFAULT_MATMUL_PRECISION=highest \
    part python -m pytest -q -n 0 $tests
  compared train_step $train --rounds=2 --lora_rank=16
  bench request_load $load
  for shape in $shapes; do
    for n in $rows; do compared decode --shape="$shape" --rows="$n" --rounds=1 --dtype=bfloat16; done
    torch=''  # is compared for the first shape only
  done
}
[ ${#failed[@]} -eq 0 ]
