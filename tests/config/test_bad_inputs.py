"""Bad inputs: each one gives a one-line message that names the remedy, and leaves no files behind.

Most cases run a job in this process; cases about the command line run the command.
"""

import contextlib
import copy
import importlib
import importlib.metadata

import jax
import numpy as np
import pytest

from agentgym_envs.sciworld.simulator import shared_simulator
from agentgym_jax.checks import limits
from agentgym_jax.config import config_files
from agentgym_jax.config.sections import ConfigError
from agentgym_jax.jobs import evaluation
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.weights import save_hf
from agentgym_jax.rl import rl_config
from agentgym_jax.supervised import agentevol, dpo, sft
from agentgym_jax.training.job_kinds import run_job
from configs import common
from tests.builders import decoder_config
from tests.config.refusals import DELETED, JOBS, changed, check_one_line, evaluated, message
from tests.fake_server import serving

PARSERS = dict(
    rl=rl_config.parse,
    sft=sft.parse,
    dpo=dpo.parse,
    agentevol=agentevol.parse,
    evaluate=evaluation.parse,
)


WRONG = [
    ("rl", dict(sampler__bukets=((16, 4),)), "config.sampler.bukets: there is no such key"),
    ("rl", dict(sampler__decode_rows=-1), "config.sampler.decode_rows=-1: expected"),
    ("rl", dict(pool__worker=3), "did you mean 'workers'?"),
    ("rl", dict(client__step_timeout=3.0), "did you mean 'step_timeout_s'?"),
    (
        "rl",
        dict(rollout__system_prompt_mode="sytem"),
        "config.rollout.system_prompt_mode='sytem': expected one of",
    ),
    ("rl", dict(mesh__fdsp=1), "did you mean 'fsdp'?"),
    ("rl", dict(environments__babyai__url="x" * 5000), "xxx' is no address such as http://127"),
    ("rl", dict(sampler__cache_length=DELETED), "config.sampler lacks cache_length"),
    ("rl", dict(seed=DELETED), "config lacks seed"),
    ("rl", dict(total_steps=DELETED), "config lacks total_steps"),
    ("rl", dict(sft=DELETED), "needs config.sft.demonstrations"),
    ("rl", dict(pool=DELETED), "config.pool is missing"),
    ("rl", dict(algorithm__loss=DELETED), "config.algorithm lacks loss"),
    ("rl", dict(algorithm__advantage__epsilon=1.0), "config.algorithm.advantage.epsilon"),
    ("rl", dict(horizon__kind=DELETED), "config.horizon.kind=None is none of fixed"),
    ("rl", dict(optimzer={}), "did you mean 'optimizer'?"),
    ("rl", dict(optimizer__learning_rate=-1.0), "config.optimizer.learning_rate=-1.0: expected"),
    ("rl", dict(optimizer__learning_rate="1e-3"), "learning_rate='1e-3': expected a number"),
    ("rl", dict(optimizer__learning_rate=float("nan")), "learning_rate=nan: expected a number"),
    ("rl", dict(optimizer__b2=1.0), "config.optimizer.b2=1.0: expected a number, at least 0"),
    ("rl", dict(optimizer__warmup_steps=-1), "config.optimizer.warmup_steps=-1"),
    ("rl", dict(optimizer__warmup_steps=99), "ends within its warm-up"),
    ("rl", dict(total_steps=0), "config.total_steps=0: expected a whole number, at least 1"),
    ("rl", dict(total_steps=2.5), "config.total_steps=2.5: expected a whole number"),
    ("rl", dict(seed=-1), "config.seed=-1"),
    ("rl", dict(loggers="wandbb"), "'wandbb' is none of tensorboard"),
    ("rl", dict(loggers="wandb+foo"), "'foo' is none of tensorboard"),
    ("rl", dict(model__dtype="float16"), "config.model.dtype='float16': expected one of"),
    ("rl", dict(model__remat="all"), "config.model.remat='all'"),
    (
        "rl",
        dict(model__source="no-such", model__architecture={}),
        "the model no-such is no existing path",
    ),
    ("rl", dict(model__attention="cudnn"), "attention='cudnn' with dtype='float32'"),
    ("rl", dict(model__attention="cudnn", model__dtype="bfloat16"), "='cudnn' needs a GPU"),
    ("rl", dict(model__source="", model__architecture={}), "config.model.source is empty"),
    ("rl", dict(model__architecture__num_heads=3), "config.model.architecture: DecoderConfig"),
    ("rl", dict(model__architecture__hidden_size=0), "config.model.architecture.hidden_size=0"),
    ("rl", dict(tokenizer__vocab_size=10), "config.tokenizer.source='train'"),
    ("rl", dict(tokenizer__source="nowhere"), "no tokenizer at nowhere"),
    ("rl", dict(mesh__data=5), "config.mesh: mesh data=5"),
    (
        "rl",
        dict(env_server__transport="grpc"),
        "config.env_server.transport='grpc': expected one of http",
    ),
    (
        "rl",
        dict(env_server__workers=0),
        "config.env_server.workers=0: expected a whole number, at least 1",
    ),
    ("rl", dict(client__connect_timeout_s=0), "config.client.connect_timeout_s=0"),
    ("rl", dict(pool__max_idle_sessions=-1), "config.pool.max_idle_sessions=-1"),
    ("rl", dict(sampler__rows=0), "config.sampler.rows=0"),
    ("rl", dict(sampler__buckets=((16, 0),)), "needs tokens and slices of at least 1"),
    ("rl", dict(sampler__buckets=((16, 1), (16, 2))), "must name each token length once"),
    ("rl", dict(sampler__buckets=(16, 4)), "config.sampler.buckets=(16, 4): expected a sequence"),
    ("rl", dict(sampler__return_after_finished=0), "config.sampler.return_after_finished=0"),
    ("rl", dict(sampler__draft_tokens=17), "config.sampler.draft_tokens=17"),
    ("rl", dict(sampling__temperature=-1.0), "config.sampling.temperature=-1.0"),
    ("rl", dict(sampling__top_p=0.0), "config.sampling.top_p=0.0"),
    ("rl", dict(sampling__max_turn_tokens=0), "config.sampling.max_turn_tokens=0"),
    ("rl", dict(rollout__group_size=True), "config.rollout.group_size=True"),
    ("rl", dict(rollout__curriculum=dict(kind="hard")), "config.rollout.curriculum.kind='hard'"),
    ("rl", dict(model__lora=common.lora(-1)), "config.model.lora.rank=-1"),
    ("rl", dict(model__lora=common.lora(2, targets=("q", "head"))), "config.model.lora.targets"),
    ("rl", dict(model__lora=common.lora(2, targets=())), "name each kernel once, at least one"),
    ("rl", dict(model__lora=common.lora(2, decode="fused")), "config.model.lora.decode='fused'"),
    ("sft", dict(model__lora=dict(rank=2)), "alpha"),
    ("rl", dict(rollout__reward="none"), "config.rollout.reward='none' leaves no reward"),
    (
        "rl",
        dict(
            algorithm=common.distill() | dict(kl_reward=dict(kind="none")),
            rollout__reward="success",
        ),
        "'distill' learns from the divergence alone",
    ),
    (
        "rl",
        dict(reference=dict(source="x"), algorithm=common.dr_grpo(length=64)),
        "config.reference.source='x' has no effect",
    ),
    ("rl", dict(reference=dict(source="")), "config.reference: source is empty"),
    (
        "rl",
        dict(rollout__curriculum=dict(kind="success_rate", candidates=4, decay=0.9, prior=2.0)),
        "floor",
    ),
    (
        "rl",
        dict(
            rollout__curriculum=dict(
                kind="success_rate", candidates=1, decay=0.9, prior=2.0, floor=0.1
            )
        ),
        "config.rollout.curriculum.candidates=1",
    ),
    ("rl", dict(rollout__prefetch=-1), "config.rollout.prefetch=-1"),
    ("rl", dict(rollout__show_turn_budget="often"), "config.rollout.show_turn_budget='often'"),
    ("rl", dict(rollout__overlong=dict(kind="words")), "kind is 'words'"),
    ("rl", dict(learner__micro_rows=0), "config.learner.micro_rows=0"),
    ("rl", dict(learner__row_length=64), "exceeds config.learner.row_length=64"),
    ("rl", dict(learner__max_logprob_gap=0.0), "(nats per token)"),
    ("rl", dict(guards="grad_spike=explode"), "config.guards.grad_spike='explode'"),
    ("rl", dict(guards="grad_spike_factor=1.0"), "config.guards.grad_spike_factor=1.0"),
    ("rl", dict(checkpoint__every=0), "config.checkpoint.every=0"),
    ("rl", dict(evaluation__samples=0, evaluation__greedy=False), "leave no episodes"),
    ("rl", dict(algorithm__name="ppo"), "common.ppo()"),
    ("rl", dict(algorithm__name="rloo"), "common.rloo()"),
    ("rl", dict(algorithm__kl_kind="k4"), "config.algorithm.kl_kind='k4'"),
    ("rl", dict(algorithm__kl_coef=-0.1), "config.algorithm.kl_coef=-0.1"),
    ("rl", dict(algorithm__logprob_chunk=0), "config.algorithm.logprob_chunk=0"),
    ("rl", dict(algorithm__loss__clip_low=1.5), "needs 0 <= clip_low < 1"),
    ("rl", dict(algorithm__advantage__eps=-1.0), "config.algorithm.advantage.eps=-1.0"),
    ("rl", dict(algorithm__aggregation=dict(mode="mean")), "mode is 'mean'"),
    ("rl", dict(horizon=dict(kind="fixed", turns=0)), "at least one turn"),
    ("rl", dict(horizon=dict(kind="periodic", turns=5, period=2)), "expected a sequence"),
    ("rl", dict(environments__babyai__url="localhost:1"), "is no address such as"),
    ("rl", dict(environments__babyai__action_format="xml"), "action_format='xml'"),
    ("rl", dict(environments__babyai__weights={"GoTo": -1}), "babyai.weights={'GoTo': -1}"),
    ("rl", dict(environments__babyai__weights={"GoTo": 0.5}), "babyai.weights={'GoTo': 0.5}"),
    ("rl", dict(environments__babyai__train__stop=DELETED), "babyai.train lacks stop"),
    ("rl", dict(environments__babyai__eval__modulus=0), "babyai.eval.modulus=0"),
    ("rl", dict(environments=dict(babyay=common.environment())), "environments.babyay"),
    ("rl", dict(sft__weighting="mean"), "config.sft.weighting='mean'"),
    ("rl", dict(sft__optimizer__b1=2.0), "config.sft.optimizer.b1=2.0"),
    ("rl", dict(sft__demonstrations__play__agent="human"), "play.agent='human'"),
    ("rl", dict(sft__demonstrations__play__tasks__start="x"), "play.tasks.start='x'"),
    ("rl", dict(job="rel"), "config.job must be one of rl"),
    ("sft", dict(sft__rows=3, sft__micro_rows=2), "do not split into micro_rows"),
    ("sft", dict(sft__stepz=3), "config.sft.stepz: there is no such key"),
    ("sft", dict(total_steps=5), "must be the same number"),
    ("sft", dict(logprob_chunk=0), "config.logprob_chunk=0"),
    ("sft", dict(rollout={}), "config.env_server is missing"),
    ("dpo", dict(dpo__beta=0), "config.dpo.beta=0: expected a number, above 0"),
    ("dpo", dict(dpo__pairing__gap=0.0), "config.dpo.pairing.gap=0.0"),
    ("dpo", dict(dpo__pairing__measure="luck"), "config.dpo.pairing.measure='luck'"),
    ("dpo", dict(dpo__pairing__pairs_per_task=0), "config.dpo.pairing.pairs_per_task=0"),
    ("dpo", dict(checkpoint__evry=1), "did you mean 'every'?"),
    ("agentevol", dict(agentevol__rounds=0), "config.agentevol.rounds=0"),
    ("agentevol", dict(agentevol__explore__babyai__turns=3), "explore.babyai.turns"),
    (
        "agentevol",
        dict(rollout__system_prompt_mode="sytem"),
        "config.rollout.system_prompt_mode='sytem'",
    ),
    ("agentevol", dict(sampler__bukets=()), "config.sampler.bukets"),
    ("evaluate", dict(sampler__bukets=()), "config.sampler.bukets"),
    ("evaluate", dict(pool__worker=1), "config.pool.worker"),
    ("evaluate", dict(endpoint__timeout_s=0), "config.endpoint.timeout_s=0"),
    (
        "evaluate",
        dict(rollout__system_prompt_mode="sytem"),
        "config.rollout.system_prompt_mode='sytem'",
    ),
    ("evaluate", dict(seed=DELETED), "config lacks seed"),
]


