"""Assigns questions to the training or the test split by their entity."""

import hashlib

TRAIN = "train"
TEST = "test"
_TEST_SHARE = 5  # one entity in `_TEST_SHARE` is in the test split
RULE = (
    "An entity, such as city-745044, is for testing if the first 8 bytes of the SHA-256 of "
    f"'agentgym-searchqa-split:<entity>', big-endian, are divisible by {_TEST_SHARE}; else for "
    "training. Both entities of a comparison are of the same split."
)


def split_of(entity: str) -> str:
    """Returns the split of an entity, `train` or `test`, by RULE."""
    digest = hashlib.sha256(f"agentgym-searchqa-split:{entity}".encode()).digest()
    return TEST if int.from_bytes(digest[:8], "big") % _TEST_SHARE == 0 else TRAIN


def split_of_question(entity: str) -> str:
    """Returns the split of a question; a comparison has two entities, separated by a space.

    Raises:
      ValueError: the two entities are in different splits.
    """
    splits = {split_of(one) for one in entity.split(" ")}
    if len(splits) > 1:
        raise ValueError(f"the entities {entity!r} are in different splits")
    return splits.pop()
