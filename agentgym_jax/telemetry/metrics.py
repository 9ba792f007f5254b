"""Table of all metrics: names, meanings and units (metrics.toml).

A component `<...>` of a name matches any text without `/`. A run with several environments also
logs the metrics of `PER_ENVIRONMENT` for each environment (`rollout/babyai/success`). Its group
names start with the environment (`rollout/success/babyai GoTo`).
"""

import dataclasses
import difflib
import pathlib
import re
import tomllib


@dataclasses.dataclass(frozen=True)
class Metric:
    """Meaning and unit of a number in metrics.jsonl."""

    description: str  # short phrase that can serve as the title of a plot
    unit: str  # such as `seconds`, `nats` or `fraction` (0 to 1); `1` for a number without unit


_TABLE = pathlib.Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8")
METRICS = {name: Metric(*entry) for name, entry in tomllib.loads(_TABLE).items()}

_PER_ENVIRONMENT = {
    "rollout": (
        "success reward_mean reward_std score_mean turns_mean turns_max action_tokens_mean "
        "action_tokens_per_turn tokens_mean tokens_max truncation_rate failed_turn_fraction cut_turns "
        "sampled_entropy episodes invalid_fraction groups zero_variance_groups informative_groups"
    ),
    "horizon": "turns",
    "eval": (
        "success success_low success_high score turns_mean episodes env_errors "
        "success_greedy success_greedy_low success_greedy_high score_greedy turns_mean_greedy "
        "episodes_greedy env_errors_greedy"
    ),
}
PER_ENVIRONMENT = tuple(
    f"{area}/{name}" for area, names in _PER_ENVIRONMENT.items() for name in names.split()
)


def add_environment(name: str, environment: str) -> str:
    """Returns the name for one environment: `rollout/success` becomes `rollout/babyai/success`."""
    area, _, rest = name.partition("/")
    return f"{area}/{environment}/{rest}"


METRICS |= {
    add_environment(name, "<environment>"): dataclasses.replace(
        METRICS[name], description=f"{METRICS[name].description}; of one environment"
    )
    for name in PER_ENVIRONMENT
}


def covers(pattern: str, name: str) -> bool:
    """Returns True if a name matches a pattern of the table, which can have components `<...>`."""
    return re.fullmatch(re.sub("<[^>]*>", "[^/]+", pattern), name) is not None


def lookup(name: str) -> Metric:
    """Returns the table entry that covers a name; raises ValueError if there is none."""
    if "<" not in name:
        if name in METRICS:
            return METRICS[name]
        for pattern, metric in METRICS.items():
            if "<" in pattern and covers(pattern, name):
                return metric
    nearest = difflib.get_close_matches(name, METRICS, n=3, cutoff=0.4)
    raise ValueError(
        f"unknown metric {name!r}; nearest known names: {', '.join(nearest) or 'none'}. "
        "Add it with its meaning and unit to agentgym_jax/telemetry/metrics.toml."
    )
