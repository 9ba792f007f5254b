"""Plans of whole runs, compiled for the CPU in place of an accelerator."""

import dataclasses
import importlib.util
import json

import jax
import pytest

from agentgym_jax.config.sections import plain
from agentgym_jax.mesh import compiler_options
from agentgym_jax.models.policy import Policy
from agentgym_jax.planning import search, topology
from agentgym_jax.planning.plan_report import GIB, format_plan, make_plan
from agentgym_jax.planning.programs import get_decoder_config, make_programs
from agentgym_jax.planning.search import search_plan
from agentgym_jax.planning.topology import (
    Chip,
    PlanError,
    Topology,
    has_gpu_compiler,
    parse_topology,
)
from agentgym_jax.rl.rl_config import parse
from configs.paper import textcraft
from configs.rl import bandit
from tests.run_python import run_python

MESH = dict(data=1, fsdp=1, tensor=1, decode_tensor=0)


class HereTopology(Topology):
    """This machine's CPU as a slice of one chip."""

    @property
    def devices(self):
        return jax.devices()[:1]


def here(memory=GIB):
    return HereTopology("cpu:1", Chip("cpu", memory, 1e10, 1e11, 1e9, 1), 1)


def settings(**rollout):
    config = plain(bandit.get_config("smoke"))
    config["rollout"] |= rollout
    config["algorithm"] |= dict(
        old_logprobs_from="learner", correction=dict(kind="truncated", cap=2.0)
    )
    return parse(config)


@pytest.fixture(scope="module")
def lines():
    """Lines that the plan of the module wrote while it compiled."""
    return []


@pytest.fixture(scope="module")
def plan(compiled_fastest, lines):
    return make_plan(settings(), MESH, here(), lines.append)


def test_a_plan_has_every_program_of_the_run(plan):
    names = [program.name for program in plan.programs]
    assert names[0] == "reshard" and names[-1] == "update"
    assert any(name.startswith("prefill") for name in names)
    assert any(name.startswith("decode") for name in names)
    assert "copy prefix" in names


def test_every_program_is_reported_before_and_after_it_is_compiled(plan, lines):
    expected = []
    for program in plan.programs:
        expected += [
            f"compiling {program.name}",
            f"compiled {program.name} in {program.compile_s:.1f} s",
        ]
    assert lines == expected


def test_a_planned_decode_has_no_branch_for_truncated_draws():
    """Training draws from the whole distribution, so top-k and top-p cost nothing."""
    made = make_programs(settings(), MESH, jax.devices()[:1], jax.devices()[:1])
    decode = next(p for p in made.programs if p.name.startswith("decode"))
    text = str(decode.traced.jaxpr)
    assert " while[" in text and " cond[" not in text


@pytest.mark.parametrize(("best", "advice"), [("none", ""), ("fast_math", "change 'cpu' in ")])
def test_candidates_of_the_options_are_compared_with_the_table(plan, monkeypatch, best, advice):
    candidates = {"none": {}, "fast_math": {"xla_cpu_enable_fast_math": "true"}}
    monkeypatch.setattr(compiler_options, "CANDIDATES", {"cpu": tuple(candidates.values())})

    def measure(program, made, topology, progress):
        used = compiler_options.compiler_options(program.name, None) or {}
        factor = 0.5 if used == candidates[best] else 2.0
        cost = next(p for p in plan.programs if p.name == program.name)
        seconds = {key: factor * value for key, value in cost.seconds.items()}
        return dataclasses.replace(cost, seconds=seconds)

    monkeypatch.setattr(search, "measure_program", measure)
    found = search.compare_options(settings(), plan, lambda line: None)
    assert found[0][0] == candidates[best]
    assert [cost.name for _, cost in found] == ["update"] * 2
    text = search.format_options(plan, found)
    assert "update with no options: " in text and "fast_math=true: " in text
    assert (advice in text) if advice else ("change" not in text)


def test_a_chip_without_candidates_has_nothing_to_compare(plan):
    found = search.compare_options(settings(), plan, pytest.fail)
    assert "no other options to compare for cpu" in search.format_options(plan, found)


def test_weights_and_moments_have_the_bytes_of_the_model(plan):
    weights = 4 * Policy(get_decoder_config(settings())).num_parameters
    assert plan.residents["weights"] == weights
    assert 2 * weights <= plan.residents["moments"] <= 2 * weights + 64


