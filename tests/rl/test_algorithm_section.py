"""The sections `algorithm` and `horizon` of a config, checked before anything compiles."""

import pytest

from agentgym_jax.algorithms import ALGORITHMS
from agentgym_jax.config import sections
from agentgym_jax.data.tasks import Task
from agentgym_jax.rl import rl_config as rl
from configs import common, quickstart


def parsed(name="grpo", **changes):
    """Returns the quickstart's settings with another algorithm; `a__b=value` changes config.a.b."""
    c = quickstart.get_config("smoke")
    row = ALGORITHMS[name]
    c.algorithm = common.make_algorithm(name, length=1024)
    if row.ratio == "none":
        c.learner.mini_batches = 1
    config = sections.plain(c)
    for key, value in changes.items():
        section, _, rest = key.partition("__")
        config[section] = config[section] | {rest: value} if rest else value
    return rl.parse(config)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_can_be_chosen_by_name(name):
    settings = parsed(name)
    assert settings.algorithm.row is ALGORITHMS[name]
    config = common.make_algorithm(name, length=1024)
    assert settings.needs_reference == (config["kl_coef"] > 0 or "kl_reward" in config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(algorithm__name="grop"), "name='grop': expected one of ppo"),
        (
            dict(algorithm__zero_variance="drop"),
            "zero_variance='drop': expected one of keep, filter, re",
        ),
        (dict(rollout__max_rounds=0), "rollout.max_rounds=0: expected a whole number, at least 1"),
        (
            dict(rollout__max_off_policy_steps=9),
            "rollout.max_off_policy_steps=9: expected a whole number, at least 0 and at most 8",
        ),
        (dict(algorithm__advantage=dict(std_normalise=True)), "did you mean 'std_normalize'"),
        (dict(algorithm__baseline=dict(kind="moving_average", decay=0.9)), "'grpo' takes none"),
        (dict(algorithm__kl_reward=dict(kind="fixed")), "kl_reward.*takes .'coef'"),
        (dict(algorithm__correction=dict(kind="tis")), "kind='tis' is none of none, truncated"),
        (dict(algorithm__correction=dict(kind="truncated")), "correction lacks cap"),
        (dict(algorithm__correction=dict(kind="truncated", cap=0.5)), "cap of at least 1"),
        (
            dict(algorithm__correction=dict(kind="truncated", cap=2.0)),
            "old_logprobs_from='sampler'",
        ),
        (dict(rollout__overlong=dict(kind="turns", limit=3)), "overlong: kind='turns' takes"),
        (
            dict(rollout__parse_error_penalty=-1.0),
            "parse_error_penalty=-1.0: expected a number, at least 0",
        ),
        (dict(horizon=dict(kind="linear", first=5, last=3, steps=9)), "linear horizon needs"),
    ],
)
def test_invalid_settings_are_refused_before_anything_starts(changes, message):
    with pytest.raises(sections.ConfigError, match=message):
        parsed(**changes)


CRITIC = dict(common.ppo()["critic"])


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("ppo", dict(algorithm__critic=dict(kind="none")), "kind='none'.*learns one"),
        ("grpo", dict(algorithm__critic=CRITIC), "kind='separate'.*has none"),
        ("ppo", dict(algorithm__critic=dict(kind="frozen")), "'frozen' is none of none, separate"),
        (
            "ppo",
            dict(algorithm__critic=CRITIC | dict(coef=1.0)),
            "critic.coef: there is no such key",
        ),
        (
            "ppo",
            dict(algorithm__critic=CRITIC | dict(clip=-1.0)),
            "critic.clip=-1.0: expected a number, at least 0",
        ),
        ("ppo", dict(algorithm__critic=CRITIC | dict(optimizer={})), "critic.optimizer lacks"),
        ("grpo", dict(rollout__truncation="bootstrap"), "truncation='bootstrap' asks a critic"),
        ("grpo", dict(rollout__truncation="forget"), "truncation='forget'.*bootstrap"),
        (
            "ppo",
            dict(
                rollout__truncation="bootstrap",
                rollout__overlong=dict(kind="turns", limit=3, margin=2, penalty=0.5),
            ),
            "overlong is taken off at the end",
        ),
        ("grpo", dict(rollout__reward="sucess"), "reward='sucess'.*success"),
        (
            "reinforce",
            dict(rollout__max_off_policy_steps=1),
            "no ratio.*max_off_policy_steps=1",
        ),
        (
            "reinforce_pp",
            dict(algorithm__zero_variance="filter", rollout__group_size=1),
            "zero_variance='filter' would leave out every",
        ),
    ],
)
def test_settings_that_do_not_fit_an_algorithm_are_refused(name, changes, message):
    with pytest.raises(sections.ConfigError, match=message):
        parsed(name, **changes)


def test_a_critic_shares_the_policys_layers_or_is_separate():
    assert not parsed("ppo").critic.is_shared
    shared = parsed("ppo_turn", algorithm__critic=common.ppo_turn("shared")["critic"]).critic
    assert shared.is_shared and shared.warmup_steps == 0
    assert parsed("grpo").critic is None


@pytest.mark.parametrize("name", ["gspo", "gspo_token"])
def test_ratios_of_whole_episodes_need_old_logprobs_from_the_learner(name):
    assert parsed(name).algorithm.old_logprobs_from == "learner"
    with pytest.raises(
        sections.ConfigError, match="old_logprobs_from='sampler'.*set it to 'learner'"
    ):
        parsed(name, algorithm__old_logprobs_from="sampler")


@pytest.mark.parametrize("changed", [dict(epochs=2), dict(mini_batches=2)])
def test_a_loss_without_a_ratio_allows_one_update_per_step(changed):
    learner = sections.plain(quickstart.get_config("smoke").learner) | dict(mini_batches=1)
    with pytest.raises(sections.ConfigError, match="no ratio.*one update per step"):
        parsed("reinforce", learner=learner | changed)


