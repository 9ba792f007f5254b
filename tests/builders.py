"""Small configs, episodes and batches for the tests of all packages."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from agentgym_jax.algorithms.episode_sums import Episodes
from agentgym_jax.algorithms.losses import PolicyTokens
from agentgym_jax.algorithms.table import ALGORITHMS
from agentgym_jax.episodes import batch as batching
from agentgym_jax.episodes.trajectory import Outcome, TokenSource, Trajectory, Turn
from agentgym_jax.evaluation.scores import EpisodeScore
from agentgym_jax.learner.experience import make_experience
from agentgym_jax.models.config import DecoderConfig, RopeScaling
from agentgym_jax.models.policy import Policy
from agentgym_jax.rollout.episode import EpisodeLimits, EpisodeRequest
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.sampling.sampler import Sampler

_DECODER = dict(
    vocab_size=101,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_size=8,
)
_SOURCES = {"p": TokenSource.PROMPT, "o": TokenSource.OBSERVATION, "a": TokenSource.ACTION}


def decoder_config(**changes: Any) -> DecoderConfig:
    """Returns a decoder config with two narrow layers."""
    return DecoderConfig(**_DECODER | changes)


def tiny_policy(tokenizer):
    """Returns a policy with one narrow layer."""
    return Policy(
        decoder_config(
            vocab_size=tokenizer.vocab_size,
            hidden_size=16,
            intermediate_size=32,
            num_layers=1,
            num_heads=2,
            num_kv_heads=1,
            rope_theta=10000.0,
        )
    )


def make_sampler(policy, params, stop_ids, *, version=0, **options):
    """Returns a sampler with weights, of 4 rows of 256 tokens unless `options` replace this."""
    defaults: dict[str, Any] = dict(
        rows=4,
        cache_length=256,
        buckets=((32, 4), (64, 2)),
        decode_steps=4,
        return_after_finished=1,
    )
    sampler = Sampler(policy, stop_ids=stop_ids, **defaults | options)
    sampler.set_params(params, version=version)
    return sampler


def hybrid_config(**changes: Any) -> DecoderConfig:
    """Returns the config of a Qwen3.5 with two groups of one delta net and one full attention."""
    fields: dict[str, Any] = dict(
        num_layers=4,
        qkv_bias=False,
        qk_norm=True,
        hybrid=dict(
            interval=2, key_heads=2, value_heads=4, key_size=6, value_size=10, rotary_size=4
        ),
    )
    return decoder_config(**fields | changes)


def decoder_families(
    config: DecoderConfig,
    *,
    qwen3: Mapping[str, Any] | None = None,
    llama: Mapping[str, Any] | None = None,
) -> dict[str, DecoderConfig]:
    """Returns one config per supported model family.

    Args:
      config: Config of the qwen2 family; the other configs differ in biases, norms, tied
          embeddings and rotary scaling.
      qwen3: Fields that are replaced in the config of the qwen3 family.
      llama: Fields that are replaced in the config of the llama family.
    """
    normed: dict[str, Any] = dict(qkv_bias=False, qk_norm=True, tie_embeddings=False)
    scaled: dict[str, Any] = dict(qkv_bias=False, rope_scaling=RopeScaling("llama3", 8.0))
    return {
        "qwen2": config,
        "qwen3": dataclasses.replace(config, **normed | dict(qwen3 or {})),
        "llama": dataclasses.replace(config, **scaled | dict(llama or {})),
    }


def dequantize(params: dict[str, Any]) -> dict[str, Any]:
    """Returns the float32 weights that int8 weights stand for (`models/int8.py`)."""
    layers = {part: dict(leaves) for part, leaves in params["layers"].base.items()}
    for part, scales in params["layers"].scales.items():
        for name, scale in scales.items():
            kernel = name.replace("_scale", "_kernel")
            x = layers[part][kernel]
            summed = range(1, 1 + x.ndim - scale.ndim)  # axis 0 are the layers
            layers[part][kernel] = x * np.expand_dims(scale, tuple(summed))
    params = params | {"layers": layers}
    scale = params.pop("head_scale")
    if "unembed" in params:
        return params | {"unembed": {"kernel": params["unembed"]["kernel"] * scale[None]}}
    return params | {"embed": {"embedding": params["embed"]["embedding"] * scale[:, None]}}


def turn(start: int, stop: int, **changes: Any) -> Turn:
    """Returns a turn whose action tokens have the positions `start` to `stop` - 1."""
    fields: dict[str, Any] = dict(
        text="Action: go", action="go", observation="a wall", reward=0.0, is_cut=False
    )
    return Turn(start, stop, **fields | changes)


def trajectory(
    picture: str = "pa",
    turns: Iterable[Turn] | None = None,
    *,
    version: int = 0,
    logprob: float = -0.25,
    **changes: Any,
) -> Trajectory:
    """Returns the episode that a picture of its tokens describes.

    Args:
      picture: One letter per token: p for prompt, o for observation, a for action.
      turns: Turns of the episode; by default each run of action tokens is one turn.
      version: Policy version of the action tokens.
      logprob: Log-probability of the action tokens.
      changes: Other fields of the episode.
    """
    sources = np.array([_SOURCES[letter] for letter in picture], np.int8)
    is_action = sources == TokenSource.ACTION
    if turns is None:
        edges = np.flatnonzero(np.diff(is_action, prepend=False, append=False))
        turns = [turn(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
    fields: dict[str, Any] = {
        "item_id": "babyai_1",
        "sample": 0,
        "step": 0,
        "outcome": Outcome.FAILURE,
        "score": 0.0,
        "success": changes.get("outcome") is Outcome.SUCCESS,
        "tokens": np.arange(10, 10 + len(sources), dtype=np.int32),
        "sources": sources,
        "logprobs": np.where(is_action, logprob, 0.0).astype(np.float32),
        "policy_versions": np.where(is_action, version, -1).astype(np.int32),
        "turns": tuple(turns),
        "messages": (),
    }
    return Trajectory(**fields | changes)


def episode_score(
    item: str | int,
    success: bool,
    sample: int = 0,
    *,
    group: str | None = None,
    turns: int = 4,
    outcome: Outcome | None = None,
    failure: Outcome = Outcome.FAILURE,
) -> EpisodeScore:
    """Returns the score of one evaluated episode.

    Args:
      item: Item id, or the number of a TextCraft task.
      success: True if the task is solved.
      sample: Index of the sample.
      group: Group of the task; by default the name of its environment.
      turns: Number of turns.
      outcome: Outcome of the episode; by default success, or `failure` if the task is not solved.
      failure: Outcome of an unsolved task if `outcome` is not given.
    """
    item_id = f"textcraft_{item}" if isinstance(item, int) else item
    return EpisodeScore(
        item_id=item_id,
        group=item_id.rpartition("_")[0] if group is None else group,
        sample=sample,
        success=success,
        score=float(success),
        turns=turns,
        outcome=outcome or (Outcome.SUCCESS if success else failure),
    )


def draw_episodes(
    pictures: Sequence[str],
    rewards: Sequence[Mapping[int, float]],
    *,
    group_size: int,
    anchors: Sequence[Sequence[int]] | None = None,
    valid: Sequence[bool] | np.ndarray | None = None,
    value: float = 0.0,
) -> Episodes:
    """Returns the input of an advantage estimator.

    In a picture such as `..00.11`, each digit is an action token of the turn with that number; each
    dot is another token.

    Args:
      pictures: One picture per episode, all of equal length.
      rewards: One mapping per episode, from position to reward.
      group_size: Episodes per task.
      anchors: Anchor state of each turn, one list per episode; by default all states differ.
      valid: One flag per episode; False if its environment failed.
      value: Value estimate of every token.
    """
    B, T = len(pictures), len(pictures[0])
    turn_BT = np.array([[-1 if c == "." else int(c) for c in row] for row in pictures], np.int32)
    reward_BT = np.zeros((B, T), np.float32)
    for row, by_position in enumerate(rewards):
        for position, reward in by_position.items():
            reward_BT[row, position] = reward
    anchor_BT = turn_BT + T * (np.arange(B) % group_size)[:, None]
    anchor_BT = np.where(turn_BT >= 0, anchor_BT, -1).astype(np.int32)
    for row, by_turn in enumerate(anchors or ()):
        for number, anchor in enumerate(by_turn):
            anchor_BT[row, turn_BT[row] == number] = anchor
    return Episodes(
        reward_BT=jnp.asarray(reward_BT),
        action_mask_BT=jnp.asarray(turn_BT >= 0),
        valid_B=jnp.ones(B, bool) if valid is None else jnp.asarray(valid),
        turn_BT=jnp.asarray(turn_BT),
        anchor_BT=jnp.asarray(anchor_BT),
        value_BT=jnp.full((B, T), value, jnp.float32),
        group_size=group_size,
    )


def one_turn_episodes(
    returns: Sequence[float] | np.ndarray,
    *,
    group_size: int,
    T: int = 5,
    actions: slice = slice(1, 4),
    valid: Sequence[bool] | np.ndarray | None = None,
    value: float = 0.0,
) -> Episodes:
    """Returns one-turn episodes whose only reward is on the last action token.

    All episodes of a group start from the same anchor state.
    """
    length = actions.stop - actions.start
    picture = ("." * actions.start + "0" * length).ljust(T, ".")
    return draw_episodes(
        [picture] * len(returns),
        [{actions.stop - 1: float(reward)} for reward in returns],
        group_size=group_size,
        anchors=[[0]] * len(returns),
        valid=valid,
        value=value,
    )


def random_episodes(
    seed: int, *, tasks: int = 3, group_size: int = 4, turns: int = 3, T: int = 24
) -> Episodes:
    """Returns episodes with random turns and rewards and shared anchors; one of them is invalid."""
    rng = np.random.default_rng(seed)
    pictures, rewards, anchors = [], [], []
    for _ in range(tasks * group_size):
        picture, by_position = ".", {}
        for number in range(int(rng.integers(1, turns + 1))):
            picture += str(number) * int(rng.integers(1, 4))
            by_position[len(picture) - 1] = float(np.round(rng.normal(), 2))
            picture += "." * int(rng.integers(0, 4))
        pictures.append(picture.ljust(T, "."))
        rewards.append(by_position)
        anchors.append([int(rng.integers(0, 3)) for _ in by_position])
    valid = np.ones(tasks * group_size, bool)
    valid[rng.integers(tasks * group_size)] = False
    return draw_episodes(pictures, rewards, group_size=group_size, anchors=anchors, valid=valid)


def token_sequences(
    count: int = 8, seed: int = 0, shortest: int = 6, longest: int = 16, *, vocab_size: int = 64
) -> list[dict[str, np.ndarray]]:
    """Returns random episodes as tokens: prompt, action, observation, action.

    The token weights of a sequence add up to about one.
    """
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        n = int(rng.integers(shortest, longest + 1))
        mask = np.ones(n, bool)
        mask[: n // 4 + 1] = False
        mask[n // 2 : n // 2 + 2] = False
        made.append(
            {
                "tokens": rng.integers(0, vocab_size, n),
                "action_mask": mask,
                "weights": mask * rng.uniform(0.5, 1.5) / (8 * count),
                "advantages": mask * rng.normal(),
                "old_logprobs": mask * rng.normal(-4.16, 0.2, n),
                "reference_logprobs": mask * rng.normal(-4.16, 0.2, n),
            }
        )
    return made


def policy_tokens(logprob_BT, old_logprob_BT, advantage_BT, sequence_BT, **others):
    """Returns the input of a policy loss; by default the sampler's policy is the old one."""
    values = dict(
        sampler_logprob_BT=jnp.asarray(old_logprob_BT),
        entropy_BT=jnp.ones(jnp.shape(logprob_BT)),
        marked_BT=jnp.zeros(jnp.shape(logprob_BT), bool),
    )
    return PolicyTokens(
        jnp.asarray(logprob_BT),
        jnp.asarray(old_logprob_BT),
        jnp.asarray(advantage_BT),
        jnp.asarray(sequence_BT),
        **values | others,
    )


