"""Deep-search episodes in default mode and in compat mode, and recorded traffic."""

import json

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.in_process import InProcessServer
from agentgym_envs.base.served import load_environment
from agentgym_envs.data_folder import VARIABLE
from agentgym_envs.searchqa import texts
from agentgym_envs.searchqa.served import make_served_environment
from agentgym_jax.client.agentgym_originals.servers import ORIGINALS
from tests.envs.recordings import Replay
from tests.envs.searchqa import topics
from tests.fake_server import serving

for package in ("Stemmer", "tantivy"):
    pytest.importorskip(package, reason='engines need: pip install -e ".[search]"')

MODULE = "agentgym_envs.searchqa.served"
FOUND = (
    '<information>Doc 1(Title: "Topic 3") Topic 3 is a place in region 3. Its main product is item 3 '
    "and it was founded in 1803.\n"
    'Doc 2(Title: "Topic 10") Topic 10 is a place in region 3. Its main product is item 10 and it '
    "was founded in 1810.\n"
    'Doc 3(Title: "Topic 16") Topic 16 is a place in region 2. Its main product is item 3 and it was '
    "founded in 1816.</information>"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("searchqa")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(path / "data"))
        yield path


@pytest.fixture(scope="module")
def served(folder):
    made = make_served_environment(**topics.options(folder))
    made.prepare()
    return made


def playing(served, data_idx=3, compat=False):
    environment = (served.compat_factory if compat else served.factory)()
    environment.reset(data_idx)
    return environment


def test_an_episode_gives_the_expected_observations_and_rewards(served):
    environment = served.factory()
    assert environment.reset(3).observation == "Question: What is the code word of topic 3?"
    found = environment.step("<think>Which region?</think><search> topic 3 region </search>")
    assert (found.observation, found.reward, found.done, found.facts) == (FOUND, 0, False, None)
    last = environment.step("<think>Now I know.</think><answer>The code, 3!</answer>")
    assert (last.observation, last.reward, last.score, last.done) == (texts.RIGHT, 1, 1, True)
    assert last.facts == {"exact_match": 1, "f1": 1, "num_searches": 1, "is_well_formed": True}


def test_a_wrong_answer_ends_the_episode_and_has_an_f1_score(served):
    last = playing(served).step("<answer>code 3 or so</answer>")
    assert (last.observation, last.reward, last.done) == (texts.WRONG, 0, True)
    assert last.facts["f1"] == pytest.approx(2 * 2 / 6) and last.facts["exact_match"] == 0


def test_the_last_of_several_answers_counts_only_in_compat_mode(served):
    assert playing(served).step("<answer>x</answer><answer>code 3</answer>").reward == 0
    assert (
        playing(served, compat=True).step("<answer>x</answer><answer>code 3</answer>").reward == 1
    )


def test_an_action_without_search_or_answer_is_rejected(served):
    environment = playing(served)
    refused = environment.step("code 3")
    assert refused.observation == texts.INVALID and not refused.done
    assert refused.observation.startswith(served.spec.refusal)
    assert environment.step("<answer>code 3</answer>").reward == 1


def test_a_search_without_results_says_so(served):
    text = playing(served).step("<search>xylophone</search>").observation
    assert text == "<information>No passage has any of these words.</information>"


def test_format_and_searches_can_shape_the_reward(folder):
    shaped = make_served_environment(
        **topics.options(folder, format_score=0.2, search_cost=0.1, free_searches=1)
    )
    assert shaped.spec.success_score == pytest.approx(0.3)
    succeeded = ORIGINALS["searchqa"].served_by(shaped.spec).succeeded
    assert succeeded(0.3, 0.3, True) and not succeeded(0.2, 0.2, True)
    assert shaped.spec.version.endswith("-format0.2-cost0.1after1")
    environment = playing(shaped)
    for _ in range(3):
        environment.step("<think>.</think><search>topic</search>")
    assert environment.step("<think>.</think><answer>code 3</answer>").reward == pytest.approx(0.8)
    environment.reset(3)
    assert environment.step("<answer>code 3</answer>").reward == pytest.approx(0.8)
    environment.reset(3)
    assert environment.step("<think>.</think><answer>x</answer>").reward == pytest.approx(0.2)
    assert playing(shaped, compat=True).step("<answer>code 3</answer>").reward == 1


