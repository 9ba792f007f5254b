"""Conformance checks: all environments of the project pass, and every violation is detected."""

import json
import re

import pytest

from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.host import SessionHost
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.served import load_environment
from agentgym_envs.conformance import episodes, self_description, sessions, suite
from agentgym_envs.conformance.subject import NotApplicable, Subject, Violation
from agentgym_envs.data_folder import VARIABLE
from agentgym_envs.registry import ENVIRONMENTS
from tests.envs.conformance import broken
from tests.envs.searchqa import topics

# Numbers of (tasks, actions per task) where the default (4, 10) is too slow: starting a
# ScienceWorld task takes half a second. The tool environments have a test of all tasks.
TOOLS = ["weather", "movie", "academia", "todo", "sheet", "sqlgym"]
SAMPLES = {
    "sciworld": (1, 4),
    "terminals": (1, 2),
    "mcp": (2, 6),
    **{name: (2, 6) for name in TOOLS},
}
# Environments that need more than the packages of the extra `dev`.
NEED_MORE = {
    "alfworld",
    "sciworld",
    "searchqa",
    "reasoning_gym",
    "textarena",
    "terminals",
    "tau2",
    "bfcl",
}
ELSEWHERE = {"webarena"}  # tested in tests/envs/webarena, because its sites take minutes to build
# (environment, check) pairs that do not apply: a new session already has a task, or an impossible
# action is a wrong answer or shows the same page, or there are no snapshots.
DASHES = {
    ("reasoning_gym", episodes.no_task_begins_with_a_refusal),
    ("reasoning_gym", episodes.valid_actions_are_not_refused),
    ("reasoning_gym", episodes.a_restored_episode_continues_as_the_saved_one),
    ("mcp", episodes.a_restored_episode_continues_as_the_saved_one),
    ("textarena", episodes.a_restored_episode_continues_as_the_saved_one),
    ("tau2", episodes.a_restored_episode_continues_as_the_saved_one),
    ("bfcl", episodes.a_restored_episode_continues_as_the_saved_one),
    ("webshop", episodes.no_task_begins_with_a_refusal),
    ("webshop", episodes.valid_actions_are_not_refused),
    ("textcraft", sessions.a_step_before_the_first_reset_is_refused),
    ("wordle", sessions.a_step_before_the_first_reset_is_refused),
}


def by_name(check):
    return check.__name__


EVERY_PROPERTY = pytest.mark.parametrize("check", suite.PROPERTIES, ids=by_name)


@pytest.fixture(scope="module")
def options_of(tmp_path_factory):
    """Returns a function that maps an environment's name to its options.

    The options of deep search are a small corpus and a data folder.
    """
    folder = tmp_path_factory.mktemp("searchqa")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(folder / "data"))
        yield lambda name: topics.options(folder) if name == "searchqa" else {}


@pytest.fixture(scope="module", params=[name for name in ENVIRONMENTS if name not in ELSEWHERE])
def subject(request, options_of):
    name = request.param
    tasks, actions = SAMPLES[name] if name in SAMPLES else (4, 10)
    try:
        made = Subject(
            ENVIRONMENTS[name].module,
            compat=False,
            tasks=tasks,
            actions=actions,
            options=options_of(name),
        )
    except SetupError as error:
        if name not in NEED_MORE:
            raise
        pytest.skip(str(error))
    assert made.served.spec.name == name
    yield made
    made.close()


@EVERY_PROPERTY
def test_every_environment_of_the_project_has_every_property(subject, check):
    try:
        check(subject)
    except NotApplicable:
        assert (subject.served.spec.name, check) in DASHES


