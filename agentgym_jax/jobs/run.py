"""Run of a training job: folder, console, metrics, checkpoints, and requests to stop."""

import concurrent.futures
import contextlib
import dataclasses
import importlib.metadata
import json
import math
import os
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from absl import logging

from agentgym_jax.config.sections import config_errors
from agentgym_jax.config.settings import CheckpointSettings
from agentgym_jax.learner.checkpoint import CheckpointError, Checkpoints
from agentgym_jax.learner.controller_state import ControllerState
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.mesh import processes
from agentgym_jax.models.policy import Params
from agentgym_jax.native import library
from agentgym_jax.runs import bucket, interrupts
from agentgym_jax.runs.atomic_files import folder_errors
from agentgym_jax.runs.config_differences import flatten
from agentgym_jax.runs.provenance import git_state
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry import machine
from agentgym_jax.telemetry.console import RunConsole
from agentgym_jax.telemetry.guards import History
from agentgym_jax.telemetry.loggers.logger_table import Loggers, open_loggers
from agentgym_jax.telemetry.loggers.logger_table import parse as parse_loggers
from agentgym_jax.telemetry.metrics_file import MetricWriter

_PUSH_S = 10.0  # shortest time between copies of the metrics to a bucket
# Keys that may change when a run is resumed.
ADJUSTABLE = (
    "total_steps",
    "checkpoint.*",
    "evaluation.every",
    "guards",
    "loggers",
    "learner.max_logprob_gap",
    "model.attention",
    "environments.*.url",
    "client.*",
    "pool.*",
    "judge.url",
    "judge.key_variable",
    "judge.attempts",
    "judge.timeout_s",
    "judge.workers",
    "judge.price_*",
)


class StopRequested(Exception):
    """The user requested a stop (SIGTERM, Ctrl-C, a closed terminal); the state is saved for a resumed run.

    Attributes:
      exit_status: See `StopFlag.exit_status`.
    """

    exit_status = 128 + signal.SIGTERM


