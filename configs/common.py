"""What the configs share. A config file is flat: everything a run uses stands in it or here."""

import ml_collections


def parse(arg, **defaults):
    """`size=7b,smoke` -> attributes, typed like the defaults; a bare name is True."""
    values = dict(defaults)
    for item in filter(None, (arg or "").split(",")):
        name, is_given, text = item.partition("=")
        if name not in defaults:
            raise ValueError(f"unknown config option {name!r}; known: {', '.join(defaults)}")
        kind = type(defaults[name])
        values[name] = kind(text) if kind is not bool else not is_given or text == "true"
    return ml_collections.ConfigDict(values)


def base():
    """A config of job `rl` with every section; files overwrite what is theirs."""
    c = ml_collections.ConfigDict()
    c.job = "rl"
    c.seed = 0
    c.total_steps = 100
    c.model = dict(
        source="", architecture={}, dtype="bfloat16", decode_dtype="bfloat16", remat="block"
    )
    c.tokenizer = dict(source="model", vocab_size=0, isolate="", template="chatml")
    c.mesh = dict(data=1, fsdp=1, tensor=1)
    c.env = dict(transport="http", workers=1)
    c.environments = {}
    c.client = dict(connect_timeout_s=10.0, step_timeout_s=60.0)
    c.pool = dict(workers=32, max_idle_sessions=256)
    c.sampler = dict(
        rows=64,
        cache_length=4096,
        buckets=((64, 16), (256, 8), (1024, 2)),
        decode_steps=16,
        wake_rows=4,
    )
    c.sampling = dict(temperature=1.0, top_k=0, top_p=1.0, max_turn_tokens=256, max_tokens=4096)
    c.rollout = dict(
        tasks_per_step=16,
        group_size=8,
        max_invalid_actions=3,
        max_attempts=3,
        max_replacements=1,
        prefetch=16,
        reward="success",
        wasted_turn_penalty=0.0,
        truncation="fail",
        opening="system",
    )
    c.algorithm = grpo()
    c.horizon = dict(kind="fixed", turns=20)
    # AdamW at a constant 1e-6: the scripts released with AgentGym-RL (arXiv:2509.08755).
    c.optimizer = dict(
        name="adamw",
        learning_rate=1e-6,
        schedule="constant",
        warmup_steps=0,
        final_fraction=1.0,
        b1=0.9,
        b2=0.999,
        eps=1e-8,
        weight_decay=0.0,
        max_grad_norm=1.0,
    )
    c.learner = dict(
        row_length=4096,
        micro_rows=1,
        epochs=1,
        mini_batches=1,
        ratio_against="sampler",
        max_logprob_gap=0.1,
        min_informative_groups=1,
    )
    c.evaluation = dict(every=10, at_start=True, max_turns=20, samples=1, greedy=False)
    c.checkpoint = dict(every=10, max_to_keep=2, keep_every=0)
    c.sft = {}
    return c


def environment(**entry):
    """An entry of `environments` that is like any other but for what is given."""
    default = dict(
        url="",
        module="",
        train={},
        weight=1,
        weights={},
        horizon={},
        eval_max_turns=0,
        instructions="",
        action_format="",
    )
    return default | entry


def grpo():
    """GRPO with the numbers of AgentGym-RL's released scripts: clip 0.2, k3 1e-3, entropy 1e-3."""
    return dict(
        name="grpo",
        advantage=dict(std_normalize=True, eps=1e-6),
        loss=dict(clip_low=0.2, clip_high=0.2),
        aggregation=dict(mode="token_mean"),
        entropy_coef=1e-3,
        kl_coef=1e-3,
        kl_kind="k3",
        logprob_chunk=1024,
    )


def rloo():
    """RLOO (arXiv:2402.14740), regularised as `grpo` is, so that the two differ in the advantage."""
    return grpo() | dict(name="rloo", advantage={})


def evaluation_base():
    """A config for `evaluate`: the sections of `base` that scoring needs. The model is a flag."""
    c = base()
    for name in (
        "job",
        "total_steps",
        "algorithm",
        "horizon",
        "optimizer",
        "learner",
        "checkpoint",
        "sft",
    ):
        del c[name]
    return c


def tiny_model():
    """A policy of some ten thousand weights that needs no download, for smoke variants."""
    architecture = dict(
        hidden_size=32,
        intermediate_size=64,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_size=16,
        max_position=32768,
    )
    return dict(
        source="random",
        architecture=architecture,
        dtype="float32",
        decode_dtype="float32",
        remat="none",
    )


def smoke(c):
    """Turns an RL config into a minute on a CPU: tiny random policy, bytes, two steps."""
    c.model = tiny_model()
    c.tokenizer.source = "bytes"
    c.mesh = dict(data=1, fsdp=1, tensor=1)
    c.total_steps = 2
    for entry in c.environments.values():
        entry.eval.limit = 2
        entry.horizon = {}
        entry.eval_max_turns = 0
    c.rollout.tasks_per_step = 4
    c.rollout.group_size = 2
    c.rollout.max_invalid_actions = 1
    c.learner.mini_batches = 2
    c.learner.min_informative_groups = 0
    c.sampling.max_turn_tokens = 8
    c.evaluation.max_turns = 1
    c.horizon = dict(kind="fixed", turns=2)
