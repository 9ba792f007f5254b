"""Environments without recorded traffic, tested against scripted servers with their protocol."""

import pytest

from agentgym_jax.client.errors import EnvCause
from tests.env_clients import connect, failure


class Scripted:
    """A server whose replies are given by a table.

    The table maps a path, with its query, to a reply or to a function of the request body. A reply
    is a body, or a pair of status and body.
    """

    def __init__(self, routes):
        self.routes = routes
        self.calls = []

    def answer(self, path, body):
        self.calls.append((path, body))
        if path not in self.routes:
            return 404, {"detail": "Not Found"}
        reply = self.routes[path]
        reply = reply(body) if callable(reply) else reply
        return reply if isinstance(reply, tuple) else (200, reply)


@pytest.fixture
def play(serve):
    """Returns `play(environment, routes)`, which starts a scripted server.

    `play` returns a client of the server, and the `Scripted` object that answers.
    """
    running = []

    def start(environment, routes, **options):
        world = Scripted(routes)
        server = serve(world)
        running.append(server)
        url = server.__enter__().url
        return connect(url, environment, **options), world

    yield start
    for server in running:
        server.__exit__(None, None, None)


INTERNAL = (500, b"Internal Server Error")


# Checks WebShop: bare session numbers, [observation, null] after a reset, and `state` after a step.


def webshop_step(body):
    if body["env_idx"] != 4711:
        return INTERNAL
    is_bought = body["action"] == "click[buy now]"
    state = "Thank you!" if is_bought else "Search results [SEP] B07 [SEP] Next >"
    return {"state": state, "reward": 0.75 * is_bought, "done": is_bought, "info": None}


WEBSHOP = {
    "/create": 4711,
    "/reset": lambda body: ["page", None] if body["session_id"] < 5 else INTERNAL,
    "/observation?env_idx=4711": "WebShop [SEP] Instruction: [SEP] find a red mug [SEP] Search",
    "/step": webshop_step,
}


def test_webshop_shows_the_page_of_its_observation_route_and_counts_the_purchase(play):
    client, world = play("webshop", WEBSHOP)
    session = client.create()
    assert session == 4711
    first = client.reset(session, 3)
    assert first.text.endswith("find a red mug [SEP] Search")
    assert world.calls[1] == ("/reset", {"env_idx": 4711, "session_id": 3})
    seen = client.step(session, client.parse("Thought: x\n\nAction: \nsearch[red mug]").action)
    assert (seen.text[:14], seen.reward, seen.done) == ("Search results", 0, False)
    bought = client.step(session, "click[buy now]")
    assert (bought.reward, bought.score, bought.done) == (0.75, 0.75, True)
    assert not bought.success  # the product matches only partly
    assert world.calls[-1] == ("/step", {"env_idx": 4711, "action": "click[buy now]"})


def test_a_webshop_task_out_of_range_is_an_error(play):
    client, _ = play("webshop", WEBSHOP)
    error = failure(client.reset, client.create(), 5)
    assert error.cause is EnvCause.HTTP_STATUS
    assert "Internal Server Error" in error.message


def test_a_missing_close_route_is_requested_only_once(play):
    client, world = play("webshop", WEBSHOP)
    for _ in range(3):
        client.close(client.create())
    assert [path for path, _ in world.calls].count("/close") == 1


def test_an_additional_close_route_is_requested_every_time(play):
    client, world = play("webshop", WEBSHOP | {"/close": True})
    for _ in range(3):
        client.close(client.create())
    assert [path for path, _ in world.calls].count("/close") == 3


def test_a_missing_close_route_of_webarena_is_an_error(play):
    client, _ = play("webarena", {"/create": {"env_idx": 1}})
    assert failure(client.close, client.create()).cause is EnvCause.HTTP_STATUS


# Checks ALFWorld, which sends the possible actions in a separate field.


def alfworld_step(body):
    if body["id"] != 8:
        return {"error": f"The id {body['id']} is not valid."}
    won = body["action"] == "put mug 1 in/on desk 1"
    text = "You put the mug 1 in/on the desk 1." if won else "Nothing happens."
    return {
        "observation": text,
        "reward": float(won),
        "available_actions": ["look", "inventory"],
        "done": won,
    }


ALFWORLD = {
    "/create": {"id": 8},
    "/reset": lambda body: {
        "id": body["id"],
        "observation": "You are in a room. Your task is to: put a mug on the desk.",
        "available_actions": ["go to desk 1", "look"],
        "task_type": "pick_and_place_simple",
    },
    "/step": alfworld_step,
}


