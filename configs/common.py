"""Functions and default sections shared by the configs, and those of `algorithm_sections`.

Every value of a run is written in its config file or in one of these two modules.
"""

import inspect

import ml_collections

from agentgym_jax.config.sections import ConfigError, check_known
from agentgym_jax.configs.algorithm_sections import *  # noqa: F403
from agentgym_jax.configs.algorithm_sections import ALGORITHMS, adamw, grpo

RL_SECTIONS = ("algorithm", "horizon", "optimizer", "learner")


def parse(arg, known=None, **defaults):
    """Parses `size=7b,smoke`, the text after the colon of `--config=FILE:OPTIONS`, into attributes.

    They have the types of the defaults. An option without a value is True. `known` has the allowed
    values by option; options without an entry accept any value.
    """
    values = dict(defaults)
    for item in filter(None, (arg or "").split(",")):
        name, is_given, text = item.partition("=")
        check_known("config option", name, defaults)
        kind = type(defaults[name])
        if kind is bool:
            check_known(f"value of {name}", text if is_given else "true", ("true", "false"))
            values[name] = text != "false"
            continue
        try:
            values[name] = kind(text)
        except ValueError:
            raise ConfigError(f"config option {name}={text}: expected a whole number") from None
        if known is not None and name in known:
            check_known(name, text, known[name])
    return ml_collections.ConfigDict(values)


def base(without=()):
    """Returns a config of job `rl` with every section, except those named in `without`.

    Config files overwrite its values.
    """
    c = ml_collections.ConfigDict()
    c.job = "rl"
    c.seed = 0
    c.total_steps = 100
    c.loggers = "none"  # alternatives: tensorboard, wandb, mlflow, trackio, or several joined by +
    c.model = dict(
        source="", dtype="bfloat16", decode_dtype="bfloat16", remat="block", lora=lora(0)
    )
    c.tokenizer = dict(source="model")
    c.mesh = dict(data=1, fsdp=1, tensor=1, decode_tensor=0)
    c.env_server = dict(transport="http", workers=1)
    c.environments = {}
    c.client = dict(step_timeout_s=60.0)
    c.pool = dict(workers=32)
    c.sampler = dict(
        rows=64,
        cache_length=4096,
        buckets=(),
        decode_steps=16,
        return_after_finished=4,
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=256, max_tokens=4096)
    c.rollout = dict(
        tasks_per_step=16,
        group_size=8,
        max_off_policy_steps=0,
        max_parse_errors=3,
        reward="success",
        failed_turn_penalty=0.0,
        system_prompt_mode="system",
        show_turn_budget="none",
    )
    c.algorithm = grpo()
    c.horizon = dict(kind="fixed", turns=20)
    # as in the scripts released with AgentGym-RL (arXiv:2509.08755)
    c.optimizer = adamw(learning_rate=1e-6)
    c.learner = dict(
        row_length=4096,
        micro_rows=1,
        epochs=1,
        mini_batches=1,
        max_logprob_gap=0.1,
        min_informative_groups=1,
    )
    c.evaluation = dict(every=10, at_start=True, max_turns=20, samples=1, greedy=False)
    c.checkpoint = dict(every=10)
    c.guards = "default"  # changes have the form grad_spike=skip,window=20
    for name in without:
        del c[name]
    return c


def lora(rank, alpha=0.0, targets=("q", "k", "v", "o", "gate", "up", "down"), decode="merged"):
    """Returns the section `model.lora`, by default of adapters of all kernels with a scale of 2.

    Without adapters the rank is 0, so that the flag --config.model.lora.rank=16 adds them.
    """
    return dict(rank=rank, alpha=alpha, targets=targets, decode=decode)


def environment(**entry):
    """Returns an entry of `environments`; values that are not given are the defaults."""
    default = dict(
        url="",
        protocol="",
        module="",
        options={},
        train={},
        weight=1,
        weights={},
        horizon={},
        eval_max_turns=0,
        instructions="",
        action_format="",  # react_or_bare also accepts an action without `Action:`
        success_score=0.0,
    )
    return default | entry


