"""Options of an environment: every way to start one passes them to `make_served_environment`."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_envs.__main__ import main
from agentgym_envs.base import options
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.in_process import InProcessServer
from agentgym_envs.base.served import load_environment
from agentgym_envs.conformance.subject import Subject
from agentgym_jax.client.embedded import option_arguments
from agentgym_jax.client.in_process import in_process_servers
from tests.envs.serving import serving

MODULE = "tests.envs.base.parrot"  # an environment whose answers contain its own options


def make_served_environment(
    *, word: str = "hello", times: int = 3, pause: float = 0.5, loud: bool = False
):
    return (word, times, pause, loud)


def bound(**given_options):
    return options.bind(make_served_environment, given_options, "here")


def test_command_line_options_are_converted_to_the_types_of_the_defaults():
    texts = options.parse(["word=a=b", "times=5", "pause=2", "loud=True"])
    assert bound(**texts) == {"word": "a=b", "times": 5, "pause": 2.0, "loud": True}
    assert bound(times=7, loud=False, pause=1) == {"times": 7, "loud": False, "pause": 1.0}
    assert bound(word="12") == {"word": "12"}
    assert bound() == {}


@pytest.mark.parametrize(
    ("given_options", "told"),
    [
        ({"wrod": "x"}, "no option 'wrod'; its options and defaults: word='hello', times=3"),
        ({"times": "many"}, "times='many' is not a value of type int"),
        ({"times": "1.5"}, "is not a value of type int"),
        ({"times": True}, "is not a value of type int"),
        ({"loud": "1"}, "loud='1' is not a value of type bool"),
        ({"word": 3}, "word=3 is not a value of type str"),
    ],
)
def test_unknown_options_and_values_of_wrong_types_are_refused(given_options, told):
    with pytest.raises(SetupError, match=told):
        bound(**given_options)


@pytest.mark.parametrize("text", ["times", "=3", "a b=3"])
def test_an_option_without_a_name_is_refused(text):
    with pytest.raises(SetupError, match="expected NAME=VALUE"):
        options.parse([text])


VALUES = {
    "word": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    "times": st.integers(-1000, 10**12),
    "pause": st.floats(allow_nan=False),
    "loud": st.booleans(),
}


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_options_of_a_config_round_trip_through_a_command_line(chosen):
    arguments = [a.removeprefix("--option=") for a in option_arguments(chosen)]
    assert bound(**options.parse(arguments)) == chosen


def test_an_environment_without_options_refuses_every_option():
    with pytest.raises(SetupError, match="its options and defaults: none at all"):
        load_environment("tests.envs.base.door", {"engine": "x"})


def test_a_server_passes_its_options_to_its_workers():
    with serving(MODULE, options={"word": "lora", "times": "2"}) as client:
        session = client.post("/create").json()["id"]
        first = client.post("/reset", json={"id": session, "data_idx": 0}).json()
        assert first["observation"] == "lora lora"
        assert client.get("/spec").json()["version"] == "lora"


def test_the_version_of_a_server_names_compat_mode():
    with serving(MODULE, compat=True) as client:
        assert client.get("/spec").json()["version"] == "polly-compat"
    assert json.loads(
        InProcessServer(load_environment(MODULE), compat=True).exchange("GET", "/spec", None)[1]
    )["version"].endswith("-compat")


def test_an_environment_in_the_training_process_accepts_options():
    chosen = {"bird": {"word": "koko", "times": 1}}
    with in_process_servers(["bird"], {"bird": MODULE}, chosen) as transports:
        status, body = transports["bird"].exchange("GET", "/spec", None, None)
    assert status == 200 and json.loads(body)["version"] == "koko"


def test_the_conformance_check_accepts_options():
    subject = Subject(MODULE, compat=False, tasks=1, actions=2, options={"word": "jako"})
    try:
        assert subject.play().reset(0).observation == "jako jako jako"
        assert subject.server.exchange("GET", "/spec")[1]["version"] == "jako"
    finally:
        subject.close()


def test_an_unknown_option_gives_an_error_of_one_line(capsys):
    assert main(["prepare", MODULE, "--option", "colour=red"]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "parrot has no option 'colour'" in errors


def test_prepare_reports_the_version_of_the_environment(capsys):
    assert main(["prepare", MODULE, "--option", "word=ara"]) == 0
    assert capsys.readouterr().out == "parrot is ready: version ara\n"
