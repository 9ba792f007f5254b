r"""Trains and samples a model by the calls of Tinker's API.

  python -m agentgym_jax.tinker --model=HF_DIR --workdir=runs/tinker --port=8010
  TINKER_API_KEY=tml-local TINKER_BASE_URL=http://127.0.0.1:8010 python recipe.py

The model is a run folder (its latest checkpoint), a Hugging Face directory or hub id. It is frozen;
clients train low-rank adapters of it. Calls, losses and limits are listed in docs/tinker.md.
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
from agentgym_jax.jobs.serving import load_model
from agentgym_jax.jobs.training_server import LocalBackend
from agentgym_jax.runs import interrupts
from agentgym_jax.serving.http_server import HttpServer, check_free
from agentgym_jax.training_api.training_app import make_app
from agentgym_jax.training_api.training_service import Service

_MODEL = flags.DEFINE_string("model", None, "Run folder, Hugging Face directory or hub id.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of saved weights.")
_NAME = flags.DEFINE_string("name", "", "Name of the model for clients; empty for --model.")
_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on.")
_PORT = flags.DEFINE_integer("port", 8010, "Port to listen on; 0 for any free port.", 0, 65535)
_ROWS = flags.DEFINE_integer("rows", 16, "Maximum number of concurrent answers.", 1)
_CONTEXT = flags.DEFINE_integer("context", 4096, "Maximum tokens of a sequence.", 16)
_MICRO = flags.DEFINE_integer("micro_tokens", 4096, "Tokens of a micro-batch.", 64)
_DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float32"], "Type of the base.")
_TENSOR = flags.DEFINE_integer("tensor", 1, "Number of devices that share a layer.", 1)
_TOKEN = flags.DEFINE_string(
    "token_variable", "", "Environment variable with the API key that requests need (tml-...)."
)


def main(argv: list[str]) -> int:
    """Serves until SIGINT or SIGTERM; returns the exit status."""
    prepare()
    token = read_token(_HOST.value, _TOKEN.value)
    check_free(_HOST.value, _PORT.value)
    backend = LocalBackend(
        load_model(given(_MODEL), dtype=_DTYPE.value, tensor=_TENSOR.value),
        _NAME.value or given(_MODEL),
        given(_WORKDIR),
        rows=_ROWS.value,
        context=_CONTEXT.value,
        micro_tokens=_MICRO.value,
    )
    stop = interrupts.StopSignal()
    with Service(backend) as service:
        app = make_app(service, token=token)
        with HttpServer.listening(app, _HOST.value, _PORT.value) as server:
            sys.stdout.write(f"training {backend.name} at {server.url}\n")
            sys.stdout.flush()
            stop.wait(service.check)
    return 0


if __name__ == "__main__":
    launch(main, "model", "workdir", errors=(*USER_ERRORS, ValueError))
