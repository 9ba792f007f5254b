"""Server of a corpus with Search-R1's protocol (Jin et al. 2025, arXiv:2503.09516).

    python -m agentgym_envs.searchqa.retriever --port 8000
    python -m agentgym_envs.searchqa.retriever --corpus wiki-18.jsonl.gz --engine tantivy

`POST /retrieve {"queries": [..], "topk": 3, "return_scores": true}` answers `{"result":
[[{"document": {"id", "contents"}, "score"}, ..], ..]}`; without scores the answer has the documents
alone. Without `--corpus` the server uses the corpus of facts, which it builds if it is missing.
"""

import argparse
import asyncio
import contextlib
import logging
import pathlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import pydantic

from agentgym_envs.base import serve
from agentgym_envs.base.application import Answer, Application, Request, typed_error
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.host import to_json
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.routes import RequestProblem, json_body, read
from agentgym_envs.data_folder import data_folder
from agentgym_envs.searchqa import embedded
from agentgym_envs.searchqa.engines.engine import ENGINES, MAX_TOPK
from agentgym_envs.searchqa.library import Library, index_of

MAX_QUERIES = 4096
MAX_QUERY_CHARACTERS = 10_000
_BODY_BYTES = 8 << 20


class RetrieveBody(pydantic.BaseModel):
    """Body of `POST /retrieve`."""

    queries: list[pydantic.constr(max_length=MAX_QUERY_CHARACTERS)] = pydantic.Field(  # type: ignore[valid-type]
        max_length=MAX_QUERIES
    )
    topk: int | None = pydantic.Field(default=None, ge=1, le=MAX_TOPK)
    return_scores: bool = False


def create_app(
    library: Library, *, topk: int, name: str, max_body_bytes: int, token: str | None
) -> Application:
    """Creates the server's app; `topk` is the default for requests without `topk`."""
    lock = asyncio.Lock()

    async def retrieve(request: Request) -> Answer:
        try:
            body = read(RetrieveBody, json_body(request), "body")
        except RequestProblem as error:
            return typed_error(ErrorKind.INVALID_REQUEST, f"/retrieve: {error}")
        async with lock:  # an engine supports one thread at a time
            found = await asyncio.to_thread(library.search_all, body.queries, body.topk or topk)
        return Answer(to_json({"result": [_answer(hits, body.return_scores) for hits in found]}))

    async def health(request: Request) -> Answer:
        return Answer(to_json({"status": "ok", "corpus": name, "passages": len(library)}))

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield

    return Application(
        {"/retrieve": {"POST": retrieve}, "/health": {"GET": health}},
        lifespan=lifespan,
        max_body_bytes=max_body_bytes,
        token=token,
    )


def _answer(hits: Any, has_scores: bool) -> list[Any]:
    documents = [{"id": passage.id, "contents": passage.contents} for passage, _ in hits]
    if not has_scores:
        return documents
    return [
        {"document": document, "score": score}
        for document, (_, score) in zip(documents, hits, strict=True)
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agentgym_envs.searchqa.retriever",
        description="Serves a corpus by Search-R1's protocol: POST /retrieve.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--corpus", type=pathlib.Path, help="corpus.jsonl(.gz); without it the corpus of facts")
    add("--engine", default="bm25s", choices=list(ENGINES), help="search engine")
    add("--encoder", default="", help="folder of a sentence encoder, for --engine dense")
    add("--topk", type=int, default=3, help="passages per query if a request has no topk")
    add("--host", default="127.0.0.1", help="address to listen on; others need --token-file")
    add("--port", type=int, default=8000, help="0 takes a free port; the ready line names it")
    add("--max-body-bytes", type=int, default=_BODY_BYTES, help="longest accepted request body")
    add("--token-file", type=pathlib.Path, help="file with the bearer token clients must send")
    add("--parent-pid", type=int, help="stop when this process is gone")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the server until it is stopped; returns the exit status."""
    args = _parser().parse_args(argv)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        if not 1 <= args.topk <= MAX_TOPK:
            raise SetupError(f"--topk {args.topk} is not in 1 .. {MAX_TOPK}")
        token = None if args.token_file is None else args.token_file.read_text().strip()
        serve.check_exposure(args.host, token)
        data = data_folder() / "searchqa"
        corpus = args.corpus or embedded.prepared() / "passages.jsonl"
        index = index_of(corpus, data, engine=args.engine, encoder=args.encoder)
        index.build()
        application = create_app(
            index.open(),
            topk=args.topk,
            name=corpus.name,
            max_body_bytes=args.max_body_bytes,
            token=token,
        )
        serve.run(application, "retriever", args.host, args.port, args.parent_pid, serve.answer)
    except (serve.ServeError, SetupError, OSError) as error:
        sys.stderr.write(f"agentgym_envs.searchqa.retriever: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
