"""Runs tiny jobs that together emit every metric of the metric table, for its test.

python all_jobs.py FOLDER
"""

import json
import pathlib
import sys

from agentgym_envs.base.environment import StepResult
from agentgym_jax.config.sections import plain
from agentgym_jax.training.job_kinds import run_job
from configs import common
from configs.agentevol import textcraft_babyai
from configs.dpo import trajectories as dpo
from tests.fake_server import serving

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

import coin  # noqa: E402 - found through the line above

SAMPLER = dict(
    rows=8,
    decode_rows=0,
    cache_length=256,
    buckets=((64, 8),),
    decode_steps=4,
    return_after_finished=4,
)


class BrokenOnce(coin.Coin):
    """A coin environment that fails at the first step of every even-numbered task, once per task."""

    failed: set[int] = set()

    def step(self, action: str) -> StepResult:
        """Takes a step; raises an error at the first attempt of an even-numbered task."""
        if self.data_idx % 2 == 0 and self.data_idx not in self.failed:
            self.failed.add(self.data_idx)
            raise RuntimeError("the coin rolled off the table")
        return super().step(action)


def make_served_environment():
    """Returns the coin environment that fails once per even-numbered task."""
    return coin.served("all_jobs", BrokenOnce)


def tosses(start, stop, *groups):
    """Selects the tasks from `start` to `stop` - 1 and assigns them to the groups in turn."""
    modulus = len(groups)
    return dict(
        kind="residues",
        start=start,
        stop=stop,
        modulus=modulus,
        groups={name: i for i, name in enumerate(groups)},
    )


def environments(*names):
    """Returns the configs of environments whose tasks are divided into two task groups."""
    return {
        name: common.environment(
            module=name, train=tosses(0, 16, "a", "b"), eval=tosses(40, 44, "a", "b")
        )
        for name in names
    }


def shrink(c):
    """Reduces policy, sampler and episodes to tiny sizes; returns the config."""
    with c.unlocked():
        c.model = common.tiny_model()
        c.model.architecture.num_layers = 1
        c.tokenizer.source = "bytes"
        c.mesh = dict(data=1, fsdp=1, tensor=1, decode_tensor=0)
        c.env_server = dict(transport="inprocess", workers=1)
        c.client = dict(connect_timeout_s=300.0, step_timeout_s=300.0)
        c.pool = dict(workers=4, max_idle_sessions=16, breaker_patience_s=60.0)
        c.sampler = SAMPLER
        c.sampling = dict(temperature=1.0, top_k=0, top_p=1.0, max_turn_tokens=3, max_tokens=256)
    c.checkpoint.every = 1
    return c


def rl(algorithm, names, **options):
    """Returns the config of an RL job of two steps, with an evaluation before and after them."""
    c = shrink(common.base())
    c.total_steps = 2
    with c.unlocked():
        c.environments = environments(*names)
        c.algorithm = algorithm
        c.algorithm.logprob_chunk = 64
    c.rollout.tasks_per_step = 4
    c.rollout.group_size = 4
    c.rollout.max_rounds = 2
    c.learner.row_length = 256
    c.learner.num_row_lengths = 1
    c.learner.micro_rows = 4
    c.learner.max_logprob_gap = 10.0
    c.learner.min_informative_groups = 0
    c.horizon = dict(kind="fixed", turns=1)
    c.optimizer.learning_rate = 1e-3
    c.evaluation = dict(every=0, at_start=True, max_turns=1, samples=1, greedy=True)
    for key, value in options.items():
        with c.unlocked():
            section, _, name = key.partition("__")
            if name:
                c[section][name] = value
            else:
                c[section] = value
    return c


def jobs():
    """Yields (name, config) of each job; together the jobs emit every metric of the table."""
    ragged = dict(
        kind="by_group",
        each=dict(kind="fixed", turns=1),
        groups=dict(a=dict(kind="fixed", turns=2)),
    )
    mixture = rl(
        common.dapo(),
        ("coin", "all_jobs"),
        rollout__max_off_policy_steps=1,
        guards="entropy_floor=100.0,window=1",
    )
    mixture.horizon = ragged
    mixture.algorithm.kl_coef = 1e-3
    yield "mixture", mixture
    c = rl(common.ppo(), ("coin",))
    c.horizon = dict(
        kind="adaptive_success", turns=(1, 2), threshold=1.0, decay=0.5, min_steps=9, max_steps=0
    )
    yield "ppo", c
    with serving(judge) as server:
        c = rl(common.grpo(), ("coin",), rollout__reward="judge")
        with c.unlocked():
            c.judge = dict(url=server.url, model="grader", rubric="Be lucky.")
        yield "judge", c
    kl_reward = dict(kind="fixed", coef=1e-3)
    yield "reinforce", rl(common.reinforce(length=6) | dict(kl_reward=kl_reward), ("coin",))

    c = shrink(dpo.get_config("smoke,evaluate=textcraft"))
    c.dpo.row_length = 256
    c.dpo.pairs = 2
    with c.unlocked():
        c.environments = environments("coin")
        c.dpo.demonstrations = dict(expert=shown("expert"), chance=shown("random"))
    yield "dpo", c

    c = shrink(textcraft_babyai.get_config("smoke"))
    with c.unlocked():
        c.environments = environments("coin")
        c.agentevol.explore = dict(coin=dict(max_turns=1, measure="success", threshold=1.0))
        c.sft.demonstrations = dict(expert=shown("expert"))
    c.agentevol.tasks_per_file = 8
    c.sft.row_length = 256
    yield "agentevol", c


def judge(request):
    """Answers a request to the judge: 7 of 10 points."""
    message = {"role": "assistant", "content": '{"score": 7, "reason": "fine"}'}
    return 200, {"choices": [{"message": message, "finish_reason": "stop"}]}


def shown(agent):
    """Returns the settings for demonstrations of the coin environment."""
    return dict(
        environment="coin",
        module="coin",
        agent=agent,
        epsilon=0.0,
        max_turns=1,
        seed=0,
        tasks=tosses(20, 26, "shown"),
    )


def main(folder):
    """Runs all jobs and writes the names of the metrics that each job emitted."""
    names = {}
    for name, config in jobs():
        workdir = pathlib.Path(folder) / name
        run_job(plain(config), str(workdir), plots=False)
        lines = (workdir / "metrics.jsonl").read_text().splitlines()
        names[name] = sorted({key for line in lines for key in json.loads(line)})
    (pathlib.Path(folder) / "names.json").write_text(json.dumps(names))


if __name__ == "__main__":
    main(sys.argv[1])
