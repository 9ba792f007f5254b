"""ATIF v1.7, the trace format of Harbor: one JSON document per episode.

A message of the prompt is a step, and a turn is a step of the agent with its observation. Token ids
and log-probabilities are in the metrics of a step. Facts without a field of the format are in
`extra`.
"""

from typing import Any

import agentgym_jax
from agentgym_jax.episodes.trajectory import Trajectory, Turn
from agentgym_jax.traces.common import (
    FACTS,
    answer_places,
    branch_start,
    episode_facts,
    finish_reason,
)

SCHEMA = "ATIF-v1.7"


def to_atif(trajectory: Trajectory) -> dict[str, Any]:
    """Converts an episode to an ATIF document.

    `metrics.prompt_token_ids` is the whole prompt of a turn. `extra.agentgym_jax.tail_token_ids` has
    the tokens after the last completion.
    """
    t = trajectory
    places = answer_places(t)
    first = places[0] if places else len(t.messages)
    steps: list[dict[str, Any]] = []
    for message in t.messages[:first]:
        source = "agent" if message["role"] == "assistant" else message["role"]
        step: dict[str, Any] = {"source": source, "message": message["content"]}
        if source == "agent":
            step["llm_call_count"] = 0  # an answer of the prompt, which was not sampled
        steps.append(step)
    steps += [_agent_step(t, turn) for turn in t.turns]
    end = t.turns[-1].action_stop if t.turns else 0
    facts = episode_facts(t) | {"tail_token_ids": t.tokens[end:].tolist()}
    return {
        "schema_version": SCHEMA,
        "session_id": f"step_{t.step}",
        "trajectory_id": f"{t.item_id}/{t.sample}",
        "agent": {"name": "agentgym_jax", "version": agentgym_jax.__version__},
        "steps": [{"step_id": i, **step} for i, step in enumerate(steps, 1)],
        "final_metrics": {
            "total_prompt_tokens": sum(
                turn.action_start - branch_start(t, turn.action_start) for turn in t.turns
            ),
            "total_completion_tokens": int(t.action_mask.sum()),
            "total_steps": len(steps),
            "extra": {"reward": t.reward, "score": t.score * t.score_scale, "success": t.success},
        },
        "extra": {"outcome": str(t.outcome), FACTS: facts},
    }


def _agent_step(t: Trajectory, turn: Turn) -> dict[str, Any]:
    start, stop = turn.action_start, turn.action_stop
    begin = branch_start(t, start)
    step: dict[str, Any] = {
        "source": "agent",
        "message": turn.text,
        "llm_call_count": 1,
        "metrics": {
            "prompt_tokens": start - begin,
            "completion_tokens": stop - start,
            "prompt_token_ids": t.tokens[begin:start].tolist(),
            "completion_token_ids": t.tokens[start:stop].tolist(),
            "logprobs": t.logprobs[start:stop].tolist(),
            "extra": {"finish_reason": finish_reason(turn.is_cut)},
        },
        "extra": {"action": turn.action, "reward": turn.reward, "is_rejected": turn.is_rejected},
    }
    if turn.observation:
        step["observation"] = {"results": [{"content": turn.observation}]}
    return step
