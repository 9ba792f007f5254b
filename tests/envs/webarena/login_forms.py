"""Small servers with the login forms of WebArena's sites: the same labels, names and ways, little else."""

import html
import http.cookies
import http.server
import secrets
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager

USERNAME = "emma"
PASSWORD = "s3cret-word"
# Site -> where it starts on the server.
BASES = {"shopping": "/shop", "shopping_admin": "/back/admin", "reddit": "/forum", "gitlab": "/lab"}

_HIDDEN = '<input type="hidden" name="token" value="{token}">'
FORMS = {
    "/shop/customer/account/login/": """<a href="#">Sign In</a><form method="post">{hidden}
      <label for="email">Email</label><input id="email" name="user">
      <label for="pass">Password</label><input id="pass" type="password" name="word">
      <button type="submit"><span>Sign In</span></button></form>
      <form><label for="news">Email address</label><input id="news"></form>""",
    "/back/admin": """<form method="post">{hidden}<input name="user" placeholder="user name">
      <input type="password" name="word" placeholder="password"><button>Sign in</button></form>""",
    "/forum/login": """<form method="post">{hidden}
      <label for="login-username">Username</label><input id="login-username" name="user">
      <label for="login-password">Password</label><input type="password" id="login-password" name="word">
      <label>Remember me<input type="checkbox"></label><button>Log in</button></form>""",
    "/lab/users/sign_in": """<form method="post">{hidden}<input data-testid="username-field" name="user">
      <input type="password" data-testid="password-field" name="word">
      <button data-testid="sign-in-button">Sign in</button></form>""",
}
PRIVATE = {
    "/shop/wishlist/": ("/shop/customer/account/login/", "My wish list"),
    "/back/admin/dashboard": ("/back/admin", "<h1>Dashboard</h1>"),
    f"/forum/user/{USERNAME}/account": ("/forum/login", "<button>Delete account</button>"),
    "/lab/-/profile": ("/lab/users/sign_in", "Edit profile"),
}


class _Handler(http.server.BaseHTTPRequestHandler):
    """Forms with a token against forgery; a cookie for each site that somebody is logged in on."""

    def do_GET(self) -> None:  # noqa: N802
        path = urllib.parse.urlsplit(self.path).path
        if path in PRIVATE:
            form, text = PRIVATE[path]
            if self._cookie(f"in-{_root(path)}") == "yes":
                self._answer(200, text)
            else:
                self._answer(302, "", {"Location": form})
        elif path in FORMS:
            token = secrets.token_hex(4)
            content = FORMS[path].format(hidden=_HIDDEN.format(token=token))
            self._answer(200, content, {"Set-Cookie": f"token={token}; Path=/"})
        else:
            self._answer(200, f"public page {html.escape(path)}")

    def do_POST(self) -> None:  # noqa: N802
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        sent = dict(urllib.parse.parse_qsl(body))
        is_right = (sent["user"], sent["word"]) == (USERNAME, PASSWORD)
        if is_right and sent["token"] == self._cookie("token"):
            root = _root(self.path)
            cookie = f"in-{root}=yes; Path=/; Max-Age=7200; HttpOnly"
            self._answer(302, "", {"Set-Cookie": cookie, "Location": f"/{root}/"})
        else:
            self._answer(302, "", {"Location": self.path})

    def _cookie(self, name: str) -> str:
        cookies = http.cookies.SimpleCookie(self.headers.get("Cookie", ""))
        return cookies[name].value if name in cookies else ""

    def _answer(self, status: int, content: str, headers: dict[str, str] | None = None) -> None:
        body = f"<!doctype html><html><head><title>t</title></head><body>{content}</body></html>"
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body.encode())))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def _root(path: str) -> str:
    return path.split("/")[1]


@contextmanager
def serving() -> Iterator[str]:
    """Address of a running server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
