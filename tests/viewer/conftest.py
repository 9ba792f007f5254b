"""Runs as training writes them, small enough to check by hand; one of them has hostile texts."""

import json

import numpy as np
import pytest

from agentgym_jax.metrics_file import MetricWriter
from agentgym_jax.run_folder import RunFolder
from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.trajectory import Outcome, TokenSource, Trajectory, Turn, to_record

HOSTILE = "</script><script>window.hacked=1</script><!-- <img src=x onerror=window.hacked=1>"


def record(item="babyai_24", turns=(("go", "gone", 0.0),), outcome=Outcome.FAILURE, **changes):
    """An episode; a turn is (action or None, observation, reward), its text `Action:` and that."""
    opening = changes.pop("opening", "Your goal: open the red door\nYou see nothing.")
    messages = [{"role": "user", "content": opening}]
    tokens, sources, parts = (
        list(opening.encode()),
        [TokenSource.PROMPT] * len(opening.encode()),
        [],
    )
    for action, observation, reward in turns:
        text = f"Action:\n{action}"
        start = len(tokens)
        tokens += text.encode()
        sources += [TokenSource.ACTION] * (len(tokens) - start)
        parts.append(Turn(start, len(tokens), text, action, observation, reward, False))
        tokens += observation.encode()
        sources += [TokenSource.OBSERVATION] * len(observation.encode())
        messages += [{"role": "assistant", "content": text}]
        messages += [{"role": "user", "content": observation}]
    sources = np.array(sources, np.int8)
    is_action = sources == TokenSource.ACTION
    trajectory = Trajectory(
        item_id=item,
        sample=changes.pop("sample", 0),
        step=0,
        outcome=outcome,
        score=sum(turn[2] for turn in turns),
        success=outcome is Outcome.SUCCESS,
        tokens=np.array(tokens, np.int32),
        sources=sources,
        logprobs=np.where(is_action, -0.5, 0.0).astype(np.float32),
        policy_versions=np.where(is_action, 3, -1).astype(np.int32),
        turns=tuple(parts),
        messages=tuple(messages),
    )
    return to_record(trajectory) | changes


@pytest.fixture
def make_record():
    """See `record`."""
    return record


@pytest.fixture
def make_run(tmp_path):
    """Writes a run folder from {"step_000001": records, ...} and lines of metrics by step."""

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
    """Text that would run as a script if the page took it for HTML."""
    return HOSTILE


@pytest.fixture
def learning_run(make_run):
    """Two steps and two evaluations of the same task, which is solved at the end; a hostile text."""
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