@pytest.mark.parametrize(("job", "changes", "words"), WRONG)
def test_an_invalid_config_is_refused_in_one_line_without_new_files(tmp_path, job, changes, words):
    workdir = tmp_path / "runs" / "first"
    check_one_line(message(job, changed(job, **changes), workdir), words)
    assert not list(tmp_path.iterdir())


def test_numbers_and_booleans_in_sections_of_a_config_refuse_minus_7():
    """Checks every number and boolean in the sections of the quickstart's config."""
    config = changed("rl")
    free = {"horizon.turns", "horizon.boundaries"}
    accepted = []
    for name, section in config.items():
        for key, value in section.items() if isinstance(section, dict) else ():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number or isinstance(value, bool)) or f"{name}.{key}" in free:
                continue
            wrong = copy.deepcopy(config)
            wrong[name][key] = -7
            with contextlib.suppress(ConfigError):
                run_job(wrong, "/nonexistent")
                accepted.append(f"{name}.{key}")
    assert not accepted


@pytest.mark.slow
def test_zero_steps_of_a_warm_start_leave_it_out_and_other_jobs_need_steps(tmp_path):
    config = changed("rl", sft__steps=0, total_steps=1, learner__micro_rows=8)
    config["evaluation"] |= dict(every=0, at_start=False)
    run_job(config, str(tmp_path / "run"), plots=False)
    assert not (tmp_path / "run" / "warm_start").exists()
    text = message("agentevol", changed("agentevol", sft__steps=0), tmp_path / "other")
    check_one_line(text, "config.sft.steps=0 leaves nothing to train")


