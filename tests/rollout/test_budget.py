"""What an agent is told of its turns: it reads it, and nothing else depends on it."""

import numpy as np
import pytest

from agentgym_jax.algorithms import ALGORITHMS
from agentgym_jax.data.tasks import Task
from agentgym_jax.learner.experience import make_experience, turn_anchors
from agentgym_jax.rollout import budget
from agentgym_jax.rollout.episode import Append, Episode, EpisodeLimits
from agentgym_jax.text.chat import ChatRenderer, Message
from agentgym_jax.text.template import COMPACT
from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.trajectory import TokenSource, from_record, to_record

# Per episode what is said and what the environment answers; None: the action cannot be read.
EPISODES = (
    (("go east", "kitchen"), ("hm", None), ("go west", "hall"), ("open door", "end")),
    (("open door", "end"),),
    (("go east", "kitchen"), ("go north", "pantry"), ("go south", "kitchen"), ("hm", None)),
)
LIMIT = 4
PROBLEM = "No action."


@pytest.fixture(scope="module")
def renderer():
    return ChatRenderer(byte_tokenizer().with_chat_template(COMPACT))


def play(renderer, said, tell_budget=None, **limits):
    """An episode in the hall; without `tell_budget` it is not mentioned at all."""
    options = {} if tell_budget is None else dict(tell_budget=tell_budget)
    episode = Episode(
        Task("castle", 0, ""),
        sample=0,
        step=0,
        renderer=renderer,
        preamble=({"role": "system", "content": "rules"},),
        limits=EpisodeLimits(LIMIT, 1000, 9, **limits),
        **options,
    )
    command = episode.begin("hall")
    for text, answer in said:
        assert isinstance(command, Append)
        tokens = np.array(renderer.action(text), np.int32)
        command = episode.act(
            tokens,
            np.full(len(tokens), -0.5, np.float32),
            is_stopped=True,
            version=0,
            text=text,
            action=None if answer is None else text,
            problem=PROBLEM,
        )
        if answer is not None:
            is_end = answer == "end"
            command = episode.observe(
                answer, reward=float(is_end), score=0.0, done=is_end, success=is_end
            )
    return episode.trajectory(attempts=1, seconds=0.0)


def read(trajectory):
    return [m["content"] for m in trajectory.messages if m["role"] == "user"]


def test_nothing_is_told_unless_it_is_asked_for(renderer):
    silent = play(renderer, EPISODES[0])
    assert read(silent) == ["hall", "kitchen", PROBLEM, "hall"]
    same = play(renderer, EPISODES[0], "none")
    np.testing.assert_array_equal(silent.tokens, same.tokens)


def test_the_limit_is_told_once_at_the_start(renderer):
    first, *later = read(play(renderer, EPISODES[0], "start"))
    assert first == "hall\nTurns for this task: 4." and later == ["kitchen", PROBLEM, "hall"]


def test_what_is_left_is_told_before_every_turn_after_wasted_ones_too(renderer):
    assert read(play(renderer, EPISODES[0], "every_turn")) == [
        "hall\nTurns left: 4.",
        "kitchen\nTurns left: 3.",
        f"{PROBLEM}\nTurns left: 2.",
        "hall\nTurns left: 1.",
    ]


def test_an_observation_kept_at_the_horizon_says_that_none_is_left(renderer):
    last = play(renderer, EPISODES[2], "every_turn", keep_last_observation=True)
    assert read(last)[-1].endswith("\nTurns left: 0.")


@pytest.mark.parametrize("tell_budget", budget.TELLINGS)
def test_the_tokens_are_those_of_the_messages_rendered_at_once(renderer, tell_budget):
    trajectory = play(renderer, EPISODES[0], tell_budget)
    messages = [Message(m["role"], m["content"]) for m in trajectory.messages]
    whole = renderer.encode_conversation(messages).tokens
    np.testing.assert_array_equal(trajectory.tokens, whole[: len(trajectory.tokens)])


def experience(trajectories, name, options):
    return make_experience(
        trajectories,
        algorithm=ALGORITHMS[name],
        group_size=len(trajectories),
        max_tokens=512,
        reward="success",
        wasted_turn_penalty=0.1,
        truncation="fail",
        advantage_options=options,
    )


@pytest.mark.parametrize("tell_budget", ["start", "every_turn"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("grpo", dict(std_normalize=True, eps=1e-6)),
        ("gigpo", dict(step_weight=1.0, turn_discount=0.9, std_normalize=False, eps=1e-6)),
        ("reinforce", dict(discount=0.99, turn_discount=0.9)),
    ],
)
def test_what_is_told_changes_neither_actions_nor_their_advantages(
    renderer, tell_budget, name, options
):
    silent = [play(renderer, said) for said in EPISODES]
    told = [play(renderer, said, tell_budget) for said in EPISODES]
    for a, b in zip(silent, told, strict=True):
        assert len(b.tokens) > len(a.tokens)
        np.testing.assert_array_equal(a.tokens[a.action_mask], b.tokens[b.action_mask])
        added = np.setdiff1d(np.unique(b.sources), [TokenSource.PROMPT, TokenSource.ACTION])
        assert added.tolist() in ([], [TokenSource.OBSERVATION])
    before, after = experience(silent, name, options), experience(told, name, options)
    np.testing.assert_array_equal(
        before.advantage_BT[before.action_mask_BT], after.advantage_BT[after.action_mask_BT]
    )
    assert len(np.unique(before.advantage_BT[before.action_mask_BT])) > 2


def test_a_state_is_the_same_whatever_is_left(renderer):
    """The third action of the first episode leads back to the hall where all of them began."""
    silent = turn_anchors([play(renderer, said) for said in EPISODES], group_size=3)
    told = [play(renderer, said, "every_turn") for said in EPISODES]
    assert turn_anchors(told, group_size=3) == silent
    assert turn_anchors([from_record(to_record(t)) for t in told], group_size=3) == silent
    hall, kitchen, still_kitchen, hall_again = silent[0]
    assert kitchen == still_kitchen and hall_again == hall == silent[1][0]


def test_a_telling_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="tell_budget='always', expected one of none, start"):
        budget.check_telling("always")
