"""State of the server: sessions of clients, the model in training, and sampling sessions."""

import collections
import dataclasses
import functools
import itertools
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import jax
import numpy as np

from agentgym_jax.models.lora import Adapters, Params
from agentgym_jax.serving.requests import RequestError
from agentgym_jax.training_api import tinker_wire
from agentgym_jax.training_api.futures import Future, Ordered, Result, Results, Worker
from agentgym_jax.training_api.sampling import SharedSampler
from agentgym_jax.training_api.saved import SAMPLER_WEIGHTS, WEIGHTS, SavedModels, SavedPath
from agentgym_jax.training_api.trainer import ALPHA, AdamOptions, Trainer, make_trainer_targets

SESSION_S = 60.0  # a session without a heartbeat for this time has ended, in seconds
_MAX_SESSIONS = 1024
_MAX_SAMPLERS = 4096  # sampling sessions
_MAX_SNAPSHOTS = 16  # unnamed weights for sampling that are kept


class Backend(Protocol):
    """The served base model."""

    name: str
    sampler: SharedSampler
    saved: SavedModels

    def make_trainer(
        self, *, rank: int, alpha: float, targets: tuple[str, ...], seed: int
    ) -> Trainer:
        """Returns new adapters of the base."""

    def base_params(self) -> Any:
        """Returns the weights of the base for the sampler."""

    def sampler_params(self, adapters: Adapters, params: Params) -> Any:
        """Returns weights for the sampler, given adapters on the host."""

    def read_adapters(self, path: SavedPath) -> tuple[Adapters, Params]:
        """Loads saved adapters; raises RequestError if there are none."""