def test_int8_decode_weights_take_a_quarter_of_float32(plan):
    config = plain(bandit.get_config("smoke"))
    config["model"]["decode_dtype"] = "int8"
    topology = here()
    made = make_programs(parse(config), MESH, topology.devices, topology.host_devices)
    ratio = made.residents["decode weights"] / plan.residents["decode weights"]
    assert 0.25 < ratio < 0.5  # the model is so small that scales and embeddings count


def test_an_int8_cache_takes_a_quarter_of_float32_and_its_scales(plan):
    config = plain(bandit.get_config("smoke"))
    config["model"]["cache_dtype"] = "int8"
    config["algorithm"]["old_logprobs_from"] = "sampler"
    topology = here()
    made = make_programs(parse(config), MESH, topology.devices, topology.host_devices)
    H = config["model"]["architecture"]["head_size"]
    assert made.residents["cache"] == plan.residents["cache"] * (H + 4) / (4 * H)
    # the ratio to the sampler needs no scores before the update
    assert {"score"} == {p.name for p in plan.programs} - {p.name for p in made.programs}


def test_flops_of_an_update_are_three_times_those_of_a_score(plan):
    costs = {program.name: program for program in plan.programs}
    micro_batches = costs["score"].calls / costs["update"].calls
    ratio = costs["update"].flops / (micro_batches * costs["score"].flops)
    assert 2.5 < ratio < 3.5


def test_a_plan_that_does_not_fit_names_the_largest_part(plan):
    made = dataclasses.replace(plan, topology=here(memory=1e5))
    assert not made.fits
    assert made.verdict().startswith("does not fit: ")
    assert any(name in made.verdict() for name in (*made.residents, made.largest.name))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "flag", "message"),
    [
        ("file/below/plan.json", "--config.mesh.fsdp=1", "cannot write"),
        ("new/plan.json", "--config.mesh.fsdp=3", ""),
        ("file", "--config.mesh.fsdp=3", ""),
    ],
)
def test_a_plan_that_fails_is_one_line_and_leaves_its_file_as_it_was(tmp_path, file, flag, message):
    (tmp_path / "file").write_text("mine")
    flags = ["--config=configs/rl/bandit.py:smoke", "--topology=v5e:2x2", flag]
    done = run_python("-m", "agentgym_jax.plan", *flags, f"--json={tmp_path / file}")
    assert done.returncode == 1
    assert done.stderr.strip().startswith("agentgym_jax.plan: ") and message in done.stderr
    assert "\n" not in done.stderr.strip()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_the_numbers_are_plain_json_and_the_text_names_every_program(plan):
    numbers = json.loads(json.dumps(plan.as_json()))
    assert numbers["fits"] and numbers["peak"] == plan.peak
    text = format_plan(plan)
    assert all(program.name in text for program in plan.programs)
    assert "fits: " in text


@pytest.mark.parametrize("fastest", [1, 2])
def test_a_search_returns_the_fastest_candidate_that_fits(plan, monkeypatch, fastest):
    """Checks a search in which candidates have the programs of one plan, called more often."""
    lines = []

    def plan_of(settings, mesh, topology, progress):
        rows = settings.learner.micro_rows
        slower = 1 if rows == fastest else 2
        programs = [dataclasses.replace(p, calls=slower * p.calls) for p in plan.programs]
        return dataclasses.replace(
            plan, mesh=mesh, micro_rows=rows, topology=topology, programs=programs
        )

    monkeypatch.setattr(search, "make_plan", plan_of)
    best, values = search_plan(settings(), here(), lines.append)
    assert best.micro_rows == fastest
    mesh = {"data": 1, "fsdp": 1, "tensor": 1, "decode_tensor": 1}
    assert values == mesh | {"micro_rows": fastest}
    assert len(lines) == 2
    with pytest.raises(PlanError, match=r"nothing fits cpu:1\. Nearest: data=1"):
        search_plan(settings(), here(memory=1e5), lines.append)


def test_a_hub_id_of_qwen_needs_no_download():
    config = parse(plain(textcraft.get_config("size=7b")))
    assert get_decoder_config(config).num_layers == 28


@pytest.mark.parametrize("name", ["v9:4", "v5e", "v5e:", "v5e:4x", "v5e:0x4", "h100:-1", ""])
def test_an_unknown_slice_is_refused_with_examples(name):
    with pytest.raises(PlanError, match=r"expected CHIP:SHAPE .*v5e:4x4"):
        parse_topology(name)


def test_the_number_of_chips_is_the_product_of_the_shape():
    assert parse_topology("v5p:2x2x4").num_chips == 16
    assert parse_topology("h100:8").num_chips == 8