def test_alfworld_texts_end_with_the_available_actions(play):
    client, world = play("alfworld", ALFWORLD)
    session = client.create()
    first = client.reset(session, 2420)
    assert first.text == (
        "You are in a room. Your task is to: put a mug on the desk."
        "\nAVAILABLE ACTIONS: go to desk 1,look"
    )
    assert world.calls[-1] == ("/reset", {"id": 8, "game": 2420, "world_type": "Text"})
    idle = client.step(session, "fly")
    assert idle.text == "Nothing happens.\nAVAILABLE ACTIONS: look,inventory"
    assert idle.is_rejection
    won = client.step(session, "put mug 1 in/on desk 1")
    assert (won.reward, won.done, won.success, won.is_rejection) == (1, True, True, False)


def test_an_alfworld_answer_without_the_list_of_actions_is_a_bad_body(play):
    bare = {"id": 8, "observation": "You are in a room.", "task_type": "x"}
    client, _ = play("alfworld", ALFWORLD | {"/reset": bare})
    assert failure(client.reset, client.create(), 0).cause is EnvCause.BAD_BODY


def test_alfworld_errors_in_bodies_of_status_200_are_recognised(play):
    wrong = {"error": "world_type Dream is not supported"}
    client, _ = play("alfworld", ALFWORLD | {"/reset": wrong})
    assert failure(client.reset, client.create(), 0).cause is EnvCause.ERROR_BODY
    assert failure(client.step, 9, "look").cause is EnvCause.SESSION_LOST


# Checks WebArena: `terminated`, failures as observations, and an action in backquotes.

PAGE = "OBSERVATION:\nTab 0 (current): Shop\n\n[1] RootWebArea 'Shop'\nURL: http://shop.com\nOBJECTIVE: x\nPREVIOUS ACTION: None"


def webarena_step(body):
    answer = {"observation": PAGE, "reward": 0, "terminated": False, "truncated": False, "info": {}}
    if "stop" in body["action"]:
        return answer | {"reward": 1.0, "terminated": True}
    if "[99]" in body["action"]:
        return answer | {"observation": "Cannot find element 99", "info": None}
    if "early" in body["action"]:
        return answer | {"reward": 1.0}
    return answer


WEBARENA = {
    "/create": {"env_idx": 0},
    "/reset": {"observation": "Tab 0 (current): Shop\n\n[1] RootWebArea 'Shop'", "object": "x"},
    "/observation?env_idx=0": PAGE,
    "/step": webarena_step,
    "/close": {"closed": "closed"},
}


def test_webarena_gets_the_whole_text_and_ends_with_terminated(play):
    client, world = play("webarena", WEBARENA)
    session = client.create()
    assert client.reset(session, 7).text == PAGE
    assert world.calls[1] == ("/reset", {"env_idx": 0, "seed": 0, "idx": 7})
    said = "I see a link. In summary I click it: ```click [1]```"
    assert client.parse(said).action == said
    seen = client.step(session, said)
    assert (seen.text, seen.done, seen.success, seen.is_rejection) == (PAGE, False, False, False)
    end = client.step(session, "```stop [42]```")
    assert (end.reward, end.score, end.done, end.success) == (1, 1, True, True)
    client.close(session)
    assert world.calls[-1] == ("/close", {"env_idx": 0})


def test_webarena_gives_no_reward_before_the_end(play):
    client, _ = play("webarena", WEBARENA)
    early = client.step(0, "```early [1]```")
    assert (early.reward, early.score, early.success) == (0, 0, False)


def test_webarena_shows_the_exception_of_an_action_instead_of_the_page(play):
    client, _ = play("webarena", WEBARENA)
    refused = client.step(0, "```click [99]```")
    assert refused.is_rejection
    assert refused.text == "Cannot find element 99"
    assert not refused.done


@pytest.mark.parametrize(
    ("text", "cause"),
    [("TimeoutError", EnvCause.TIMEOUT), ("Error", EnvCause.ERROR_BODY)],
)
def test_a_failed_reset_of_webarena_is_an_error(play, text, cause):
    client, world = play("webarena", WEBARENA | {"/reset": {"observation": text}})
    error = failure(client.reset, client.create(), 7)
    assert error.cause is cause
    assert text in error.message
    assert error.retryable_from_reset
    assert not [path for path, _ in world.calls if path.startswith("/observation")]


def test_a_webarena_text_without_backquotes_is_a_parse_error(play):
    client, world = play("webarena", WEBARENA)
    parsed = client.parse("I would click [1].")
    assert parsed.action is None
    assert "```" in parsed.problem
    assert world.calls == []


# Checks TODO and Sheet: the tool server, bare session numbers, and `{"id"}` in the reply to
# `create`.