def test_the_number_of_passages_can_be_set(folder):
    environment = playing(make_served_environment(**topics.options(folder, topk=5)))
    assert "Doc 5(" in environment.step("<search>topic 3</search>").observation


def test_state_and_detail_show_the_golden_answers_only_after_the_end(served):
    environment = playing(served)
    environment.step("<search>topic 3</search>")
    state = environment.state()
    assert state["searches"][0]["titles"][0] == '"Topic 3"' and state["rules"] == "one answer"
    assert "golden_answers" not in state and "code 3" not in json.dumps(state)
    environment.step("<answer>x</answer>")
    assert environment.detail()["golden_answers"] == ["answer 3", "code 3"]


def test_valid_actions_are_searches_for_the_question_and_the_found_titles(served):
    environment = playing(served)
    question = texts.search_text("What is the code word of topic 3?")
    assert environment.valid_actions() == [question]
    environment.step("<search>topic 3 region</search>")
    actions = environment.valid_actions()
    assert actions[:2] == [question, "<search> Topic 3 </search>"]
    assert "<answer> Topic 10 </answer>" in actions and len(set(actions)) == len(actions) == 7


@pytest.mark.parametrize("compat", [False, True])
def test_a_restored_episode_continues_like_the_saved_one(served, compat):
    saved, restored = (
        playing(served, 8, compat),
        (served.compat_factory if compat else served.factory)(),
    )
    for action in ("<search>topic 8</search>", "what?", "<answer>code 8</answer>"):
        restored.restore(json.loads(json.dumps(saved.snapshot())))
        assert restored.state() == saved.state()
        assert restored.step(action) == saved.step(action)


def test_the_scripted_agent_thinks_searches_and_answers(served):
    environment = playing(served, topics.CAPITALS)
    actions = []
    while not environment.state()["done"]:
        actions.append(environment.expert_action())
        assert texts.is_well_formed(actions[-1])
        last = environment.step(actions[-1])
    assert last.reward == 1 and len(actions) == 2


def test_the_scripted_agent_only_searches_for_unknown_types_of_questions(served):
    environment = playing(served)
    asked = texts.read_action(environment.expert_action())
    assert asked.kind == "search" and asked.text == "What is the code word of topic 3?"
    environment.step(environment.expert_action())
    assert environment.step(environment.expert_action()).observation == texts.WRONG


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"engine": "lucene"}, "engine='lucene' is none of bm25s, tantivy, dense"),
        ({"topk": 0}, "topk=0"),
        ({"retriever": "http://127.0.0.1:1"}, "a corpus or a retriever"),
        ({"questions": ""}, "corpus needs questions"),
        ({"corpus": ""}, "questions need a corpus or a retriever"),
        ({"corpus": "/nowhere.jsonl"}, "no corpus at /nowhere.jsonl"),
        ({"questions": "/nowhere"}, "no questions at /nowhere"),
        ({"engine": "dense"}, "engine=dense needs encoder=FOLDER"),
        ({"corpus": "", "retriever": "localhost"}, "expected http://HOST:PORT"),
    ],
)
def test_invalid_options_are_reported(folder, changes, told):
    with pytest.raises(SetupError, match=told):
        load_environment(MODULE, topics.options(folder, **changes)).prepare()


def test_the_routes_equal_those_of_agentgym(served):
    server = InProcessServer(served)

    def ask(method, path, body=None):
        status, answer = server.exchange(method, path, body)
        return status, json.loads(answer)

    assert ask("GET", "/") == (200, "ok")
    assert ask("POST", "/create", {"id": 0}) == (200, 0)
    assert ask("POST", "/create", {"id": 5}) == (200, 1)
    assert ask("GET", "/observation?env_idx=1")[1]["type"] == "not_reset"
    assert ask("POST", "/reset", {"env_idx": 1, "id": 3}) == (
        200,
        "Question: What is the code word of topic 3?",
    )
    step = ask("POST", "/step", {"env_idx": 1, "action": "<search>topic 3 region</search>"})
    assert step == (200, {"observation": FOUND, "reward": 0, "done": False, "info": None})
    assert ask("GET", "/observation?env_idx=1") == (200, FOUND)
    assert ask("GET", "/detail?env_idx=1")[1]["num_searches"] == 1
    last = ask("POST", "/step", {"env_idx": 1, "action": "<answer>code 3</answer>"})[1]
    assert last["done"] and last["info"]["f1"] == 1
    assert ask("POST", "/step", {"id": 1, "action": "x"})[1]["type"] == "invalid_request"
    assert ask("POST", "/reset", {"env_idx": 1})[1]["type"] == "invalid_request"
    assert ask("POST", "/close", {"env_idx": 1}) == (200, True)
    assert ask("POST", "/close", {"env_idx": 1}) == (200, False)
    assert ask("GET", "/detail?env_idx=1")[1]["type"] == "unknown_session"


