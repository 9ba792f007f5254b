"""Writes golden.json: DPO and IPO, transcribed from their papers with loops over NumPy float64.

The script shares no code with the package. Run: python tests/golden/preference/make.py
"""

import json
import math
import pathlib

import numpy as np

PAIRS, T, BETA = 5, 7, 0.3


def dpo(chosen, rejected):
    """Returns the DPO loss of arXiv:2305.18290, eq. 7.

    The loss is -log sigmoid(beta log pi(y_w)/ref(y_w) - beta log pi(y_l)/ref(y_l)).
    """
    return -math.log(1 / (1 + math.exp(-(BETA * chosen - BETA * rejected))))


def ipo(chosen, rejected):
    """Returns the IPO loss (log ratio of ratios - 1 / (2 tau))^2 of arXiv:2310.12036, eq. 17."""
    return (chosen - rejected - 1 / (2 * BETA)) ** 2


def main():
    rng = np.random.default_rng(0)
    mask = rng.random((PAIRS, 2, T)) < 0.6
    mask[:, :, -1] = True
    logprob = rng.normal(-2.0, 0.7, mask.shape)
    reference = logprob + rng.normal(0, 0.5, mask.shape)
    golden = {"beta": BETA, "mask": mask, "logprob": logprob, "reference": reference}
    for normalised in (False, True):
        for loss in (dpo, ipo):
            values = []
            for p in range(PAIRS):
                ratios = []
                for side in range(2):
                    total, count = 0.0, 0
                    for t in range(T):
                        if mask[p, side, t]:
                            total += logprob[p, side, t] - reference[p, side, t]
                            count += 1
                    ratios.append(total / count if normalised else total)
                values.append(loss(*ratios))
            golden[loss.__name__ + ("_normalised" if normalised else "")] = values
    lists = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in golden.items()}
    path = pathlib.Path(__file__).with_name("golden.json")
    path.write_text(json.dumps(lists) + "\n")


if __name__ == "__main__":
    main()
