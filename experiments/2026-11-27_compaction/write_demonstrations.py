r"""Writes the demonstrations of the warm start; a summary names each colour with probability 1/2.

PYTHONPATH=.:envs python experiments/2026-11-27_compaction/write_demonstrations.py --out=runs/recall.jsonl
"""

import argparse
import json
import pathlib
import random

from recall import FACTS_PER_TURN, HELD_OUT, NUM_TASKS, REQUEST, TASK, draw, question


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
    """Returns an episode with the full history, one up to the summary, and its continuation."""
    rng = random.Random(data_idx)
    colours, choices = draw(data_idx)
    history = [TASK, "next"]
    for i in range(0, len(colours), FACTS_PER_TURN):
        history += [" ".join(colours[i : i + FACTS_PER_TURN]), "next"]
    (right,) = set(colours) & set(choices)
    kept = [colour for colour in colours if rng.random() < 0.5]
    summary = f"Summary: {' '.join(kept)}\n\n" if kept else ""
    answer = right if right in kept else rng.choice(choices)  # a guess if the summary lacks it
    return [
        record(data_idx, *history, question(choices), right),
        record(data_idx, *history, REQUEST, " ".join(kept)),
        record(data_idx, f"{TASK}\n\n{summary}{question(choices)}", answer),
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