def mixed_turns(weights):
    """Returns a horizon that draws a turn limit for every task.

    `weights` maps turn limits to frequencies.
    """
    return dict(
        kind="mixed",
        schedules={f"{turns} turns": dict(kind="fixed", turns=turns) for turns in weights},
        weights={f"{turns} turns": weight for turns, weight in weights.items()},
    )


def imitation(**changes):
    """Returns the section `sft`, by default for the actions of recorded demonstrations."""
    return (
        dict(
            rows=8,
            micro_rows=8,
            row_length=512,
            weighting="token_mean",
            train_on="actions",
            too_long="truncate",
            bad="fatal",
            files=(),
        )
        | changes
    )


def warm_start_optimizer():
    """Returns Muon settings for some hundred imitation steps of a policy with less than a million
    weights.
    """
    return dict(
        name="muon",
        learning_rate=0.02,
        adam_learning_rate=3e-3,
        schedule="cosine",
        warmup_steps=5,
        final_fraction=0.05,
        moments="float32",
        b2=0.95,
    )


def make_algorithm(name, length, **options):
    """Returns the section of the named algorithm; `options` are arguments of its function.

    `length` is the constant by which some algorithms divide the token weights; others ignore it.
    """
    check_known("algorithm", name, ALGORITHMS)
    make = ALGORITHMS[name]
    if "length" in inspect.signature(make).parameters:
        options["length"] = length
    return make(**options)


def evaluation_base():
    """Returns a config for `evaluate`: the sections of `base` that scoring needs.

    The model is not part of the config; the flag `--model` selects it.
    """
    c = base(without=("job", "total_steps", "loggers", *RL_SECTIONS, "checkpoint", "guards"))
    c.endpoint = dict(
        model="",
        key_variable="OPENAI_API_KEY",
        workers=16,
        connect_timeout_s=10.0,
        timeout_s=300.0,
        patience_s=600.0,
        send_seed=True,
        max_tokens_field="max_tokens",
    )
    return c


def held_out(group_by, limit):
    """Returns the selection of the test tasks of a split; a limit of 0 selects all."""
    return dict(kind="split", split="test", group_by=group_by, where={}, limit=limit)


def evaluation(environments, smoke, *, turns, turn_tokens=256, tokens=4096):
    """Returns a config for `evaluate` that plays each task sampled and greedy.

    The limits are those of an episode and, `turn_tokens`, of a turn. With `smoke` it has two tasks of
    each environment and two turns.
    """
    c = evaluation_base()
    c.environments = environments
    c.evaluation = dict(every=0, at_start=False, max_turns=turns, samples=1, greedy=True)
    c.sampling.max_turn_tokens = turn_tokens
    c.sampling.max_tokens = c.sampler.cache_length = tokens
    if smoke:
        c.evaluation.max_turns = 2
        for entry in c.environments.values():
            entry.eval.limit = 2
    return c


def tiny_model():
    """Returns a model of some ten thousand weights for smoke variants; nothing is downloaded."""
    return random_model(
        hidden_size=32,
        intermediate_size=64,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_size=16,
        max_position=32768,
    )


def random_model(**architecture):
    """Returns the section of a model in float32 with random weights."""
    return dict(
        source="random",
        architecture=architecture,
        dtype="float32",
        decode_dtype="float32",
        remat="none",
        lora=lora(0),
    )


def smoke(c):
    """Reduces an RL config to about a minute on a CPU: a tiny random policy, a byte tokenizer and
    two steps.
    """
    c.model = tiny_model()
    c.tokenizer.source = "bytes"
    c.mesh = dict(data=1, fsdp=1, tensor=1, decode_tensor=0)
    c.total_steps = 2
    for entry in c.environments.values():
        if "limit" in entry.eval:
            entry.eval.limit = 2
        entry.horizon = {}
        entry.eval_max_turns = 0
    c.rollout.tasks_per_step = 4
    c.rollout.group_size = 2
    c.rollout.max_parse_errors = 1
    c.learner.mini_batches = 2
    c.learner.num_row_lengths = 1  # a single compiled program
    c.learner.min_informative_groups = 0
    c.sampling.max_turn_tokens = 8
    c.evaluation.max_turns = 1
    c.horizon = dict(kind="fixed", turns=2)