@pytest.mark.parametrize("name", ["babyai", "maze", "searchqa", "textcraft", "webshop", "wordle"])
def test_episodes_in_compat_mode_are_reproducible_and_solvable(name, options_of):
    subject = Subject(
        ENVIRONMENTS[name].module, compat=True, tasks=2, actions=8, options=options_of(name)
    )
    episodes.results_have_the_declared_types(subject)
    episodes.a_task_depends_only_on_its_index(subject)
    episodes.the_same_actions_have_the_same_answers(subject)
    episodes.two_sessions_do_not_influence_each_other(subject)
    episodes.the_scripted_agent_solves_tasks(subject)
    if name != "searchqa":
        episodes.a_restored_episode_continues_as_the_saved_one(subject)


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("name", ["maze", "textcraft", "wordle"])
def test_a_restored_episode_has_the_state_of_the_saved_one(name, compat):
    served = load_environment(ENVIRONMENTS[name].module)
    saved, restored = ((served.compat_factory if compat else served.factory)() for _ in range(2))
    saved.reset(12)
    saved.step(saved.expert_action())
    restored.restore(json.loads(json.dumps(saved.snapshot())))
    assert restored.state() == saved.state() != {}
    assert name == "textcraft" or restored.detail() == saved.detail()


def refusal_of(ask):
    with pytest.raises(EnvironmentFault) as caught:
        ask()
    return caught.value.kind


@pytest.mark.parametrize(
    ("name", "compat"),
    [*[(name, False) for name in ("babyai", "maze", "searchqa", "wordle")],
     ("maze", True), ("wordle", True)],
)  # fmt: skip
def test_questions_outside_of_an_episode_are_refused(name, compat, options_of):
    served = load_environment(ENVIRONMENTS[name].module, options_of(name))
    served.prepare()
    environment = (served.compat_factory if compat else served.factory)()
    questions = [environment.expert_action, environment.valid_actions, environment.snapshot]
    if name == "babyai":
        questions[2] = environment.render
    assert [refusal_of(ask) for ask in questions] == [ErrorKind.NOT_RESET] * 3
    result = environment.reset(1)
    while not result.done:
        action = environment.expert_action()
        result = environment.step(action)
    for ask in (environment.expert_action, lambda: environment.step(action)):
        assert refusal_of(ask) is ErrorKind.FINISHED


# The host refuses unknown tasks as well, but other users of an environment have no host.
@pytest.mark.parametrize("name", ["maze", "searchqa", "textcraft", "webshop", "wordle", *TOOLS])
def test_an_environment_refuses_unknown_tasks_and_its_episode_continues(name, options_of):
    served = load_environment(ENVIRONMENTS[name].module, options_of(name))
    served.prepare()
    environment = served.factory()
    environment.reset(3)
    state = environment.state()
    for data_idx in (-1, served.spec.num_tasks, 10**30):
        assert refusal_of(lambda i=data_idx: environment.reset(i)) is ErrorKind.UNKNOWN_TASK
    assert environment.state() == state != {}
    environment.step(environment.expert_action())


@pytest.mark.parametrize("module", ["tests.envs.base.parrot", ENVIRONMENTS["mcp"].module])
@pytest.mark.parametrize("compat", [False, True])
def test_unknown_tasks_of_environments_that_agentgym_does_not_serve_are_refused(module, compat):
    served = load_environment(module)
    host = SessionHost(served, compat)
    host.answer("create", 0, None)
    for data_idx in (-1, served.spec.num_tasks, 10**30):
        assert refusal_of(lambda i=data_idx: host.answer("reset", 0, i)) is ErrorKind.UNKNOWN_TASK
    host.answer("reset", 0, 0)


@pytest.fixture
def make_subject(tmp_path, monkeypatch, request):
    """Returns a function that makes a test subject from a Python expression with names of `broken`.

    Each subject is in a new module.
    """
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def make(expression, compat=False):
        name = f"case_{abs(hash(request.node.name))}_{len(made)}"
        text = f"from tests.envs.conformance.broken import *\n\n\ndef make_served_environment():\n    return {expression}\n"
        (tmp_path / f"{name}.py").write_text(text)
        made.append(Subject(name, compat=compat, tasks=4, actions=8))
        return made[-1]

    yield make
    for subject in made:
        subject.close()