def tool_routes(goal):
    told = f"Now new trial starts.\nYou should perform actions to accomplish the goal: {goal}\nGive me one action."

    def step(body):
        if "finish" in body["action"]:
            return {
                "observation": "Observation: done\nGive me one action.",
                "reward": 1.0,
                "done": True,
            }
        if "with Action Input" not in body["action"]:
            return {"observation": "Format error, please", "reward": 0.5, "done": False}
        text = "Observation: ERROR | KeyError('x')\nGive me one action."
        return {"observation": text, "reward": 0.5, "done": False}

    def create(body):
        return 3 if body == {"id": 0} else (422, {"detail": []})

    return {
        "/create": create,
        "/reset": lambda body: told if body["id"] < 20 else INTERNAL,
        "/observation?env_idx=3": told,
        "/step": step,
    }


@pytest.mark.parametrize("environment", ["todo", "sheet", "weather", "movie", "academia"])
def test_a_tool_environment_is_played_from_goal_to_finish(play, environment):
    client, world = play(environment, tool_routes("tidy up"))
    session = client.create()
    assert "tidy up" in client.reset(session, 19).text
    assert world.calls[1] == ("/reset", {"env_idx": 3, "id": 19})
    said = "Thought: a\n\nAction: get with Action Input: {}"
    assert client.parse(said).action == said
    failed = client.step(session, said)
    assert (failed.is_rejection, failed.reward, failed.success) == (True, 0.5, False)
    assert client.step(session, "hello").is_rejection
    end = client.step(session, 'Action: finish with Action Input: {"answer": "done"}')
    assert (end.reward, end.done, end.success, end.is_rejection) == (1, True, True, False)
    client.close(session)
    assert failure(client.reset, session, 20).cause is EnvCause.HTTP_STATUS


@pytest.mark.parametrize(
    ("environment", "address"), [("maze", ""), ("maze", "/maze"), ("wordle", "/wordle/")]
)
def test_the_prefix_may_be_part_of_the_address_as_in_agentgym(serve, environment, address):
    prefix = f"/{environment}"
    world = Scripted({f"{prefix}/create": {"id": 5}, f"{prefix}/filtered_vocab?id=5": ["panic"]})
    with serve(world) as server:
        assert connect(server.url + address, environment).create() == 5


def test_the_vocabulary_of_wordle_is_requested_once_and_shown_in_every_game(play):
    routes = {
        "/wordle/create": {"id": 1},
        "/wordle/filtered_vocab?id=1": ["panic", "shire"],
        "/wordle/reset": {"id": 1, "observation": "Let's start Wordle!"},
    }
    client, world = play("wordle", routes)
    for seed in range(2):
        text = client.reset(client.create(), seed).text
        assert text == "Let's start Wordle!\nWords of the game: panic, shire."
    assert [path for path, _ in world.calls].count("/wordle/filtered_vocab?id=1") == 1


def test_a_vocabulary_shown_by_the_server_is_not_shown_twice(play):
    shown = "Guess a word: panic, shire"
    routes = {
        "/wordle/create": {"id": 1},
        "/wordle/filtered_vocab?id=1": ["panic", "shire"],
        "/wordle/reset": {"id": 1, "observation": shown},
    }
    client, _ = play("wordle", routes)
    assert client.reset(client.create(), 0).text == shown


def test_a_wordle_server_without_a_vocabulary_can_be_played(play):
    not_yet = (409, {"error": "reset first", "type": "not_reset"})
    routes = {
        "/wordle/create": {"id": 1},
        "/wordle/filtered_vocab?id=1": not_yet,
        "/wordle/reset": {"id": 1, "observation": "Let's start Wordle!"},
    }
    client, _ = play("wordle", routes)
    assert client.reset(client.create(), 0).text == "Let's start Wordle!"


@pytest.mark.parametrize(
    ("environment", "text"),
    [("maze", "The game 26 is not valid."), ("sciworld", "list index out of range")],
)
def test_the_error_for_a_missing_task_is_not_retryable(play, environment, text):
    prefix = "/maze" if environment == "maze" else ""
    client, _ = play(environment, {f"{prefix}/reset": {"error": text}})
    assert not failure(client.reset, 0, 99_999).retryable_from_reset


def test_sciworld_scores_stay_out_of_100_and_rewards_are_divided_by_100(play):
    answers = iter(
        [
            {"observation": "a", "reward": 17, "score": 17, "done": False},
            {"observation": "b", "reward": 83, "score": 100, "done": True},
            {"observation": "c", "reward": -117, "score": -100, "done": True},
        ]
    )
    client, _ = play("sciworld", {"/step": lambda body: next(answers)})
    seen = [client.step(0, "x") for _ in range(3)]
    assert [o.reward for o in seen] == pytest.approx([0.17, 0.83, -1.17])
    assert [o.score for o in seen] == [17, 100, -100]
    assert [o.score * o.score_scale for o in seen] == pytest.approx([0.17, 1, -1])
    assert [o.success for o in seen] == [False, True, False]
