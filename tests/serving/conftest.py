"""A served tiny model, shared by the tests of a module, and a served fake."""

import importlib

import jax
import pytest

from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.builders import tiny_policy
from tests.serving.parts import FakeBackend, serving, serving_model, serving_script


@pytest.fixture(scope="session")
def openai():
    """OpenAI's package, which is not imported before a test needs it."""
    return importlib.import_module("openai")


@pytest.fixture(scope="session")
def anthropic():
    """Anthropic's package, whose import takes three seconds."""
    return importlib.import_module("anthropic")


@pytest.fixture(scope="session")
def tokenizer():
    return byte_tokenizer()


@pytest.fixture(scope="session")
def policy(tokenizer):
    return tiny_policy(tokenizer)


@pytest.fixture(scope="session")
def params(policy):
    return policy.init(jax.random.key(0))


@pytest.fixture(scope="module")
def served(compiled_fastest, policy, params, tokenizer):
    with serving_model(policy, params, tokenizer) as server:
        yield server


@pytest.fixture
def fake(tokenizer):
    with serving(FakeBackend(tokenizer)) as server:
        yield server


@pytest.fixture(scope="module")
def script(tokenizer):
    """A server with scripted answers whose thinking stays in the text."""
    with serving_script(tokenizer) as server:
        yield server


@pytest.fixture(scope="module")
def thinking_script(tokenizer):
    """A server with scripted answers whose thinking is separated."""
    with serving_script(tokenizer, reasoning_parser="think") as server:
        yield server
