#!/usr/bin/env bash
# Runs the second attempt on TextCraft on one GPU: two entropy bonuses with two seeds each, at once.
#
#   bash experiments/2026-11-27_qwen_learns/again.sh MODEL_DIRECTORY RESULTS [SECONDS]
#
# Every half minute the last line of each run is printed, and RESULTS gets its metrics and scores so
# far. After SECONDS (660) the runs end, and RESULTS gets their adapters. The same command resumes
# runs whose folders in runs/ still exist. TINY=1 tries the script on a CPU, with one run of a random
# policy. OPTIONS are further flags of the runs.
set -uo pipefail
model=$1 results=$(mkdir -p "$2" && cd "$2" && pwd) seconds=${3:-660}
if [ -d "$model" ]; then model=$(cd "$model" && pwd); fi
cd "$(dirname "$0")/../.."
export PYTHONPATH=.:envs
config=experiments/2026-11-27_qwen_learns/learn.py:environment=textcraft,warm=60,even,model=$model
bonuses="0.0 0.003" seeds="0 1"
if [ -n "${TINY:-}" ]; then config+=,smoke bonuses=0.003 seeds=0; fi
runs=() children=()

# Copies the metrics and scores so far, and prints the last line of every run.
collect() {
  for run in "${runs[@]}"; do
    mkdir -p "$results/$(basename "$run")"
    cp "$run"/{metrics.jsonl,config.json,scores.json} "$run.log" "$results/$(basename "$run")" 2>/dev/null
    echo "$(basename "$run"), $SECONDS s: $(tail -n 1 "$run.log" | cut -c -150)"
  done
}

is_running() { kill -0 "${children[@]}" 2>/dev/null; }

trap 'kill -INT "${children[@]}" 2>/dev/null' TERM INT HUP # the runs save a checkpoint and end
mkdir -p runs
for bonus in $bonuses; do
  for seed in $seeds; do
    run=runs/again_${bonus}_$seed
    runs+=("$run")
    echo "started" >>"$run.log"
    # shellcheck disable=SC2086  # OPTIONS is a list of flags
    XLA_PYTHON_CLIENT_MEM_FRACTION=0.23 timeout --kill-after=90 -s INT "$seconds" \
      python -m agentgym_jax.train --config="$config" --workdir="$run" --config.seed="$seed" \
      --config.algorithm.entropy_coef="$bonus" ${OPTIONS:-} >>"$run.log" 2>&1 &
    children+=($!)
  done
done
while is_running; do
  for _ in {1..30}; do
    if is_running; then sleep 1; fi
  done
  collect
done
for run in "${runs[@]}"; do
  target=$results/$(basename "$run")/adapter
  JAX_PLATFORMS=cpu python -m agentgym_jax.export --model="$run" --adapters --overwrite \
    --out="$target" >>"$run.log" 2>&1 || echo "no adapters of $run (see $run.log)" &
done
wait
collect
