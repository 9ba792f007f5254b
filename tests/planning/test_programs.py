"""Facts about the compiled programs of a run on eight devices."""

import jax
import pytest

from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.jobs.sampled_agents import count_process_rows
from agentgym_jax.mesh.sharding import make_layouts
from agentgym_jax.models.policy import Policy
from agentgym_jax.planning import hlo
from agentgym_jax.planning.programs import get_decoder_config, make_programs
from agentgym_jax.rl.rl_config import parse
from configs.rl import bandit

FSDP = dict(data=1, fsdp=8, tensor=1, decode_tensor=0)


@pytest.fixture(scope="module")
def settings(compiled_fastest):
    """Returns an RL config whose weights are larger than the activations of a decode step."""
    config = plain(bandit.get_config("smoke"))
    config["learner"] |= dict(micro_rows=8, num_row_lengths=1)
    config["sampler"] |= dict(rows=8, decode_rows=0)
    config["model"]["architecture"] |= dict(
        hidden_size=128, intermediate_size=512, num_layers=3, num_heads=8, num_kv_heads=4
    )
    return parse(config)


@pytest.fixture(scope="module")
def measured(settings):
    """Returns a function that compiles the programs of a mesh and returns their costs by name."""

    def measure(mesh, *names, local=8):
        found = {}
        made = make_programs(settings, mesh, jax.devices()[:8], jax.devices()[:local])
        for program in made.programs:
            name = program.name.partition(" ")[0]
            if name in names:
                text = program.traced.lower().compile().as_text()
                found[name] = hlo.measure(text, program.trips)
        return found

    return measure


def moved_bytes(cost):
    return sum(size for _, size in cost.collectives.values())


def num_bytes(settings):
    return 4 * Policy(get_decoder_config(settings)).num_parameters


@pytest.mark.parametrize("decode_tensor", [0, 2])
def test_decoding_gathers_no_weights(settings, measured, decode_tensor):
    cost = measured(FSDP | dict(decode_tensor=decode_tensor), "decode")["decode"]
    tokens = settings.sampler["decode_steps"]
    # A whole gather per token would move `tokens` times all weights.
    assert moved_bytes(cost) < tokens * num_bytes(settings) / 20


def test_weights_spread_to_all_samplers_once(settings, measured):
    cost = measured(FSDP, "reshard")["reshard"]
    assert num_bytes(settings) / 2 < moved_bytes(cost) < 1.1 * num_bytes(settings)


def test_an_update_moves_each_weight_a_few_times_per_micro_batch(settings, measured):
    cost = measured(FSDP, "update")["update"]
    # Gathers in the forward and the backward pass, and the reduction of the gradient; on CPU the
    # reduction is an all-reduce of the whole gradient.
    episodes = settings.rollout.tasks_per_step * settings.rollout.group_size
    micro_batches = episodes // settings.learner.mini_batches // settings.learner.micro_rows
    assert moved_bytes(cost) < 4 * micro_batches * num_bytes(settings)


def test_more_decode_tensor_shards_leave_fewer_weights_on_a_device(settings):
    residents = [
        make_programs(
            settings, FSDP | dict(decode_tensor=count), jax.devices()[:8], jax.devices()[:8]
        ).residents["decode weights"]
        for count in (1, 2, 4)
    ]
    assert residents[1] < 0.7 * residents[0] and residents[2] < 0.7 * residents[1]


@pytest.mark.parametrize("decode_tensor", [3, 16])
def test_a_decode_mesh_that_does_not_fit_a_process_is_refused(decode_tensor):
    message = f"decode_tensor={decode_tensor} does not divide the 8 devices of a process"
    with pytest.raises(ValueError, match=message):
        make_layouts(**FSDP | dict(decode_tensor=decode_tensor))


@pytest.mark.parametrize(
    ("rows", "episodes", "shards", "num_processes", "own"),
    [(64, 256, 1, 1, 64), (64, 256, 4, 4, 16), (64, 6, 4, 2, 8), (8, 1, 1, 8, 1)],
)
def test_a_sampler_has_its_share_of_the_rows_of_all_processes(
    rows, episodes, shards, num_processes, own
):
    assert count_process_rows(rows, episodes, shards, num_processes) == own


def test_rows_that_cannot_be_shared_are_refused_with_a_number_that_fits():
    with pytest.raises(ConfigError, match="sampler.rows=20 .* 4 processes with 2 .* set 24"):
        count_process_rows(20, 64, 2, 4)
