"""What every training job has: folder, console, metrics, checkpoints, and a way to stop."""

import contextlib
import dataclasses
import importlib.metadata
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from absl import logging

from agentgym_jax.compilations import CompilationCounter
from agentgym_jax.console import RunConsole, format_count
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.loggers.table import Loggers, open_loggers
from agentgym_jax.loggers.table import parse as parse_loggers
from agentgym_jax.metrics_file import MetricWriter
from agentgym_jax.native import library
from agentgym_jax.run import monitor
from agentgym_jax.run.environments import Environments
from agentgym_jax.run.sections import ConfigError
from agentgym_jax.run.settings import CheckpointSettings
from agentgym_jax.run_folder import RunFolder

# What a later start of the same run may change without becoming another run.
ADJUSTABLE = (
    "total_steps",
    "checkpoint.*",
    "evaluation.every",
    "guards.*",
    "loggers",
    "learner.max_logprob_gap",
    "environments.*.url",
    "client.*",
    "pool.*",
)


class StopRequested(Exception):
    """The run was asked to stop (SIGTERM, Ctrl-C); its state is saved and can be resumed."""


class StopFlag:
    """Set by SIGTERM and by the first Ctrl-C; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        """Not set."""
        self._event = threading.Event()
        self._signal = signal.SIGTERM

    def __call__(self) -> bool:
        """Whether to stop at the next safe point."""
        return self._event.is_set()

    @property
    def exit_status(self) -> int:
        """Exit status of a process that stopped at the signal: 130 or 143, as shells count."""
        return 128 + self._signal

    @contextlib.contextmanager
    def installed(self) -> Iterator["StopFlag"]:
        """Handles the signals while the block lasts; only the main thread may."""
        previous = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)}

        def handle(number, frame):
            if self._event.is_set() and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._signal = signal.Signals(number)
            self._event.set()
            logging.warning("%s: saving and stopping", signal.Signals(number).name)

        for number in previous:
            signal.signal(number, handle)
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


@dataclasses.dataclass
class Run:
    """The host side of a job.

    Attributes:
      folder: the run folder, locked.
      console: what a person sees.
      writer: metrics.jsonl.
      loggers: where metrics go beside it.
      checkpoints: complete states.
      checkpoint_settings: when to save.
      total_steps: of the job.
      seed: of everything random.
      should_stop: polled at safe points.
      compilations: counted since the start.
      restored_memory: saved with the checkpoint that was restored; None without one.
      restored_guards: the same, of the guards.
      open_sessions: counts those on environment servers; None without environments.
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
    compilations: CompilationCounter
    restored_memory: dict[str, Any] | None = None
    restored_guards: dict[str, Any] | None = None
    open_sessions: Callable[[], int] | None = None
    _checkpoint_s: float = 0.0
    _begun: set[str] = dataclasses.field(default_factory=set)

    def watch(self, environments: Environments) -> None:
        """From now on the sessions on these servers are counted."""
        self.open_sessions = lambda: environments.pool.open_sessions

    def progress(self, name: str) -> Callable[[int, int, int], None]:
        """A progress callback (done, total, tokens) that shows phase `name` on the console."""
        self.begin(name)
        started = time.perf_counter()

        def report(done: int, total: int, tokens: int) -> None:
            rate = tokens / max(1e-9, time.perf_counter() - started)
            self.console.phase(name, done, total, f"{rate:,.0f} tokens/s")

        return report

    def begin(self, name: str, total: int = 0) -> None:
        """Shows phase `name` before its first result, with why the first time takes long."""
        kind = name.partition(",")[0]
        note = "" if kind in self._begun else "compiling first"
        self._begun.add(kind)
        self.console.phase(name, 0, total, note)

    def show_size(self, parameters: int) -> None:
        """Adds the size of the policy to the header of the console."""
        self.console.fact("parameters", format_count(parameters))

    def warn(self, step: int, texts: Sequence[str]) -> None:
        """Notes on the console, which a log holds as well, what is wrong with a step."""
        for text in texts:
            self.console.note(f"step {step}: {text}")

    def log_step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes the line of a step and shows it; `step` steps are done."""
        line = {**metrics, **self._machine(), "time/checkpoint_s": self._checkpoint_s}
        self._checkpoint_s = 0.0
        values = self.writer.write(step, line)
        self.console.step(step, values)
        self.loggers.log(step, values)

    def save(
        self,
        step: int,
        state: TrainState,
        unlogged: Mapping[str, float] | None = None,
        *,
        memory: Mapping[str, Any] | None = None,
        guards: Mapping[str, Any] | None = None,
        behaviour: Any = None,
    ) -> None:
        """Saves everything a resumed run needs; waits only for the copy off the devices.

        Tasks and keys are functions of the seed and the step, so the host's part is these two
        numbers and the memory. The log is on disk before the checkpoint that follows it. Step 0 is
        never saved: without a checkpoint a run begins again, from the same weights.

        Args:
          step: steps done.
          state: after them.
          unlogged: metrics of this step, if the run stops before their line could be written.
          memory: JSON object of what adapts from step to step (learner/memory.py).
          guards: JSON object of what they remember (training/guards.py).
          behaviour: weights that play the next step, if they are not those of the state.
        """
        if step == 0 or self.checkpoints.latest_step() == step:
            return
        started = time.perf_counter()
        self.console.phase("checkpoint", 0, 1)
        self.writer.sync()
        extra = {
            "step": step,
            "seed": self.seed,
            "unlogged": None if unlogged is None else dict(unlogged),
            "memory": None if memory is None else dict(memory),
            "guards": None if guards is None else dict(guards),
            "versions": {name: importlib.metadata.version(name) for name in ("jax", "flax")},
        }
        self.checkpoints.save(step, state, extra, behaviour)
        self._checkpoint_s += time.perf_counter() - started

    def is_save_due(self, step: int) -> bool:
        """Whether the state after `step` steps is saved."""
        return step % self.checkpoint_settings.every == 0 or step == self.total_steps

    def restore(
        self, abstract_state: TrainState
    ) -> tuple[TrainState, int, dict[str, float] | None] | None:
        """State of the newest checkpoint, its step, its unlogged metrics; None if there is none.

        Log lines and trajectories of later steps are removed: they will be made again. The
        memory of the step is then in `restored_memory`, that of its guards in `restored_guards`.
        """
        step = self.checkpoints.latest_step()
        if step is None:
            self.writer.truncate_after(-1)
            self.folder.remove_trajectories_after(-1)
            return None
        state, extra = self.checkpoints.restore(step, abstract_state)
        if (extra["step"], extra["seed"]) != (step, self.seed):
            raise ValueError(
                f"checkpoint {step} of {self.folder.path} says step {extra['step']}, seed "
                f"{extra['seed']}; this run has seed {self.seed}. It is not a checkpoint of this run."
            )
        self.writer.truncate_after(step)
        self.folder.remove_trajectories_after(step)
        self.console.note(f"resumed after step {step}")
        self.restored_memory, self.restored_guards = extra["memory"], extra["guards"]
        return state, step, extra["unlogged"]

    def _machine(self) -> dict[str, float]:
        return {
            "jax/compilations": float(self.compilations.count),
            "jax/compile_s": self.compilations.seconds,
            **monitor.measure(self.open_sessions),
        }


def device_name(device: jax.Device) -> str:
    """`cpu`, `gpu NVIDIA H100`, `TPU v5e`: platform and kind, without saying one twice."""
    if device.device_kind.lower().startswith(device.platform):
        return device.device_kind
    return f"{device.platform} {device.device_kind}"


@contextlib.contextmanager
def open_run(
    config: Mapping[str, Any],
    workdir: str,
    *,
    checkpoint_settings: CheckpointSettings,
    total_steps: int,
    title: str,
    facts: Mapping[str, str],
    stop: StopFlag,
) -> Iterator[Run]:
    """Takes the run folder, checks that it is the same run, opens its parts, closes them at the end."""
    devices = [device_name(device) for device in jax.devices()]
    try:
        names = parse_loggers(config["loggers"])
    except ValueError as error:
        raise ConfigError(f"config.{error}") from error
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(RunFolder(workdir))
        try:
            folder.start(config, devices=devices, machine=library.machine(), adjustable=ADJUSTABLE)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        stack.callback(folder.withdraw)
        compilations = CompilationCounter()
        checkpoints = stack.enter_context(
            Checkpoints(
                folder.checkpoints,
                max_to_keep=checkpoint_settings.max_to_keep,
                keep_every=checkpoint_settings.keep_every or None,
            )
        )
        console = stack.enter_context(
            RunConsole(
                title,
                {**facts, "devices": f"{len(devices)} x {devices[0]}", "workdir": str(folder.path)},
                total_steps,
                first_step=checkpoints.latest_step() or 0,
            )
        )
        writer = stack.enter_context(MetricWriter(folder.metrics_path))
        loggers = stack.enter_context(open_loggers(names, folder, config))
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
        )
