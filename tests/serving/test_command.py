"""The command `python -m agentgym_jax.serve`, as a process."""

import pathlib
import signal

import httpx
import pytest

from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.builders import decoder_config
from tests.model_files import save_random_model
from tests.run_python import start_python

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Returns a Hugging Face directory with a tiny model."""
    config = decoder_config(vocab_size=byte_tokenizer().vocab_size, rope_theta=10000.0)
    return save_random_model(tmp_path_factory.mktemp("model"), config)


def start(*flags, **environ):
    """Starts the command with the environment variables `environ`."""
    command = ["-m", "agentgym_jax.serve", "--context=128", "--rows=2", *flags]
    return start_python(*command, **{"XLA_FLAGS": ""} | environ)


@pytest.mark.slow
def test_the_command_serves_a_model_until_it_is_stopped(model):
    process = start(f"--model={model}", "--port=0", "--token_variable=KEY", KEY="secret")
    try:
        line = process.stdout.readline()
        assert line.startswith(f"serving {model} at http://127.0.0.1:")
        url = line.split()[-1]
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
        assert httpx.post(f"{url}/chat/completions", json=body).status_code == 401
        answer = httpx.post(
            f"{url}/chat/completions", json=body, headers={"Authorization": "Bearer secret"}
        )
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 4
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (["--model=no/such/model"], "no/such/model"),
        (["--model=qwen2.5-0.5b"], "has no tokenizer"),
        (["--model=MODEL", "--host=0.0.0.0"], "set --token_variable"),
        (["--model=MODEL", "--token_variable=NOT_SET"], "NOT_SET: the variable is not set"),
        (
            ["--model=no/such/model", "--host=192.0.2.1", "--token_variable=PATH"],
            "--host=192.0.2.1",
        ),
    ],
    ids=str,
)
@pytest.mark.slow
def test_a_wrong_flag_gives_one_line(model, flags, found):
    process = start(*[flag.replace("MODEL", str(model)) for flag in flags])
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert found in errors
    assert "Traceback" not in errors
