"""Wordle: feedback, tasks, hidden words of both modes and the scripted agent."""

import collections
import random
import re

import pytest

from agentgym_envs.base.environment import StepResult
from agentgym_envs.wordle.environment import MAX_GUESSES
from agentgym_envs.wordle.served import make_served_environment
from agentgym_envs.wordle.tasks import task_manifest
from agentgym_envs.wordle.words import VOCABULARY, consistent, feedback, spaced
from tests.envs.playing import play_expert, started
from tests.envs.recordings import Replay

SERVED = make_served_environment()
make_environment, make_compat_environment = SERVED.factory, SERVED.compat_factory
BOTH = pytest.mark.parametrize("make", [make_environment, make_compat_environment])
START = "Let's start Wordle!"
FINISHED = {"error": "The task with environment 0 has finished."}
SUGAR = VOCABULARY.index("sugar")


@pytest.mark.parametrize(
    ("guess", "hidden", "answer"),
    [
        ("shire", "shire", "ggggg"),
        ("panic", "light", "bbbyb"),
        ("could", "cynic", "gbbbb"),
        # both letters l are marked, because the rule depends on letters, not on their occurrences
        ("knoll", "solar", "bbyyy"),
        ("skill", "swill", "gbggg"),
        ("tacit", "other", "ybbby"),
        ("aroma", "panic", "ybbby"),
        ("tacit", "caulk", "bgybb"),
    ],
)
def test_feedback_gives_the_expected_letters(guess, hidden, answer):
    assert feedback(guess, hidden) == answer


def test_an_episode_gives_the_expected_observations():
    environment = make_environment()
    first = environment.reset(SUGAR).observation
    assert first.startswith("Let's start Wordle!") and first.endswith(" ".join(VOCABULARY))
    result = environment.step("s h i r e")
    assert (result.observation, result.reward, result.done) == ("g b b y b\n", 0, False)
    assert environment.state()["candidates"] == ["solar", "sugar"]
    assert environment.step("s o l a r").observation == "g b b g g\n"
    assert environment.step("s u g a r") == StepResult("g g g g g\n", 1, 1, True)


def test_each_task_has_one_fixed_hidden_word_and_all_words_differ():
    found = []
    for task in task_manifest():
        environment = started(make_environment, task["data_idx"])
        assert environment.step(task["hidden"]).reward == 1
        environment.reset(task["data_idx"])
        other = VOCABULARY[task["data_idx"] - 1]
        answers = {environment.step(other).observation for _ in range(5)}
        assert answers == {spaced(feedback(other, task["hidden"])) + "\n"}
        found.append(task["hidden"])
    assert found == list(VOCABULARY) and len(set(found)) == 40


def test_the_first_observation_is_the_same_for_all_hidden_words():
    environment = make_environment()
    assert len({environment.reset(task["data_idx"]) for task in task_manifest()}) == 1


def test_the_scripted_agent_finds_all_words_in_93_guesses():
    environment = make_environment()
    played = []
    for task in task_manifest():
        environment.reset(task["data_idx"])
        played.append(play_expert(environment, MAX_GUESSES))
    assert all(result.score == 1 for result, _ in played)
    assert collections.Counter(turns for _, turns in played) == {1: 1, 2: 25, 3: 14}


def test_the_scripted_agent_uses_only_the_feedback():
    # The agent's next guess depends only on the feedback so far, not on the hidden word.
    by_answer = collections.defaultdict(set)
    for task in task_manifest():
        environment = started(make_environment, task["data_idx"])
        first = environment.expert_action()
        answer = environment.step(first)
        if not answer.done:
            by_answer[first, answer.observation].add(environment.expert_action())
    assert len(by_answer) > 10 and all(len(guesses) == 1 for guesses in by_answer.values())


