"""Client of Search-R1's retriever (Jin et al. 2025, arXiv:2503.09516): `POST /retrieve`."""

import http.client
import json
import os
import urllib.parse
from typing import Any

from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.searchqa.texts import Passage

# The token is in an environment variable, because options are visible in command lines, configs and
# logs.
TOKEN_VARIABLE = "AGENTGYM_RETRIEVER_TOKEN"


def token_of_environment() -> str | None:
    """Returns the token for the retriever, or None if no token is set.

    Raises:
      SetupError: The token is not ASCII or has blanks; the message does not quote it.
    """
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not all("!" <= sign <= "~" for sign in token):
        raise SetupError(f"searchqa: {TOKEN_VARIABLE} should be ASCII without blanks")
    return token or None


class RetrieverClient:
    """Client of a retriever with one kept-alive connection, for one thread at a time.

    Args:
      url: Address of the server, with or without `/retrieve`.
      timeout_s: Time limit for the answer, in seconds.
      token: Bearer token; no error quotes it.

    Raises:
      SetupError: `url` is not an address.
    """

    def __init__(self, url: str, timeout_s: float, token: str | None = None):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SetupError(f"searchqa: retriever={url!r}, expected http://HOST:PORT")
        classes = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self._url = url
        self._connection = classes[parts.scheme](parts.hostname, parts.port, timeout=timeout_s)
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._token = token
        self._path = parts.path.rstrip("/").removesuffix("/retrieve") + "/retrieve"

    def search(self, query: str, topk: int) -> list[Passage]:
        """Finds the passages for one query, the best first.

        Raises:
          EnvironmentFault: SIMULATOR if the retriever cannot be reached or its answer is invalid.
        """
        body = json.dumps({"queries": [query], "topk": topk, "return_scores": True}).encode()
        try:
            status, answer = self._exchange(body)
        except (OSError, http.client.HTTPException) as error:
            raise self._fault(f"does not answer: {type(error).__name__}: {error}") from error
        if status != 200:
            raise self._fault(f"answers status {status}: {self._shown(answer)}")
        try:
            (found,) = json.loads(answer)["result"]
            return [_passage(entry) for entry in found][:topk]
        except (ValueError, KeyError, TypeError) as error:
            raise self._fault(
                f"answers something else than Search-R1's: {self._shown(answer)}"
            ) from error

    def _exchange(self, body: bytes) -> tuple[int, bytes]:
        try:
            return self._send(body)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            # The server may close a kept-alive connection just before its next use. A search
            # changes nothing, so the client sends it again.
            return self._send(body)

    def _send(self, body: bytes) -> tuple[int, bytes]:
        try:
            self._connection.request("POST", self._path, body, self._headers)
            response = self._connection.getresponse()
            return response.status, response.read()
        except BaseException:
            # late bytes must not be read as the answer to the next request
            self._connection.close()
            raise

    def _shown(self, answer: bytes) -> str:
        """Returns the beginning of an answer without the token, in case the server repeats it."""
        if self._token is not None:
            answer = answer.replace(self._token.encode(), b"<hidden>")
        return repr(answer[:200])

    def _fault(self, what: str) -> EnvironmentFault:
        return EnvironmentFault(ErrorKind.SIMULATOR, f"searchqa: the retriever {self._url} {what}")


def _passage(entry: Any) -> Passage:
    """Parses a passage with or without a score; some retrievers send no id."""
    document = entry["document"] if "document" in entry else entry
    return Passage(str(document["id"]) if "id" in document else "", document["contents"])
