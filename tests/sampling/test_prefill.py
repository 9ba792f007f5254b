import itertools

from hypothesis import given
from hypothesis import strategies as st

from experiments.benchmarks.bucket_lengths import choose_lengths, prefill_capacity


def test_lengths_are_the_token_counts_rounded_up():
    counts = [90] * 10 + [40] * 10
    assert choose_lengths(counts, count=2, longest=1024) == [48, 96]
    assert choose_lengths(counts, count=1, longest=1024) == [96]
    assert choose_lengths(counts, count=5, longest=1024) == [48, 96]
    assert prefill_capacity(counts, [48, 96]) == 10 * 96 + 10 * 48
    assert prefill_capacity(counts, [64]) == 10 * 128 + 10 * 64
    assert choose_lengths([200, 10], count=2, longest=128) == [16, 128]


@given(st.lists(st.integers(1, 150), min_size=1, max_size=12), st.integers(1, 3))
def test_no_other_lengths_need_less_capacity(counts, count):
    found = choose_lengths(counts, count=count, longest=112)
    assert len(found) <= count and found == sorted(set(found))
    others = [T for T in range(16, found[-1], 16)]
    for chosen in itertools.combinations(others, min(count - 1, len(others))):
        assert prefill_capacity(counts, found) <= prefill_capacity(counts, [*chosen, found[-1]])