@BOTH
def test_an_invalid_word_uses_up_a_guess_without_feedback(make):
    environment = started(make, SUGAR)
    for action in ["zzzzz", "sug", "s u g a r s", "", "émile"]:
        result = environment.step(action)
        assert (result.observation, result.reward, result.done) == ("invalid word", 0, False)
        assert re.match(make_served_environment().spec.refusal, result.observation)
    assert environment.state()["candidates"] == list(VOCABULARY)
    last = environment.step("zzzzz")
    assert (last.observation, last.reward, last.done) == ("invalid word", 0, True)


@BOTH
def test_the_sixth_guess_ends_the_game_solved_or_not(make):
    environment = started(make, SUGAR)
    results = [environment.step("p a n i c") for _ in range(6)]
    assert [result.done for result in results] == [False] * 5 + [True]
    assert results[-1].score == 0
    environment = started(make_environment, 0)
    assert [environment.step(word).reward for word in (*VOCABULARY[1:6], "panic")][-1] == 1


@pytest.mark.parametrize("action", ["S H I R E", "s h\ti r e", "Shire"])
def test_case_and_other_whitespace_matter_only_in_compat_mode(action):
    assert started(make_environment, SUGAR).step(action).observation == "g b b y b\n"
    assert started(make_compat_environment, SUGAR).step(action).observation == "invalid word"


@BOTH
def test_spaces_between_the_letters_do_not_matter(make):
    answers = {started(make, 3).step(guess).observation for guess in ("shire", " s hir e\n")}
    assert len(answers) == 1 and "invalid word" not in answers


def test_compat_mode_redraws_the_hidden_word_from_the_remaining_words():
    rng = random.Random(77)
    environment = started(make_compat_environment, 77)
    candidates = list(VOCABULARY)
    # an invalid guess draws no random number
    for guess in ["aloft", "zzzzz", "whack", "moist"]:
        result = environment.step(guess)
        if guess in VOCABULARY:
            answer = feedback(guess, rng.choice(candidates))
            assert result.observation == f"{spaced(answer)}\n"
            candidates = consistent(candidates, guess, answer)
    assert environment.listed_words() == candidates != list(VOCABULARY)


def test_valid_actions_are_the_untried_words():
    environment = started(make_environment, SUGAR)
    assert environment.valid_actions() == [spaced(word) for word in VOCABULARY]
    environment.step("panic"), environment.step("zzzzz")
    assert environment.valid_actions() == [spaced(word) for word in VOCABULARY[1:]]


@pytest.mark.parametrize("data_idx", [-1, 40, 10**30])
def test_any_index_is_a_seed_in_compat_mode(data_idx):
    assert started(make_compat_environment, data_idx).state()["data_idx"] == data_idx


def test_agentgyms_client_can_play_on_our_server():
    # AgentGym's client requests the vocabulary before the first reset and includes it in the first
    # message to the agent.
    server = Replay(make_served_environment(), compat=False)
    assert server.created == {"id": 0}
    assert server.ask("/filtered_vocab") == list(VOCABULARY)
    assert server.ask("/reset", SUGAR)["observation"].startswith("Let's start Wordle!")
    assert server.ask("/step", "s h i r e") == ("g b b y b\n", 0, False)
    assert server.ask("/filtered_vocab") == list(VOCABULARY)
    assert server.ask("/step", "s u g a r") == ("g g g g g\n", 1, True)
    assert server.ask("/observation") == "g g g g g\n"
    assert server.ask("/detail")["done"] is True


def test_after_the_end_compat_mode_accepts_only_a_reset():
    server = Replay(make_served_environment())
    server.ask("/reset", 12345)
    server.ask("/step", "panic")
    assert server.ask("/step", "pause") == ("g g g g g\n", 1, True)
    for path in ("/observation", "/detail", "/filtered_vocab"):
        assert server.ask(path) == FINISHED
    assert server.ask("/reset", 12345) == {"id": 0, "observation": START}


def test_instructions_and_first_observation_contain_rules_and_words():
    spec, first = make_served_environment().spec, make_environment().reset(0).observation
    assert all(word in first for word in VOCABULARY)
    assert all(f"- {letter}: " in spec.instructions for letter in "gyb")
    assert "Thought:" in spec.instructions and "\nAction:" in spec.instructions
