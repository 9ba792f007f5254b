"""Logger for TensorBoard: event files in the run folder, for `tensorboard
--logdir=RUN/loggers/tensorboard`.

tensorboardX needs only numpy and protobuf, which this project requires anyway.
`flax.metrics.tensorboard` requires TensorFlow and `torch.utils.tensorboard` requires torch.
"""

from collections.abc import Mapping

import tensorboardX

from agentgym_jax.telemetry.loggers.about import About


class TensorBoard:
    """Logger for TensorBoard.

    Every start of a run writes a separate event file; TensorBoard shows the files as one run.
    """

    def __init__(self, about: About):
        self._writer = tensorboardX.SummaryWriter(logdir=str(about.folder))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Writes scalars and flushes them to the disk, because a logged step is not logged again."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Writes the remaining records."""
        self._writer.close()