STALE = dict(rollout__max_off_policy_steps=1)


@pytest.mark.parametrize(
    ("name", "changes", "advice"),
    [
        (
            "grpo",
            dict(algorithm__old_logprobs_from="learner"),
            "old_logprobs_from to 'sampler', or",
        ),
        ("gspo", {}, "cap=2.0\\), or max_off_policy_steps to 0"),
        ("gspo", dict(algorithm__correction=dict(kind="sequence_mask", low=0.5, high=2.0)), "cap"),
    ],
)
def test_stale_tokens_need_the_ratio_to_the_weights_that_sampled(name, changes, advice):
    with pytest.raises(sections.ConfigError, match=f"corrects for their age.*{advice}") as found:
        parsed(name, **changes, **STALE)
    assert "\n" not in str(found.value)
    parsed(name, **changes)  # on-policy, these log-probabilities are equal up to rounding
    truncated = dict(algorithm__correction=dict(kind="truncated", cap=2.0))
    parsed(name, **(changes | truncated), **STALE)


def test_the_ratio_to_the_sampler_corrects_stale_tokens():
    assert parsed("grpo", **STALE).algorithm.old_logprobs_from == "sampler"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (dict(algorithm__zero_variance="resample"), "the tasks of later steps are drawn before"),
    ],
)
def test_rollouts_that_cannot_overlap_are_refused(changes, reason):
    parsed(rollout__max_off_policy_steps=1, **changes)
    with pytest.raises(sections.ConfigError, match=f"max_off_policy_steps=2: {reason}"):
        parsed(rollout__max_off_policy_steps=2, **changes)


def test_policy_updates_are_counted_from_the_end_of_the_critics_warm_up():
    critic = CRITIC | dict(warmup_steps=2)
    settings = parsed("ppo", total_steps=5, algorithm__critic=critic)
    assert settings.learner.epochs * settings.learner.mini_batches == 2
    assert [rl.updates_before(settings, step) for step in (0, 2, 5)] == [0, 4, 10]
    assert [rl.policy_updates_before(settings, step) for step in (0, 2, 3, 5)] == [0, 0, 2, 6]
    assert (rl.total_updates(settings), rl.policy_updates(settings)) == (10, 6)


def test_published_dapo_resamples():
    assert (
        parsed("dapo").resamples and not parsed("dapo", algorithm__zero_variance="filter").resamples
    )


def test_resampling_is_refused_if_equal_returns_are_impossible_or_harmless():
    for name, changes in (
        ("reinforce_pp", dict(algorithm__kl_reward=dict(kind="none"))),
        ("grpo", dict(algorithm__kl_reward=dict(kind="fixed", coef=0.1))),
    ):
        with pytest.raises(sections.ConfigError, match="zero_variance='resample' needs"):
            parsed(name, algorithm__zero_variance="resample", **changes)


def test_an_algorithm_without_groups_allows_one_episode_per_task():
    assert parsed("reinforce_pp", rollout__group_size=1).rollout.group_size == 1


def test_an_adaptive_horizon_starts_at_its_first_limit():
    options = dict(turns=(3, 6), threshold=0.5, decay=0.9, min_steps=2, max_steps=0)
    settings = parsed(horizon=dict(kind="adaptive_success", **options))
    first = settings.controllers.initial_state()
    tasks = [Task("babyai", 0, "GoTo")]
    limits = settings.horizon.limits(tasks, 0, first.horizons, seed=0)
    assert [limit.turns for limit in limits] == [3]


def int8(name="grpo", *, correction=None, source="learner", **model):
    """Returns the settings of a run with int8 decode weights."""
    changes = dict(algorithm__old_logprobs_from=source)
    if correction is not None:
        changes["algorithm__correction"] = correction
    model = model or dict(decode_dtype="int8")
    return parsed(name, **changes, **{f"model__{key}": value for key, value in model.items()})


TRUNCATED = dict(kind="truncated", cap=2.0)


@pytest.mark.parametrize(
    ("name", "source", "correction"),
    [
        ("grpo", "learner", None),
        ("grpo", "learner", dict(kind="negative_sequence_mask", delta=0.1)),
        ("grpo", "learner", dict(kind="sequence_mask", low=0.5, high=2.0)),
        ("gspo", "learner", None),
        ("reinforce", "sampler", None),
        ("reinforce", "learner", None),
    ],
)
@pytest.mark.parametrize("key", ["decode_dtype", "cache_dtype"])
def test_int8_decoding_needs_a_correction_of_the_loss(key, name, source, correction):
    with pytest.raises(sections.ConfigError, match=f"{key}='int8'.*nothing in the loss"):
        int8(name, source=source, correction=correction, **{key: "int8"})


@pytest.mark.parametrize(
    ("name", "source", "correction"),
    [
        ("grpo", "sampler", None),  # the ratio of the loss is the correction
        ("grpo", "learner", TRUNCATED),
        ("gspo", "learner", TRUNCATED),
        ("reinforce", "learner", TRUNCATED),
    ],
)
@pytest.mark.parametrize("key", ["decode_dtype", "cache_dtype"])
def test_int8_decoding_is_accepted_with_a_correction(key, name, source, correction):
    settings = int8(name, source=source, correction=correction, **{key: "int8"})
    assert getattr(settings.model, key) == "int8"


def test_int8_decoding_with_unmerged_adapters_is_refused():
    with pytest.raises(sections.ConfigError, match=r"decode_dtype='int8' with lora.decode='unmer"):
        int8(source="sampler", decode_dtype="int8", lora=common.lora(rank=2, decode="unmerged"))
