"""The table of AgentGym's environments, which must be complete and agree with its documentation.

Servers with a spec need no entry in the table.
"""

import dataclasses
import pathlib

import pytest

from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_jax.client import calls
from agentgym_jax.client.actions import ActionFormat
from agentgym_jax.client.agentgym_originals.servers import ORIGINALS
from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.server_facts import ServerFacts, from_spec
from tests.env_clients import connect
from tests.waiting import PATIENCE_S

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "agentgym_environments.md"
FIFTEEN = {
    *("textcraft", "babyai", "sciworld", "webshop", "alfworld", "maze", "wordle", "sqlgym"),
    *("searchqa", "webarena", "weather", "movie", "academia", "todo", "sheet"),
}


def condition(success):
    bound = "> 0" if success.least == 1e-9 else f">= {success.least:g}"
    return f"{'done, ' if success.needs_done else ''}{success.field} {bound}"


def documented(row):
    """Returns the line of the documentation for a row of the table."""
    first = " + ".join(f"`{name}`" for name in row.reset_fields) or "`GET /observation`"
    cells = [
        f"`{row.environment}`",
        f"`{row.path_prefix or '/'}`",
        f"`{row.session_field}`",
        f"`{row.reset_key}`",
        first
        + (", words" if row.vocabulary_route else "")
        + (", actions" * bool(row.actions_field)),
        f"`{row.observation_field}`, `{row.done_field}`",
        f"`{row.score_fields[0]}`",
        condition(row.succeeded),
        f"{row.reward_scale:g}",
        "yes" if row.has_close else "no",
        str(row.num_tasks),
        str(row.max_turns),
        ", ".join(row.formats),
    ]
    return f"| {' | '.join(cells)} |"


def test_the_table_has_all_environments_of_agentgym():
    assert set(ORIGINALS) == FIFTEEN
    assert all(name == row.environment for name, row in ORIGINALS.items())


def test_the_documentation_shows_exactly_this_table():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| name |"))
    shown = [line for line in lines[start + 2 : start + 2 + len(ORIGINALS) + 1] if line]
    assert shown == [documented(row) for row in ORIGINALS.values()]


@pytest.mark.parametrize(
    ("environment", "answer", "solved"),
    [
        ("textcraft", (1, 1, True), True),
        ("textcraft", (0, 0, True), False),
        ("babyai", (0.1, 0.1, True), True),
        ("babyai", (0.5, 2.5, False), False),
        ("babyai", (0, 0.5, True), False),
        ("sciworld", (17, 100, True), True),
        ("sciworld", (99, 99, True), False),
        ("sciworld", (1, 1, False), False),
        ("webshop", (1.0, 1.0, True), True),
        ("webshop", (0.99, 0.99, True), False),
        ("maze", (-1.0, -1.0, True), False),
        ("sheet", (0.5, 0.5, True), False),
        ("todo", (1.0, 1.0, True), True),
    ],
)
def test_success_follows_agentgyms_definition(environment, answer, solved):
    assert ORIGINALS[environment].succeeded(*answer) == solved


@pytest.mark.parametrize("environment", sorted(FIFTEEN))
def test_every_format_of_an_environment_has_instructions_and_rules(environment):
    row = ORIGINALS[environment]
    told = set()
    for action_format in row.formats:
        chosen = row.in_format(action_format)
        assert chosen.actions.format is action_format
        assert len(chosen.instructions) > 300
        told.add(chosen.instructions)
    # `react_or_bare` changes the parser but not the text for the agent.
    assert len(told) == len(set(row.formats) - {ActionFormat.REACT_OR_BARE})
    assert row.in_format(None) is row


def test_an_unsupported_format_is_refused_at_once():
    with pytest.raises(ValueError, match="maze has no action format 'function_calling'.*react"):
        EnvClient(
            "http://127.0.0.1:1",
            "maze",
            connect_timeout_s=PATIENCE_S,
            step_timeout_s=PATIENCE_S,
            action_format="function_calling",
        )


@pytest.mark.parametrize("environment", ["sciworld", "webshop", "alfworld"])
def test_instructions_of_every_format_name_all_actions(environment):
    row = ORIGINALS[environment]
    react = row.in_format(ActionFormat.REACT).instructions
    for name, function in row.functions.items():
        shown = function.templates[0].replace("{", "<").replace("}", ">")
        assert f"\n{shown}" in react
        for action_format in (ActionFormat.FUNCTION_CALLING, ActionFormat.CODE_AS_ACTION):
            told = row.in_format(action_format).instructions
            assert f"\n{calls.signature(name, function)} - {function.does}" in told


def test_required_arguments_of_a_function_occur_in_all_its_forms():
    for environment in ("sciworld", "webshop", "alfworld"):
        for function in ORIGINALS[environment].functions.values():
            needed = set(function.parameters) - set(function.optional)
            for template in function.templates:
                names = {p for p in function.parameters if f"{{{p}}}" in template}
                assert needed <= names
                assert template.count("{") == len(names)


@pytest.mark.parametrize("environment", ["maze", "webshop"])
def test_a_text_without_a_rejection_mark_is_not_a_rejection(environment):
    assert not ORIGINALS[environment].is_rejection("")
    assert not ORIGINALS[environment].is_rejection("You cannot")


