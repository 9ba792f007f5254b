r"""Serves a model to programs that talk to an OpenAI-compatible endpoint.

  python -m agentgym_jax.serve --model=runs/textcraft --port=8000
  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \
      -d '{"messages": [{"role": "user", "content": "Hello"}]}'

The model is a run folder (its latest checkpoint), a Hugging Face directory or hub id. Routes and
fields are listed in docs/serving.md.
"""

import os
import signal
import sys
import threading

from absl import app, flags

from agentgym_jax.jobs.config.model import Model, ModelSettings, build_layouts, resolve_source
from agentgym_jax.jobs.config.sections import ConfigError
from agentgym_jax.models.policy import Policy
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.sampling.sampler import Sampler
from agentgym_jax.serving.app import make_app
from agentgym_jax.serving.backend import ModelBackend
from agentgym_jax.serving.engine import Engine
from agentgym_jax.serving.http_server import HttpServer
from agentgym_jax.serving.requests import Sampling
from agentgym_jax.sharding import reshard, rewrap
from agentgym_jax.startup import USER_ERRORS, launch, prepare
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.tokenizer import load_tokenizer
from agentgym_jax.text.tool_chat import ToolChat

_MODEL = flags.DEFINE_string("model", None, "Run folder, Hugging Face directory or hub id.")
_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on.")
_PORT = flags.DEFINE_integer("port", 8000, "Port to listen on; 0 for any free port.", 0, 65535)
_ROWS = flags.DEFINE_integer("rows", 16, "Maximum number of concurrent answers.", 1)
_CONTEXT = flags.DEFINE_integer("context", 4096, "Maximum tokens of a conversation.", 16)
_WAITING = flags.DEFINE_integer("max_waiting", 256, "Requests that may wait; more get 429.", 0)
_DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float32"], "Type of the weights.")
_TENSOR = flags.DEFINE_integer("tensor", 1, "Number of devices that share a layer.", 1)
_STEPS = flags.DEFINE_integer("decode_steps", 16, "Tokens per decode call.", 1)
_TOKEN = flags.DEFINE_string(
    "token_variable", "", "Environment variable with a bearer token that requests need."
)
_BUCKETS = ((64, 8), (256, 4), (1024, 2))
_KNOWN_PER_ROW = 8  # conversations per row that can be continued


def load_model(name: str, *, dtype: str = "bfloat16", tensor: int = 1) -> Model:
    """Loads tokenizer and shapes of a model; its weights are loaded by `initial_params`.

    Raises:
      ConfigError: There is no such model, or it has no tokenizer.
    """
    source = resolve_source(
        ModelSettings(source=name, dtype=dtype, decode_dtype=dtype, remat="none")
    )
    if source is None or source.tokenizer_path is None:
        raise ConfigError(f"--model={name} has no tokenizer; give a run folder or a directory")
    try:
        tokenizer = load_tokenizer(source.tokenizer_path)
        renderer = ChatRenderer(tokenizer)
    except (ValueError, OSError) as error:
        raise ConfigError(f"--model={name}: {error}") from error
    mesh = dict(data=1, fsdp=-1, tensor=tensor, decode_tensor=tensor)
    layout, decode_layout = build_layouts(mesh)
    return Model(
        policy=Policy(source.config, dtype=dtype, layout=layout),
        decode_policy=Policy(source.config, dtype=dtype, layout=decode_layout),
        layout=layout,
        decode_layout=decode_layout,
        tokenizer=tokenizer,
        renderer=renderer,
        source=source,
    )


def make_sampler(model: Model, *, rows: int, context: int, decode_steps: int = 16) -> Sampler:
    """Returns a sampler with the model's weights; rows are rounded up to divide over devices."""
    layout = model.decode_layout
    shards = 1 if layout is None else layout.shards("batch")
    sampler = Sampler(
        model.decode_policy,
        rows=-(-rows // shards) * shards,
        cache_length=context,
        buckets=[b for b in _BUCKETS if b[0] <= context] or [(context, 1)],
        decode_steps=decode_steps,
        return_after_finished=1,
        stop_ids=model.renderer.stop_ids,
    )
    params = reshard(model.initial_params(0), model.spread_shardings, model.decode_policy.dtype)
    if layout is not None:
        params = rewrap(params, model.decode_policy.param_shardings(layout))
    sampler.set_params(params, version=0)
    return sampler


def make_backend(model: Model, sampler: Sampler, name: str, *, max_waiting: int) -> ModelBackend:
    """Returns the backend of a model and its engine, which does not run yet."""
    context = sampler.cache_length
    return ModelBackend(
        Engine(sampler, model.tokenizer.decode, max_waiting=max_waiting),
        ToolChat(model.renderer, model.tokenizer),
        model.tokenizer,
        SamplingOptions(temperature=1.0, max_turn_tokens=context, max_tokens=context),
        model_name=name,
        max_known=_KNOWN_PER_ROW * sampler.rows,
    )


def main(argv: list[str]) -> int:
    """Serves until SIGINT or SIGTERM; returns the exit status."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}; flags start with --")
    prepare()
    try:
        token = _read_token()
        model = load_model(_MODEL.value, dtype=_DTYPE.value, tensor=_TENSOR.value)
        sampler = make_sampler(
            model, rows=_ROWS.value, context=_CONTEXT.value, decode_steps=_STEPS.value
        )
    except (*USER_ERRORS, ValueError) as error:
        sys.stderr.write(f"\nagentgym_jax.serve: {error}\n")
        return 1
    backend = make_backend(model, sampler, _MODEL.value, max_waiting=_WAITING.value)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with backend.engine.running():
        _warm_up(backend)
        try:
            server = HttpServer(make_app(backend, token=token), _HOST.value, _PORT.value)
        except OSError as error:
            sys.stderr.write(
                f"\nagentgym_jax.serve: --host={_HOST.value} --port={_PORT.value}: {error}\n"
            )
            return 1
        with server:
            sys.stdout.write(f"serving {_MODEL.value} at {server.url}/v1\n")
            sys.stdout.flush()
            while not stopped.wait(1.0):
                backend.engine.check()
    return 0


def _read_token() -> str:
    """Returns the bearer token; empty for none."""
    if not _TOKEN.value:
        return ""
    token = os.environ.get(_TOKEN.value, "")
    if not token:
        raise ConfigError(f"--token_variable={_TOKEN.value}: the variable is not set or empty")
    return token


def _warm_up(backend: ModelBackend) -> None:
    """Compiles the programs before the first request."""
    prompt = [0] * min(2, backend.context_length - 2)
    backend.chat(None).submit_tokens(prompt, Sampling(max_tokens=2)).result.result()


if __name__ == "__main__":
    launch(main, "model")
