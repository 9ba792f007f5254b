# Trains the bandit with float32 and with int8 decode weights: bash learn.sh OUT
for seed in 0 1; do
  for dtype in int8 float32; do
    python -m agentgym_jax.train --config=configs/rl/bandit.py --workdir="$1/${dtype}_$seed" --noplots_at_end \
      --config.seed=$seed --config.total_steps=24 --config.model.decode_dtype=$dtype \
      --config.learner.max_logprob_gap=0.1
  done
done
