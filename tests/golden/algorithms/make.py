"""Writes golden.json: the formulas of the papers, transcribed with loops over NumPy float64.

The script shares no code with the package. Run: python tests/golden/algorithms/make.py
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
        mask[b, 2] = b % 3 != 0  # some episodes have an observation in the middle
        last = int(np.nonzero(mask[b])[0][-1])
        rewards[b, last] = float(np.round(rng.random(), 3))
        if b % 2:
            rewards[b, 1] += 0.25
    valid[[5, 9, 10]] = False
    return rewards, mask, valid


def turns_of(mask):
    """Returns the turn number of each token.

    A turn is a run of action tokens; a run that spans position 3 is split there.
    """
    turns = np.full(mask.shape, -1)
    for b in range(len(mask)):
        turn = -1
        for t in range(T):
            if mask[b, t]:
                if not mask[b, t - 1] or t == 3:
                    turn += 1
                turns[b, t] = turn
    return turns


def anchors_of(turns):
    """Returns the anchor state of each turn: its group and the parity of its number.

    All turns of every fourth episode have a state that occurs in no other episode.
    """
    anchors = np.full(turns.shape, -1)
    for b in range(len(turns)):
        for t in range(T):
            if turns[b, t] >= 0:
                own = 40 + b if b % 4 == 3 else turns[b, t] % 2
                anchors[b, t] = 10 * (b // GROUP) + own if own < 40 else own
    return anchors


def groups(valid):
    """Returns the valid rows of every group."""
    for start in range(0, len(valid), GROUP):
        yield [b for b in range(start, start + GROUP) if valid[b]]


def grpo(rewards, mask, valid, eps=1e-6):
    out = np.zeros_like(rewards)
    for rows in groups(valid):
        returns = [sum(rewards[b]) for b in rows]
        for b in rows:
            score = (sum(rewards[b]) - np.mean(returns)) / (np.std(returns, ddof=1) + eps)
            for t in range(T):
                out[b, t] = score if mask[b, t] else 0.0
    return out


def rloo(rewards, mask, valid):
    out = np.zeros_like(rewards)
    for rows in groups(valid):
        for b in rows:
            others = [sum(rewards[j]) for j in rows if j != b]
            score = sum(rewards[b]) - sum(others) / len(others)
            for t in range(T):
                out[b, t] = score if mask[b, t] else 0.0
    return out


def to_go(rewards, mask, turns, b, t, discount, turn_discount):
    """Returns the sum of the rewards from position t on.

    Each reward is discounted once for every later action token up to its position: by `discount`
    within a turn and by `turn_discount` at the first token of a turn.
    """
    total = 0.0
    for later in range(t, T):
        if rewards[b, later]:
            factor, here = 1.0, t
            for u in range(t + 1, later + 1):
                if mask[b, u]:
                    factor *= discount if turns[b, u] == turns[b, here] else turn_discount
                    here = u
            total += factor * rewards[b, later]
    return total


def normalised(values, places):
    chosen = np.array([values[b, t] for b, t in places])
    out = np.zeros_like(values)
    for b, t in places:
        out[b, t] = (values[b, t] - chosen.mean()) / (chosen.std(ddof=1) + 1e-8)
    return out


def reinforce_pp(rewards, mask, valid, turns, discount, turn_discount):
    places = [(b, t) for b in range(len(mask)) for t in range(T) if mask[b, t] and valid[b]]
    values = np.zeros_like(rewards)
    for b, t in places:
        values[b, t] = to_go(rewards, mask, turns, b, t, discount, turn_discount)
    return normalised(values, places)


def reinforce_pp_baseline(rewards, mask, valid):
    values = np.zeros_like(rewards)
    for rows in groups(valid):
        mean = np.mean([sum(rewards[b]) for b in rows])
        for b in rows:
            values[b] = sum(rewards[b]) - mean
    places = [(b, t) for b in range(len(mask)) for t in range(T) if mask[b, t] and valid[b]]
    return normalised(values, places)


def gigpo(rewards, mask, valid, turns, anchors, weight, discount, eps=1e-6):
    out = grpo(rewards, mask, valid, eps)
    for rows in groups(valid):
        steps = []  # (episode, turn, state, return) of every turn in the group
        for b in rows:
            for turn in range(turns[b].max() + 1):
                first = int(np.nonzero(turns[b] == turn)[0][0])
                value = to_go(rewards, mask, turns, b, first, 1.0, discount)
                steps.append((b, turn, anchors[b, first], value))
        for b, turn, state, value in steps:
            equals = [s[3] for s in steps if s[2] == state]
            if len(equals) > 1:
                score = (value - np.mean(equals)) / (np.std(equals, ddof=1) + eps)
                out[b, turns[b] == turn] += weight * score
    return out


def k3(logprob, reference):
    ratio = np.exp(reference - logprob)
    return ratio - 1 - np.log(ratio)


def surrogate(logprob, old, advantage, low, high):
    ratio = np.exp(logprob - old)
    return -np.minimum(ratio * advantage, np.clip(ratio, 1 - low, 1 + high) * advantage)


def gspo(logprob, old, advantage, mask, low, high):
    out = np.zeros_like(logprob)
    for b in range(len(mask)):
        if mask[b].any():
            p, q = np.prod(np.exp(logprob[b, mask[b]])), np.prod(np.exp(old[b, mask[b]]))
            s = (p / q) ** (1 / mask[b].sum())
            for t in np.nonzero(mask[b])[0]:
                a = advantage[b, t]
                out[b, t] = -min(s * a, min(max(s, 1 - low), 1 + high) * a)
    return out


def cispo(logprob, old, advantage, low, high):
    return -np.minimum(np.maximum(np.exp(logprob - old), low), high) * advantage * logprob


def main():
    rng = np.random.default_rng(0)
    rewards, mask, valid = example(rng)
    logprob = rng.normal(-2.0, 0.7, (len(rewards), T))
    reference = logprob + rng.normal(0, 0.3, logprob.shape)
    advantage = grpo(rewards, mask, valid)
    turns = turns_of(mask)
    anchors = anchors_of(turns)
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
        "turns": turns,
        "anchors": anchors,
        "batch_normalized_returns": reinforce_pp(rewards, mask, valid, turns, 0.97, 0.9),
        "group_mean_batch_normalized": reinforce_pp_baseline(rewards, mask, valid),
        "group_in_group": gigpo(rewards, mask, valid, turns, anchors, 0.7, 0.95),
        "sequence_surrogate": gspo(logprob, reference, advantage, mask, 0.05, 0.1),
        "clipped_weight": cispo(logprob, reference, advantage, 0.8, 1.25),
    }
    lists = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in golden.items()}
    path = pathlib.Path(__file__).with_name("golden.json")
    path.write_text(json.dumps(lists) + "\n")


if __name__ == "__main__":
    main()
