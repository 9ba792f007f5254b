"""BabyAI: the world of each task id, and the server."""

import hashlib
import json

import pytest

from agentgym_envs.babyai import levels
from agentgym_envs.babyai.environment import BabyAIEnvironment
from agentgym_envs.babyai.served import tasks
from tests.envs.serving import serving
from tests.run_python import output_of, run_python

# Digest of the first observations of the 40 levels with seed 0. If it changes, the published item
# ids name other worlds or texts, and new results cannot be compared with earlier ones.
FIRST_OBSERVATIONS = "1dc4977dd8550e6e00d79491b80a594a840074ff020d121dc60a32f140451f56"


def test_consecutive_indices_have_different_levels_and_then_the_next_seed():
    assert levels.task(0).level == "BabyAI-GoToRedBallGrey-v0"
    assert levels.task(57) == levels.Task(57, "BabyAI-UnblockPickup-v0", "Pickup", 1, "train")
    assert levels.task(3599).level == "BabyAI-BossLevelNoUnlock-v0"
    assert levels.task(3599).seed == 89


def test_a_process_that_only_describes_the_environment_does_not_load_its_simulator():
    code = (
        "import json, sys\n"
        "from agentgym_envs.base.served import load_environment\n"
        "served = load_environment('agentgym_envs.babyai.served')\n"
        "described = [name in sys.modules for name in ('numpy', 'minigrid')]\n"
        "served.prepare()\n"
        "prepared = [name in sys.modules for name in ('numpy', 'minigrid')]\n"
        "print(json.dumps([len(served.tasks()), described, prepared]))\n"
    )
    num_tasks, described, prepared = json.loads(output_of("-c", code).splitlines()[-1])
    assert num_tasks == len(tasks())
    assert described == [False, False]
    assert prepared == [True, True]


@pytest.mark.parametrize("index", [0, 39, 40, 12345, levels.NUM_TASKS - 1])
def test_level_and_seed_lead_back_to_the_index(index):
    task = levels.task(index)
    assert levels.data_idx(task.level, task.seed) == index


def test_the_error_for_a_misspelt_level_lists_the_levels():
    with pytest.raises(ValueError, match="no level 'GoToMars' among the 40.*GoToObjS6"):
        levels.data_idx("GoToMars", 0)


def test_the_families_are_the_sub_tasks_of_the_paper():
    # arXiv:2509.08755 has five test items per level and 55 GoTo items, so there are eleven GoTo
    # levels.
    assert levels.FAMILIES.count("GoTo") == 11
    for family in ("ActionObjDoor", "FindObjS7", "OneRoomS20", "SynthLoc"):
        assert levels.FAMILIES.count(family) == 1


def test_the_first_observations_of_the_tasks_have_not_changed():
    environment = BabyAIEnvironment()
    texts = [environment.reset(index).observation for index in range(len(levels.LEVELS))]
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    assert digest == FIRST_OBSERVATIONS, "minigrid, numpy or a text changed"


def test_importing_and_rejected_worlds_print_nothing():
    # SynthLoc rejects worlds at seeds 0 to 7; minigrid prints each rejection to standard output.
    code = (
        "from agentgym_envs.babyai.environment import BabyAIEnvironment as B\n"
        "e = B()\n"
        "[e.reset(seed * 40 + level) for seed in range(8) for level in (16, 35)]"
    )
    done = run_python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture(params=[False, True], ids=["own", "compat"])
def client(request):
    with serving(
        "agentgym_envs.babyai.served", compat=request.param, max_body_bytes=10_000
    ) as client:
        yield client


def test_a_session_has_the_routes_and_keys_of_agentgym(client):
    assert client.get("/").json() == "This is environment BabyAI."
    session = client.post("/create").json()
    assert session == {"id": 0}
    early = client.get("/observation", params=session).json()
    assert early == {
        "observation": "Environment not initialized",
        "reward": 0,
        "score": 0,
        "done": False,
        "deleted": False,
    }
    first = client.post("/reset", json={**session, "data_idx": 3}).json()
    assert set(first) == {"observation", "reward", "score", "deleted", "done"}
    assert client.get("/observation", params=session).json() == first
    step = client.post("/step", json={**session, "action": "turn left"}).json()
    assert set(step) == {"observation", "reward", "score", "done"}
    assert client.post("/render", json=session).json().startswith("data:image/png;base64,")
    assert client.get("/expert_action", params=session).json()["action"] in step["observation"]
    assert client.post("/close", json=session).json() is True


def test_the_instructions_of_the_spec_name_the_accepted_actions(client):
    spec = client.get("/spec").json()
    assert spec["name"] == "babyai" and spec["num_tasks"] == 40 * 2**20
    assert "pickup <object> <number>" in spec["instructions"]
    assert "pick up <" not in spec["instructions"]
    assert "Thought:" in spec["instructions"] and "\nAction:" in spec["instructions"]
