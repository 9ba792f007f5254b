"""A model that answers in this process."""

import numpy as np
import pytest

from agentgym_jax import ConfigError, load_policy
from agentgym_jax.serving.requests import NotServingError, RequestError
from tests.model_files import save_model


@pytest.fixture(scope="module")
def model(tmp_path_factory, policy, params, tokenizer):
    """Returns a Hugging Face directory with a tiny model."""
    folder = tmp_path_factory.mktemp("model")
    return save_model(folder, params, policy.config, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def loaded(compiled_fastest, model):
    with load_policy(model, rows=4, context=128, dtype="float32") as policy:
        yield policy


def test_a_greedy_answer_is_the_same_for_a_text_and_for_messages(loaded):
    answer = loaded.chat("hello", max_tokens=8)
    assert isinstance(answer, str)
    assert answer == loaded.chat([{"role": "user", "content": "hello"}], max_tokens=8)


def test_conversations_sampled_together_have_the_answers_of_each_alone(loaded):
    texts = [f"message {i}" for i in range(9)]  # more than there are rows
    together = loaded.generate(texts, temperature=1.0, seed=3, max_tokens=8)
    alone = [loaded.generate([text], temperature=1.0, seed=3, max_tokens=8)[0] for text in texts]
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_array_equal(a.token_ids, b.token_ids)
    assert len({tuple(a.token_ids) for a in together}) > 1


def test_samples_with_a_seed_repeat_and_others_differ(loaded):
    drawn = loaded.generate(["hello"] * 8, temperature=1.0, max_tokens=12)
    assert len({tuple(a.token_ids) for a in drawn}) > 1
    seeded = loaded.generate(["hello"] * 3, temperature=1.0, max_tokens=12, seed=1)
    assert len({tuple(a.token_ids) for a in seeded}) == 1


def test_a_result_has_log_probabilities_and_the_reason_of_its_end(loaded):
    (result,) = loaded.generate(["hello"], temperature=1.0, max_tokens=5, seed=0)
    assert len(result.token_ids) == len(result.logprobs) <= 5
    assert np.all(result.logprobs <= 0)
    assert result.finish_reason in ("stop", "length")


def test_a_conversation_beyond_the_context_is_refused_and_others_are_answered(loaded):
    with pytest.raises(RequestError, match="leave room for an answer within 128"):
        loaded.generate(["hello", "x" * 500], max_tokens=4)
    assert isinstance(loaded.chat("hello", max_tokens=4), str)


def test_an_unknown_model_is_refused_with_one_line():
    with pytest.raises(ConfigError, match="nowhere") as refused:
        load_policy("nowhere")
    assert "\n" not in str(refused.value)


def test_a_closed_policy_refuses_requests(model, compiled_fastest, loaded):
    policy = load_policy(model, rows=1, context=64, dtype="float32")
    policy.close()
    policy.close()  # a second call has no effect
    with pytest.raises(NotServingError):
        policy.chat("hello")