class StopFlag:
    """Flag set by SIGTERM, SIGHUP and the first Ctrl-C; a second Ctrl-C ends the process at once."""

    def __init__(self) -> None:
        """Creates a flag that is not set."""
        self._is_set = False  # a handler may interrupt itself, so it must not need a lock
        self._signal = signal.SIGTERM

    def __call__(self) -> bool:
        """Returns True if a stop was requested from this process, or soon after, from another."""
        if self._is_set:
            processes.request_stop()
        elif processes.is_stop_requested():
            self._is_set = True
        return self._is_set

    @property
    def exit_status(self) -> int:
        """Exit status of the stopped command: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
        return 128 + self._signal

    def agreed(self) -> bool:
        """Returns the same answer in all processes, which must call this method together."""
        return bool(processes.broadcast(self(), "stop"))

    @contextlib.contextmanager
    def installed(self) -> Iterator["StopFlag"]:
        """Handles the signals within the block, and sets `exit_status` of a StopRequested.

        Signals reach the main thread only; in another thread nothing is handled.
        """
        if threading.current_thread() is not threading.main_thread():
            yield self
            return

        def handle(number, frame):
            if self._is_set and number == signal.SIGINT:
                interrupts.handle_second(number, frame)
            self._signal = signal.Signals(number)
            self._is_set = True
            logging.warning("%s: saving and stopping", signal.Signals(number).name)

        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            numbers.append(signal.SIGHUP)
        previous = {number: signal.signal(number, handle) for number in numbers}
        try:
            yield self
        except StopRequested as stopped:
            stopped.exit_status = self.exit_status
            raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


@dataclasses.dataclass(frozen=True)
class SampledUpdate:
    """Inputs of the episodes that were sampled during an earlier update, to sample them again.

    Attributes:
      version: Version of the weights, which is the number of steps done before the update.
      controllers: State of the controllers when the update began.
      params: Weights of the sampler; None until they are restored.
    """

    version: int
    controllers: ControllerState
    params: Params | None = None

    @property
    def weights(self) -> Params:
        """Returns the restored weights."""
        assert self.params is not None, "the job restores them before it uses them"
        return self.params


@dataclasses.dataclass(frozen=True)
class LoopState:
    """State between two steps, as saved in a checkpoint.

    Tasks and random keys are functions of the seed and the step, so they are not part of it.

    Attributes:
      step: Number of steps done.
      unlogged: Metrics of the last step until they are written; then None.
      history: History of the guards.
      behaviour: Updates during which episodes of later steps were sampled, oldest first; empty if
        no rollout runs during an update.
      stop: Message of a guard that ends the run after the last step; else None.
    """

    step: int
    state: TrainState
    unlogged: dict[str, float] | None = None
    history: History = History()
    controllers: ControllerState | None = None
    behaviour: tuple[SampledUpdate, ...] = ()
    stop: str | None = None


@dataclasses.dataclass
class Run:
    """Folder, console, metrics and checkpoints of a job.

    Attributes:
      folder: Run folder, locked for this process.
      compilations: Counter of programs compiled since the start.
      records: Thread that writes the records of episodes.
      open_sessions: Function that counts the sessions on servers; None without environments.
    """

    folder: RunFolder
    console: RunConsole
    writer: MetricWriter
    loggers: Loggers
    checkpoints: Checkpoints
    checkpoint_settings: CheckpointSettings
    total_steps: int
    seed: int
    should_stop: StopFlag
    compilations: machine.CompilationCounter
    records: concurrent.futures.ThreadPoolExecutor
    open_sessions: Callable[[], int] | None = None
    _written: concurrent.futures.Future[bucket.Folder] | None = None  # the last records
    _checkpoint_s: float = 0.0
    _shown: set[str] = dataclasses.field(default_factory=set)

    def progress(self, name: str) -> Callable[[int, int, int], None]:
        """Returns a progress callback (done, total, tokens) that shows phase `name`."""
        self.begin(name)
        started = time.perf_counter()

        def report(done: int, total: int, tokens: int) -> None:
            rate = tokens / max(1e-9, time.perf_counter() - started)
            self.console.phase(name, done, total, f"{rate:,.0f} tokens/s")

        return report

    def begin(self, name: str, total: int = 0) -> None:
        """Shows phase `name` before its first result; the first call also notes the compilation.

        From then on the folder is kept if the run fails.
        """
        self.folder.begin()
        kind = name.partition(",")[0]
        note = "" if kind in self._shown else "compiling first"
        self._shown.add(kind)
        self.console.phase(name, 0, total, note)

    def warn(self, step: int, texts: Sequence[str]) -> None:
        """Shows and logs warnings about a step."""
        for text in texts:
            self.console.note(f"step {step}: {text}")

    def log_step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes the metrics after `step` steps, and shows them; the step's records come first."""
        self.finish_records()
        line = {
            **metrics,
            "jax/compilations": float(self.compilations.count),
            "jax/compile_s": self.compilations.seconds,
            **machine.measure(self.open_sessions),
            "time/checkpoint_s": self._checkpoint_s,
        }
        self._checkpoint_s = 0.0
        values = self.writer.write(step, line)
        self.console.step(step, values)
        self.loggers.log(step, values)
        self.folder.push(_PUSH_S)

    def write_records(
        self, step: int, make_records: Callable[[], Sequence[Mapping[str, Any]]]
    ) -> None:
        """Writes the records of the training episodes of a step in a thread, after earlier ones.

        An error is raised by `log_step` or `save`.
        """
        self.finish_records()
        self._written = self.records.submit(
            lambda: self.folder.write_trajectories(step, make_records())
        )

    def finish_records(self) -> None:
        """Waits until the records are on the disk."""
        written, self._written = self._written, None
        if written is not None:
            written.result()

    def save(self, now: LoopState) -> None:
        """Saves a checkpoint, unless the step has one; returns when the devices' arrays are copied.

        Records and the metrics file reach the disk before the checkpoint. Step 0 is never saved: a run
        without a checkpoint starts again from the same weights.
        """
        if now.step == 0 or self.checkpoints.newest == now.step:
            return
        started = time.perf_counter()
        self.finish_records()
        self.console.phase("checkpoint", 0, 1)
        self.writer.sync()
        self.folder.push()
        unlogged = (now.unlogged or {}).items()
        extra = {
            "step": now.step,
            "seed": self.seed,
            # JSON has no NaN
            "unlogged": {k: v if math.isfinite(v) else None for k, v in unlogged} or None,
            "controllers": None if now.controllers is None else now.controllers.to_json(),
            "guards": now.history.to_json(),
            "behaviour": [
                {"version": update.version, "controllers": update.controllers.to_json()}
                for update in now.behaviour
            ],
            "versions": {name: importlib.metadata.version(name) for name in ("jax", "flax")},
        }
        behaviour = {str(update.version): update.weights for update in now.behaviour}
        self.checkpoints.save(now.step, now.state, extra, behaviour or None)
        self._checkpoint_s += time.perf_counter() - started

    def is_save_due(self, step: int) -> bool:
        """Returns True if the state after `step` steps must be saved."""
        return step % self.checkpoint_settings.every == 0 or step == self.total_steps

    def restore(self, abstract_state: TrainState) -> LoopState | None:
        """Returns the state of the newest checkpoint; None if there is none.

        The weights of `behaviour` are not restored.

        Removes metrics and trajectories of later steps, because the run repeats these steps.

        Raises:
          CheckpointError: The checkpoint is damaged, or was written by another run.
        """
        step = self.checkpoints.newest
        if step is None:
            self._remove_after(-1)
            return None
        self.folder.begin()
        state, extra = self.checkpoints.restore(step, abstract_state)
        if (extra["step"], extra["seed"]) != (step, self.seed):
            raise CheckpointError(
                f"checkpoint {step} of {self.folder.permanent} says step {extra['step']}, seed "
                f"{extra['seed']}; this run has seed {self.seed}. It is not a checkpoint of this run: "
                "move it out of the folder."
            )
        self._remove_after(step)
        self.console.note(f"resumed after step {step}")
        controllers, unlogged = extra["controllers"], extra["unlogged"]
        return LoopState(
            step,
            state,
            unlogged and {k: math.nan if v is None else v for k, v in unlogged.items()},
            History.from_json(extra["guards"]),
            controllers and ControllerState.from_json(controllers),
            tuple(
                SampledUpdate(update["version"], ControllerState.from_json(update["controllers"]))
                for update in extra.get("behaviour", ())  # absent in older checkpoints
            ),
        )

    def _remove_after(self, step: int) -> None:
        """Removes metrics and trajectories of later steps."""
        self.writer.truncate_after(step)
        if processes.is_writer():
            self.folder.remove_trajectories_after(step)


