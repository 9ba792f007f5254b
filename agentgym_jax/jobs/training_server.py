"""Components of a server that trains a model by the calls of Tinker's API."""

import functools
import pathlib

import jax

from agentgym_jax.config.model import Model
from agentgym_jax.config.sections import ConfigError
from agentgym_jax.jobs.device_errors import device_errors
from agentgym_jax.jobs.serving import make_empty_sampler
from agentgym_jax.learner.stored_weights import fingerprint, make_adapters
from agentgym_jax.mesh.compiler_options import Compiled
from agentgym_jax.mesh.sharding import launch_lock
from agentgym_jax.models.lora import Adapters, Params
from agentgym_jax.models.policy import Policy, make_sampler_params
from agentgym_jax.runs import bucket
from agentgym_jax.runs.folder_kinds import TINKER, check_kind
from agentgym_jax.training_api.sampling import SharedSampler
from agentgym_jax.training_api.saved import SavedModels, SavedPath
from agentgym_jax.training_api.trainer import Trainer


class LocalBackend:
    """Base model in this process; implements `Backend`."""

    def __init__(
        self,
        model: Model,
        name: str,
        workdir: str,
        *,
        rows: int,
        context: int,
        micro_tokens: int,
    ):
        """Loads the weights of a model, on the devices.

        Raises:
          ConfigError: The model has no adapters, or the folder is in a bucket.
          RunFolderError: The folder belongs to another command or server, or cannot be written.
        """
        assert model.source is not None, "load_model gives every model a source"
        if model.policy.config.hybrid is not None:
            raise ConfigError(f"{name} is a Qwen3.5, which has no adapters: serve another model")
        if bucket.is_url(workdir):
            raise ConfigError(f"--workdir={workdir} is in a bucket: give a local folder")
        folder = pathlib.Path(workdir).expanduser().absolute()
        check_kind(folder, TINKER)
        self.name = name
        self._model, self._context, self._micro_tokens = model, context, micro_tokens
        with device_errors({"rows": rows, "context": context}):
            self._base = model.policy.cast_params(model.initial_params())
            sampler = make_empty_sampler(model, rows=rows, context=context)
        self.sampler = SharedSampler(sampler, model.tokenizer.decode)
        facts = fingerprint(model.source)
        self.saved = SavedModels(folder, facts, name)
        self.saved.start()

    def make_trainer(
        self, *, rank: int, alpha: float, targets: tuple[str, ...], seed: int
    ) -> Trainer:
        """Implements `Backend.make_trainer`."""
        return Trainer(
            self._model.policy,
            self._base,
            make_adapters(self._model.policy, rank=rank, alpha=alpha, targets=targets),
            seed=seed,
            context=self._context,
            micro_tokens=self._micro_tokens,
            layout=self._model.layout,
        )

    def base_params(self) -> Params:
        """Implements `Backend.base_params`."""
        return self._to_sampler(self._base)

    def sampler_params(self, adapters: Adapters, params: Params) -> Params:
        """Implements `Backend.sampler_params`; the adapters are merged into the base."""
        placed = jax.device_put(params, adapters.param_shardings(self._model.layout))
        return self._to_sampler(adapters.attach(self._base, placed))

    def read_adapters(self, path: SavedPath) -> tuple[Adapters, Params]:
        """Implements `Backend.read_adapters`."""
        found = self.saved.load_adapters(path, self._model.policy)
        return found.adapters, found.params

    def _to_sampler(self, params: Params) -> Params:
        with launch_lock:
            merged = self._convert(self._model.decode_policy, params)
        return self._model.for_sampler(merged)

    @functools.cached_property
    def _convert(self) -> Compiled[[Policy, Params], Params]:
        return make_sampler_params(self._model.spread_shardings)
