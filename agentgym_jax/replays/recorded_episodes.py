"""Finds a recorded episode by its name, and the conditions under which it was sampled."""

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.config.agent import AgentSettings
from agentgym_jax.config.settings import RolloutSettings
from agentgym_jax.episodes.trajectory import Outcome, Trajectory
from agentgym_jax.evaluation.play import KEY_STEP
from agentgym_jax.rollout.episode import EpisodeLimits
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.telemetry.metrics import add_environment
from agentgym_jax.telemetry.metrics_file import read_metrics

# A training step, an evaluation; other files have episodes whose conditions are not recorded.
KINDS = ("step", "eval")
_NAME = re.compile(r"(?P<kind>[a-z_]+?)_(?P<step>\d+)/(?P<row>\d+)")
_FORM = "an episode is named as in the viewer, such as step_000012/3 (file of trajectories/, row)"


class ReplayError(ValueError):
    """A replay that is not possible; the message states the reason on one line."""


@dataclasses.dataclass(frozen=True)
class RecordedEpisode:
    """A recorded episode.

    Attributes:
      name: Name of the episode, such as `step_000012/3`.
      kind: Kind of its file: `step` or `eval`.
      step: Number in the name of its file.
      siblings: All episodes of its file.
    """

    name: str
    kind: str
    step: int
    trajectory: Trajectory
    siblings: Sequence[Trajectory]

    @property
    def key_step(self) -> int:
        """Returns the step in the random key of the episode."""
        return KEY_STEP if self.kind == "eval" else self.trajectory.step

    def version(self, turn: int) -> int:
        """Returns the version of the weights that sampled a turn, from 1."""
        start = self.trajectory.turns[turn - 1].action_start
        return int(self.trajectory.policy_versions[start])


def find_episode(folder: RunFolder, name: str) -> RecordedEpisode:
    """Returns the episode with a name such as `step_000012/3`; the zeros may be left out.

    Raises:
      ReplayError: There is no such episode; the message names the nearest one.
    """
    steps = {kind: folder.trajectory_steps(kind) for kind in KINDS}
    known = [f"{kind}_{step:06d}" for kind in KINDS for step in steps[kind]]
    if not known:
        raise ReplayError(
            f"{folder.path} has no recorded episodes of a training step or evaluation"
        )
    match = _NAME.fullmatch(name)
    file = f"{match['kind']}_{int(match['step']):06d}" if match else name.partition("/")[0]
    if match is None or file not in known:
        nearest = _nearest_file(file, known)
        problem = "there is no such file" if match else _FORM
        row = match["row"] if match else "0"
        raise ReplayError(f"--episode={name}: {problem}; the nearest is {nearest}/{row}")
    step, row = int(match["step"]), int(match["row"])
    found = folder.read_episodes(step, match["kind"])
    if row >= len(found):
        nearest = f"; the nearest is {file}/{len(found) - 1}" if found else ""
        raise ReplayError(f"--episode={name}: {file} has {len(found)} episodes, from 0{nearest}")
    return RecordedEpisode(f"{file}/{row}", match["kind"], step, found[row], found)


def _nearest_file(file: str, known: Sequence[str]) -> str:
    """Returns the known file of the same kind with the nearest step, or the most similar name."""
    kind, _, step = file.rpartition("_")
    alike = [name for name in known if name.rpartition("_")[0] == kind]
    if alike and step.isdecimal():
        return min(alike, key=lambda name: abs(int(name.rpartition("_")[2]) - int(step)))
    return (difflib.get_close_matches(file, known, n=1, cutoff=0.0) or known)[0]


def check_repeatable(episode: RecordedEpisode, settings: AgentSettings, turn: int) -> None:
    """Raises ReplayError if the episode cannot be repeated up to a turn, numbered from 1."""
    t, name = episode.trajectory, episode.name
    if settings.program is not None:
        raise ReplayError(f"{name} was played by an agent program, which a replay cannot continue")
    if not t.outcome.is_valid:
        cause = f" ({t.error})" if t.error else ""
        raise ReplayError(
            f"{name} failed: its outcome is {t.outcome}{cause}; choose another episode"
        )
    if t.branch_starts:
        raise ReplayError(f"{name} has rewritten history ({len(t.branches)} branches of tokens)")
    if not t.turns:
        raise ReplayError(f"{name} has no turns: its outcome is {t.outcome}")
    if not t.action_mask.any():
        raise ReplayError(f"{name} has no tokens: a text agent played it, not a policy")
    if not 1 <= turn <= len(t.turns):
        raise ReplayError(f"--turn={turn}: {name} has turns 1 to {len(t.turns)}")
    if t.environment not in settings.environments:
        raise ReplayError(
            f"{name}: config.environments of the run lacks {t.environment!r}; it has "
            f"{', '.join(settings.environments)}"
        )


def sampling_of(episode: RecordedEpisode, settings: AgentSettings) -> SamplingOptions:
    """Returns the sampling options with which an episode was sampled."""
    evaluation = settings.evaluation
    place = episode.trajectory.sample % max(1, evaluation.samples + evaluation.greedy)
    if episode.kind == "eval" and place >= evaluation.samples:
        return settings.sampling.greedy()
    return settings.sampling


def limits_of(
    episode: RecordedEpisode, settings: AgentSettings, folder: RunFolder, max_turns: int | None
) -> EpisodeLimits:
    """Returns the limits of an episode; `max_turns` replaces the turn limit of the record."""
    rollout = settings.rollout
    return EpisodeLimits(
        max_turns=max_turns or _turn_limit(episode, settings, folder),
        max_tokens=settings.sampling.max_tokens,
        max_parse_errors=rollout.max_parse_errors,
        keep_last_observation=(
            episode.kind == "step"
            and isinstance(rollout, RolloutSettings)
            and rollout.truncation == "bootstrap"
        ),
    )


def _turn_limit(episode: RecordedEpisode, settings: AgentSettings, folder: RunFolder) -> int:
    """Returns the turn limit of an episode, from the evaluation's config or the run's metrics."""
    t = episode.trajectory
    if episode.kind == "eval":
        return settings.evaluation_turns[t.environment]
    for other in episode.siblings:  # all samples of a task have the same limit
        if other.item_id == t.item_id and other.outcome is Outcome.HORIZON:
            return len(other.turns)
    for line in read_metrics(folder.metrics_path) if folder.metrics_path.exists() else ():
        if line["step"] == episode.step and (limit := _logged_limit(line, t.environment)):
            return limit
    raise ReplayError(
        f"{episode.name}: the turn limit of this task is not recorded; give it as --max_turns"
    )


def _logged_limit(line: Mapping[str, Any], environment: str) -> int | None:
    """Returns the turn limit of an environment's tasks in a step; None if it is ambiguous."""
    largest = line.get("horizon/turns")
    if line.get("horizon/turns_min", largest) == largest:
        largest = line.get(add_environment("horizon/turns", environment), largest)
        return None if largest is None else int(largest)
    return None