def test_a_missing_compiler_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(topology.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PlanError, match=r'libtpu: pip install -e "\.\[plan\]"'):
        _ = parse_topology("v5e:2x2").devices
    with pytest.raises(PlanError, match=r'GPU compiler: pip install -e "\.\[cuda\]"'):
        _ = parse_topology("h100:8").devices


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra [plan]")
def test_a_tpu_slice_that_does_not_exist_is_refused_in_one_line():
    with pytest.raises(PlanError, match="libtpu has no such slice"):
        _ = parse_topology("v5e:3x5").devices


@pytest.mark.slow
@pytest.mark.skipif(not has_gpu_compiler(), reason="needs the extra [cuda]")
def test_a_plan_for_gpus_copies_no_weights_and_no_cache_while_it_decodes():
    made = make_plan(
        settings(), dict(data=1, fsdp=-1, tensor=1, decode_tensor=0), parse_topology("h100:2")
    )
    costs = {program.name.split()[0]: program for program in made.programs}
    assert costs["split"].temp >= made.residents["decode weights"]
    one_layer = made.residents["cache"] / get_decoder_config(settings()).num_layers
    assert costs["decode"].largest_copy_in_loop < one_layer / 2
    assert costs["prefill"].largest_copy_in_loop == 0
    assert costs["prefill"].collectives == {}
    assert made.fits


def test_rows_that_the_devices_cannot_divide_are_refused_with_a_value_that_fits():
    one = settings()
    one = dataclasses.replace(one, learner=dataclasses.replace(one.learner, micro_rows=12))
    mesh = dict(data=2, fsdp=4, tensor=1, decode_tensor=0)
    with pytest.raises(PlanError, match=r"micro_rows=12 cannot be divided over the 8 .*set 16"):
        make_programs(one, mesh, jax.devices()[:8], jax.devices()[:8])


def test_a_refusal_lists_everything_that_must_change():
    config = parse(plain(bandit.get_config("algorithm=ppo,smoke")))
    learner = dataclasses.replace(config.learner, micro_rows=12)
    config = dataclasses.replace(
        config, reference="another model", learner=learner, sampler=config.sampler | dict(rows=12)
    )
    mesh = dict(data=2, fsdp=4, tensor=1, decode_tensor=0)
    message = "only the initial .*, .* a critic.*; .*micro_rows=12 .* set 16.*; .*rows=12 .* set 16"
    with pytest.raises(PlanError, match=message):
        make_programs(config, mesh, jax.devices()[:8], jax.devices()[:8])


def test_only_a_rollout_counts_the_arrays_of_the_sampler(plan):
    total = sum(plan.residents.values())
    of_sampler = plan.residents["decode weights"] + plan.residents["cache"]
    kept = {program.name: sum(program.residents.values()) for program in plan.programs}
    assert kept["update"] == kept["score"] == kept["score reference"] == total - of_sampler
    assert kept["reshard"] == total - plan.residents["cache"]
    assert kept["copy prefix"] == total
    assert plan.peak == max(program.temp + kept[program.name] for program in plan.programs)


def test_a_rollout_during_the_update_keeps_the_arrays_of_the_sampler():
    made = make_programs(
        settings(max_off_policy_steps=1), MESH, jax.devices()[:1], jax.devices()[:1]
    )
    assert {p.freed for p in made.programs if p.name in ("score", "update")} == {()}


def test_the_weights_of_earlier_updates_are_counted():
    three = make_programs(
        settings(max_off_policy_steps=3), MESH, jax.devices()[:1], jax.devices()[:1]
    ).residents
    assert three["stale weights"] == 3 * three["decode weights"]


@pytest.mark.parametrize(("dtype", "size"), [("float32", 1.0), ("bfloat16", 0.5)])
def test_the_reference_is_counted_in_the_compute_type(dtype, size):
    config = plain(bandit.get_config("smoke"))
    config["model"]["dtype"] = dtype
    residents = make_programs(parse(config), MESH, jax.devices()[:1], jax.devices()[:1]).residents
    assert residents["reference"] == pytest.approx(size * residents["weights"], rel=0.02)


def test_moments_are_counted_in_their_type():
    config = plain(bandit.get_config("smoke"))
    config["optimizer"]["moments"] = "int8"
    residents = make_programs(parse(config), MESH, jax.devices()[:1], jax.devices()[:1]).residents
    assert residents["moments"] < 0.6 * residents["weights"]
