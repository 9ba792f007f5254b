"""OpenAI's JSON: the bodies of answers, and the description of all routes."""

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pydantic

from agentgym_jax.serving.answer_parts import Parts
from agentgym_jax.serving.requests import Generation
from agentgym_jax.serving.text_scores import TokenScores


class Reply:
    """Builds the answers of one request; all have the same id, time and model."""

    def __init__(self, kind: str, model: str):
        prefix = {"chat.completion": "chatcmpl", "text_completion": "cmpl"}[kind]
        self.id = f"{prefix}-{uuid.uuid4().hex}"
        self._head = {
            "id": self.id,
            "created": int(time.time()),
            "model": model,
        }
        self._kind = kind

    def whole(
        self, choices: Sequence[Mapping[str, Any]], results: Sequence[Generation], n: int
    ) -> dict:
        """Returns the body of an answer that is not streamed, with `n` results per prompt."""
        body = {**self._head, "object": self._kind, "choices": list(choices)}
        return {**body, "usage": usage(results, n)}

    def chunk(self, choices: Sequence[Mapping[str, Any]], **fields: Any) -> str:
        """Returns one server-sent event."""
        kind = f"{self._kind}.chunk" if self._kind == "chat.completion" else self._kind
        body = {**self._head, "object": kind, "choices": list(choices), **fields}
        return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"


def usage(results: Sequence[Generation], n: int) -> dict[str, int]:
    """Returns the token counts of all choices; the prompt of `n` choices counts once."""
    prompt = sum(len(result.prompt_ids) for result in results[::n])
    sampled = sum(len(result.token_ids) for result in results)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


def token_logprobs(
    result: Generation, names: Iterable[str], parts: Iterable[bytes]
) -> dict[str, Any]:
    """Returns OpenAI's `logprobs` of a choice, given the texts and the bytes of its tokens."""
    return {
        "content": [
            {
                "token": name,
                "logprob": float(logprob),
                "bytes": list(part),
                "top_logprobs": [],
            }
            for name, part, logprob in zip(names, parts, result.logprobs, strict=True)
        ]
    }


def text_logprobs(
    decode: Callable[[Sequence[int]], str], result: Generation, scores: TokenScores | None
) -> dict[str, Any]:
    """Returns the `logprobs` of a text completion, with those of its prompt if it has `scores`.

    The likeliest token is known in the prompt only; of sampled tokens it is the token itself.
    """

    def name(token: int) -> str:
        return decode([token])

    def top_of(token: int, logprob: float, best: int, highest: float) -> dict[str, float]:
        text = name(best)
        if token != best and text == name(token):  # parts of characters have the same text
            text = f"token_id:{best}"
        return {text: highest, name(token): logprob}

    ids, logprobs, top = result.token_ids.tolist(), result.logprobs.tolist(), None
    if scores is not None:
        prompt = result.prompt_ids.tolist()
        best, highest = (
            [*scores.best_ids.tolist(), *ids],
            [*scores.best_logprobs.tolist(), *logprobs],
        )
        ids, logprobs = prompt + ids, [*scores.logprobs.tolist(), *logprobs]
        top = [None, *map(top_of, ids[1:], logprobs, best, highest)]
        logprobs = [None, *logprobs]
    return {
        "tokens": [name(token) for token in ids],
        "token_logprobs": logprobs,
        "top_logprobs": top,
        "text_offset": None,
    }


def call_ids(result: Generation, number: int, calls: Sequence[Any]) -> list[str]:
    """Returns the ends of the ids of the calls in choice `number`.

    They differ between answers with different tokens. The same tokens have the same ids, because
    some chat templates write them: a seed would not reproduce a conversation with random ids.
    """
    ids = np.concatenate([result.prompt_ids, result.token_ids]).tobytes()
    prefix = hashlib.sha256(ids).hexdigest()[:24]
    return [f"{prefix}_{number}_{i}" for i in range(len(calls))]


def assistant_message(parts: Parts, ids: Sequence[str]) -> dict[str, Any]:
    """Returns the message of a choice; `ids` are those of its tool calls."""
    message: dict[str, Any] = {"role": "assistant", "content": parts.text}
    if parts.thinking:
        message["reasoning_content"] = parts.thinking
    if parts.calls:
        message["content"] = parts.text or None
        message["tool_calls"] = [
            {"id": f"call_{end}", "type": "function", "function": call}
            for end, call in zip(ids, parts.calls, strict=True)
        ]
    return message


def openapi(kinds: Mapping[str, type[pydantic.BaseModel]]) -> dict[str, Any]:
    """Returns the OpenAPI description of the routes with bodies of the given kinds."""
    paths: dict[str, Any] = {
        path: {"get": {"responses": {"200": {"description": "OK"}}}}
        for path in ("/health", "/v1/models")
    }
    schemas: dict[str, Any] = {}
    for path, kind in kinds.items():
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        paths[path] = {"post": {"requestBody": body, "responses": {"200": {"description": "OK"}}}}
    info = {"title": "agentgym_jax", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}
