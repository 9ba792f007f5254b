from types import SimpleNamespace

import jax
import pytest

from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.policy import Policy
from agentgym_jax.run.sampling import build_collector
from agentgym_jax.run.sections import ConfigError
from agentgym_jax.run.settings import RolloutSettings
from agentgym_jax.sharding import DECODE_RULES, Layout, make_mesh
from configs import common

SAMPLER = dict(rows=16, cache_length=32, buckets=((16, 2),), decode_steps=4, wake_rows=2)


def _sampler(most_episodes, *, data=1, **changes):
    layout = None
    if data > 1:
        mesh = make_mesh(data=data, devices=jax.devices()[:data])
        layout = Layout(mesh, DECODE_RULES)
    policy = Policy(DecoderConfig(64, 16, 24, 1, 2, 1, 8), layout=layout)
    model = SimpleNamespace(
        decode_policy=policy,
        renderer=SimpleNamespace(stop_ids=(0,)),
        tokenizer=SimpleNamespace(decode=None),
    )
    environments = SimpleNamespace(pool=None, texts={}, revive=None)
    rollout = RolloutSettings(**common.base().rollout)
    sampler, _ = build_collector(
        {**SAMPLER, **changes}, rollout, model, environments, most_episodes
    )
    return sampler


@pytest.mark.parametrize(("most_episodes", "data", "rows"), [(99, 1, 16), (4, 1, 4), (5, 4, 8)])
def test_no_more_rows_than_episodes_can_use(most_episodes, data, rows):
    assert _sampler(most_episodes, data=data).rows == rows


def test_a_mistyped_key_is_named():
    with pytest.raises(ConfigError, match="row"):
        _sampler(4, row=3)


@pytest.mark.parametrize(
    ("most_episodes", "decode_rows", "places"),
    [(99, 6, 6), (99, 17, 16), (4, 6, 4), (4, 3, 3), (4, 0, 4)],
)
def test_decode_places_shrink_with_the_rows(most_episodes, decode_rows, places):
    assert _sampler(most_episodes, decode_rows=decode_rows).decode_rows == places


def test_on_several_devices_all_rows_decode_together():
    with pytest.raises(ConfigError, match="several devices"):
        _sampler(99, data=4, decode_rows=8)
