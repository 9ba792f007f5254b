"""TensorBoard: event files in the run folder, `tensorboard --logdir=RUN/loggers/tensorboard`.

tensorboardX writes the format with numpy and protobuf alone, both of which we need anyway;
`flax.metrics.tensorboard` asks for TensorFlow and `torch.utils.tensorboard` for torch.
"""

from collections.abc import Mapping

import tensorboardX

from agentgym_jax.loggers.about import About


class TensorBoard:
    """Every start writes an event file of its own; TensorBoard shows them as one run."""

    def __init__(self, about: About):
        self._writer = tensorboardX.SummaryWriter(logdir=str(about.folder))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Scalars, on the disk at once: a step that was logged is not logged again."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Writes what is left."""
        self._writer.close()