def recorded_retriever(request):
    """Answers like Search-R1's retriever, with the passages and scores that the recording used."""
    asked = request.json()
    result = [
        [
            {"document": passage, "score": score}
            for passage, score in topics.by_shared_words(query, asked["topk"])
        ]
        for query in asked["queries"]
    ]
    return 200, {"result": result}


@pytest.fixture(scope="module")
def recorded_environment(folder):
    with serving(recorded_retriever) as server:
        options = topics.options(folder, corpus="", retriever=server.url)
        yield make_served_environment(**options)


# (path, argument, answer) of calls that were recorded from AgentGym's server with these passages.
NOTHING_SHARED = (
    '<information>Doc 1(Title: "Topic 0") Topic 0 is a place in region 0. Its main product is item 0 '
    "and it was founded in 1800.\n"
    'Doc 2(Title: "Topic 1") Topic 1 is a place in region 1. Its main product is item 1 and it was '
    "founded in 1801.\n"
    'Doc 3(Title: "Topic 2") Topic 2 is a place in region 2. Its main product is item 2 and it was '
    "founded in 1802.</information>"
)
PROMPT = (
    "You must reason inside <think>...</think> first. If you do not have enough knowledge, issue a "
    "<search>...</search> and then STOP. Do not generate <information> or <answer> yet. Wait for "
    "external input wrapped in <information>...</information>. After receiving information, reason "
    "again in <think>. If confident, output your final answer in <answer>...</answer>. Do not output "
    "<answer> before receiving <information> unless you are fully confident. If you find no further "
    "external knowledge needed, you can directly provide the answer inside <answer> and </answer>, "
    "without detailed illustrations. For example, <answer> Beijing </answer>. Follow this process "
    "every time.\n\n Question: What is the code word of topic 3?"
)
INVALID = (
    "Your previous action is invalid. If you want to search, you should put the query between "
    "<search> and </search>. If you want to give the final answer, you should put the answer between "
    "<answer> and </answer>. Please try again."
)
TRY_AGAIN = "Sorry, your answer is incorrect. Please try again."
RIGHT = "Congratulations! You have answered the question correctly."
RECORDED = [
    ("/reset", 3, PROMPT),
    ("/observation", None, PROMPT),
    ("/step", "hello", (INVALID, 0.0, False, None)),
    (
        "/step",
        "<search> stion: What is the code word of topic 3? </search>",
        (FOUND, 0, False, None),
    ),
    ("/step", "<search></search>", (NOTHING_SHARED, 0.0, False, None)),
    ("/step", "<answer> wrong answer </answer>", (TRY_AGAIN, 0.0, False, None)),
    ("/step", "<answer></answer>", (TRY_AGAIN, 0.0, False, None)),
    (
        "/step",
        "<think>x</think><search>a</search><answer>b</answer>",
        (NOTHING_SHARED, 0.0, False, None),
    ),
    ("/step", "<answer>unclosed", (INVALID, 0.0, False, None)),
    ("/step", "<think>t</think>\n<answer> answer 3 </answer>", (RIGHT, 1.0, True, None)),
    ("/step", "<answer> Answer 3. </answer>", (RIGHT, 1.0, True, None)),
    ("/step", "<search> after done </search>", (NOTHING_SHARED, 0.0, False, None)),
    ("/observation", None, PROMPT),
]


def test_recorded_requests_get_the_answers_of_agentgyms_server(recorded_environment):
    server = Replay(recorded_environment)
    assert server.created == 0
    for path, argument, answer in RECORDED:
        assert server.ask(path, argument) == answer
