"""Table of all metrics: names, meanings and units.

A component `<...>` of a name matches any text without `/`. A run with several environments also
logs the metrics of `PER_ENVIRONMENT` for each environment (`rollout/babyai/success`). Its group
names start with the environment (`rollout/success/babyai GoTo`).
"""

import dataclasses
import difflib
import re


@dataclasses.dataclass(frozen=True)
class Metric:
    """Meaning and unit of a number in metrics.jsonl."""

    description: str  # short phrase that can serve as the title of a plot
    unit: str  # such as `seconds`, `nats` or `fraction` (0 to 1); `1` for a number without unit


METRICS: dict[str, Metric] = {
    # Sampled episodes of this step.
    "rollout/success": Metric("solved episodes among valid ones", "fraction"),
    "rollout/success/<group>": Metric("solved episodes of one group", "fraction"),
    "rollout/reward_mean": Metric("sum of rewards of an episode", "reward"),
    "policy/trained_reward_mean": Metric(
        "trained reward of an episode: with judge, shaping and penalties", "reward"
    ),
    "rollout/reward_std": Metric("standard deviation of episode rewards", "reward"),
    "rollout/score_mean": Metric("environment's own score of an episode", "score"),
    "rollout/turns_mean": Metric("turns of an episode", "turns"),
    "rollout/turns_max": Metric("turns of the longest episode", "turns"),
    "rollout/action_tokens_mean": Metric("sampled tokens of an episode", "tokens"),
    "rollout/action_tokens_per_turn": Metric("sampled tokens of a turn", "tokens"),
    "rollout/tokens_mean": Metric("all tokens of an episode", "tokens"),
    "rollout/tokens_max": Metric("all tokens of the longest episode", "tokens"),
    "rollout/branches_mean": Metric("token sequences of an episode", "branches"),
    "rollout/forks": Metric("histories that an agent program has rewritten", "requests"),
    "rollout/overridden_parameters": Metric(
        "sampling parameters of an agent program that the config has replaced", "parameters"
    ),
    "rollout/episodes": Metric("episodes collected, failed ones included", "episodes"),
    "rollout/outcome/<outcome>": Metric("episodes that ended this way", "episodes"),
    "rollout/invalid_fraction": Metric("episodes left out of the loss", "fraction"),
    "rollout/truncation_rate": Metric("valid episodes cut by turns or tokens", "fraction"),
    "rollout/retries": Metric("episodes started again after an environment error", "episodes"),
    "rollout/env_errors": Metric("environment errors, retried ones included", "errors"),
    "rollout/env_errors/<cause>": Metric("environment errors of one cause", "errors"),
    "rollout/groups": Metric("groups of samples of one task", "groups"),
    "rollout/zero_variance_groups": Metric("groups whose rewards are all equal", "groups"),
    "rollout/informative_groups": Metric("groups that give a gradient", "groups"),
    "rollout/rounds": Metric("rollout rounds until enough groups were informative", "rounds"),
    "rollout/played_groups": Metric("groups played, discarded ones included", "groups"),
    "rollout/played_informative_groups": Metric("groups played that give a gradient", "groups"),
    "rollout/discarded_groups": Metric("groups played and not trained on", "groups"),
    "rollout/discarded_tokens": Metric("sampled tokens of discarded groups", "tokens"),
    "rollout/sampled_tokens": Metric("all sampled tokens, lost and discarded included", "tokens"),
    "rollout/occupancy": Metric("decode slots that were busy", "fraction"),
    "rollout/tokens_per_step": Metric("tokens of a row per decode step; drafts raise it", "tokens"),
    "rollout/prefill_occupancy": Metric("positions of prefill calls that held a token", "fraction"),
    "rollout/computed_per_kept_tokens": Metric("tokens computed per token of an episode", "1"),
    "rollout/cut_turns": Metric("turns cut by the token limit of a turn", "turns"),
    "rollout/failed_turn_fraction": Metric("turns with parse error or rejected action", "fraction"),
    "rollout/parse_errors": Metric("turns with a parse error", "turns"),
    "rollout/sampled_entropy": Metric("mean negative log-probability of sampled tokens", "nats"),
    # Scores of a judge (section `judge`).
    "judge/score_mean": Metric("judge's score of an episode, which is its reward", "fraction"),
    "judge/requests": Metric("requests to the judge, repeated ones included", "requests"),
    "judge/cached": Metric("episodes scored without a request of their own", "episodes"),
    "judge/failed": Metric("episodes left out because the judge gave no score", "episodes"),
    "judge/prompt_tokens": Metric("tokens of the requests, as the endpoint counts", "tokens"),
    "judge/completion_tokens": Metric("tokens of the replies, as the endpoint counts", "tokens"),
    "judge/cost": Metric("price of these tokens by the prices of the config", "currency"),
    # The update.
    "policy/loss": Metric("total loss", "1"),
    "policy/surrogate_loss": Metric("policy-gradient part of the loss", "1"),
    "policy/kl_k3": Metric("divergence from the reference policy (k3 estimate)", "nats"),
    "policy/approx_kl": Metric("divergence of the update (old to new policy)", "nats"),
    "policy/clip_fraction": Metric("action tokens whose ratio is clipped", "fraction"),
    "policy/ratio_mean": Metric("probability ratio new/old", "1"),
    "policy/ratio_max": Metric("largest probability ratio new/old", "1"),
    "policy/entropy": Metric("entropy of the next-token distribution", "nats"),
    "policy/grad_norm": Metric("gradient norm before clipping", "1"),
    "policy/grad_norm_max": Metric("largest gradient norm of an update in the step", "1"),
    "policy/update_norm": Metric("norm of the parameter change", "1"),
    "policy/param_norm": Metric("norm of the parameters", "1"),
    "policy/logprob_gap_mean": Metric("mean sampler-learner log-probability gap", "nats"),
    "policy/logprob_gap_max": Metric("largest sampler-learner log-probability gap", "nats"),
    "policy/off_policy_steps": Metric("steps by which the sampling weights are older", "steps"),
    "policy/off_policy_steps_max": Metric("largest such age of an action token", "steps"),
    "policy/off_policy_share/<steps>": Metric(
        "action tokens whose weights had this age", "fraction"
    ),
    "policy/mixed_version_episodes": Metric("episodes that several versions sampled", "fraction"),
    "policy/stale_gap_mean": Metric("mean log-probability gap to older weights", "nats"),
    "policy/stale_gap_max": Metric("largest log-probability gap to older weights", "nats"),
    "policy/learning_rate": Metric("learning rate of this step", "1"),
    "policy/kl_reward": Metric("sampled estimate of the divergence from the reference", "nats"),
    "policy/kl_reward_coef": Metric("weight of policy/kl_reward in the reward", "1"),
    "policy/expected_return": Metric("baseline before this step, mean of environments", "reward"),
    "policy/advantage_std": Metric("standard deviation of the advantages", "1"),
    "critic/loss": Metric("half the squared error of the values", "1"),
    "critic/clip_fraction": Metric("action tokens whose value is clipped", "fraction"),
    "critic/grad_norm": Metric("gradient norm of the critic before clipping", "1"),
    "critic/skipped": Metric("updates of the critic that were skipped", "updates"),
    "critic/value_mean": Metric("value before an action token", "reward"),
    "critic/return_mean": Metric("return from an action token, the critic's target", "reward"),
    "critic/explained_variance": Metric("variance of the return that values explain", "fraction"),
    "policy/updates": Metric("optimiser updates in this step", "updates"),
    "policy/skipped": Metric("updates not applied: nothing to train on, or a guard", "updates"),
    "policy/nonfinite": Metric("updates whose loss or gradient was not finite", "updates"),
    # Tripped guards (telemetry/guards.py).
    "guards/tripped": Metric("guards that tripped", "guards"),
    "guards/<guard>": Metric("1 if this guard tripped; else absent", "1"),
    # Inputs of the step.
    "horizon/turns": Metric("turn limit of an episode, the largest of the step", "turns"),
    "horizon/turns_mean": Metric("turn limit of a task, where tasks differ", "turns"),
    "horizon/turns_min": Metric("smallest turn limit of the step, where tasks differ", "turns"),
    "horizon/average": Metric("average that an adaptive limit compares to its threshold", "1"),
    "horizon/turns/<group>": Metric("turn limit of one group, the largest of the step", "turns"),
    "batch/padding_share": Metric("positions of the packed batch without a token", "fraction"),
    "batch/rows": Metric("rows of the packed batch", "rows"),
    "batch/sequences": Metric("episodes or conversations in the batch", "sequences"),
    "batch/tokens": Metric("tokens in the batch", "tokens"),
    "batch/action_tokens": Metric("trained tokens in the batch", "tokens"),
    # Wall time.
    "time/rollout_s": Metric("collecting episodes", "seconds"),
    "time/decode_s": Metric("decoding, within the rollout", "seconds"),
    "time/prefill_s": Metric("prefill of prompts and observations, in the rollout", "seconds"),
    "time/env_wait_s": Metric("sampler idle for environments, within the rollout", "seconds"),
    "time/judge_s": Metric("judging, after the episodes were collected", "seconds"),
    "time/collect_wait_s": Metric("learner waiting for the episodes of the next step", "seconds"),
    "time/score_s": Metric("recomputing log-probabilities", "seconds"),
    "time/update_s": Metric("gradient and optimiser", "seconds"),
    "time/data_s": Metric("waiting for data", "seconds"),
    "time/eval_s": Metric("evaluation", "seconds"),
    "time/checkpoint_s": Metric("checkpoint, as far as training waited for it", "seconds"),
    "time/iteration_s": Metric("whole step without evaluation and checkpoint", "seconds"),
    "rate/decode_tokens_per_s": Metric("sampled tokens per second of rollout", "tokens/s"),
    "rate/train_tokens_per_s": Metric("trained tokens per second of update", "tokens/s"),
    "rate/episodes_per_min": Metric("episodes that ended, per minute of rollout", "episodes/min"),
    "rate/env_steps_per_s": Metric("turns that ended, per second of rollout", "steps/s"),
    # The machine.
    "jax/compilations": Metric("programs compiled since the start", "programs"),
    "jax/compile_s": Metric("time spent compiling since the start", "seconds"),
    "system/host_memory_gib": Metric("resident memory of the training process", "GiB"),
    "system/child_memory_gib": Metric("resident memory of the servers it started", "GiB"),
    "system/device_memory_gib": Metric("memory in use on the fullest device", "GiB"),
    "system/device_memory_peak_gib": Metric("largest memory use of a device so far", "GiB"),
    "system/open_sessions": Metric("sessions held on environment servers", "sessions"),
    "system/threads": Metric("threads of the training process", "threads"),
    "system/open_files": Metric("open files and sockets of the training process", "files"),
    # Evaluation on held-out tasks.
    "eval/success": Metric("solved evaluation episodes, sampled", "fraction"),
    "eval/success/<group>": Metric("solved, one group, sampled", "fraction"),
    "eval/success_greedy": Metric("solved evaluation episodes, greedy", "fraction"),
    "eval/success_greedy/<group>": Metric("solved, one group, greedy", "fraction"),
    "eval/success_low": Metric("lower end of the interval of eval/success", "fraction"),
    "eval/success_high": Metric("upper end of the interval of eval/success", "fraction"),
    "eval/success_greedy_low": Metric("lower end, eval/success_greedy", "fraction"),
    "eval/success_greedy_high": Metric("upper end, eval/success_greedy", "fraction"),
    "eval/score": Metric("environment's own score of an evaluation episode", "score"),
    "eval/score/<group>": Metric("environment's own score, one group", "score"),
    "eval/score_greedy": Metric("environment's own score, greedy", "score"),
    "eval/score_greedy/<group>": Metric("environment's own score, one group, greedy", "score"),
    "eval/turns_mean": Metric("turns of an evaluation episode", "turns"),
    "eval/turns_mean/<group>": Metric("turns of an evaluation episode, one group", "turns"),
    "eval/turns_mean_greedy": Metric("turns of a greedy evaluation episode", "turns"),
    "eval/turns_mean_greedy/<group>": Metric("turns of a greedy episode, one group", "turns"),
    "eval/episodes": Metric("sampled evaluation episodes", "episodes"),
    "eval/episodes_greedy": Metric("greedy evaluation episodes", "episodes"),
    "eval/env_errors": Metric("sampled episodes lost to environment errors", "episodes"),
    "eval/env_errors_greedy": Metric("greedy episodes lost to environment errors", "episodes"),
    # Training on recorded data.
    "sft/loss": Metric("loss per trained token", "nats"),
    "sft/tokens": Metric("trained tokens of this step", "tokens"),
    "sft/epoch": Metric("passes over the data so far", "epochs"),
    "dpo/loss": Metric("preference loss", "nats"),
    "dpo/accuracy": Metric("pairs whose chosen side has the larger implicit reward", "fraction"),
    "dpo/margin": Metric("implicit reward of chosen minus rejected", "nats"),
    "dpo/chosen_reward": Metric("implicit reward of the chosen conversation", "nats"),
    "dpo/rejected_reward": Metric("implicit reward of the rejected conversation", "nats"),
    "dpo/chosen_logprob": Metric("log-probability of the chosen conversation", "nats"),
    "dpo/rejected_logprob": Metric("log-probability of the rejected conversation", "nats"),
    "dpo/epoch": Metric("passes over the pairs so far", "epochs"),
    "dpo/pairs": Metric("preference pairs of this step", "pairs"),
    # AgentEvol: rounds of exploration and supervised training.
    "agentevol/round": Metric("exploration rounds in the data of this fit", "rounds"),
    "agentevol/explored": Metric("episodes explored for this fit", "episodes"),
    "agentevol/kept": Metric("explored episodes that this fit imitates", "episodes"),
    "agentevol/kept_fraction": Metric("kept among valid explored episodes", "fraction"),
    "agentevol/kept_tasks": Metric("explored tasks with a kept episode", "fraction"),
    "agentevol/demonstrations": Metric("original conversations in this fit", "conversations"),
    # Format of metrics.jsonl.
    "run/nonfinite_metrics": Metric("values of this line that were not finite (null)", "values"),
}

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
        "Add it with its meaning and unit to METRICS in agentgym_jax/telemetry/metrics.py."
    )
