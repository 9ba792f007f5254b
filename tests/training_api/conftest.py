"""A server of Tinker's API with a tiny model."""

import contextlib

import pytest

from agentgym_jax.jobs.serving import load_model
from agentgym_jax.jobs.training_server import LocalBackend
from agentgym_jax.serving.http_server import HttpServer
from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.training_api.training_app import make_app
from agentgym_jax.training_api.training_service import Service
from tests.builders import tiny_policy
from tests.model_files import save_random_model
from tests.training_api.client import Client

CONTEXT = 64


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """Returns a Hugging Face directory with a tiny model."""
    config = tiny_policy(byte_tokenizer()).config
    return str(save_random_model(tmp_path_factory.mktemp("base"), config))


@contextlib.contextmanager
def serving(base, workdir, token=""):
    """Serves a base model; yields the address and the service."""
    model = load_model(base, dtype="float32")
    backend = LocalBackend(model, base, str(workdir), rows=4, context=CONTEXT, micro_tokens=128)
    with Service(backend) as service, HttpServer(make_app(service, token=token)) as server:
        yield server.url, service


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return tmp_path_factory.mktemp("workdir")


@pytest.fixture(scope="module")
def served(compiled_fastest, base, workdir):
    with serving(base, workdir) as found:
        yield found


@pytest.fixture
def url(served):
    return served[0]


@pytest.fixture
def service(served):
    return served[1]


@pytest.fixture
def client(url):
    """Returns a new client; its session ends with the test, so that its model may be replaced."""
    client = Client(url)
    yield client
    client.post(f"sessions/{client.session}/finish")
    client.web.close()


@pytest.fixture
def trained(client, base):
    """Returns a client with a new model."""
    assert client.create(base).status_code == 200
    return client
