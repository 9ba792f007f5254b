"""Redaction: secrets are replaced in every output, and other values do not change."""

import logging

import orbax.checkpoint
import pytest

from agentgym_jax.runs import redact
from configs import common, quickstart

SECRET = "hunter2-abc"


@pytest.mark.parametrize(
    "name", ["token", "api_key", "client.token", "HF_TOKEN", "wandb-password", "aws_secret", "auth"]
)
def test_names_of_secrets_are_recognised(name):
    assert redact.is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["max_tokens", "tokenizer", "keep_every", "keyboard", "author", "max_turn_tokens", "keys"],
)
def test_other_names_are_not_secrets(name):
    assert not redact.is_secret(name)


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{SECRET}@host:36001/a",
        f"https://{SECRET}@host",
        f"http://host/v1?model=m&api_key={SECRET}&x=1",
        f"Authorization: Bearer {SECRET}",
        f"{{'Authorization': 'Bearer {SECRET}', 'a': 1}}",
        f"api_key={SECRET}, retrying",
        f"token: {SECRET}",
        f'{{"token": "{SECRET}"}}',
        f"--config.client.token={SECRET}",
    ],
)
def test_a_secret_in_a_text_is_hidden(text):
    shown = redact.text(text)
    assert SECRET not in shown and redact.HIDDEN in shown
    assert redact.text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=512 tokens: 7, tokenizer=bytes",
        "mail someone@example.org about http://host:8000/a@b",
        "the key is under the mat",
        "http://127.0.0.1:36001: 500 tasks",
    ],
)
def test_other_texts_are_not_changed(text):
    assert redact.text(text) == text


def test_a_config_keeps_its_structure_but_not_its_secrets():
    config = {
        "client": {"token": SECRET, "step_timeout_s": 60.0},
        "environments": {"a": {"url": f"http://me:{SECRET}@host:1"}},
        "judge": {"api_key": "", "keys": ["a"]},
        "list": [{"password": SECRET}, f"x?token={SECRET}"],
    }
    shown = redact.config(config)
    assert SECRET not in repr(shown)
    assert shown["client"] == {"token": redact.HIDDEN, "step_timeout_s": 60.0}
    assert shown["judge"] == {"api_key": "", "keys": ["a"]}
    assert shown["environments"]["a"]["url"] == f"http://{redact.HIDDEN}@host:1"


@pytest.mark.parametrize("make", [common.base, quickstart.get_config])
def test_a_config_without_secrets_is_not_changed(make):
    config = make().to_dict()
    assert redact.config(config) == redact.config(redact.config(config))
    assert redact.HIDDEN not in repr(redact.config(config))


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", f"--config.client.token={SECRET}", "--workdir=a"],
        ["train", "--config.client.token", SECRET, "--workdir=a"],
        ["serve", "--api_key", SECRET],
        ["train", f"--config.environments.a.url=http://me:{SECRET}@host"],
    ],
)
def test_secrets_in_a_command_line_are_hidden(arguments):
    shown = redact.command(arguments)
    assert SECRET not in repr(shown) and len(shown) == len(arguments)
    assert redact.command(["train", "--workdir", "a"]) == ["train", "--workdir", "a"]


def test_a_handler_with_the_filter_writes_no_secrets(caplog):
    logger = logging.getLogger("redact-test")
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    handler.addFilter(redact.LogFilter())
    logger.addHandler(handler)
    logger.warning("%s at %s: %d tasks", "babyai", f"http://me:{SECRET}@host", 3)
    logger.warning("100%% of %s", "it")
    assert lines == [f"babyai at http://{redact.HIDDEN}@host: 3 tasks", "100% of it"]


def test_errors_of_orbax_are_not_logged_because_the_caller_reports_them():
    def shown(path, level):
        record = logging.LogRecord("absl", level, path, 1, "cannot write", (), None)
        return redact.LogFilter().filter(record)

    path = orbax.checkpoint.__file__
    assert not shown(path, logging.ERROR)
    assert shown(path, logging.WARNING) and shown(redact.__file__, logging.ERROR)
