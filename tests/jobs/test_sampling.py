from types import SimpleNamespace

import jax
import pytest

from agentgym_jax.config.sections import ConfigError
from agentgym_jax.config.settings import RolloutSettings
from agentgym_jax.jobs.environments import Environments
from agentgym_jax.jobs.sampled_agents import build_agent
from agentgym_jax.mesh.sharding import DECODE_RULES, Layout, make_mesh
from agentgym_jax.models.policy import Policy
from agentgym_jax.sampling.options import SamplingOptions
from configs import common
from tests.builders import decoder_config

SAMPLER = dict(
    rows=16, cache_length=32, buckets=((16, 2),), decode_steps=4, return_after_finished=2
)


def _sampler(most_episodes, *, data=1, **changes):
    layout = None
    if data > 1:
        mesh = make_mesh(data=data, fsdp=1, tensor=1, devices=jax.devices()[:data])
        layout = Layout(mesh, DECODE_RULES)
    policy = Policy(
        decoder_config(
            vocab_size=64,
            hidden_size=16,
            intermediate_size=24,
            num_layers=1,
            num_heads=2,
            num_kv_heads=1,
        ),
        layout=layout,
    )
    model = SimpleNamespace(
        decode_policy=policy,
        renderer=SimpleNamespace(stop_ids=(0,)),
        tokenizer=SimpleNamespace(decode=None),
    )
    environments = Environments(
        clients={},
        pool=None,
        texts={},
        train_tasks=[],
        eval_tasks=[],
        manifests={},
        started={},
        restart_dead_servers=lambda: None,
    )
    rollout = RolloutSettings(**common.base().rollout)
    settings = SimpleNamespace(
        sampler={**SAMPLER, **changes},
        sampling=SamplingOptions(temperature=1.0, max_turn_tokens=4, max_tokens=32),
        rollout=rollout,
        program=None,
    )
    return build_agent(settings, model, environments, most_episodes).sampler


@pytest.mark.parametrize(("most_episodes", "data", "rows"), [(99, 1, 16), (4, 1, 4), (5, 4, 8)])
def test_the_number_of_rows_is_limited_by_the_number_of_episodes(most_episodes, data, rows):
    assert _sampler(most_episodes, data=data).rows == rows


def test_the_error_for_a_mistyped_key_names_it():
    with pytest.raises(ConfigError, match="row"):
        _sampler(4, row=3)


@pytest.mark.parametrize(
    ("most_episodes", "decode_rows", "places"),
    [(99, 6, 6), (99, 17, 16), (4, 6, 4), (4, 3, 3), (4, 0, 4)],
)
def test_decode_slots_are_limited_by_the_number_of_rows(most_episodes, decode_rows, places):
    assert _sampler(most_episodes, decode_rows=decode_rows).decode_rows == places


def test_on_several_devices_all_rows_decode_together():
    with pytest.raises(ConfigError, match="several devices"):
        _sampler(99, data=4, decode_rows=8)