# Servers that send a spec of their protocol.

SPEC = EnvironmentSpec(
    name="chess",
    version="1",
    instructions="Play. Reply with `Action: ...`",
    action_format="react",
    num_tasks=64,
    manifest_sha256="ab",
    max_turns=40,
    refusal=r"Illegal move",
    success_score=2.0,
)


class Chess:
    """A server of an environment that the client's table lacks."""

    def __init__(self, spec):
        self.spec = spec
        self.calls = []

    def answer(self, path, body):
        self.calls.append((path, body))
        if path == "/create":
            return 200, {"id": 3}
        if path == "/spec":
            return 200, dataclasses.asdict(self.spec) | {"later": 1}
        if path == "/reset":
            return 200, {"observation": "e2 is yours", "reward": 0, "score": 0, "done": False}
        if path == "/step" and body["action"] == "mate":
            return 200, {"observation": "won", "reward": 2, "score": 2, "done": True}
        if path == "/step" and body["action"] == "draw":
            return 200, {"observation": "a draw", "reward": 1, "score": 1, "done": True}
        if path == "/step" and body["action"] == "resign":
            return 200, {"observation": "lost", "reward": -1, "done": True}
        if path == "/step":
            return 200, {"observation": "Illegal move!", "reward": 0, "score": 2, "done": False}
        return 200, True


def test_a_server_with_a_spec_needs_no_table_entry(serve):
    world = Chess(SPEC)
    with serve(world) as server:
        client = connect(server.url, "chess")
        assert world.calls == []
        session = client.create()
        assert client.reset(session, 5).text == "e2 is yours"
        assert world.calls[-1] == ("/reset", {"id": 3, "data_idx": 5})
        assert client.parse("Thought: so\nAction: e4, please!").action == "e4, please!"
        refused = client.step(session, "e9")
        assert (refused.is_rejection, refused.success, refused.score) == (True, False, 2)
        won = client.step(session, "mate")
        assert (won.success, won.score, won.is_rejection) == (True, 2, False)
        assert not client.step(session, "draw").success
        lost = client.step(session, "resign")
        # if a server sends no score, the reward is used
        assert (lost.success, lost.score) == (False, -1)
        client.close(session)
        assert [path for path, _ in world.calls].count("/spec") == 1
        assert client.spec() == SPEC


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"action_format": "semaphore"}, "semaphore"),
        ({"refusal": "("}, "regular expression"),
        ({"name": "go"}, "'go'"),
    ],
)
def test_the_error_for_an_unusable_spec_gives_the_reason(serve, change, named):
    with serve(Chess(dataclasses.replace(SPEC, **change))) as server:
        with pytest.raises(EnvError) as caught:
            connect(server.url, "chess").create()
    assert caught.value.cause is EnvCause.BAD_BODY
    assert not caught.value.retryable_from_reset
    assert named in caught.value.message


@pytest.mark.parametrize("value", ["1", None, True])
def test_a_success_score_that_is_not_a_number_is_a_bad_body(serve, value):
    with serve(Chess(dataclasses.replace(SPEC, success_score=value))) as server:
        with pytest.raises(EnvError) as caught:
            connect(server.url, "chess").spec()
    assert caught.value.cause is EnvCause.BAD_BODY


def test_a_raw_spec_has_only_the_raw_action_format():
    row = from_spec(dataclasses.replace(SPEC, action_format="raw"))
    assert row.formats == (ActionFormat.RAW,)


def test_explicit_facts_replace_those_of_the_table(serve):
    row = dataclasses.replace(from_spec(SPEC), reset_key="opening")
    assert isinstance(row, ServerFacts)
    world = Chess(SPEC)
    with serve(world) as server:
        connect(server.url, "chess", facts=row).reset(3, 5)
    assert world.calls == [("/reset", {"id": 3, "opening": 5})]


MAZE = dataclasses.replace(SPEC, name="maze", refusal="You cannot ", instructions="Walk.")


def test_a_spec_replaces_rejections_and_instructions_of_the_table(serve):
    class Prefixed(Chess):
        def answer(self, path, body):
            return super().answer(path.removeprefix("/maze"), body)

    with serve(Prefixed(MAZE)) as server:
        client = connect(server.url, "maze")
        assert client.spec().instructions == "Walk."
        assert client.facts.is_rejection("You cannot go there")
        assert client.facts.reset_key == "game"


def test_the_action_format_of_a_spec_replaces_that_of_the_table(serve):
    wants_raw = dataclasses.replace(SPEC, name="alfworld", action_format="raw")
    with serve(Chess(wants_raw)) as server:
        client = connect(server.url, "alfworld")
        assert client.parse("look").action is None
        client.spec()
        assert client.parse("look").action == "look"


def test_a_chosen_format_changes_the_instructions_and_the_parser_of_a_server_with_a_spec(serve):
    own = dataclasses.replace(SPEC, name="alfworld")
    with serve(Chess(own)) as server:
        client = connect(server.url, "alfworld", action_format="code_as_action")
        spec = client.spec()
        assert spec.action_format == "code_as_action"
        assert "take(obj, recep)" in spec.instructions
        assert client.parse("```python\ngoto('desk 1')\n```").action == "go to desk 1"
