"""Episodes of agent programs: exact tokens, branches, typed failures and limits."""

import dataclasses
import functools
import pathlib
import shlex
import subprocess
import sys
import time
import types

import jax
import numpy as np
import pytest

from agentgym_jax.client.errors import ServerUnavailable
from agentgym_jax.client.no_server import NoServerTransport
from agentgym_jax.episodes.batch import pack
from agentgym_jax.episodes.trajectory import Outcome, TokenSource
from agentgym_jax.learner.turn_masks import turn_masks
from agentgym_jax.learner.update import make_score
from agentgym_jax.programs import program_episode
from agentgym_jax.programs.runners import CommandProgram
from agentgym_jax.programs.task import AgentTask
from tests.programs import client_programs, programs
from tests.programs.played_programs import LIMITS, Setup, command, function
from tests.rollout.world import World
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def setup(policy):
    return Setup(policy, World())


def test_a_program_has_the_tokens_and_turns_of_the_policy_itself(setup):
    limits = dataclasses.replace(LIMITS, max_turns=2)
    alone, _ = setup.play(None, range(6), group=2, limits=limits)
    played, _ = setup.play(function(programs.react), range(6), group=2, limits=limits)
    assert {t.outcome for t in alone} >= {Outcome.FAILURE, Outcome.HORIZON}
    for ours, theirs in zip(alone, played, strict=True):
        for name in ("tokens", "sources", "logprobs", "policy_versions"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        changed = dict(seconds=0.0, tokens=0, sources=0, logprobs=0, policy_versions=0)
        assert {**vars(ours), **changed} == {**vars(theirs), **changed}


def overlapping(setup, policy, *, between=lambda: None, others=()):
    """Returns a function that collects episodes whose turns use weights of versions 0, 1 and 2.

    After each version it calls `between`, and collects other episodes with the indices `others`.
    """

    def drive(collector, requests, calls):
        episodes = collector.overlapping(1)
        added = [
            episodes.add([dataclasses.replace(r, turn_versions=v) for r in half])
            for v, half in (((0, 1, 2), requests[::2]), ((1, 1, 2), requests[1::2]))
        ]
        try:
            for version in range(3):
                setup.sampler.release()
                setup.sampler.set_params(policy.init(jax.random.key(version)), version=version)
                episodes.run(version, **calls)
                assert setup.sampler.free_rows == setup.sampler.rows
                between()
                if others:
                    collector.collect([requests[i] for i in others], replacement_stride=1, **calls)
            halves = [episodes.take(indices) for indices in added]
        finally:
            episodes.close()
        return [t for pair in zip(*halves, strict=True) for t in pair], None

    return drive


def test_a_program_waits_for_the_weights_of_each_turn_and_its_time_does_not_pass(
    setup, policy, monkeypatch
):
    clock = time.perf_counter
    passed = [0.0]
    fake = types.SimpleNamespace(perf_counter=lambda: clock() + passed[0])
    monkeypatch.setattr(program_episode, "time", fake)

    def between():
        passed[0] += 10 * PATIENCE_S

    alone, _ = setup.play(None, range(6), drive=overlapping(setup, policy))
    drive = overlapping(setup, policy, between=between, others=(0, 3))
    played, _ = setup.play(function(programs.react), range(6), drive=drive)
    for i, (ours, theirs) in enumerate(zip(played, alone, strict=True)):
        assert (ours.outcome, ours.error) == (theirs.outcome, "")
        for name in ("tokens", "sources", "logprobs", "policy_versions"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        versions = [ours.policy_versions[turn.action_start] for turn in ours.turns]
        assert versions == [i % 2, 1, 2][: len(versions)]
    assert max(len(t.turns) for t in played) == 3


def test_waiting_programs_end_with_the_run(setup, policy):
    def drive(collector, requests, calls):
        episodes = collector.overlapping(1)
        episodes.add([dataclasses.replace(r, turn_versions=(0, 1, 1)) for r in requests])
        setup.sampler.set_params(policy.init(jax.random.key(0)), version=0)
        episodes.run(0, **calls)
        assert setup.world.sessions
        episodes.close()
        assert not collector.gateway.url
        return [], None

    setup.play(function(programs.react), drive=drive)


def test_each_action_is_recorded_with_its_answer(setup):
    episodes, _ = setup.play(function(programs.two_conversations), range(8))
    assert max(len(t.turns) for t in episodes) == 3
    for episode in episodes:
        assert [t.action for t in episode.turns] == [t.text.encode().hex() for t in episode.turns]
        assert [t.reward for t in episode.turns] == [0.0] * (len(episode.turns) - 1) + [0.25]
        assert episode.score == 0.25


def test_a_command_gives_the_episodes_of_the_function(setup):
    functions, _ = setup.play(function(programs.one_turn), (0, 1))
    commands, _ = setup.play(command("one_turn"), (0, 1))
    for ours, theirs in zip(functions, commands, strict=True):
        assert ours.tokens.tolist() == theirs.tokens.tolist()
        assert (ours.outcome, ours.reward) == (theirs.outcome, theirs.reward)
    assert [t.outcome for t in functions] == [Outcome.SUCCESS, Outcome.FAILURE]
    assert [t.reward for t in functions] == [1.0, 0.0]


def test_a_rewritten_history_is_a_branch_whose_context_is_not_trained(setup):
    (episode,), _ = setup.play(function(programs.summariser), (5,))
    first, second = episode.branches
    assert [turn.action_start < second.start for turn in episode.turns] == [True, True, False]
    assert episode.turns[-1].reward == episode.score == 0.5
    assert episode.success
    assert not episode.logprobs[second][:10].any()
    # The rewritten answer is context; its message has no loss.
    assert [m.get("loss") for m in episode.messages if m["role"] == "assistant"].count(False) == 1
    sources = episode.sources[second]
    start = episode.turns[-1].action_start - second.start
    assert (sources[:start] == TokenSource.PROMPT).all()
    assert first.stop == second.start


@pytest.mark.parametrize(
    "program", [client_programs.messages_client, client_programs.responses_client]
)
def test_programs_of_other_apis_train_the_tokens_of_a_chat_client(setup, program):
    chats, _ = setup.play(function(client_programs.chat_client), (0, 1))
    played, statistics = setup.play(function(program), (0, 1))
    assert statistics.forks == 0
    for ours, theirs in zip(played, chats, strict=True):
        assert (len(ours.turns), len(ours.branches)) == (3, 1)
        for name in ("tokens", "sources", "logprobs"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        assert ours.turns == theirs.turns


def test_concurrent_requests_of_an_episode_are_branches(setup):
    episodes, _ = setup.play(function(programs.parallel), (0, 1))
    for episode in episodes:
        assert len(episode.branches) == 3
        assert len({tuple(episode.tokens[b][-6:]) for b in episode.branches}) == 3


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (function(programs.crash), "RuntimeError: the program is broken"),
        (function(programs.silent), "made no chat request"),
        (function(programs.wrong_result), "returned 'very good'; expected a finite number"),
        (command("crash"), "(?s)status 1: .*the program is broken"),
        (command("no_such_program"), "status 1"),
    ],
    ids=["crash", "silent", "wrong result", "command crash", "missing"],
)
def test_a_failing_program_is_never_a_reward(setup, program, found):
    with pytest.raises(ServerUnavailable, match=found):
        setup.play(program, (0, 1))


def test_a_command_gets_no_secrets_unless_they_are_named(monkeypatch):
    names = {"A_SECRET": "1", "MY_API_KEY": "2", "OTHER_KEY_ID": "3", "TOKENIZERS_PARALLELISM": "4"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    code = f"import os, json; print(json.dumps(sum(int(os.environ.get(n, 0)) for n in {[*names]})))"
    task = AgentTask("", "", "", "", 0, 0, 0, "")
    command = f"{sys.executable} -c {shlex.quote(code)}"
    for variables, reward in (((), 4.0), (("MY_API_KEY",), 6.0)):
        program = CommandProgram(command, task, variables=variables)
        until(lambda program=program: program.poll() is not None, "the end of the command")
        assert program.poll().reward == reward
        program.stop()


def test_a_command_that_cannot_be_started_is_refused(setup):
    with pytest.raises(ServerUnavailable, match="program.command cannot be started: .*/no/such"):
        setup.play(functools.partial(CommandProgram, "/no/such/program"), (0,))


def test_a_program_without_a_server_cannot_play_its_environment(setup):
    with pytest.raises(ServerUnavailable, match="program failed in all 2.*return the reward, with"):
        setup.play(function(programs.react), (0, 1), transport=NoServerTransport("textcraft"))
    played, _ = setup.play(
        function(programs.one_turn), (0, 1), transport=NoServerTransport("textcraft")
    )
    assert [t.outcome for t in played] == [Outcome.SUCCESS, Outcome.FAILURE]


def test_an_episode_whose_program_fails_is_invalid(setup):
    episodes, statistics = setup.play(function(programs.crash_sometimes), (0, 1, 2), max_attempts=2)
    assert [t.outcome for t in episodes] == [
        Outcome.SUCCESS,
        Outcome.PROGRAM_ERROR,
        Outcome.SUCCESS,
    ]
    assert "is broken" in episodes[1].error
    assert not episodes[1].outcome.is_valid
    assert (episodes[1].attempts, statistics.restarts) == (2, 1)


def test_more_choices_than_turns_are_refused_without_ending_the_episode(setup):
    episodes, _ = setup.play(function(programs.wide))
    assert [t.outcome for t in episodes] == [Outcome.SUCCESS] * 4
    assert [(len(t.turns), len(t.branches)) for t in episodes] == [(3, 3)] * 4


def test_the_learner_scores_forms_under_the_masks_of_the_sampler(setup, policy):
    episodes, _ = setup.play(function(programs.formed), group=2)
    assert {(t.outcome, len(t.turns), len(t.branches)) for t in episodes} == {
        (Outcome.HORIZON, 3, 2)
    }
    for t in episodes:
        assert [bool(turn.grammar) for turn in t.turns] == [False, True, True]
        assert set(t.turns[1].text) <= set("0123456789abcdef")

    def sequence(t, branch, masks):
        arrays = {"tokens": t.tokens, "action_mask": t.action_mask, "sampler_logprobs": t.logprobs}
        return {name: values[branch] for name, values in arrays.items()} | masks

    score = make_score(policy, temperature=1.0, logprob_chunk=64)
    params = policy.init(jax.random.key(0))
    gaps = []
    for grammars in (setup.grammars, None):
        batch = pack(
            [
                sequence(t, b, turn_masks(t, b, grammars) if grammars else {})
                for t in episodes
                for b in t.branches
            ],
            row_length=256,
            rows_multiple=4,
        )
        gap = np.asarray(score(params, batch)[0]) - batch.sampler_logprobs
        gaps.append(np.abs(gap)[batch.action_mask].max())
    assert gaps[0] < 2e-5
    assert gaps[1] > 1.0


def test_masks_that_do_not_allow_a_sampled_token_are_an_error(setup):
    (episode, *_), _ = setup.play(function(programs.formed))
    turns = [dataclasses.replace(turn, grammar='start: "x"') for turn in episode.turns]
    changed = dataclasses.replace(episode, turns=tuple(turns))
    with pytest.raises(ValueError, match="not one that the grammar"):
        turn_masks(changed, changed.branches[1], setup.grammars)
    with pytest.raises(ValueError, match="no compiler"):
        turn_masks(changed, changed.branches[1], None)


def test_an_episode_without_an_answer_is_never_a_reward(setup):
    with pytest.raises(ServerUnavailable, match="got no answer; .* more choices than .* lower n"):
        setup.play(function(programs.only_wide))


def test_a_program_does_not_change_the_distribution(setup, caplog):
    plain, _ = setup.play(function(programs.summariser), group=2)
    with caplog.at_level("WARNING"):
        cold, statistics = setup.play(function(programs.cold), group=2)
    for ours, theirs in zip(plain, cold, strict=True):
        assert ours.tokens.tolist() == theirs.tokens.tolist()
    assert statistics.overridden == 8 * 3 * 5  # episodes, requests, parameters
    assert (
        sum(
            "requests set temperature, top_p, seed, presence_penalty, logit_bias;" in line
            for line in caplog.messages
        )
        == 1
    )


def test_rewritten_histories_are_counted_and_the_first_is_shown(setup, caplog):
    with caplog.at_level("WARNING"):
        _, statistics = setup.play(function(programs.summariser))
    assert statistics.forks == 4
    (warning,) = [line for line in caplog.messages if "rewritten its history" in line]
    assert "message 0 (user) has 'so far" in warning
    assert "where 'task " in warning


def test_a_repeated_request_continues_the_same_tokens(setup):
    limits = dataclasses.replace(LIMITS, max_turns=4)
    episodes, statistics = setup.play(function(programs.repeats), limits=limits)
    assert statistics.forks == 0
    for episode in episodes:
        assert len(episode.turns) == 4
        sampled = [episode.tokens[turn.action_start : turn.action_stop] for turn in episode.turns]
        starts = [branch.start for branch in episode.branches]
        # The second and third branch begin with copies of the first branch's or of each other's
        # tokens: each sampled token is trained once.
        assert int(episode.action_mask.sum()) == sum(map(len, sampled))
        assert len(starts) == 3


def test_an_action_belongs_to_the_answer_that_it_names(setup):
    episodes, _ = setup.play(function(programs.two_at_once))
    assert any(t.success for t in episodes)
    for episode in episodes:
        if not episode.success:
            continue  # both answers have the same text
        (first,) = [t for t in episode.turns if t.observation]
        suffix = "" if int(episode.item_id.rpartition("_")[2]) % 2 else "!"
        assert first.action == (first.text + suffix).encode().hex()


def test_a_failing_program_costs_no_other_samples(policy):
    setup = Setup(policy, World())
    episodes, statistics = setup.play(
        function(programs.crash_sometimes), (0, 1), max_attempts=2, max_replacements=1
    )
    assert episodes[1].attempts == 2
    assert statistics.replaced == 0


def test_a_command_and_its_children_end_with_a_killed_trainer(tmp_path):
    code = (
        "import sys, time; from agentgym_jax.programs.runners import CommandProgram;"
        "from agentgym_jax.programs.task import AgentTask;"
        "CommandProgram(sys.argv[1], AgentTask('', '', '', '', 0, 0, 0, ''));"
        "print('started', flush=True); time.sleep(300)"
    )
    script = tmp_path / "child.sh"
    script.write_text(
        f"sleep 300 & echo $$ $! > {tmp_path}/pids.new; mv {tmp_path}/pids.new {tmp_path}/pids; wait"
    )
    with subprocess.Popen([sys.executable, "-c", code, f"bash {script}"]) as trainer:
        pids = tmp_path / "pids"
        until(pids.exists, "the command has started")
        trainer.kill()
    until(lambda: not any(map(is_running, pids.read_text().split())), "the command has ended")


def is_running(pid):
    """Returns True for a process that is neither gone nor a zombie."""
    try:
        return "State:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("program", [function(programs.hang), command("hang")], ids=["f", "c"])
def test_a_hanging_program_ends_at_its_timeout(setup, monkeypatch, program):
    late_s = [0.0]  # the clock jumps once the other program has ended
    clock = types.SimpleNamespace(perf_counter=lambda: time.perf_counter() + late_s[0])
    monkeypatch.setattr("agentgym_jax.programs.open_requests.time", clock)

    def jump(done, total, tokens):
        late_s[0] = 1e6 * (done > 0)

    episodes, _ = setup.play(program, (0, 1), timeout_s=1e5, on_progress=jump)
    assert [t.outcome for t in episodes] == [Outcome.PROGRAM_ERROR, Outcome.FAILURE]
    assert "more than 100000 s" in episodes[0].error


def test_the_turn_limit_refuses_further_requests(setup):
    episodes, _ = setup.play(function(programs.endless))
    assert [t.outcome for t in episodes] == [Outcome.HORIZON] * 4
    assert [len(t.turns) for t in episodes] == [3] * 4


def test_only_answered_requests_are_turns(setup):
    episodes, _ = setup.play(function(programs.persistent))
    assert [t.outcome for t in episodes] == [Outcome.SUCCESS] * 4
    assert [len(t.turns) for t in episodes] == [3] * 4
    assert all(len(t.branches) == 1 for t in episodes)


def test_a_request_beyond_the_context_ends_the_episode(setup):
    episodes, _ = setup.play(function(programs.long_prompt))
    assert [t.outcome for t in episodes] == [Outcome.CONTEXT_FULL] * 4
    assert [len(t.turns) for t in episodes] == [1] * 4


def test_each_branch_of_an_episode_respects_its_token_limit(setup):
    limits = dataclasses.replace(LIMITS, max_tokens=30)
    episodes, _ = setup.play(function(programs.endless), (0, 1), limits=limits)
    assert {t.outcome for t in episodes} == {Outcome.CONTEXT_FULL}
    episodes, _ = setup.play(function(programs.parallel), (0, 1), limits=limits)
    assert {t.outcome for t in episodes} == {Outcome.SUCCESS}
    assert all(b.stop - b.start <= 30 < len(t.tokens) for t in episodes for b in t.branches)


def test_a_failing_environment_is_an_environment_error(policy):
    world = World(lambda task, step, attempt: (500, b"broken") if task == 1 and step else None)
    episodes, statistics = Setup(policy, world).play(function(programs.react), (0, 1, 2))
    assert [t.outcome is Outcome.ENV_ERROR for t in episodes] == [False, True, False]
    assert sum(statistics.env_errors.values()) == 1


def test_a_stop_ends_all_programs(setup):
    started = time.perf_counter()
    episodes, _ = setup.play(
        function(programs.hang),
        (0, 0, 0, 0, 0, 0),
        should_stop=lambda: time.perf_counter() - started > 0.5,
    )
    assert {t.outcome for t in episodes} == {Outcome.ABORTED}
