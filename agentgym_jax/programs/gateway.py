"""Server to which agent programs talk: chat endpoint and environment of each running episode."""

import asyncio
import concurrent.futures
import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agentgym_jax.client.answers import Observation
from agentgym_jax.programs.program_episode import EpisodeEndedError, ProgramEpisode
from agentgym_jax.serving import wire
from agentgym_jax.serving.answer_parts import AnswerForm
from agentgym_jax.serving.app import make_app
from agentgym_jax.serving.backend import Backend
from agentgym_jax.serving.bodies import read_body
from agentgym_jax.serving.engine import Engine
from agentgym_jax.serving.error_answers import UnknownEpisodeError
from agentgym_jax.serving.http_server import HttpServer
from agentgym_jax.serving.requests import Chat, RequestError
from agentgym_jax.serving.text_scores import TokenScores
from agentgym_jax.text.tokenizer import Tokenizer

_NAME_BYTES = 16  # random, so that no program can guess the address of another episode


class _ActRequest(wire.Body):
    answer: str
    response_id: str | None = None
    choice: int | None = None


class Gateway(Backend):
    """HTTP server of all running episodes; a `Backend`.

    Attributes:
      model_name: Name under which programs ask for the policy.
      url: Address while it serves.
    """

    model_name = "policy"

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        *,
        answer_form: AnswerForm | None = None,
    ):
        """Creates the server; `serving` starts it on a free port.

        `answer_form` is the form of the policy's answers; None for the usual one.
        """
        super().__init__(engine, tokenizer, answer_form or AnswerForm())
        self._episodes: dict[str, ProgramEpisode] = {}
        self._lock = threading.Lock()
        prefix = "/episodes/{episode}/environment"
        routes = [
            Route(f"{prefix}/reset", self._reset, methods=["POST"]),
            Route(f"{prefix}/act", self._act, methods=["POST"]),
        ]
        self._app = make_app(self, routes=routes)
        self.url = ""

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serves on a free port; within another such block it goes on to serve there."""
        if self.url:
            yield
            return
        with HttpServer(self._app) as server:
            self.url = server.url
            try:
                yield
            finally:
                self.url = ""

    def add(self, episode: ProgramEpisode) -> str:
        """Returns the name under which an episode is served from now on."""
        name = secrets.token_urlsafe(_NAME_BYTES)
        with self._lock:
            self._episodes[name] = episode
        return name

    def remove(self, name: str) -> None:
        """Stops serving an episode; later requests are refused."""
        with self._lock:
            del self._episodes[name]

    def chat(self, episode: str | None) -> Chat:
        """Implements `Backend.chat`."""
        return self._find(episode)

    def score(self, ids: Sequence[int]) -> "concurrent.futures.Future[TokenScores]":
        """Implements `Backend.score`; a prompt in an episode is not scored."""
        raise RequestError("an episode scores no prompts; leave echo out", param="echo")

    def _find(self, name: str | None) -> ProgramEpisode:
        with self._lock:
            episode = None if name is None else self._episodes.get(name)
        if episode is None:
            raise UnknownEpisodeError(
                "there is no such running episode; use the base_url that the program was given"
            )
        return episode

    async def _reset(self, request: Request) -> Response:
        episode = self._find(request.path_params["episode"])
        return await _answer(episode.reset)

    async def _act(self, request: Request) -> Response:
        episode = self._find(request.path_params["episode"])
        body: _ActRequest = wire.parse(_ActRequest, await read_body(request))
        return await _answer(
            lambda: episode.act(body.answer, body.response_id or "", body.choice or 0)
        )


async def _answer(ask: "Callable[[], concurrent.futures.Future[Observation]]") -> Response:
    """Returns the environment's observation, or an error if the episode is over."""
    try:
        observation = await asyncio.wrap_future(ask())
    except EpisodeEndedError as error:
        raise RequestError(str(error), "episode_over") from error
    return JSONResponse(
        {
            "observation": observation.text,
            "reward": observation.reward,
            "done": observation.done,
            "success": observation.success,
        }
    )
