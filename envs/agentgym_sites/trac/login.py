"""Login form of Trac. Trac itself leaves authentication to the web server."""

import html
import io
import urllib.parse
from collections.abc import Iterable
from typing import Any

from agentgym_sites.episode_server import Application, StartResponse
from agentgym_sites.trac.projects import PASSWORD, PEOPLE

_PATH = "/login"
_LONGEST = 10_000  # maximum number of bytes of the form
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Login - Larkspur Works</title>
<link rel="stylesheet" href="/chrome/common/css/trac.css"></head>
<body><main id="content" style="margin: 2em">
<h1>Login</h1>{notice}
<form method="post" action="/login">
<p><label for="username">User name:</label> <input id="username" name="username" value="{username}"></p>
<p><label for="password">Password:</label> <input id="password" name="password" type="password"></p>
<p><input type="submit" value="Login"></p>
</form>
<p><a href="/">Larkspur Works</a></p>
</main></body></html>
"""
_WRONG = '\n<p role="alert">The user name or the password is wrong.</p>'


def with_login_form(application: Application) -> Application:
    """Returns an application that answers /login with a form; if the password is right, it passes
    the user name to Trac.

    Args:
      application: Application of Trac, which sets its own cookie for the user named in REMOTE_USER.
    """

    def run(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != _PATH:
            return application(environ, start_response)
        if environ["REQUEST_METHOD"] != "POST":
            return _form(start_response)
        username, password = _sent(environ)
        if username not in PEOPLE or password != PASSWORD:
            return _form(start_response, username, _WRONG)
        return application(_logging_in(environ, username), start_response)

    return run


def _sent(environ: dict[str, Any]) -> tuple[str, str]:
    length = min(int(environ.get("CONTENT_LENGTH") or 0), _LONGEST)
    fields = urllib.parse.parse_qs(environ["wsgi.input"].read(length).decode(errors="replace"))
    first = lambda name: fields.get(name, [""])[0]
    return first("username").strip(), first("password")


def _logging_in(environ: dict[str, Any], username: str) -> dict[str, Any]:
    """Returns a request that Trac accepts as a login and answers with a redirect to the first page."""
    dropped = ("HTTP_REFERER", "HTTP_COOKIE", "CONTENT_TYPE", "CONTENT_LENGTH")
    rest = {name: value for name, value in environ.items() if name not in dropped}
    return rest | {
        "REQUEST_METHOD": "GET",
        "QUERY_STRING": "",
        "REMOTE_USER": username,
        "wsgi.input": io.BytesIO(),
    }


def _form(start_response: StartResponse, username: str = "", notice: str = "") -> list[bytes]:
    body = _PAGE.format(username=html.escape(username), notice=notice).encode()
    headers = [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(body)))]
    start_response("200 OK", headers)
    return [body]
