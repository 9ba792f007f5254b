"""Writes golden.json: GRPO, RLOO and k3 transcribed from their papers with loops over NumPy float64.

Shares no code with the package. Run: python tests/golden/algorithms/make.py
"""

import json
import pathlib

import numpy as np

GROUP, T = 4, 6


def example(rng):
    B = 3 * GROUP
    rewards = np.zeros((B, T))
    mask = np.zeros((B, T), bool)
    valid = np.ones(B, bool)
    for b in range(B):
        n = int(rng.integers(3, T + 1))
        mask[b, 1:n] = True
        mask[b, 2] = b % 3 != 0  # an observation in the middle of some episodes
        last = int(np.nonzero(mask[b])[0][-1])
        rewards[b, last] = float(np.round(rng.random(), 3))
        if b % 2:
            rewards[b, 1] += 0.25
    valid[[5, 9, 10]] = False
    return rewards, mask, valid


def grpo(rewards, mask, valid, eps=1e-6):
    out = np.zeros_like(rewards)
    for start in range(0, len(rewards), GROUP):
        rows = [b for b in range(start, start + GROUP) if valid[b]]
        returns = [sum(rewards[b]) for b in rows]
        for b in rows:
            score = (sum(rewards[b]) - np.mean(returns)) / (np.std(returns, ddof=1) + eps)
            for t in range(T):
                out[b, t] = score if mask[b, t] else 0.0
    return out


def rloo(rewards, mask, valid):
    out = np.zeros_like(rewards)
    for start in range(0, len(rewards), GROUP):
        rows = [b for b in range(start, start + GROUP) if valid[b]]
        for b in rows:
            others = [sum(rewards[j]) for j in rows if j != b]
            score = sum(rewards[b]) - sum(others) / len(others)
            for t in range(T):
                out[b, t] = score if mask[b, t] else 0.0
    return out


def k3(logprob, reference):
    ratio = np.exp(reference - logprob)
    return ratio - 1 - np.log(ratio)


def surrogate(logprob, old, advantage, low, high):
    ratio = np.exp(logprob - old)
    return -np.minimum(ratio * advantage, np.clip(ratio, 1 - low, 1 + high) * advantage)


def main():
    rng = np.random.default_rng(0)
    rewards, mask, valid = example(rng)
    logprob = rng.normal(-2.0, 0.7, (len(rewards), T))
    reference = logprob + rng.normal(0, 0.3, logprob.shape)
    advantage = grpo(rewards, mask, valid)
    golden = {
        "group_size": GROUP,
        "rewards": rewards,
        "mask": mask,
        "valid": valid,
        "logprob": logprob,
        "reference": reference,
        "group_relative": advantage,
        "leave_one_out": rloo(rewards, mask, valid),
        "k3": k3(logprob, reference),
        "clipped_surrogate": surrogate(logprob, reference, advantage, 0.2, 0.28),
    }
    lists = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in golden.items()}
    path = pathlib.Path(__file__).with_name("golden.json")
    path.write_text(json.dumps(lists) + "\n")


if __name__ == "__main__":
    main()
