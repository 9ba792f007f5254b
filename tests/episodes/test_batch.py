import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_jax.episodes import batch as batching

LENGTHS = st.lists(st.integers(1, 20), max_size=30)


def sequence(n, seed=0):
    rng = np.random.default_rng(seed)
    mask = rng.random(n) < 0.5
    return {
        "tokens": rng.integers(1, 100, n),
        "action_mask": mask,
        "weights": np.where(mask, rng.random(n), 0.0),
        "advantages": np.where(mask, rng.normal(size=n), 0.0),
        "old_logprobs": np.where(mask, -rng.random(n), 0.0),
    }


def test_packing_matches_a_hand_computed_example():
    packed = batching.pack(
        [
            {"tokens": [7, 8], "action_mask": [False, True], "weights": [0.0, 0.5]},
            {"tokens": [1, 2, 3], "action_mask": [False, False, True]},
            {"tokens": [4, 5, 6], "action_mask": [True, False, False]},
        ],
        row_length=6,
        rows_multiple=1,
    )
    np.testing.assert_array_equal(packed.tokens, [[1, 2, 3, 4, 5, 6], [7, 8, 0, 0, 0, 0]])
    np.testing.assert_array_equal(packed.positions, [[0, 1, 2, 0, 1, 2], [0, 1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(packed.segment_ids, [[1, 1, 1, 2, 2, 2], [1, 1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(packed.sequence_ids, [[1, 1, 1, 2, 2, 2], [0, 0, -1, -1, -1, -1]])
    np.testing.assert_array_equal(
        packed.action_mask, np.array([[0, 0, 1, 1, 0, 0], [0, 1, 0, 0, 0, 0]], bool)
    )
    np.testing.assert_array_equal(packed.weights[1], [0, 0.5, 0, 0, 0, 0])
    assert batching.padding_share(packed) == 4 / 12
    packed.check()


@settings(max_examples=50)
@given(LENGTHS, st.integers(20, 40), st.integers(1, 4))
def test_unpacking_restores_all_packed_tokens(lengths, row_length, multiple):
    sequences = [sequence(n, seed=i) for i, n in enumerate(lengths)]
    packed = batching.pack(sequences, row_length=row_length, rows_multiple=multiple)
    assert packed.tokens.shape[0] % multiple == 0
    for name in ("tokens", "action_mask", "weights", "advantages", "old_logprobs"):
        found = batching.unpack(getattr(packed, name), packed, len(sequences))
        assert len(found) == len(sequences)
        for values, original in zip(found, sequences, strict=True):
            np.testing.assert_array_equal(values, np.asarray(original[name], values.dtype))


@settings(max_examples=50)
@given(LENGTHS, st.integers(20, 40))
def test_rows_never_overflow_and_contain_each_sequence_once(lengths, row_length):
    rows = batching.assign_rows(lengths, row_length)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(0 < sum(lengths[i] for i in row) <= row_length for row in rows)
    # property of first fit: no two rows would fit into one
    filled = [sum(lengths[i] for i in row) for row in rows]
    assert all(a + b > row_length for k, a in enumerate(filled) for b in filled[k + 1 :])


@settings(max_examples=50)
@given(LENGTHS, st.integers(1, 4), st.integers(1, 5))
def test_the_tightest_row_length_gives_the_smallest_batch(lengths, multiple, num_row_lengths):
    sequences = [sequence(n) for n in lengths]

    def size(row_length):
        return batching.pack(sequences, row_length=row_length, rows_multiple=multiple).tokens.size

    found = batching.tightest_row_length(lengths, 96, multiple, num_row_lengths)
    allowed = [n for n in (96, 48, 24, 12, 6)[:num_row_lengths] if n >= max(lengths, default=0)]
    assert size(found) == min(map(size, allowed))
    assert found == max(n for n in allowed if size(n) == size(found))


def test_row_lengths_are_halved_only_to_whole_numbers():
    assert batching.tightest_row_length([3], 30, 1, 4) == 15


def test_packing_no_sequences_gives_an_empty_batch():
    packed = batching.pack([], row_length=8, rows_multiple=4)
    assert packed.tokens.shape == (4, 8)
    assert batching.padding_share(packed) == 1.0
    assert batching.unpack(packed.tokens, packed, 0) == []


def test_an_empty_sequence_round_trips():
    sequences = [sequence(3), sequence(0), sequence(2, seed=1), sequence(0)]
    packed = batching.pack(sequences, row_length=8, rows_multiple=1)
    found = batching.unpack(packed.tokens, packed, 4)
    assert [len(x) for x in found] == [3, 0, 2, 0]
    np.testing.assert_array_equal(found[2], sequences[2]["tokens"])


def test_the_error_for_a_sequence_longer_than_a_row_names_row_length():
    with pytest.raises(ValueError, match=r"sequence 1 has 9 tokens, a row holds 8.*row_length"):
        batching.pack([sequence(3), sequence(9)], row_length=8, rows_multiple=1)
    with pytest.raises(ValueError, match=r"sequence 1 has 9 tokens, a row holds 8.*row_length"):
        batching.tightest_row_length([3, 9], 8, 1, 2)


def test_micro_batches_keep_the_order_of_rows():
    packed = batching.pack([sequence(8, i) for i in range(6)], row_length=8, rows_multiple=1)
    micro = batching.micro_batches(packed, 2)
    assert micro.tokens.shape == (3, 2, 8)
    for whole, split in zip(jax.tree.leaves(packed), jax.tree.leaves(micro), strict=True):
        np.testing.assert_array_equal(split.reshape(whole.shape), whole)


def test_rows_that_do_not_split_into_micro_batches_are_refused():
    packed = batching.pack([sequence(8, i) for i in range(3)], row_length=8, rows_multiple=1)
    with pytest.raises(ValueError, match="3 rows do not split into micro-batches of 2 rows"):
        batching.micro_batches(packed, 2)


def test_padding_micro_batches_are_empty():
    packed = batching.pack([sequence(8, i) for i in range(2)], row_length=8, rows_multiple=1)
    padded = batching.pad_micro_batches(batching.micro_batches(packed, 1), 5)
    assert padded.tokens.shape == (5, 1, 8)
    assert not padded.segment_ids[2:].any()
    assert not padded.weights[2:].any()
    assert (padded.sequence_ids[2:] == -1).all()
    padded.check()


def test_a_batch_of_inconsistent_shapes_fails_its_check():
    packed = batching.pack([sequence(4)], row_length=8, rows_multiple=1)
    with pytest.raises(AssertionError):
        packed.replace(weights=packed.weights[:, :4]).check()
    with pytest.raises(AssertionError):
        packed.replace(action_mask=packed.action_mask.astype(np.int32)).check()


def test_packed_masks_are_those_of_their_tokens():
    rng = np.random.default_rng(0)
    tables = [rng.integers(0, 2**32, (n, 2), dtype=np.uint32) for n in (3, 9)]
    sequences = [sequence(5, seed=0), sequence(4, seed=1), sequence(6, seed=2)]
    sequences[0] |= {"mask_ids": np.array([0, 1, 2, 3, 1]), "mask_table": tables[0]}
    sequences[2] |= {"mask_ids": np.array([0, 0, 9, 1, 5, 0]), "mask_table": tables[1]}
    packed = batching.pack(sequences, row_length=12, rows_multiple=4)
    packed.check()
    assert packed.masks.tables.shape == (4, 16, 2)
    divided = batching.pad_micro_batches(batching.micro_batches(packed, 2), 3)
    assert divided.masks.tables.shape == (3, 2, 16, 2)
    for i, values in enumerate(sequences):
        m, row, at = np.nonzero(divided.sequence_ids == i)
        found = divided.masks.tables[m, row, divided.masks.ids[m, row, at]]
        ids = values.get("mask_ids", np.zeros(len(values["tokens"]), int))
        for mask, number in zip(found, ids, strict=True):
            everything = np.full(2, 2**32 - 1, np.uint32)
            table = tables[0 if i == 0 else 1]
            np.testing.assert_array_equal(mask, table[number - 1] if number else everything)


def test_a_batch_without_masks_has_no_arrays_for_them():
    packed = batching.pack([sequence(5)], row_length=8, rows_multiple=1)
    assert packed.masks is None
    assert {x.shape for x in jax.tree.leaves(packed)} == {(1, 8)}
