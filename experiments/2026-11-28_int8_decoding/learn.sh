# Trains the bandit with float32, with int8 decode weights, and with these and an int8 cache: bash learn.sh OUT
for seed in 0 1; do
  for types in int8,int8 int8,computed float32,computed; do
    python -m agentgym_jax.train --config=configs/rl/bandit.py --workdir="$1/${types}_$seed" --noplots_at_end \
      --config.seed=$seed --config.total_steps=24 --config.model.decode_dtype=${types%,*} \
      --config.model.cache_dtype=${types#*,} \
      --config.learner.max_logprob_gap=0.1
  done
done