def device_name(device: jax.Device) -> str:
    """Returns platform and kind of a device, such as `cpu`, `gpu NVIDIA H100` or `TPU v5e`."""
    if device.device_kind.lower().startswith(device.platform):
        return device.device_kind
    return f"{device.platform} {device.device_kind}"


@contextlib.contextmanager
def open_folder(
    config: Mapping[str, Any], workdir: str, adjustable: Sequence[str]
) -> Iterator[RunFolder]:
    """Locks a run folder; if it has a run, only `adjustable` keys of the config may differ."""
    with RunFolder(workdir) as folder, contextlib.ExitStack() as stack:
        # not every part of a job expects these, for example those that write tokenizers and figures
        stack.enter_context(folder_errors(folder.path))
        devices = [device_name(device) for device in jax.devices()]
        if processes.is_writer():
            facts = library.machine() | {"processes": processes.count()}
            with config_errors():
                folder.start(config, devices=devices, machine=facts, adjustable=adjustable)
            stack.callback(folder.withdraw)
        folder.attach()
        stack.callback(folder.push)
        yield folder


def check_processes(config: Mapping[str, Any], workdir: str) -> None:
    """Checks that all processes have the same config, code and newest checkpoint.

    Raises:
      ProcessesError: Two processes differ. No file has been written yet.
    """
    if processes.count() == 1:
        return
    checkpoints, newest = RunFolder(workdir).checkpoints, None
    if checkpoints.is_dir():
        newest = Checkpoints(checkpoints, max_to_keep=1, read_only=True).latest_step()
    facts = {f"config.{key}": json.dumps(value) for key, value in flatten(config).items()}
    processes.check_equal(
        {
            "code": str(git_state(pathlib.Path(__file__).parents[1])),
            **{f"version of {p}": importlib.metadata.version(p) for p in ("jax", "flax", "optax")},
            **facts,
            "number of devices": str(jax.local_device_count()),
            "newest checkpoint": str(newest),
        }
    )


@contextlib.contextmanager
def open_run(
    config: Mapping[str, Any],
    workdir: str,
    stop: StopFlag,
    checkpoint_settings: CheckpointSettings,
    title: str,
    facts: Mapping[str, str],
) -> Iterator[Run]:
    """Opens the folder, loggers, checkpoints and console; `facts` are values of its header."""
    with config_errors("config."):
        names = parse_loggers(config["loggers"])
    check_processes(config, workdir)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(open_folder(config, workdir, ADJUSTABLE))
        compilations = machine.CompilationCounter()
        checkpoints = stack.enter_context(
            Checkpoints(
                folder.checkpoints,
                max_to_keep=checkpoint_settings.max_to_keep,
                keep_every=checkpoint_settings.keep_every or None,
            )
        )
        devices = f"{jax.device_count()} x {device_name(jax.devices()[0])}"
        if processes.count() > 1:
            devices += f" in {processes.count()} processes"
        header = {**facts, "devices": devices, "workdir": str(folder.permanent)}
        # Process 0 shows the progress and writes the metrics of all.
        stream, is_writer = None, processes.is_writer()
        if not is_writer:
            stream, names = stack.enter_context(open(os.devnull, "w", encoding="utf-8")), ()
        total_steps, first_step = config["total_steps"], checkpoints.newest or 0
        console = stack.enter_context(
            RunConsole(title, header, total_steps, first_step=first_step, stream=stream)
        )
        writer = stack.enter_context(MetricWriter(folder.metrics_path, is_enabled=is_writer))
        loggers = stack.enter_context(open_loggers(names, folder, config))
        records = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1, "records"))
        yield Run(
            folder=folder,
            console=console,
            writer=writer,
            loggers=loggers,
            checkpoints=checkpoints,
            checkpoint_settings=checkpoint_settings,
            total_steps=total_steps,
            seed=config["seed"],
            should_stop=stop,
            compilations=compilations,
            records=records,
        )
