#!/usr/bin/env bash
# Runs the second attempt on TextCraft on one GPU: two entropy bonuses with two seeds each, at once.
#
#   bash again.sh MODEL_DIRECTORY RESULTS [SECONDS]
#
# RESULTS gets metrics, scores and adapters of every run, also if the time ends a run early. The same
# command resumes runs whose folders in runs/ still exist.
set -u
model=$1 results=$2 seconds=${3:-660}
config=experiments/2026-11-27_qwen_learns/learn.py:environment=textcraft,warm=60,even,model=$model
mkdir -p runs
runs=()
for bonus in 0.0 0.003; do
  for seed in 0 1; do
    run=runs/again_${bonus}_$seed
    runs+=("$run")
    XLA_PYTHON_CLIENT_MEM_FRACTION=0.23 timeout -s INT "$seconds" python -m agentgym_jax.train \
      --config="$config" --workdir="$run" --config.seed="$seed" \
      --config.algorithm.entropy_coef="$bonus" ${OPTIONS:-} >"$run.log" 2>&1 &
  done
done
wait
for run in "${runs[@]}"; do
  target=$results/$(basename "$run")
  mkdir -p "$target"
  cp "$run"/{metrics.jsonl,config.json,scores.json} "$run.log" "$target" 2>/dev/null
  JAX_PLATFORMS=cpu python -m agentgym_jax.export --model="$run" --adapters --out="$target/adapter" &
done
wait
tail -n 3 runs/again_*.log
