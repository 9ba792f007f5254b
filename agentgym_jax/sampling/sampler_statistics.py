"""Counters of the sampler."""

import dataclasses


@dataclasses.dataclass
class SamplerStatistics:
    """Counts since the last `reset_statistics`; the unit is tokens unless noted."""

    sampled: int = 0
    prefilled: int = 0
    copied: int = 0  # copied from another row's cache instead of computed
    decode_row_steps: int = 0  # rows of the decode calls x their decode steps
    busy_row_steps: int = 0  # of these, steps of rows that sampled
    prefill_capacity: int = 0  # positions in the prefill calls, including padding
    prefill_calls: int = 0
    seconds_decode: float = 0.0
    seconds_prefill: float = 0.0

    @property
    def occupancy(self) -> float:
        """Fraction of decode row-steps that sampled a token."""
        return self.busy_row_steps / max(1, self.decode_row_steps)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a row samples in a decode step: 1 without drafts."""
        return self.sampled / max(1, self.busy_row_steps)

    @property
    def prefill_occupancy(self) -> float:
        """Fraction of the positions of prefill calls that held a token."""
        return self.prefilled / max(1, self.prefill_capacity)
