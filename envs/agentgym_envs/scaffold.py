"""Writes the files of a new environment: its module, a training config and a test.

The files work as they are: the environment passes `check`, and the config trains a small policy.
"""

import importlib.util
import keyword
import pathlib

from agentgym_envs.registry import ENVIRONMENTS

COMMANDS = ("check", "demonstrations", "new", "prepare")  # of `python -m agentgym_envs`

_MODULE = '''\
"""{name}: follow three signs. Replace the game by your own."""

import random

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.served import standard_environment

DIRECTIONS = ["left", "right", "straight"]
INSTRUCTIONS = """\\
Follow the signs: left, right or straight. Reply in this form:
Thought: what the sign says.
Action: the direction"""


class {title}(Environment):
    """One session. A task depends only on its index, an episode only on the task and the actions."""

    def reset(self, data_idx):
        self._signs = random.Random(data_idx).choices(DIRECTIONS, k=3)
        return StepResult(self._text(), reward=0, score=0, done=False)

    def step(self, action):
        if action not in DIRECTIONS:
            return StepResult(f"No such direction. {{self._text()}}", reward=0, score=0, done=False)
        if action != self._signs.pop(0):
            return StepResult("You are lost.", reward=0, score=0, done=True)
        if self._signs:
            return StepResult(self._text(), reward=0, score=0, done=False)
        return StepResult("You have arrived.", reward=1, score=1, done=True)

    def expert_action(self):  # optional, for demonstrations
        return self._signs[0]

    def valid_actions(self):  # optional, for demonstrations with random actions
        return DIRECTIONS

    def _text(self):
        return f"The sign says {{self._signs[0]}}."


def make_served_environment():
    tasks = [{{"data_idx": i, "split": "test" if i < 20 else "train"}} for i in range(100)]
    return standard_environment(
        {title},
        tasks,
        name="{name}",
        version="1",  # changes with every change of a task or a text
        instructions=INSTRUCTIONS,
        max_turns=6,
        refusal="No such direction",
    )
'''

_CONFIG = '''\
r"""A small policy learns {name}: demonstrations with detours, RL, evaluation of held-out tasks.

  python -m agentgym_jax.train --config={name}_config.py --workdir=runs/{name}

Needs: two CPU cores.
"""

from agentgym_jax.configs import common, quickstart


def get_config(arg=None):
    """Returns the config. Options: those of the quickstart, such as smoke."""
    c = quickstart.get_config(arg)
    tasks = dict(kind="split", group_by="split", where={{}}, limit=0)
    train, test = tasks | dict(split="train"), tasks | dict(split="test")
    c.environments = dict({name}=common.environment(module="{name}", train=train, eval=test))
    c.horizon = dict(kind="fixed", turns=6)
    c.evaluation.max_turns = 6
    c.total_steps = min(c.total_steps, 12)
    c.sft.steps = min(c.sft.steps, 60)
    shown = dict(environment="{name}", module="{name}", max_turns=6, seed=0)
    c.sft.demonstrations = dict(
        mixed=dict(agent="mixed", epsilon=0.3, tasks=train, **shown),
    )
    return c
'''

_TEST = '''\
"""Properties that every environment must have, on the environment {name}."""

from agentgym_envs.conformance import suite


def test_the_environment_has_every_property():
    report = []
    status = suite.run(
        "{name}", compat=False, tasks=suite.TASKS, actions=suite.ACTIONS, write=report.append
    )
    assert status == 0, "".join(report)
'''


def write(name: str, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the three files of an environment and returns their paths.

    Raises:
      ValueError: The name is no name of a new module.
      FileExistsError: One of the files exists; nothing was written.
      OSError: The files cannot be written; none is left.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or not name.islower():
        raise ValueError(f"{name!r} is no name of a module; use small letters, digits and _")
    if name in ENVIRONMENTS:
        raise ValueError(f"{name!r} is an environment of this project; choose another name")
    if name in COMMANDS:
        raise ValueError(f"{name!r} is a command of agentgym_envs; choose another name")
    texts = {f"{name}.py": _MODULE, f"{name}_config.py": _CONFIG, f"test_{name}.py": _TEST}
    paths = [folder / file for file in texts]
    for path in paths:
        if path.exists():
            raise FileExistsError(f"{path} exists already; choose another name or --folder")
    found = importlib.util.find_spec(name)
    if found is not None and found.origin is not None:  # a folder alone has no origin
        raise ValueError(f"Python has a module {name!r} already; choose another name")
    title = "".join(word.capitalize() for word in name.split("_")) or name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for path, text in zip(paths, texts.values(), strict=True):
            path.write_text(text.format(name=name, title=title), encoding="utf-8")
    except OSError as error:
        for path in paths:
            path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(folder)) from error
    return paths