UNENCODABLE = [
    (
        "rl",
        dict(sft__row_length=8, sft__too_long="error", learner__micro_rows=8),
        "config.sft: ",
    ),
    ("sft", dict(sft__row_length=8, sft__too_long="error"), "config.sft: "),
    ("dpo", dict(dpo__row_length=8, dpo__too_long="error"), "config.dpo.row_length=8"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("job", "changes", "words"), UNENCODABLE)
def test_data_that_cannot_be_encoded_leave_no_folder(tmp_path, job, changes, words):
    check_one_line(message(job, changed(job, **changes), tmp_path / "run"), words)
    assert not list(tmp_path.iterdir())


def leaves(section, path=()):
    """Yields the path of every value of a config, also of those in sequences."""
    for key, value in section.items() if isinstance(section, dict) else enumerate(section):
        if isinstance(value, dict | list | tuple):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def replaced(tree, path, value):
    """Returns a copy of a config with another value."""
    if not path:
        return value
    copied = copy.copy(tree) if isinstance(tree, dict) else list(tree)
    copied[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copied if isinstance(tree, dict) else tuple(copied)


@pytest.mark.parametrize("job", JOBS)
def test_a_whole_number_that_does_not_fit_an_array_is_refused_with_its_key(job):
    config, accepted = changed(job), []
    for path, value in leaves(config):
        if type(value) is not int or path == ("seed",):
            continue
        try:
            PARSERS[job](replaced(config, path, 2**31))
            accepted.append(".".join(map(str, path)))
        except ConfigError as error:
            assert "\n" not in str(error) and any(f".{key}=" in str(error) for key in path)
    assert not accepted


def test_a_name_that_is_too_long_is_refused_in_one_line(tmp_path):
    workdir = tmp_path / ("x" * 300)
    check_one_line(message("rl", changed("rl"), workdir)[-200:], "The name is too long")
    with pytest.raises(ConfigError, match="there is no such file"):
        config_files.check_exists(f"configs/{'x' * 300}.py")


@pytest.mark.parametrize("status", [200, 403, 404])
def test_the_error_for_the_address_of_another_web_server_is_one_line(tmp_path, status):
    page = b"<!DOCTYPE html>\n" + b"<p>Hello</p>\n" * 777
    with serving(lambda request: (status, page), keeps_alive=False) as server:
        url = server.url
        brief = dict(pool__breaker_patience_s=0.1)  # reached
        config = changed("rl", environments__babyai__url=url, **brief)
        text = message("rl", config, tmp_path / "run")
    assert url in text and "Hello" not in text.replace("<p>Hello</p>", "", 20)
    assert "\n" not in text and len(text) < 700
    assert not list(tmp_path.iterdir())


TINY = decoder_config(
    vocab_size=300, hidden_size=16, intermediate_size=16, num_layers=1, num_heads=2, num_kv_heads=1
)


@pytest.fixture
def weights(tmp_path):
    """Returns a directory with the weights of a tiny model, without a tokenizer."""
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), Policy(TINY).abstract_params())
    save_hf(zeros, TINY, tmp_path / "model", dtype="float32")
    return tmp_path / "model"


