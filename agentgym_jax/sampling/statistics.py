"""What the sampler counts."""

import dataclasses


@dataclasses.dataclass
class SamplerStatistics:
    """Counts since the last `reset_statistics`; unit tokens unless said."""

    sampled: int = 0
    ingested: int = 0
    copied: int = 0  # taken from another row's cache instead of computed
    decode_row_steps: int = 0  # rows x decode steps that were run
    active_row_steps: int = 0  # of these, with an active row
    ingest_places: int = 0  # n x T of the ingest calls, filling included
    decode_calls: int = 0
    ingest_calls: int = 0
    seconds_decode: float = 0.0
    seconds_ingest: float = 0.0

    @property
    def occupancy(self) -> float:
        """Share of the decode row-steps that sampled a token."""
        return self.active_row_steps / max(1, self.decode_row_steps)

    @property
    def ingest_occupancy(self) -> float:
        """Share of the places of the ingest calls that held a token."""
        return self.ingested / max(1, self.ingest_places)
