import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_jax.data.pipeline import Dropped, batches
from agentgym_jax.episodes.batch import padding_share
from agentgym_jax.text.chat import EncodedConversation


def conversation(length, actions, token=0):
    """Returns a conversation of `length` tokens, of which the last `actions` are trained.

    All tokens have the value `token`, so that a test can recognise the conversation in a batch.
    """
    mask = np.arange(length) >= length - actions
    return EncodedConversation(
        np.full(length, token, np.int32), mask, np.where(mask, 2, 0).astype(np.int8)
    )


def data(lengths):
    return [conversation(n, max(1, n // 2), token=i) for i, n in enumerate(lengths)]


def tokens_seen(batch):
    """Returns the conversation number of each packed sequence in a batch."""
    ids = batch.sequence_ids.reshape(-1)
    values = batch.tokens.reshape(-1)
    return [int(values[ids == i][0]) for i in range(ids.max() + 1)]


def equal(left, right):
    return all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    )


lengths = st.lists(st.integers(1, 16), min_size=1, max_size=30)


@given(lengths, st.integers(1, 4), st.integers(0, 3), st.integers(1, 3))
def test_every_epoch_has_every_conversation_once_and_whole(lengths, rows, seed, epochs):
    made = batches(data(lengths), row_length=16, rows=rows, seed=seed, epochs=epochs)
    seen = []
    for batch in made:
        batch.check()
        assert batch.tokens.shape == (rows, 16)
        seen += tokens_seen(batch)
        # A batch at the boundary of two epochs may contain a conversation twice.
        for i in range(batch.sequence_ids.max() + 1):
            here = batch.sequence_ids == i
            assert here.sum() == lengths[batch.tokens[here][0]]
    assert sorted(seen) == sorted([*range(len(lengths))] * epochs)


@given(lengths, st.integers(0, 5))
def test_a_batch_depends_only_on_its_step_number(lengths, seed):
    make = lambda: batches(data(lengths), row_length=16, rows=2, seed=seed, steps=5)  # noqa: E731
    run = list(make())
    resumed = make()
    assert len(run) == len(resumed) == 5
    for step in (3, 4, 0, 3):
        assert equal(resumed.batch_at(step), run[step])


def test_the_number_of_steps_does_not_change_earlier_batches():
    short, long = (
        batches(data(range(1, 17)), row_length=16, rows=2, seed=0, steps=n) for n in (3, 30)
    )
    assert all(equal(short.batch_at(step), long.batch_at(step)) for step in range(3))


def test_the_seed_changes_the_order():
    first, second = (
        batches(data(range(1, 17)), row_length=16, rows=2, seed=seed, steps=1) for seed in (0, 1)
    )
    assert tokens_seen(first.batch_at(0)) != tokens_seen(second.batch_at(0))


def test_only_the_last_batch_may_have_padding():
    made = batches(data([4] * 33), row_length=16, rows=2, seed=0, epochs=3)
    shares = [padding_share(batch) for batch in made]
    assert shares[:-1] == [0.0] * (len(made) - 1)
    assert len(made) == -(-33 * 3 // 8)


def test_a_batch_larger_than_the_data_is_filled_by_several_epochs():
    made = batches(data([4, 4]), row_length=16, rows=2, seed=0, steps=3)
    for batch in made:
        assert padding_share(batch) == 0.0
        assert sorted(tokens_seen(batch)) == [0] * 4 + [1] * 4


def test_token_mean_weighs_all_trained_tokens_equally():
    encoded = [conversation(4, 1), conversation(8, 3)]
    batch = batches(encoded, row_length=12, rows=1, seed=0, epochs=1).batch_at(0)
    np.testing.assert_allclose(batch.weights[batch.action_mask], [0.25] * 4, rtol=1e-6)
    assert not batch.weights[~batch.action_mask].any()


def test_sequence_mean_weighs_all_conversations_equally():
    encoded = [conversation(4, 1, token=0), conversation(8, 3, token=1)]
    made = batches(encoded, row_length=12, rows=1, seed=0, epochs=1, weighting="sequence_mean")
    batch = made.batch_at(0)
    for token, count in ((0, 1), (1, 3)):
        here = (batch.sequence_ids == tokens_seen(batch).index(token)) & batch.action_mask
        np.testing.assert_allclose(batch.weights[here], [0.5 / count] * count, rtol=1e-6)


@pytest.mark.parametrize(
    ("weighting", "expected"),
    # The importances are 2 for one token and 1 for three: the weights are 2/5 and 1/5, or 2/3 and
    # 1/9.
    [("token_mean", (2 / 5, 1 / 5)), ("sequence_mean", (2 / 3, 1 / 9))],
)
def test_importance_weighs_whole_conversations(weighting, expected):
    encoded = [conversation(20, 9), conversation(4, 1, token=0), conversation(8, 3, token=1)]
    made = batches(
        encoded,
        row_length=12,
        rows=1,
        seed=0,
        epochs=1,
        weighting=weighting,
        too_long="skip",
        importance=[9.0, 2.0, 1.0],
    )
    batch = made.batch_at(0)
    for token, weight in enumerate(expected):
        here = (batch.tokens == token) & batch.action_mask
        np.testing.assert_allclose(batch.weights[here], weight, rtol=1e-6)
    with pytest.raises(ValueError, match="importance needs 3 numbers above 0"):
        batches(encoded, row_length=32, rows=1, seed=0, epochs=1, importance=[1.0, 0.0, 1.0])


@pytest.mark.parametrize("weighting", ["token_mean", "sequence_mean"])
def test_the_weights_of_every_batch_sum_to_one(weighting):
    made = batches(data(range(1, 17)), row_length=16, rows=3, seed=0, steps=9, weighting=weighting)
    np.testing.assert_allclose([b.weights.sum() for b in made], 1.0, rtol=1e-5)


def test_a_conversation_longer_than_a_row_is_an_error_by_default():
    encoded = [conversation(4, 2), conversation(9, 6), conversation(9, 1)]
    with pytest.raises(ValueError, match="conversation 1 has 9 tokens, a row holds 8"):
        batches(encoded, row_length=8, rows=1, seed=0, steps=1)
    skipped = batches(encoded, row_length=8, rows=1, seed=0, epochs=1, too_long="skip")
    assert skipped.dropped == Dropped(too_long=2, truncated=0, without_loss=0)
    assert str(skipped.dropped) == "2 left out, longer than a row"
    assert len(skipped.sequences) == 1
    cut = batches(encoded, row_length=8, rows=2, seed=0, epochs=1, too_long="truncate")
    # The only trained token of the third conversation is beyond the end of the row.
    assert cut.dropped == Dropped(too_long=0, truncated=2, without_loss=1)
    assert sorted(np.bincount(cut.batch_at(0).sequence_ids.reshape(-1) + 1)[1:]) == [4, 8]
    assert cut.batch_at(0).action_mask.sum() == 2 + 5


def test_data_without_trained_tokens_are_an_error():
    with pytest.raises(
        ValueError, match="none of 1 conversations.*1 left out, .* have 'loss' true"
    ):
        batches([conversation(4, 0)], row_length=8, rows=1, seed=0, steps=1)
    for treatment in ("skip", "truncate"):
        options = dict(row_length=8, rows=1, seed=0, steps=1, too_long=treatment)
        with pytest.raises(ValueError, match="none of 1 conversations.*; raise row_length=8"):
            batches([conversation(9, 0)], **options)


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (dict(epochs=1, steps=1), "either epochs or steps"),
        (dict(), "either epochs or steps"),
    ],
)
def test_an_invalid_option_is_refused(choice, reason):
    with pytest.raises(ValueError, match=reason):
        batches(data([4]), row_length=8, rows=1, seed=0, **choice)


def test_a_step_beyond_the_end_is_an_index_error():
    made = batches(data([4]), row_length=8, rows=1, seed=0, steps=2)
    for step in (-1, 2):
        with pytest.raises(IndexError, match="of a pipeline of 2 batches"):
            made.batch_at(step)


def test_every_epoch_is_reshuffled():
    made = batches(data([16] * 16), row_length=16, rows=16, seed=0, epochs=2)
    first, second = (tokens_seen(batch) for batch in made)
    assert sorted(first) == sorted(second) and first != second
