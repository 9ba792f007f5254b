"""A small server with login forms like those of WebArena's four sites.

Labels, field names and behaviour equal those of the original forms.
"""

import html
import http.cookies
import http.server
import secrets
import urllib.parse

from tests.fake_server import Request

USERNAME = "emma"
PASSWORD = "s3cret-word"
# Maps each site to its path on the server.
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


def answer(request: Request) -> tuple:
    """Answers with login forms that have a CSRF token; a login sets a cookie of its site."""
    return _submit(request) if request.method == "POST" else _show(request)


def _show(request: Request) -> tuple:
    path = urllib.parse.urlsplit(request.path).path
    if path in PRIVATE:
        form, text = PRIVATE[path]
        if _cookie(request, f"in-{_root(path)}") == "yes":
            return _page(200, text)
        return _page(302, "", {"Location": form})
    if path in FORMS:
        token = secrets.token_hex(4)
        content = FORMS[path].format(hidden=_HIDDEN.format(token=token))
        return _page(200, content, {"Set-Cookie": f"token={token}; Path=/"})
    return _page(200, f"public page {html.escape(path)}")


def _submit(request: Request) -> tuple:
    sent = dict(urllib.parse.parse_qsl(request.body.decode()))
    is_right = (sent["user"], sent["word"]) == (USERNAME, PASSWORD)
    if not is_right or sent["token"] != _cookie(request, "token"):
        return _page(302, "", {"Location": request.path})
    root = _root(request.path)
    cookie = f"in-{root}=yes; Path=/; Max-Age=7200; HttpOnly"
    return _page(302, "", {"Set-Cookie": cookie, "Location": f"/{root}/"})


def _cookie(request: Request, name: str) -> str:
    cookies = http.cookies.SimpleCookie(request.headers.get("Cookie", ""))
    return cookies[name].value if name in cookies else ""


def _page(status: int, content: str, headers: dict[str, str] | None = None) -> tuple:
    page = f"<!doctype html><html><head><title>t</title></head><body>{content}</body></html>"
    return status, page.encode(), {"Content-Type": "text/html; charset=utf-8"} | (headers or {})


def _root(path: str) -> str:
    return path.split("/")[1]
