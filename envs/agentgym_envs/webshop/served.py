"""WebShop as a served environment: its option, spec, routes and answer bodies."""

import functools
import pathlib
from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import StepResult
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import (
    Answers,
    EnvIdxBody,
    EnvIdxStepBody,
    ExtraRoute,
    ServedEnvironment,
)
from agentgym_envs.webshop.catalogue import embedded_products
from agentgym_envs.webshop.environment import Shop, WebShopEnvironment
from agentgym_envs.webshop.files import load
from agentgym_envs.webshop.goals import Goal, embedded_goals

# Version of the behaviour: changes when a product, a task, a text or a rule changes.
BEHAVIOUR = "2"
MAX_TURNS = 10
TEST_SHARE = 0.15  # of the products

INSTRUCTIONS = """\
You shop on a web site and must buy a product that fits an instruction: its kind, its properties, \
its options and a limit on the price. The parts of a page are separated by [SEP].

Actions:
- search[words]: looks for products and lists ten of them with code, title and price.
- click[text]: follows a text of the page: the code of a product, the value of an option, \
Description, Features, Reviews, Next >, < Prev, Back to Search, or Buy Now.

The page of a product shows its options, but not which of them you have chosen. Properties are in \
Description and Features. Buy Now ends the task; the reward is the share of the wishes that the \
product and the chosen options meet. An action that is not possible on a page changes nothing.

Reply in this form, with a single action:
Thought: why this action helps.
Action: the action"""


class ResetBody(EnvIdxBody):
    """Body of `POST /reset`."""

    session_id: int | None = None


def make_served_environment(*, data: str = "") -> ServedEnvironment:
    """Returns WebShop as a served environment.

    Args:
      data: Folder with WebShop's data files; if empty, the products of the embedded shop.

    Raises:
      SetupError: A data file is missing or wrong.
    """
    shop, tasks = _shop(data)

    def make() -> WebShopEnvironment:
        return WebShopEnvironment(shop)

    return ServedEnvironment(
        spec=EnvironmentSpec(
            name="webshop",
            version=f"{BEHAVIOUR}-{'files' if data else 'embedded'}",
            instructions=INSTRUCTIONS,
            action_format="react",
            num_tasks=len(tasks),
            manifest_sha256=manifest.sha256(tasks),
            max_turns=MAX_TURNS,
        ),
        banner="ok",
        factory=make,
        compat_factory=make,
        tasks=lambda: tasks,
        answers=Answers(
            create=lambda session_id, first: session_id,
            reset=lambda session_id, result: [result.observation, None],
            step=_step_answer,
        ),
        reset_body=ResetBody,
        compat_refused_when_done=frozenset(),
        extra_routes=(
            ExtraRoute("/available_actions", "GET", WebShopEnvironment.available_actions),
            ExtraRoute("/instruction_text", "GET", lambda env: env.episode.goal.instruction),
        ),
        task_field="session_id",
        session_body=EnvIdxBody,
        step_body=EnvIdxStepBody,
        compat_error_status=500,
        sessions_path="/list_envs",
    )


@functools.lru_cache(maxsize=1)
def _shop(data: str) -> tuple[Shop, list[dict[str, Any]]]:
    """Returns the shop and the task manifest.

    The first products in the order of the sha256 of their codes are only in test tasks.
    """
    if data:
        products, goals = load(pathlib.Path(data).expanduser())
    else:
        products = list(embedded_products())
        goals = embedded_goals(products)
    order = manifest.hash_order({goal.product.asin for goal in goals})
    held_out = set(order[: round(TEST_SHARE * len(order))])
    tasks = [_task(i, goal, goal.product.asin in held_out) for i, goal in enumerate(goals)]
    return Shop(products, goals), tasks


def _task(data_idx: int, goal: Goal, is_test: bool) -> dict[str, Any]:
    return {
        "data_idx": data_idx,
        "split": manifest.TEST if is_test else manifest.TRAIN,
        "kind": goal.product.query,
        "product": goal.product.asin,
        "instruction": goal.instruction,
    }


def _step_answer(result: StepResult) -> dict[str, Any]:
    return {
        "state": result.observation,
        "reward": result.reward,
        "done": result.done,
        "info": None,
    }