@pytest.mark.parametrize("compat", [False, True])
def test_a_correct_environment_passes(make_subject, compat):
    module = make_subject("served()").module
    report = []
    status = suite.run(module, compat=compat, tasks=4, actions=8, write=report.append)
    lines = "".join(report).splitlines()
    assert status == 0 and lines[-1].startswith("counter: 25 properties, ")
    assert len(lines) == len(suite.PROPERTIES) + 1
    assert sum(" ok" in line for line in lines) == len(suite.PROPERTIES) - 2 * compat


def test_a_violation_is_reported_with_its_task_and_fails_the_check(make_subject):
    module = make_subject("served(ForgottenReward)").module
    report = []
    assert suite.run(module, compat=False, tasks=4, actions=8, write=report.append) == 1
    text = "".join(report)
    assert re.search(
        r"\nthe score is the sum of the rewards +FAILED, cause 1\n(.|\n)*"
        r"\ncause 1: task \d after \d actions: score 1, the rewards add up to 0.0\n"
        r"    fails: the score is the sum of the rewards\n",
        text,
    )
    assert text.count("FAILED") == 2 and "counter: 1 of 25 FAILED" in text


# Each with the numbers of properties that its causes fail.
@pytest.mark.parametrize(
    ("expression", "numbers"),
    [
        ("served(NanReward)", [15]),
        ("served(LostConnection)", [15]),
        ("served(ClosedDoor)", [20]),
        pytest.param("served(LuckyStep)", [6, 1], marks=pytest.mark.slow),
        pytest.param("served(SharedCount)", [1, 1], marks=pytest.mark.slow),
    ],
)
def test_each_cause_is_reported_once_with_all_properties_that_it_fails(
    make_subject, expression, numbers
):
    module = make_subject(expression).module
    report = []
    suite.run(module, compat=False, tasks=4, actions=8, write=report.append)
    text = "".join(report)
    failed = re.findall(r"^(.*?) +FAILED, cause (\d)", text, flags=re.M)
    assert [int(number) for _, number in failed] == sorted(int(number) for _, number in failed)
    causes = re.findall(r"^cause (\d): (.*)\n    fails: ((?:.|\n        )*)\n", text, flags=re.M)
    listed = [(n, " ".join(names.split()).split(", ")) for n, _, names in causes]
    assert [len(names) for _, names in listed] == numbers
    assert sorted(failed) == sorted((name, n) for n, names in listed for name in names)
    assert len({message for _, message, _ in causes}) == len(causes)
    assert f"{sum(numbers)} of 25 FAILED" in text


def test_an_interrupted_check_reports_the_causes_so_far(make_subject, monkeypatch):
    def interrupt(subject):
        raise KeyboardInterrupt

    monkeypatch.setattr(suite, "PROPERTIES", (suite.PROPERTIES[5], interrupt))
    module = make_subject("served(ForgottenReward)").module
    report = []
    with pytest.raises(KeyboardInterrupt):
        suite.run(module, compat=False, tasks=4, actions=8, write=report.append)
    assert "cause 1: task" in "".join(report)


