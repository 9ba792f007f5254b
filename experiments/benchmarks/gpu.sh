#!/usr/bin/env bash
# Measures one GPU within eight minutes; prints the tables of each part when it ends. FOLDER/gpu.md
# has all tables so far, FOLDER/gpu.jsonl the results, and FOLDER/gpu.log what the parts print.
#
#   bash experiments/benchmarks/gpu.sh FOLDER
#
# Variables:
#   MODEL=DIR      weights for the RL steps; random ones of the 0.5B shape without it
#   TORCH=PYTHON   interpreter that has torch, transformers and peft, for comparisons
#   WHEELS=DIR     folder of their wheels, installed if there is no TORCH; without both they are
#                  installed from the package index, in ~/.cache, while the first parts run
#   TOTAL=SECONDS  limit of the whole script, by default 460
#   TINY=1         tries the script on a CPU
#
# The order is that of importance, and a part ends after 150 seconds. Parts that fail or do not fit
# are named at the end; a second call with the same folder runs only them. If the script is ended,
# even by force, the results so far remain, also those of a part that measures several things.
set -uo pipefail
cd "$(dirname "$0")/../.."
folder=$(mkdir -p "$1" && cd "$1" && pwd)
out=$folder/gpu.jsonl
export PYTHONPATH=.:envs PYTHONUNBUFFERED=1 BENCHMARK_LIMITS=$folder/limits.json
BENCHMARK_COMMIT=$(git rev-parse --short HEAD 2>/dev/null)
export BENCHMARK_COMMIT
limit=150 shortest=15 total=${TOTAL:-460}
rl="--model=${MODEL:-qwen2.5-0.5b}"
load="--shape=0.5b --rows=64 --rows=256" rows="8 64 256" shapes="0.5b 1.5b 7b"
train="--shape=0.5b --rows=8 --tokens=2048 --dtype=bfloat16 --remat=block"
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
# A part that outlives a script that was ended by force would use the GPU, too.
if grep -qsaF -- "$out" "/proc/$(cat "$folder/child" 2>/dev/null)/cmdline"; then
  kill "$(cat "$folder/child")"
fi

# Writes the tables so far. A line that was cut must not hold the next result.
write_tables() {
  [ -z "$(tail -c 1 "$out")" ] || echo >>"$out"
  python experiments/benchmarks/report.py "$out" >"$folder/gpu.md"
}

report() {
  write_tables
  printf '\n== all results (%s s)\n' "$SECONDS"
  cat "$folder/gpu.md"
  for part in ${failed[@]+"${failed[@]}"}; do
    echo "failed: $part (see $folder/gpu.log)"
  done
}
write_tables
trap report EXIT
trap 'kill $child $installing 2>/dev/null; failed+=("the script was ended"); exit 143' TERM INT HUP

# Runs a command within the time that is left, and prints its results, also those before a failure.
part() {
  local left=$((total - SECONDS)) lines start=$SECONDS status
  if grep -qxF -- "$*" "$folder/done"; then
    echo "== $* (measured before)"
    return
  fi
  if [ "$left" -lt "$shortest" ]; then
    failed+=("$* (no time left)")
    return 1
  fi
  echo "== $* ($start s)"
  echo "== $*" >>"$folder/gpu.log"
  lines=$(wc -l <"$out")
  timeout --kill-after=5 $((left < limit ? left : limit)) "$@" >>"$folder/gpu.log" 2>&1 &
  child=$!
  echo "$child" >"$folder/child"
  wait "$child"
  status=$?
  write_tables
  tail -n "+$((lines + 1))" "$out" | python experiments/benchmarks/report.py /dev/stdin
  [ "$(wc -l <"$out")" -gt "$lines" ] || tail -n 1 "$folder/gpu.log"
  if [ "$status" -eq 0 ]; then
    echo "$*" >>"$folder/done"
    return
  fi
  echo "failed with status $status after $((SECONDS - start)) s"
  failed+=("$* (status $status)")
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
has_torch='from importlib.util import find_spec as f; exit(not (f("torch") and f("transformers") and f("peft")))'
for python in "$torch_env/bin/python" python; do
  if [ -z "$torch" ] && "$python" -c "$has_torch" 2>/dev/null; then torch=$(command -v "$python"); fi
done
if [ -z "$torch" ] && { [ -z "${TINY:-}" ] || [ -n "${WHEELS:-}" ]; }; then
  install_torch "$torch_env" >>"$folder/gpu.log" 2>&1 &
  installing=$!
fi

# Compares with torch, which needs memory of the GPU, or measures alone if that fails.
compared() {
  if [ -n "$torch" ]; then
    XLA_PYTHON_CLIENT_PREALLOCATE=false bench "$@" --torch_python="$torch" && return
  fi
  bench "$@"
}

# shellcheck disable=SC2086  # options are lists of words
{
  for variant in new old; do bench rl_step $rl --variant="$variant"; done
  if [ -n "$installing" ] && wait "$installing" && "$torch_env/bin/python" -c "$has_torch"; then
    torch=$torch_env/bin/python
  fi 2>>"$folder/gpu.log"
  [ -n "$torch" ] || echo "torch is not measured: it is neither installed nor found in an index or WHEELS"
  compared train_step $train --rounds=2
  bench train_step $train --rounds=2 --attention=cudnn
  [ -n "${TINY:-}" ] || bench attention_kernels --kernels=packed
  for variant in drafts int8 int8_cache both; do bench rl_step $rl --variant="$variant"; done
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
