r"""AgentEvol on TextCraft and BabyAI: four rounds of exploration, filtering and training.

Every round trains from the base model.

  python -m agentgym_jax.train --workdir=runs/agentevol \
      --config=configs/agentevol/textcraft_babyai.py

Needs: no running server (the command starts one); memory of 16 bytes per weight (float32 weights,
gradient and two moments) in an update. An exploration needs the sampler's weights and cache instead
of the gradient. Memory was not measured at this size.
Result: not run yet.
Source: AgentGym, arXiv:2406.04151, and its released scripts: four rounds, one sample per task at
temperature 1.2, learning rate 1e-5. For BabyAI, episodes with a reward above 0 are kept; for other
environments, solved episodes.
"""

from agentgym_jax.configs import common


def tasks(start, stop, name):
    """Returns the selection of the tasks with indices start .. stop - 1."""
    return dict(kind="residues", start=start, stop=stop, modulus=1, groups={name: 0})


def get_config(arg=None):
    """Returns the config. Options: smoke (two rounds of one step with a tiny random policy)."""
    opt = common.parse(arg, smoke=False)
    c = common.base(without=common.RL_SECTIONS)
    with c.unlocked():
        c.rollout = dict(
            max_parse_errors=3,
            system_prompt_mode="system",
            show_turn_budget="none",
        )
        c.evaluation = dict(max_turns=20, samples=1, greedy=True)
    c.job = "agentevol"
    c.total_steps = 5 * 300
    c.logprob_chunk = 128
    c.model.source = "Qwen/Qwen2.5-7B-Instruct"
    c.mesh.fsdp = -1
    c.sampling.temperature = 1.2
    c.environments = dict(
        textcraft=common.environment(
            train=dict(kind="split", split="train", group_by="depth", where={}, limit=0),
            eval=dict(kind="split", split="test", group_by="depth", where={}, limit=0),
            eval_max_turns=30,
        ),
        babyai=common.environment(
            train=tasks(40 * 100, 40 * 121, "babyai"), eval=tasks(0, 90, "babyai")
        ),
    )
    c.agentevol = dict(
        rounds=4,
        tasks_per_round=0,
        samples=1,
        tasks_per_file=64,
        explore=dict(
            textcraft=dict(max_turns=30, measure="success", threshold=1.0),
            # BabyAI's reward decreases with the number of turns of a solution.
            babyai=dict(max_turns=20, measure="reward", threshold=0.0),
        ),
        keep_per_task=1,
        weighting="equal",
    )
    play = dict(agent="expert", epsilon=0.0, seed=0)
    c.sft = common.imitation(
        steps=300,
        rows=16,
        micro_rows=1,
        row_length=4096,
        demonstrations=dict(
            textcraft=dict(
                environment="textcraft",
                max_turns=30,
                tasks=dict(kind="split", split="train", group_by="depth", where={}, limit=200),
                **play,
            ),
            babyai=dict(
                environment="babyai",
                max_turns=20,
                tasks=tasks(40 * 121, 40 * 131, "babyai"),
                **play,
            ),
        ),
        optimizer=common.adamw(learning_rate=1e-5) | dict(warmup_steps=10),
    )
    if opt.smoke:
        smoke(c)
    return c


def smoke(c):
    """Reduces the config to two rounds that take about a minute on a CPU.

    The tiny random policy learns next to nothing.
    """
    c.model = common.tiny_model()
    c.tokenizer.source = "bytes"
    c.mesh = dict(data=1, fsdp=1, tensor=1, decode_tensor=0)
    c.total_steps = 3 * 2
    c.env_server.transport = "inprocess"
    c.environments.textcraft.instructions = "Craft."
    c.environments.babyai.instructions = "Walk."
    c.environments.textcraft.train.limit = c.environments.textcraft.eval.limit = 2
    c.environments.babyai.train = tasks(4000, 4004, "babyai")
    c.environments.babyai.eval = tasks(0, 2, "babyai")
    c.environments.textcraft.eval_max_turns = 0
    c.evaluation = dict(max_turns=1, samples=1, greedy=False)
    c.sampler = dict(
        rows=8, cache_length=2048, buckets=((256, 8),), decode_steps=8, return_after_finished=4
    )
    c.sampling.max_turn_tokens = 8
    c.sampling.max_tokens = 2048
    c.agentevol.rounds = 2
    c.agentevol.tasks_per_file = 4
    c.agentevol.explore.textcraft.max_turns = 2
    c.agentevol.explore.babyai.max_turns = 2
    c.sft.steps = 2
    c.sft.rows = 2
    c.sft.row_length = 2048
    c.sft.optimizer.warmup_steps = 0
    c.sft.demonstrations.textcraft.tasks.limit = 4
    c.sft.demonstrations.babyai.tasks = tasks(4840, 4844, "babyai")
