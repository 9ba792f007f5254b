"""Which questions are for training and which for testing: decided by what they are about."""

import hashlib

TRAIN = "train"
TEST = "test"
_TEST_SHARE = 5  # one entity in so many is for testing
RULE = (
    "An entity, such as city-745044, is for testing if the first 8 bytes of the SHA-256 of "
    f"'agentgym-searchqa-split:<entity>', big-endian, are divisible by {_TEST_SHARE}; else for "
    "training. Both entities of a comparison are of the same split."
)


def split_of(entity: str) -> str:
    """The split of an entity, by RULE."""
    digest = hashlib.sha256(f"agentgym-searchqa-split:{entity}".encode()).digest()
    return TEST if int.from_bytes(digest[:8], "big") % _TEST_SHARE == 0 else TRAIN


def split_of_question(entity: str) -> str:
    """The split of a question about one entity, or about two that a blank separates.

    Raises:
      ValueError: the two are of different splits.
    """
    splits = {split_of(one) for one in entity.split(" ")}
    if len(splits) > 1:
        raise ValueError(f"the entities {entity!r} are of different splits")
    return splits.pop()
