"""An interrupted warm start of an RL run is saved and continues."""

import io
import json
import types

import jax
import numpy as np
import pytest

from agentgym_jax.config.model import Model
from agentgym_jax.data.conversations import Conversation
from agentgym_jax.jobs.run import StopRequested
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.models.policy import Policy
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.supervised import sft
from agentgym_jax.telemetry.console import RunConsole
from agentgym_jax.text.chat import ChatRenderer, Message
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.builders import decoder_config

STEPS = 5
DATA = [
    [Message("user", f"go {n}"), Message("assistant", answer, loss=True)]
    for n, answer in enumerate(["left", "right", "up"])
]


@pytest.fixture(scope="module")
def parts():
    """Returns the components of an RL job that a warm start uses, with a tiny model."""
    tokenizer = byte_tokenizer()
    policy = Policy(decoder_config(vocab_size=tokenizer.vocab_size, num_layers=1))
    renderer = ChatRenderer(tokenizer)
    model = Model(policy, policy, None, None, tokenizer, renderer, None)
    rates = dict(
        name="adamw",
        final_fraction=0.1,
        learning_rate=1e-2,
        warmup_steps=2,
        schedule="cosine",
        max_grad_norm=1.0,
    )
    adam = dict(b1=0.9, b2=0.95, eps=1e-8, weight_decay=0.1, moments="float32")
    learning = types.SimpleNamespace(
        steps=STEPS,
        rows=1,
        micro_rows=1,
        row_length=32,
        weighting="token_mean",
        too_long="error",
        train_on="actions",
        optimizer=rates | adam,
    )
    return types.SimpleNamespace(
        settings=types.SimpleNamespace(sft=learning, logprob_chunk=32),
        model=model,
        agent=types.SimpleNamespace(environments=types.SimpleNamespace(texts={})),
        data=[Conversation(f"textcraft_{i}", messages) for i, messages in enumerate(DATA)],
    )


def make_run(path, stops=()):
    """Returns a run whose user requests a stop before the steps at which `stops` is True."""
    folder = RunFolder(path)
    folder.path.mkdir(exist_ok=True)
    answers = iter(stops)
    return types.SimpleNamespace(
        folder=folder,
        seed=3,
        begin=lambda *_: None,
        console=RunConsole("rl", {}, STEPS, stream=io.StringIO()),
        should_stop=types.SimpleNamespace(agreed=lambda: next(answers, False)),
    )


def losses(path):
    lines = (path / "warm_start" / "metrics.jsonl").read_text().splitlines()
    return [(line["step"], line["sft/loss"]) for line in map(json.loads, lines)]


@pytest.mark.slow
def test_an_interrupted_warm_start_continues_to_the_bits_of_an_undisturbed_one(
    parts, tmp_path, monkeypatch
):
    first = parts.model.initial_params()
    make = sft.make_sft_step(parts.model, parts.settings.sft, parts.settings.logprob_chunk)
    monkeypatch.setattr(sft, "make_sft_step", lambda *_: make)  # compiles one program
    copy = lambda: jax.tree.map(np.asarray, first)
    whole = sft.warm_start(make_run(tmp_path / "whole"), parts, parts.settings.sft, copy())
    path = tmp_path / "parts"
    for stops, done in (((True,), 0), ((False, False, True), 2), ((False, True), 3), ((True,), 3)):
        with pytest.raises(StopRequested, match=f"after step {done} of the warm start"):
            sft.warm_start(make_run(path, stops), parts, parts.settings.sft, copy())
        assert [step for step, _ in losses(path)] == list(range(1, done + 1))
    resumed = sft.warm_start(make_run(path), parts, parts.settings.sft, copy())
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)
    assert losses(path) == losses(tmp_path / "whole") and len(losses(path)) == STEPS
    with Checkpoints(path / "warm_start" / "checkpoints", max_to_keep=1) as checkpoints:
        assert checkpoints.steps() == [STEPS]
    # A finished warm start is read, not repeated.
    monkeypatch.setattr(sft, "make_sft_step", None)
    again = sft.warm_start(make_run(path), parts, parts.settings.sft, copy())
    jax.tree.map(np.testing.assert_array_equal, again, whole)
