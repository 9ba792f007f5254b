"""Wordle tasks, one for each hidden word."""

import functools
from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.wordle.words import VOCABULARY

TEST_WORDS = 10


@functools.cache
def task_manifest() -> tuple[dict[str, Any], ...]:
    """Returns the hidden word and the split of all tasks; task i hides word i of the vocabulary.

    The first TEST_WORDS words in the order of their sha256 are hidden in test tasks only.
    """
    test = set(manifest.hash_order(VOCABULARY)[:TEST_WORDS])
    tasks = tuple(
        {
            "data_idx": i,
            "split": manifest.TEST if word in test else manifest.TRAIN,
            "hidden": word,
        }
        for i, word in enumerate(VOCABULARY)
    )
    manifest.check(tasks)
    return tasks
