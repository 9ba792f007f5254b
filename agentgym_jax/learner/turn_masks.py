"""Masks of the tokens of turns that were sampled by a grammar, computed again for the learner."""

import numpy as np

from agentgym_jax.episodes.trajectory import Trajectory
from agentgym_jax.text.grammars import Grammars


def turn_masks(
    trajectory: Trajectory, branch: slice, grammars: Grammars | None
) -> dict[str, np.ndarray]:
    """Returns `mask_ids` and `mask_table` of a branch for `batch.pack`; nothing without grammars.

    Raises:
      ValueError: A turn has a grammar that does not allow its tokens.
    """
    turns = [
        turn
        for turn in trajectory.turns
        if turn.grammar and branch.start <= turn.action_start < branch.stop
    ]
    if not turns:
        return {}
    if grammars is None:
        raise ValueError(f"{trajectory.item_id}: turns have grammars, and there is no compiler")
    ids = np.zeros(branch.stop - branch.start, np.int32)
    table: dict[bytes, int] = {}  # ids by mask; a long text has few different masks
    for turn in turns:
        matcher = grammars.compile(turn.grammar)
        for t in range(turn.action_start, turn.action_stop):
            mask, token = matcher.allowed(), int(trajectory.tokens[t])
            if not mask[token // 32] >> np.uint32(token % 32) & 1:
                raise ValueError(
                    f"{trajectory.item_id}: token {t} is not one that the grammar of its turn allows"
                )
            ids[t - branch.start] = table.setdefault(mask.tobytes(), len(table) + 1)
            matcher.advance(token)
    masks = [np.frombuffer(mask, np.uint32) for mask in table]
    return {"mask_ids": ids, "mask_table": np.stack(masks)}