BROKEN = {
    self_description.the_spec_is_complete_and_valid: {
        "environment_with_spec(instructions=' ')": "instructions",
        "environment_with_spec(refusal='No (')": "refusal",
        "environment_with_spec(refusal='No|')": "every text",
        "environment_with_spec(action_format='xml')": "'xml'",
        "environment_with_spec(max_score=0)": "max_score",
        "environment_with_spec(success_score=2)": "success_score",
        "environment_with_spec(max_turns=0)": "max_turns",
        "environment_with_spec(name='my game')": "white space",
    },
    self_description.the_manifest_lists_the_tasks_in_order: {
        "environment_with_tasks(TASKS[1:])": "task 0",
        "environment_with_spec(num_tasks=3)": "num_tasks = 3",
        "environment_with_tasks([dict(data_idx=0, split='train', walls=(1, 2))])": "JSON types",
    },
    self_description.the_manifest_hash_equals_the_one_in_the_spec: {
        "environment_with_spec(manifest_sha256='0' * 64)": "the spec says 000",
    },
    self_description.no_task_is_in_two_splits: {
        "environment_with_tasks([{**task, 'start': 0} for task in TASKS])": r"task 0 \(test\) and task 1 \(train\)",
    },
    episodes.results_have_the_declared_types: {
        "served(NanReward)": "reward is nan",
        "served(EmptyText)": "observation is",
        "served(NumberForDone)": "done is 0",
        "served(TupleForResult)": r"\(tuple\), expected",
    },
    episodes.the_score_is_the_sum_of_the_rewards: {
        "served(ForgottenReward)": "add up to 0",
        "environment_with_spec(max_score=0.5)": "max_score is",
    },
    episodes.a_task_depends_only_on_its_index: {
        "served(LuckyReset)": "used before: line 1",
        "served(StickyReset)": "used before: line 1",
    },
    episodes.the_same_actions_have_the_same_answers: {
        "served(LuckyStep)": "after 1 actions",
        "served(CostlyAdvice)": "expected",
    },
    episodes.another_process_gives_the_same_answers: {
        "served(HashOrder)": "in another process",
    },
    episodes.two_sessions_do_not_influence_each_other: {
        "served(SharedCount)": "beside another",
    },
    episodes.no_task_begins_with_a_refusal: {
        "served(RefusingStart)": "No such luck",
    },
    episodes.valid_actions_are_not_refused: {
        "served(RefusedActions)": "'down': 'No such action",
        "served(SameActions)": "twice",
        "served(NoActions)": r"valid_actions\(\) is \[\]",
    },
    episodes.the_scripted_agent_solves_tasks: {
        "served(IdleExpert)": "score 0, done=False after 100 actions",
        "served(LostExpert)": "which way is up",
    },
    episodes.the_state_is_json: {
        "served(SetState)": "no JSON",
        "served(TupleState)": "no JSON object",
    },
    episodes.a_restored_episode_continues_as_the_saved_one: {
        "served(ForgetfulSnapshot)": "restored: ",
        "served(HandleSnapshot)": "IndexError",
        "served(ObjectSnapshot)": "as JSON",
    },
    episodes.closing_twice_is_harmless: {
        "served(CloseOnce)": "closed already",
    },
    sessions.a_step_after_the_end_is_refused: {
        "served(OneEpisode)": "the abacus is full",
    },
    sessions.every_route_answers: {
        "served(extra_routes=(ROUTE,))": "/paint.* status 500",
    },
    sessions.the_server_gives_the_answers_of_the_environment: {
        "served(ProcessTold)": "the server answers",
    },
    sessions.errors_of_the_server_are_typed: {
        "served(reset_body=LooseBody)": "invalid_request",
    },
    sessions.odd_actions_neither_crash_nor_hang: {
        "served(Choosy)": "UnicodeEncodeError",
        "served(Fragile)": "status 500",
    },
    sessions.sessions_survive_the_loss_of_a_worker: {
        "served(ProcessTold)": "led elsewhere",
    },
}
# Checks that depend on the server alone, so no environment can fail them.
HOST = [
    sessions.a_step_before_the_first_reset_is_refused,
    sessions.a_step_after_the_end_is_refused,
    sessions.an_unknown_task_is_refused_and_the_episode_continues,
    sessions.a_closed_session_is_unknown,
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "expression", "told"),
    [
        pytest.param(check, expression, told, id=f"{check.__name__}-{expression}")
        for check, examples in BROKEN.items()
        for expression, told in examples.items()
    ],
)
def test_each_broken_environment_violates_its_property(make_subject, check, expression, told):
    with pytest.raises(Violation, match=told):
        check(make_subject(expression))


@pytest.mark.parametrize("check", HOST, ids=by_name)
def test_a_server_that_accepts_every_request_is_detected(make_subject, monkeypatch, check):
    monkeypatch.setattr(sessions, "SessionHost", broken.LaxHost)
    with pytest.raises(Violation):
        check(make_subject("served()"))


def test_every_property_has_a_failing_example():
    assert {*BROKEN, *HOST} == set(suite.PROPERTIES)
