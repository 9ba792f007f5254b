"""A client of Search-R1's retriever (Jin et al. 2025, arXiv:2503.09516): `POST /retrieve`."""

import http.client
import json
import os
import urllib.parse
from typing import Any

from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.searchqa.texts import Passage

# Not an option: options stand in command lines, configs and logs.
TOKEN_VARIABLE = "AGENTGYM_RETRIEVER_TOKEN"


def token_of_environment() -> str | None:
    """The token that the retriever wants, None if it wants none.

    Raises:
      SetupError: it cannot be sent; the message does not quote it.
    """
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not all("!" <= sign <= "~" for sign in token):
        raise SetupError(f"searchqa: {TOKEN_VARIABLE} should be ASCII without blanks")
    return token or None


class RetrieverClient:
    """Asks a retriever over one kept-alive connection. Used by one thread at a time.

    Args:
      url: of the server, with or without `/retrieve`.
      timeout_s: limit for the answer.
      token: sent as bearer token; no error quotes it.

    Raises:
      SetupError: this is no address.
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
        """The passages for one query, the best first.

        Raises:
          EnvironmentFault: SIMULATOR; the retriever cannot be reached or answers something else.
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
            # A kept-alive connection may be closed just as it is used again; a search changes nothing.
            return self._send(body)

    def _send(self, body: bytes) -> tuple[int, bytes]:
        try:
            self._connection.request("POST", self._path, body, self._headers)
            response = self._connection.getresponse()
            return response.status, response.read()
        except BaseException:
            self._connection.close()  # what may still come is no answer to the next request
            raise

    def _shown(self, answer: bytes) -> str:
        """The beginning of an answer; some servers repeat what they were asked."""
        if self._token is not None:
            answer = answer.replace(self._token.encode(), b"<hidden>")
        return repr(answer[:200])

    def _fault(self, what: str) -> EnvironmentFault:
        return EnvironmentFault(ErrorKind.SIMULATOR, f"searchqa: the retriever {self._url} {what}")


def _passage(entry: Any) -> Passage:
    """A passage with or without a score; some retrievers give no id."""
    document = entry["document"] if "document" in entry else entry
    return Passage(str(document["id"]) if "id" in document else "", document["contents"])