def test_truncated_weights_are_refused_before_the_run_folder_is_created(weights, tmp_path):
    file = weights / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    for job, config in (
        ("evaluate", evaluated(weights)),
        ("sft", changed("sft", model__source=str(weights), model__architecture={})),
    ):
        check_one_line(message(job, config, tmp_path / "run"), "was cut off or damaged")
    assert not (tmp_path / "run").exists()


def test_a_model_without_a_tokenizer_is_refused_and_leaves_no_folder(weights, tmp_path):
    text = message("evaluate", evaluated(weights), tmp_path / "run")
    check_one_line(text, "model has no tokenizer: none of tokenizer.json")
    assert not (tmp_path / "run").exists()


def test_a_model_config_that_is_not_json_is_refused(weights, tmp_path):
    (weights / "config.json").write_text("{")
    check_one_line(message("evaluate", evaluated(weights), tmp_path / "run"), "is not JSON")


TOPICS = dict(kind="split", group_by="topic", where={}, limit=1)
SCIWORLD = dict(
    sciworld=common.environment(
        train=TOPICS | dict(split="train"), eval=TOPICS | dict(split="test")
    )
)


def test_the_error_for_a_missing_simulator_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    # Environments of a process share the simulator, so an earlier test may have started it.
    if shared_simulator.cache_info().currsize:
        shared_simulator().close()
        shared_simulator.cache_clear()
    for transport in ("http", "inprocess"):
        config = changed("rl", environments=SCIWORLD, env_server__transport=transport)
        text = message("rl", config, tmp_path / "run")
        check_one_line(text, "Install a Java runtime")
        assert not (tmp_path / "run").exists()


def test_the_error_for_a_missing_python_package_names_the_remedy(tmp_path, monkeypatch):
    version = importlib.metadata.version

    def without_scienceworld(name):
        if name == "scienceworld":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", without_scienceworld)
    config = changed("rl", environments=SCIWORLD, env_server__transport="inprocess")
    text = message("rl", config, tmp_path / "run")
    check_one_line(text, "the Python package scienceworld is missing")
    assert "pip install" in text and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (3, int, ""),
        (True, int, "a whole number"),
        (3, float, ""),
        (float("inf"), float, "a number"),
        ("x", str, ""),
        (None, float | None, ""),
        ("x", float | None, "a number or None"),
        ([1, 2], tuple[int, ...], ""),
        ((1, "x"), tuple[int, ...], "a sequence"),
        ({"a": 1}, dict[str, int], ""),
        ({"a": "x"}, dict[str, int], "a section"),
    ],
)
def test_values_that_do_not_fit_an_annotation_are_described(value, annotation, expected):
    assert limits.misfit(value, annotation) == expected
