"""Small runs in the format that training writes; their values can be checked by hand.

One of the runs contains hostile texts.
"""

import json

import numpy as np
import pytest

from agentgym_jax.episodes.trajectory import Outcome, to_record
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.metrics_file import MetricWriter
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.builders import trajectory, turn

HOSTILE = "</script><script>window.hacked=1</script><!-- <img src=x onerror=window.hacked=1>"


def record(item="babyai_24", turns=(("go", "gone", 0.0),), outcome=Outcome.FAILURE, **changes):
    """Returns an episode record.

    A turn is (action or None, observation, reward); its text is `Action:` and the action.
    """
    opening = changes.pop("opening", "Your goal: open the red door\nYou see nothing.")
    messages = [{"role": "user", "content": opening}]
    said, picture, parts = opening.encode(), "p" * len(opening.encode()), []
    for action, observation, reward in turns:
        text = f"Action:\n{action}"
        start, stop = len(said), len(said) + len(text.encode())
        parts.append(
            turn(start, stop, text=text, action=action, observation=observation, reward=reward)
        )
        said += text.encode() + observation.encode()
        picture += "a" * (stop - start) + "o" * len(observation.encode())
        messages += [{"role": "assistant", "content": text}]
        messages += [{"role": "user", "content": observation}]
    made = trajectory(
        picture,
        parts,
        version=3,
        logprob=-0.5,
        item_id=item,
        sample=changes.pop("sample", 0),
        outcome=outcome,
        score=sum(reward for _, _, reward in turns),
        tokens=np.frombuffer(said, np.uint8).astype(np.int32),
        messages=tuple(messages),
    )
    return to_record(made) | changes


@pytest.fixture
def make_record():
    """Returns the function `record`."""
    return record


@pytest.fixture
def make_run(tmp_path):
    """Returns a function that writes a run folder.

    Its main arguments are {"step_000001": records, ...} and a mapping from steps to metrics.
    """

    def make(files, metrics=None, config=None, name="run"):
        folder = RunFolder(tmp_path / name)
        folder.trajectories.mkdir(parents=True)
        for stem, records in files.items():
            text = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records)
            (folder.trajectories / f"{stem}.jsonl").write_text(text, encoding="utf-8")
        with MetricWriter(folder.metrics_path) as writer:
            for step, line in sorted((metrics or {}).items()):
                writer.write(step, line)
        if config is not None:
            folder.config_path.write_text(json.dumps(config))
        byte_tokenizer().save(folder.tokenizer)
        return folder.path

    return make


@pytest.fixture
def hostile():
    """Returns a text that would run as a script if the page inserted it as HTML."""
    return HOSTILE


@pytest.fixture
def learning_run(make_run):
    """Writes a run with two steps on one task and two evaluations of another task.

    Both tasks are first solved at step 2; one episode has hostile texts.
    """
    lost = [("turn left", "wall", 0.0), ("turn left", "wall", 0.0), (None, "", 0.0)]
    won = [("open the door", "The task is completed.", 0.9)]
    steps = {
        1: [record(turns=lost, outcome=Outcome.HORIZON, sample=i) for i in range(2)],
        2: [
            record(turns=won, outcome=Outcome.SUCCESS),
            record(turns=[(HOSTILE, HOSTILE, 0.0)], sample=1, opening=f"Goal: {HOSTILE}"),
        ],
    }
    files = {f"step_{step:06d}": records for step, records in steps.items()}
    files["eval_000000"] = [record(item="babyai_64", turns=lost, outcome=Outcome.HORIZON)]
    files["eval_000002"] = [record(item="babyai_64", turns=won, outcome=Outcome.SUCCESS)]
    metrics = {
        step: {"rollout/success": (step - 1) / 2, "policy/entropy": 0.5, "rollout/turns_mean": 3}
        for step in steps
    }
    config = {
        "algorithm": {"name": "grpo"},
        "learner": {"max_logprob_gap": 0.01},
        "environments": {
            "babyai": {
                "train": {"kind": "residues", "modulus": 40, "groups": {"Unlock": 24}},
                "eval": {},
            }
        },
    }
    return make_run(files, metrics, config)