@dataclasses.dataclass
class _Run:
    """The model in training."""

    name: str
    session: str
    trainer: Trainer
    calls: Ordered


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Sampling session: the name of its weights, and the saved path, if they have one."""

    name: str
    key: tuple[str, ...]
    path: str | None = None

    @property
    def source(self) -> str | tuple[str, ...]:
        """Returns the origin of the weights: the saved path, or the key."""
        return self.path or self.key


def sample_name(body: tinker_wire.SampleRequest) -> str:
    """Returns the name of the result of asample."""
    return f"{body.sampling_session_id}:{body.seq_id}"


def _session_of(call: str) -> str:
    """Returns the session that a call, a model or a sampling session belongs to."""
    return call.partition(":")[0]


class Service:
    """Calls of all clients; a context manager, which stops the threads at its end."""

    def __init__(self, backend: Backend):
        self.backend = backend
        self.results = Results()
        self._worker = Worker()
        self._lock = threading.RLock()
        self._sessions: dict[str, float] = {}  # time of the last heartbeat
        self._run: _Run | None = None
        self._is_creating = False
        self._samplers: collections.OrderedDict[str, Sampling] = collections.OrderedDict()
        self._snapshots: collections.OrderedDict[tuple[str, ...], Any] = collections.OrderedDict()
        self._numbers = itertools.count()

    def __enter__(self) -> "Service":
        self._worker.__enter__()
        self.backend.sampler.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.backend.sampler.__exit__(*error)
        self._worker.__exit__(*error)

    def check(self) -> None:
        """Fails calls that wait in vain, and samples of clients that are gone.

        Raises the error that ended the sampler, if any.
        """
        run = self._run
        if run is not None:
            run.calls.expire()
        self.backend.sampler.cancel(lambda call: not self._is_alive(_session_of(call)))
        self.backend.sampler.check()

    # Sessions

    def open_session(self) -> str:
        """Returns the name of a new session of a client."""
        with self._lock:
            for name in [n for n in self._sessions if not self._is_alive(n)]:
                del self._sessions[name]
            if len(self._sessions) >= _MAX_SESSIONS:
                raise RequestError(f"{_MAX_SESSIONS} sessions are open; close some", "overloaded")
            name = secrets.token_hex(8)
            self._sessions[name] = time.monotonic()
            return name

    def beat(self, session: str) -> None:
        """Records a sign of life of a session."""
        with self._lock:
            self._check_session(session)
            self._sessions[session] = time.monotonic()

    def close_session(self, session: str) -> None:
        """Ends a session; its model may be replaced by another client's."""
        with self._lock:
            self._sessions.pop(session, None)

    def see(self, call: str) -> None:
        """Records a sign of life of the client that made a call."""
        with self._lock:
            if (session := _session_of(call)) in self._sessions:
                self._sessions[session] = time.monotonic()

    def _is_alive(self, session: str) -> bool:
        last = self._sessions.get(session)
        return last is not None and time.monotonic() - last < SESSION_S

    def _check_session(self, session: str) -> None:
        if session not in self._sessions:
            raise RequestError(
                f"there is no session {session[:100]!r}: it has ended, or the server has restarted; "
                "make a new ServiceClient",
                "not_found",
                "session_id",
            )

    # Models

    def create_model(self, body: tinker_wire.CreateModelRequest, future: "Future[Result]") -> str:
        """Makes new adapters in the background; returns the name of the model."""
        self._check_base(body.base_model)
        config = body.lora_config
        if config is None:
            raise RequestError(
                "this server trains adapters only: give lora_config, as create_lora_training_client "
                "does",
                param="lora_config",
            )
        targets = make_trainer_targets(train_attn=config.train_attn, train_mlp=config.train_mlp)
        seed = secrets.randbits(31) if config.seed is None else config.seed % 2**63
        make = functools.partial(
            self.backend.make_trainer, rank=config.rank, alpha=ALPHA, targets=targets, seed=seed
        )
        return self._create(body.session_id, body.model_seq_id, make, future, "create_model")

    def create_from_state(self, body: tinker_wire.LoadRequest, future: "Future[Result]") -> str:
        """Makes adapters from saved weights in the background; returns the name of the model."""
        if body.base_model is not None:
            self._check_base(body.base_model)
        path = SavedPath.parse(body.path, WEIGHTS)
        facts = self.backend.saved.describe(path)

        def make() -> Trainer:
            trainer = self.backend.make_trainer(**facts, seed=0)
            self._load(trainer, path, keep_optimizer=body.optimizer)
            return trainer

        if body.session_id is None or body.model_seq_id is None:
            raise RequestError(
                "load_weights needs model_id and seq_id, or session_id and model_seq_id"
            )
        return self._create(body.session_id, body.model_seq_id, make, future, "load_weights")

    def _create(
        self,
        session: str,
        number: int,
        make: Callable[[], Trainer],
        future: "Future[Result]",
        kind: str,
    ) -> str:
        name = f"{session}:train:{number}"
        with self._lock:
            self._check_session(session)
            run = self._run
            is_other = run is not None and run.session != session and self._is_alive(run.session)
            if self._is_creating or is_other:
                owner = "a client is making one" if run is None else f"{run.name} is in training"
                raise RequestError(
                    f"this server trains one model at a time, and {owner}: end its client with "
                    "ServiceClient.close, or start another server; the place of a client that has "
                    f"ended without close is free {SESSION_S:g} s after its last heartbeat",
                    "busy",
                )
            self._is_creating = True
            self._drop_run(f"{name} has taken its place")

        def work() -> Result:
            try:
                trainer = make()
                with self._lock:
                    calls = Ordered(self._worker, name)
                    self._run = _Run(name, session, trainer, calls)
            finally:
                self._is_creating = False
            return {"type": kind, "model_id": name, "path": None}

        self._worker.submit(work, future)
        return name

    def unload(self, model: str) -> Result:
        """Ends the training of a model; its saved weights remain."""
        with self._lock:
            self._find(model)
            self._drop_run("the model was unloaded")
        return {"model_id": model, "type": "unload_model"}

    def _drop_run(self, reason: str) -> None:
        if self._run is not None:
            self._run.calls.close(f"{self._run.name}: {reason}; make a new client")
            self._run = None

    def _find(self, model: str) -> _Run:
        run = self._run
        if run is None or run.name != model:
            raise RequestError(
                f"there is no model {model[:200]!r} in training: it was never made (call create_model "
                "first), its client has ended, or the server has restarted; make a new client, such as "
                "from a saved state",
                "out_of_order" if run is None else "not_found",
                "model_id",
            )
        return run

    def describe(self, model: str) -> dict[str, Any]:
        """Returns the body of get_info."""
        run = self._find(model)
        return {
            "type": "get_info",
            "model_data": {"model_name": self.backend.name, "tokenizer_id": self.backend.name},
            "model_id": model,
            "is_lora": True,
            "lora_rank": run.trainer.adapters.rank,
            "model_name": self.backend.name,
        }

    def _check_base(self, name: str) -> None:
        if name != self.backend.name:
            raise RequestError(
                f"base_model {name[:200]!r} is not served; this server has {self.backend.name!r}: use "
                "that name, or start the server with another --model",
                "not_found",
                "base_model",
            )

    # Calls of the model in training

    def forward_backward(self, body: tinker_wire.ForwardBackward, future: "Future[Result]") -> None:
        """Adds a gradient, or only computes the loss."""

        def work(run: _Run) -> Result:
            result = run.trainer.forward_backward(
                body.data, body.loss_fn, body.options, forward_only=body.forward_only
            )
            return tinker_wire.forward_backward_output(result.logprobs, result.metrics)

        self._submit(body.model_id, body.seq_id, work, future)

    def optim_step(self, body: tinker_wire.OptimStepRequest, future: "Future[Result]") -> None:
        """Takes an optimiser step."""
        options = AdamOptions(**body.adam_params.model_dump(exclude={"type"}))

        def work(run: _Run) -> Result:
            return {"metrics": run.trainer.step(options)}

        self._submit(body.model_id, body.seq_id, work, future)

    def save(self, body: tinker_wire.SaveRequest, future: "Future[Result]") -> None:
        """Saves weights and optimiser."""
        path = SavedPath(body.model_id, WEIGHTS, body.path).checked()

        def work(run: _Run) -> Result:
            trainer = run.trainer
            self.backend.saved.save_state(
                path, trainer.adapters, trainer.state, overwrite=body.overwrite
            )
            return {"path": str(path), "type": "save_weights"}

        self._submit(body.model_id, body.seq_id, work, future)

    def load(self, body: tinker_wire.LoadRequest, future: "Future[Result]") -> None:
        """Loads saved weights into the model in training, and drops its gradient."""
        path = SavedPath.parse(body.path, WEIGHTS)
        assert body.model_id is not None

        def work(run: _Run) -> Result:
            self._load(run.trainer, path, keep_optimizer=body.optimizer)
            return {"path": str(path), "model_id": run.name, "type": "load_weights"}

        self._submit(body.model_id, body.seq_id, work, future)

    def _load(self, trainer: Trainer, path: SavedPath, *, keep_optimizer: bool) -> None:
        saved = self.backend.saved
        saved.describe(path)  # checks the base
        state = saved.load_state(path, trainer.abstract_state())
        trainer.replace_state(state, keep_optimizer=keep_optimizer)

    def save_for_sampler(
        self, body: tinker_wire.SaveForSamplerRequest, future: "Future[Result]"
    ) -> None:
        """Saves weights under a name, or keeps them in memory for a new sampling session."""
        if body.kind != "snapshot":
            raise RequestError(
                "inflight sampling is not supported; use save_weights_and_get_sampling_client with "
                "kind='snapshot' after each step",
                param="kind",
            )
        path = None
        if body.path is not None:
            path = SavedPath(body.model_id, SAMPLER_WEIGHTS, body.path).checked()
        elif body.sampling_session_seq_id is None:
            raise RequestError("give path or sampling_session_seq_id", param="path")

        def work(run: _Run) -> Result:
            adapters = run.trainer.adapters
            params = jax.tree.map(np.asarray, run.trainer.state.params)
            if path is not None:
                self.backend.saved.save_adapters(path, adapters, params)
                return {"path": str(path), "type": "save_weights_for_sampler"}
            name = f"{run.session}:sample:{body.sampling_session_seq_id}"
            key = ("snapshot", str(next(self._numbers)))
            with self._lock:
                self._add_sampler(Sampling(name, key))
                self._snapshots[key] = adapters, params
                while len(self._snapshots) > _MAX_SNAPSHOTS:
                    self._snapshots.popitem(last=False)
            return {"sampling_session_id": name, "type": "save_weights_for_sampler"}

        self._submit(body.model_id, body.seq_id, work, future)

    def _submit(
        self,
        model: str,
        number: int | None,
        work: Callable[[_Run], Result],
        future: "Future[Result]",
    ) -> None:
        if not number:
            raise RequestError(
                "seq_id is missing: number the calls of a model 1, 2, 3", "out_of_order"
            )
        with self._lock:
            run = self._find(model)
            self._sessions[run.session] = time.monotonic()
        run.calls.submit(number, functools.partial(work, run), future)

    def skip(self, model: str | None, number: int | None) -> None:
        """Lets later calls of a model run without call `number`, which was refused.

        The SDK counts on after a refusal.
        """
        run = self._run
        if run is not None and run.name == model and number:
            run.calls.skip(number)

    # Sampling

    def create_sampler(self, body: tinker_wire.SamplingSessionRequest) -> str:
        """Returns the name of a new sampling session with saved weights, or with those of the base."""
        name = f"{body.session_id}:sample:{body.sampling_session_seq_id}"
        if body.base_model is not None:
            self._check_base(body.base_model)
        sampling = Sampling(name, ("base",))
        if body.model_path is not None:
            path = SavedPath.parse(body.model_path, SAMPLER_WEIGHTS)
            self.backend.read_adapters(path)  # checks that it can be loaded
            sampling = Sampling(name, ("path", str(path), str(next(self._numbers))), str(path))
        elif body.base_model is None:
            raise RequestError("give base_model or model_path", param="model_path")
        with self._lock:
            self._check_session(body.session_id)
            self._add_sampler(sampling)
        return name

    def _add_sampler(self, sampling: Sampling) -> None:
        """Adds a session; one that is created again, with the same weights, stays as it is."""
        known = self._samplers.get(sampling.name)
        if known is not None:
            if known.source == sampling.source:
                return
            raise RequestError(
                f"{sampling.name} is an earlier sampling session with other weights: number the sampling "
                "sessions of a client 1, 2, 3, or make a new client",
                "out_of_order",
                "sampling_session_seq_id",
            )
        self._samplers[sampling.name] = sampling
        if len(self._samplers) > _MAX_SAMPLERS:
            self._samplers.popitem(last=False)

    def sampler(self, name: str) -> Sampling:
        """Returns a sampling session; raises RequestError if there is none."""
        with self._lock:
            if name not in self._samplers:
                raise RequestError(
                    f"there is no sampling session {name[:200]!r}: it was never made, or the server has "
                    "restarted; make a new sampling client",
                    "out_of_order",
                    "sampling_session_id",
                )
            return self._samplers[name]

    def sample(self, body: tinker_wire.SampleRequest, future: "Future[Result]") -> None:
        """Samples with the weights of a sampling session."""
        assert body.sampling_session_id is not None
        sampling = self.sampler(body.sampling_session_id)
        self.beat(_session_of(sampling.name))
        load = functools.partial(self._load_for_sampler, sampling)
        name = sample_name(body)
        self.backend.sampler.submit(name, sampling.key, load, body, future)

    def cancel(self, call: str) -> None:
        """Cancels a sample; other calls, and those that are done, go on."""
        self.backend.sampler.cancel(lambda name: name == call)

    def _load_for_sampler(self, sampling: Sampling) -> Any:
        if sampling.key == ("base",):
            return self.backend.base_params()
        if sampling.path is not None:
            path = SavedPath.parse(sampling.path, SAMPLER_WEIGHTS)
            return self.backend.sampler_params(*self.backend.read_adapters(path))
        with self._lock:
            snapshot = self._snapshots.get(sampling.key)
        if snapshot is None:
            raise RequestError(
                f"the weights of {sampling.name} are gone: the server keeps {_MAX_SNAPSHOTS} unnamed "
                "ones; save weights under a name (save_weights_for_sampler) to keep them",
                "not_found",
            )
        return self.backend.sampler_params(*snapshot)
