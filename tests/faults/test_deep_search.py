"""An environment of another dialect (`env_idx`) behind the proxy: searches are neither lost nor made twice."""

import pathlib
import sys
import types

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa.engines.engine import load_engine
from agentgym_jax import evaluate
from agentgym_jax.env_client.embedded import EmbeddedServers
from agentgym_jax.run import evaluation as opening
from agentgym_jax.run.run import StopFlag
from agentgym_jax.run.sections import plain
from agentgym_jax.run_folder import RunFolder
from configs.eval import searchqa
from tests.faults.proxy import Fault, FaultProxy, Schedule

sys.path.append(str(pathlib.Path(__file__).parents[1] / "envs"))
import topics  # noqa: E402  (shared with the environment's own tests)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    try:
        load_engine("tantivy")
    except SetupError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("searchqa")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_DATA", str(folder / "data"))
        options = {"searchqa": topics.options(folder)}
        with EmbeddedServers(["searchqa"], options=options) as servers:
            yield servers.urls["searchqa"]


def played(url, workdir):
    """What the scripted player did in every held-out question about a capital, and its errors."""
    c = searchqa.get_config("limit=12")
    c.environments.searchqa.url = url
    c.environments.searchqa.eval.where = dict(
        data_idx=tuple(range(topics.CAPITALS, len(topics.QUESTIONS)))
    )
    c.environments.searchqa.eval.group_by = "kind"
    c.model.source = "expert"
    c.model.architecture = {}
    c.client.step_timeout_s = 5.0
    c.pool.workers = 6
    c.rollout.max_attempts = 20
    config = plain(c)
    with StopFlag().installed() as stop, opening.open_evaluation(config, str(workdir)) as parts:
        assert evaluate.run(config, parts, stop) == 0
    records = RunFolder(workdir).read_trajectories(0, "eval")
    for record in records:
        del record["seconds"], record["attempts"]
    return records


def test_faults_change_no_episode_of_deep_search(url, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "_SAME_TASKS_AS", types.SimpleNamespace(value=None))
    quiet = played(url, tmp_path / "quiet")
    assert {record["outcome"] for record in quiet} == {"success"} and len(quiet) == 12
    deal = Schedule(3, set(Fault) - {Fault.STALL}, calm=8)
    with FaultProxy(url, deal) as proxy:
        disturbed = played(proxy.url, tmp_path / "disturbed")
    assert disturbed == quiet
    assert sum(proxy.injected.values()) >= 10
