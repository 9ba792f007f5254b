"""The turn budget shown to an agent, which changes only the texts that the agent sees."""

import numpy as np
import pytest

from agentgym_jax.client.actions import ParsedAction
from agentgym_jax.client.answers import Observation
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import TokenSource, from_record, to_record
from agentgym_jax.learner.experience import turn_anchors
from agentgym_jax.rollout.episode import (
    TURN_BUDGETS,
    AgentTurn,
    Append,
    Episode,
    EpisodeLimits,
    EpisodeRequest,
)
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.text.chat import ChatRenderer, Message
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.builders import experience_of

# Outputs of the agent and answers of the environment in each episode; the answer None marks a parse
# error.
EPISODES = (
    (("go east", "kitchen"), ("hm", None), ("go west", "hall"), ("open door", "end")),
    (("open door", "end"),),
    (("go east", "kitchen"), ("go north", "pantry"), ("go south", "kitchen"), ("hm", None)),
)
LIMIT = 4
PROBLEM = "No action."


@pytest.fixture(scope="module")
def renderer():
    return ChatRenderer(byte_tokenizer())


def play(renderer, said, show_turn_budget=None, **limits):
    """Plays an episode that starts in the hall.

    Without `show_turn_budget`, the texts do not mention the budget.
    """
    options = {} if show_turn_budget is None else dict(show_turn_budget=show_turn_budget)
    limits = EpisodeLimits(LIMIT, 1000, 9, **limits)
    preamble = ({"role": "system", "content": "rules"},)
    request = EpisodeRequest(Task("castle", 0, ""), 0, 0, 0, limits, SamplingOptions(1.0, 9, 1000))
    episode = Episode(request, renderer=renderer, preamble=preamble, **options)
    command = episode.begin("hall")
    for text, answer in said:
        assert isinstance(command, Append)
        tokens = np.array(renderer.action(text), np.int32)
        logprobs = np.full(len(tokens), -0.5, np.float32)
        turn = AgentTurn(row=0, text=text, tokens=tokens, logprobs=logprobs)
        parsed = ParsedAction(text) if answer else ParsedAction(None, PROBLEM)
        command = episode.act(turn, parsed)
        if answer is not None:
            is_end = answer == "end"
            command = episode.observe(Observation(answer, float(is_end), 0.0, is_end, is_end))
    return episode.trajectory(attempts=1, seconds=0.0)


def read(trajectory):
    return [m["content"] for m in trajectory.messages if m["role"] == "user"]


def test_no_budget_is_shown_by_default(renderer):
    silent = play(renderer, EPISODES[0])
    assert read(silent) == ["hall", "kitchen", PROBLEM, "hall"]
    same = play(renderer, EPISODES[0], "none")
    np.testing.assert_array_equal(silent.tokens, same.tokens)


def test_the_limit_is_shown_once_at_the_start(renderer):
    first, *later = read(play(renderer, EPISODES[0], "start"))
    assert first == "hall\nTurns for this task: 4." and later == ["kitchen", PROBLEM, "hall"]


def test_the_remaining_budget_is_shown_before_every_turn_even_after_a_failed_turn(renderer):
    assert read(play(renderer, EPISODES[0], "every_turn")) == [
        "hall\nTurns left: 4.",
        "kitchen\nTurns left: 3.",
        f"{PROBLEM}\nTurns left: 2.",
        "hall\nTurns left: 1.",
    ]


def test_an_observation_kept_at_the_horizon_shows_zero_turns_left(renderer):
    last = play(renderer, EPISODES[2], "every_turn", keep_last_observation=True)
    assert read(last)[-1].endswith("\nTurns left: 0.")


@pytest.mark.parametrize("show_turn_budget", TURN_BUDGETS)
def test_the_tokens_equal_those_of_the_whole_rendered_conversation(renderer, show_turn_budget):
    trajectory = play(renderer, EPISODES[0], show_turn_budget)
    messages = [Message(m["role"], m["content"]) for m in trajectory.messages]
    whole = renderer.encode_conversation(messages).tokens
    np.testing.assert_array_equal(trajectory.tokens, whole[: len(trajectory.tokens)])


def experience(trajectories, name, options):
    return experience_of(
        trajectories,
        name,
        group_size=len(trajectories),
        max_tokens=512,
        failed_turn_penalty=0.1,
        advantage_options=options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("show_turn_budget", ["start", "every_turn"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("grpo", dict(std_normalize=True, eps=1e-6)),
        ("gigpo", dict(step_weight=1.0, turn_discount=0.9, std_normalize=False, eps=1e-6)),
        ("reinforce", dict(discount=0.99, turn_discount=0.9)),
    ],
)
def test_the_shown_budget_changes_neither_actions_nor_their_advantages(
    renderer, show_turn_budget, name, options
):
    silent = [play(renderer, said) for said in EPISODES]
    told = [play(renderer, said, show_turn_budget) for said in EPISODES]
    for a, b in zip(silent, told, strict=True):
        assert len(b.tokens) > len(a.tokens)
        np.testing.assert_array_equal(a.tokens[a.action_mask], b.tokens[b.action_mask])
        added = np.setdiff1d(np.unique(b.sources), [TokenSource.PROMPT, TokenSource.ACTION])
        assert added.tolist() in ([], [TokenSource.OBSERVATION])
    before, after = experience(silent, name, options), experience(told, name, options)
    advantages = before.advantage_BT[before.episodes.action_mask_BT]
    np.testing.assert_array_equal(advantages, after.advantage_BT[after.episodes.action_mask_BT])
    assert len(np.unique(advantages)) > 2


def test_a_state_is_the_same_for_any_remaining_budget(renderer):
    """Checks an episode that returns to its first room: the state ignores the lower budget."""
    silent = turn_anchors([play(renderer, said) for said in EPISODES], group_size=3)
    told = [play(renderer, said, "every_turn") for said in EPISODES]
    assert turn_anchors(told, group_size=3) == silent
    assert turn_anchors([from_record(to_record(t)) for t in told], group_size=3) == silent
    hall, kitchen, still_kitchen, hall_again = silent[0]
    assert kitchen == still_kitchen and hall_again == hall == silent[1][0]
