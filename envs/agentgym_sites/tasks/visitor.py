"""Visitor of the embedded sites that reads pages and submits forms without a browser."""

import dataclasses
import html.parser
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

from agentgym_envs.webarena.embedded_sites import RunningSites
from agentgym_sites.site import EPISODE_HEADER

_SECONDS = 20.0
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_SILENT = ("script", "style", "template")
# Parts of addresses that are not visited, because they would end the session or do not lead to
# pages.
_AVOIDED = ("logout", "password", "__episode__", "/static/", "/chrome/", "set-language", "/login")


@dataclasses.dataclass
class Form:
    """A form on a page.

    Attributes:
      fields: Name of a field -> value of the field on the page.
      texts: Names of the text fields.
      choices: Name of a field -> values that can be selected.
    """

    action: str
    method: str
    fields: dict[str, str] = dataclasses.field(default_factory=dict)
    texts: list[str] = dataclasses.field(default_factory=list)
    choices: dict[str, list[str]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Document:
    """A page that was read without a browser."""

    url: str
    text: str
    links: tuple[str, ...]
    forms: tuple[Form, ...]


class Visitor:
    """Visitor who is logged in on a site, in one episode."""

    def __init__(self, sites: RunningSites, name: str, episode: str):
        self.home = f"{sites.urls[name]}/"
        self._root = self.home[: self.home.index("/", len("http://"))]
        self._episode = episode
        self._cookies = {each["name"]: each["value"] for each in sites.cookies[name]}

    def get(self, url: str) -> Document | None:
        """Reads a page; returns None if it is not available."""
        return self._open(url, None)

    def send(self, form: Form, values: dict[str, str]) -> Document | None:
        """Sends a form with changed values; returns the response, or None if the site refuses the
        form.
        """
        body = urllib.parse.urlencode(form.fields | values)
        if form.method == "get":
            return self._open(f"{form.action.partition('?')[0]}?{body}", None)
        return self._open(form.action, body.encode())

    def walk(self, most: int) -> Iterator[Document]:
        """Yields pages of the site; starts at the first page and follows links breadth-first."""
        waiting, known = [self.home], {self.home}
        while waiting and most:
            page = self.get(waiting.pop(0))
            if page is None:
                continue
            most -= 1
            yield page
            new = [link for link in dict.fromkeys(page.links) if link not in known]
            known.update(new)
            waiting += new

    def _open(self, url: str, body: bytes | None) -> Document | None:
        if any(word in url for word in _AVOIDED) or not url.startswith(self._root):
            return None
        headers = {
            EPISODE_HEADER: self._episode,
            "Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items()),
            "Referer": url,
        }
        request = urllib.request.Request(url, body, headers)
        try:
            with _OPENER.open(request, timeout=_SECONDS) as response:
                if "html" not in response.headers.get("Content-Type", ""):
                    return None
                for line in response.headers.get_all("Set-Cookie") or ():
                    name, _, value = line.partition(";")[0].partition("=")
                    self._cookies[name] = value
                return read_document(response.url, response.read().decode("utf-8", "replace"))
        except urllib.error.HTTPError as refused:
            refused.close()
            return None


def read_document(url: str, text: str) -> Document:
    """Parses the text, links and forms of a page."""
    reader = _Reader(url)
    reader.feed(text)
    words = " ".join("".join(reader.pieces).split())
    return Document(url, words, tuple(reader.links), tuple(reader.forms))


class _Reader(html.parser.HTMLParser):
    def __init__(self, url: str):
        super().__init__()
        self.pieces: list[str] = []
        self.links: list[str] = []
        self.forms: list[Form] = []
        self._url = url
        self._silent = 0
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._silent += tag in _SILENT
        self.pieces.append(" ")
        if tag == "a" and values.get("href"):
            self.links.append(self._address(values["href"]))
        elif tag == "form":
            action = self._address(values.get("action") or self._url)
            self.forms.append(Form(action, values.get("method", "get").lower()))
        elif self.forms:
            self._field(self.forms[-1], tag, values)

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in _SILENT

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.pieces.append(data)

    def _address(self, link: str) -> str:
        return urllib.parse.urljoin(self._url, link).partition("#")[0]

    def _field(self, form: Form, tag: str, values: dict[str, str]) -> None:
        name, kind = values.get("name", ""), values.get("type", "text")
        if tag == "option" and self._select:
            form.choices[self._select].append(values.get("value", ""))
            if "selected" in values or self._select not in form.fields:
                form.fields[self._select] = values.get("value", "")
        elif tag == "select":
            self._select = name
            form.choices[name] = []
        elif tag == "textarea" and name:
            form.fields[name] = ""
            form.texts.append(name)
        elif tag == "input" and name and kind in ("checkbox", "radio"):
            form.choices.setdefault(name, []).append(values.get("value", "on"))
            if "checked" in values:
                form.fields[name] = values.get("value", "on")
        elif tag == "input" and name and kind not in ("submit", "button", "file", "image"):
            form.fields[name] = values.get("value", "")
            if kind not in ("hidden", "number"):
                form.texts.append(name)
