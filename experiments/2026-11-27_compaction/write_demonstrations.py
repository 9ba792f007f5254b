r"""Writes the demonstrations of the warm start; their summaries name each fact with probability 1/2.

PYTHONPATH=.:envs python experiments/2026-11-27_compaction/write_demonstrations.py --out=runs/recall.jsonl
"""

import argparse
import json
import pathlib
import random

from recall import FACTS_PER_TURN, HELD_OUT, NUM_TASKS, REQUEST, TASK, draw, question, shown


def record(data_idx, *turns):
    """Returns a conversation in AgentGym's format; `turns` begin with an observation."""
    speakers = ("human", "gpt")
    return dict(
        item_id=f"recall_{data_idx}",
        conversations=[
            {"from": speakers[i % 2], "value": text, "loss": True if i % 2 else None}
            for i, text in enumerate(turns)
        ],
    )


def demonstrate(data_idx):
    """Returns an episode with the full history and several questions, one up to the summary, and
    its continuation.
    """
    rng = random.Random(data_idx)
    facts, asked = draw(data_idx)
    pairs = list(facts.items())
    history = [TASK, "next"]
    for i in range(0, len(pairs), FACTS_PER_TURN):
        history += [shown(pairs[i : i + FACTS_PER_TURN]), "next"]
    answers = []
    for pair in sorted(pairs, key=lambda pair: (pair[0] != asked, rng.random())):
        answers += [question(pair[0]), shown([pair])]
    kept = [pair for pair in pairs if rng.random() < 0.5]
    summary = f"Summary: {shown(kept)}\n\n" if kept else ""
    answer = dict(kept).get(asked, rng.randrange(10))  # a guess if the summary lacks it
    return [
        record(data_idx, *history, *answers),
        record(data_idx, *history, REQUEST, shown(kept)),
        record(data_idx, f"{TASK}\n\n{summary}{question(asked)}", shown([(asked, answer)])),
    ]


def main():
    """Writes the file and prints the number of its conversations."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    records = [r for i in range(HELD_OUT, NUM_TASKS) for r in demonstrate(i)]
    random.Random(0).shuffle(records)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("".join(json.dumps(r) + "\n" for r in records))
    print(f"{len(records)} conversations in {args.out}")


if __name__ == "__main__":
    main()