def pack_sequences(
    sequences: Sequence[Mapping[str, np.ndarray]], *, micro_rows: int = 2, row_length: int = 32
) -> batching.TokenBatch:
    """Returns micro-batches of shape [8 / micro_rows, micro_rows, row_length].

    There are always 8 rows, so that few programs are compiled.
    """
    packed = batching.pack(sequences, row_length=row_length, rows_multiple=8)
    assert packed.tokens.shape[0] == 8, "more sequences than fit into 8 rows"
    return batching.micro_batches(packed, micro_rows)


def episode_request(
    task, *, max_turns=2, max_tokens=100, max_parse_errors=0, max_turn_tokens=8, **fields
):
    """Returns the request of an episode, sample 0 of step 0 unless `fields` say otherwise."""
    return EpisodeRequest(
        task,
        **dict(sample=0, seed=0, step=0) | fields,
        limits=EpisodeLimits(max_turns, max_tokens, max_parse_errors),
        sampling=SamplingOptions(1.0, max_turn_tokens, max_tokens),
    )


def experience_of(trajectories, name="grpo", **options):
    """Returns the experience of episodes under an algorithm, with plain rewards by default."""
    defaults = dict(
        advantage_options=dict(std_normalize=False),
        failed_turn_penalty=0.0,
        reward="success",
        truncation="fail",
    )
    return make_experience(trajectories, algorithm=ALGORITHMS[name], **defaults | options)
