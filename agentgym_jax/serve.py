r"""Serves a model to programs that talk to an endpoint of OpenAI or Anthropic.

  python -m agentgym_jax.serve --model=runs/textcraft --port=8000
  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \
      -d '{"messages": [{"role": "user", "content": "Hello"}]}'

The model is a run folder (its latest checkpoint), a Hugging Face directory or hub id. Routes and
fields are listed in docs/serving.md.
"""

if __name__ == "__main__":  # before JAX is imported
    from agentgym_jax.runs import interrupts

    interrupts.install()

import sys

from absl import flags

from agentgym_jax.api import USER_ERRORS
from agentgym_jax.checks.web_access import read_token
from agentgym_jax.cli.command_setup import prepare
from agentgym_jax.cli.startup import given, launch
from agentgym_jax.config.model import CACHE_DTYPES, COMPUTED
from agentgym_jax.jobs.serving import load_model, make_backend, make_sampler
from agentgym_jax.runs import interrupts
from agentgym_jax.sampling.sampler import MAX_DRAFT_TOKENS
from agentgym_jax.serving.app import make_app
from agentgym_jax.serving.http_server import HttpServer, check_free
from agentgym_jax.text.tool_chat import REASONING_PARSERS, TOOL_PARSERS

_MODEL = flags.DEFINE_string("model", None, "Run folder, Hugging Face directory or hub id.")
_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on.")
_PORT = flags.DEFINE_integer("port", 8000, "Port to listen on; 0 for any free port.", 0, 65535)
_ROWS = flags.DEFINE_integer("rows", 16, "Maximum number of concurrent answers.", 1)
_CONTEXT = flags.DEFINE_integer("context", 4096, "Maximum tokens of a conversation.", 16)
_WAITING = flags.DEFINE_integer("max_waiting", 256, "Requests that may wait; more get 429.", 0)
_DTYPE = flags.DEFINE_enum(
    "dtype", "bfloat16", ["bfloat16", "float32", "int8"], "Type of the weights."
)
_CACHE_DTYPE = flags.DEFINE_enum(
    "cache_dtype",
    COMPUTED,
    CACHE_DTYPES,
    "Type of the cache; computed: that of the computation. int8 halves it.",
)
_TENSOR = flags.DEFINE_integer("tensor", 1, "Number of devices that share a layer.", 1)
_STEPS = flags.DEFINE_integer("decode_steps", 16, "Decode steps per call.", 1)
_DRAFTS = flags.DEFINE_integer(
    "draft_tokens",
    0,
    "Tokens that are proposed from earlier ones and checked in each decode step.",
    0,
    MAX_DRAFT_TOKENS,
)
_TOOLS = flags.DEFINE_enum(
    "tool_parser",
    "auto",
    list(TOOL_PARSERS),
    "Form of tool calls; auto: that of the chat template.",
)
_REASONING = flags.DEFINE_enum(
    "reasoning_parser", "none", list(REASONING_PARSERS), "think: thinking is a separate field."
)
_TOKEN = flags.DEFINE_string(
    "token_variable", "", "Environment variable with a bearer token that requests need."
)


def main(argv: list[str]) -> int:
    """Serves until SIGINT or SIGTERM; returns the exit status."""
    prepare()
    token = read_token(_HOST.value, _TOKEN.value)
    check_free(_HOST.value, _PORT.value)
    model = load_model(
        given(_MODEL),
        dtype=_DTYPE.value,
        cache_dtype=_CACHE_DTYPE.value,
        tensor=_TENSOR.value,
    )
    sampler = make_sampler(
        model,
        rows=_ROWS.value,
        context=_CONTEXT.value,
        decode_steps=_STEPS.value,
        draft_tokens=_DRAFTS.value,
    )
    backend = make_backend(
        model,
        sampler,
        given(_MODEL),
        max_waiting=_WAITING.value,
        tool_parser=_TOOLS.value,
        reasoning_parser=_REASONING.value,
    )
    stop = interrupts.StopSignal()
    sampler.warm_up(adjusts=True)
    with backend.engine.running():
        app = make_app(backend, token=token)
        with HttpServer.listening(app, _HOST.value, _PORT.value) as server:
            sys.stdout.write(f"serving {given(_MODEL)} at {server.url}/v1\n")
            sys.stdout.flush()
            stop.wait(backend.engine.check)
    return 0


if __name__ == "__main__":
    launch(main, "model", errors=(*USER_ERRORS, ValueError))
