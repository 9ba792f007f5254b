"""Access to the host: a site must not reveal files, settings or other servers of the host."""

import http.client
import http.server
import pathlib
import re
import shutil
import sys
import tempfile
import urllib.parse

import pytest

from agentgym_sites.cluster import Cluster, make_site
from agentgym_sites.episode_server import without_tracebacks
from agentgym_sites.preparation import prepare
from tests.fake_server import serving

pytestmark = pytest.mark.slow

NAMES = ("shop", "forum", "trac")
MISSING = [sentence for name in NAMES if (sentence := make_site(name).missing())]
if MISSING:
    pytest.skip("; ".join(MISSING), allow_module_level=True)

MARKER = "f3a91c-content-of-a-file-of-the-host"
HEADS = ("../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%5c", "....//", "%252e%252e%252f")
# Maps each site to the addresses below which it serves files.
FOLDERS = {
    "shopping": ("/static/", "/static/media/", "/media/"),
    "reddit": ("/static/", "/static/spirit/", "/media/"),
    "gitlab": (
        "/chrome/common/",
        "/chrome/site/",
        "/chrome/shared/",
        "/attachment/wiki/WikiStart/",
        "/raw-attachment/ticket/1/",
        "/zip-attachment/ticket/1/",
        "/browser/",
        "/export/1/",
        "/changeset/1/",
        "/log/",
    ),
}


class Agent:
    """A logged-in client that does not normalise the paths of its requests."""

    def __init__(self, url, cookies):
        self.server = urllib.parse.urlsplit(url).netloc
        self.cookies = {each["name"]: each["value"] for each in cookies}

    def get(self, path):
        """Requests a path; returns the status and the text of the answer."""
        status, text, place = self._send("GET", path)
        # for example a redirect to the full address of a topic
        if status in (301, 302) and place.startswith("/"):
            status, text, _ = self._send("GET", place)
        return status, text

    def post(self, path, *, page=None, files=(), **fields):
        """Sends a form as a browser would after reading `page`.

        By default, `page` is the page of the form itself.

        Args:
          path: Address of the form's action.
          page: Address of the page that contains the hidden fields.
          files: Uploaded files as (field, file name, content).
          fields: Values of the form's other fields.
        """
        hidden = re.findall(
            r'<input type="hidden" name="(csrfmiddlewaretoken|__FORM_TOKEN)" value="(\w+)"',
            self.get(page or path)[1],
        )
        fields = dict(hidden) | fields
        if not files:
            body = urllib.parse.urlencode(fields).encode()
            return self._send("POST", path, body, "application/x-www-form-urlencoded")[:2]
        lines = []
        for name, value in fields.items():
            lines += ["--limit", f'Content-Disposition: form-data; name="{name}"', "", value]
        for name, file, content in files:
            head = f'Content-Disposition: form-data; name="{name}"; filename="{file}"'
            lines += ["--limit", head, "Content-Type: text/csv", "", content]
        body = "\r\n".join([*lines, "--limit--", ""]).encode()
        return self._send("POST", path, body, "multipart/form-data; boundary=limit")[:2]

    def _send(self, method, path, body=None, kind=""):
        connection = http.client.HTTPConnection(self.server, timeout=60)
        headers = {"X-Episode": "host-files"}
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if body is not None:
            headers["Content-Type"] = kind
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        for line in answer.headers.get_all("Set-Cookie") or ():
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
        text = answer.read().decode("utf-8", "replace")
        connection.close()
        assert MARKER not in text, f"{method} {path}"
        return answer.status, text, answer.headers.get("Location", "")


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    kept = pathlib.Path(tempfile.gettempdir()) / "agentgym-tests-webarena"
    folder = tmp_path_factory.mktemp("sites")
    for name in NAMES:
        prepared = prepare(make_site(name), kept)
        shutil.copytree(prepared, folder / name / prepared.name)
    with Cluster(folder, [make_site(name) for name in NAMES]) as running:
        yield running


@pytest.fixture(scope="module")
def agents(sites):
    roots = {name: "/".join(url.split("/")[:3]) for name, url in sites.urls.items()}
    agents = {n: Agent(url, sites.storage_state([n])["cookies"]) for n, url in roots.items()}
    agents["shopping"].cookies |= agents["shopping_admin"].cookies
    return agents


@pytest.fixture(scope="module")
def marker(tmp_path_factory):
    """Returns the path of a file of the host that every process of this user can read."""
    path = tmp_path_factory.mktemp("host") / "notes.txt"
    path.write_text(MARKER)
    return path


@pytest.mark.parametrize("site", FOLDERS)
def test_no_url_of_a_site_leads_outside_its_folders(agents, marker, site):
    for folder in FOLDERS[site]:
        quoted = urllib.parse.quote(str(marker), safe="/")
        names = [12 * head + quoted[1:] for head in HEADS]
        names += [quoted, f"file://{quoted}", "%00", "a%00" + quoted, 300 * "a", "..%2f", "..;/"]
        for name in names:
            status, _ = agents[site].get(folder + name)
            assert 300 <= status < 500, f"{folder}{name}: {status}"


@pytest.mark.parametrize("site", FOLDERS)
def test_error_pages_reveal_nothing_about_the_host(agents, site):
    for path in ("/no/such/page", "/?next=file:///etc/passwd", "/search?q=%00", "/%ff"):
        _, text = agents[site].get(path)
        for secret in ("Traceback", "site-packages", sys.prefix, "SECRET_KEY", "sqlite3"):
            assert secret not in text, path


WIKI = """'''Shown'''
[[Include({path})]] [[Image({path})]] [[Image(file://{path})]] [[Image(source:{path})]]
[[Image(htdocs:../../../../../../../..{path})]] [[Image(htdocs:site/../../..{path})]]
[[Image({url})]] [[Image(wiki:WikiStart:{path})]] [[TracIni]] [[TracAdminHelp]] [[Embed({path})]]
source:{path} export:{path} log:{path} browser:{path} attachment:{path} file://{path} [file://{path} here]
{{{{{{#!include {path}
}}}}}}
{{{{{{#!rst
.. include:: {path}
.. csv-table:: a
   :file: {path}
}}}}}}
{{{{{{#!html
<iframe src="file://{path}"></iframe><object data="file://{path}"></object><img src="{url}">
}}}}}}
{{{{{{#!python
print(open("{path}").read())
}}}}}}
"""


def test_wiki_markup_cannot_read_files_or_contact_servers(agents, marker):
    with serving(lambda request: (200, MARKER.encode())) as other:
        url = f"{other.url}/secret"
        text = WIKI.format(path=marker, url=url)
        edit = "/wiki/Notes?action=edit"
        fields = {"action": "edit", "version": "0", "text": text}
        status, page = agents["gitlab"].post(
            "/wiki/Notes", page=edit, **fields, preview="Preview Page"
        )
        assert status == 200 and "<strong>Shown</strong>" in page
        shown = page.partition("<strong>Shown</strong>")[2]
        assert "<iframe" not in shown and "<object" not in shown
        assert 'href="file:' not in shown and 'src="file:' not in shown
        assert "trac.ini" not in shown and "initenv" not in shown
        agents["gitlab"].post("/wiki/Notes", page=edit, **fields, save="Save changes")
        assert "<strong>Shown</strong>" in agents["gitlab"].get("/wiki/Notes")[1]
        assert not other.requests


@pytest.mark.parametrize(
    "path",
    [
        "/browser",
        "/repository",
        "/changeset/1",
        "/log",
        "/export",
        "/admin",
        "/admin/general/plugin",
        "/admin/versioncontrol/repository",
        "/about",
        "/about/config",
        "/report?action=new",
        "/report/1?action=edit",
        "/attachment/ticket/1/?action=new",
    ],
)
def test_trac_offers_no_repositories_plugins_settings_or_sql_queries(agents, path):
    assert agents["gitlab"].get(path)[0] in (403, 404)


def test_trac_accepts_no_files_and_no_sql_queries(agents, marker):
    file = ("attachment", str(marker), "text")
    for path, fields, files in (
        ("/attachment/ticket/1/?action=new", {"action": "new", "description": "x"}, [file]),
        ("/report", {"action": "new", "title": "x", "query": f"ATTACH '{marker}' AS f"}, []),
        ("/admin/general/plugin", {"install": "x"}, [("plugin_file", str(marker), "text")]),
    ):
        status, _ = agents["gitlab"].post(path, page="/newticket", files=files, **fields)
        assert status in (403, 404), path


def test_an_error_in_trac_shows_no_code():
    def broken(environ, start_response):
        start_response("500 Internal Server Error", [("Content-Type", "text/html")])
        return [b'File "/srv/trac/web.py", line 3']

    started = []
    body = without_tracebacks(broken)({}, lambda status, headers, *_: started.append(status))
    assert started == ["500 Internal Server Error"]
    assert b"/srv" not in b"".join(body)


def test_the_forum_cannot_read_files_or_contact_servers(agents, marker):
    agent = agents["reddit"]
    with serving(lambda request: (200, MARKER.encode())) as other:
        url = f"{other.url}/secret"
        text = (
            f"Shown ![a](file://{marker}) [b](file://{marker}) ![c]({url}) <iframe src='file://{marker}'>"
            f"</iframe> {{% include '{marker}' %}} {{{{ settings.SECRET_KEY }}}} {url} [poll name=a]"
        )
        agent.post("/comment/2/publish/", page="/topic/2/", comment=text)
        page = agent.get("/topic/2/")[1]
        assert "Shown" in page and "<iframe" not in page
        assert "reachable from loopback only" not in page
        for avatar in (str(marker), f"file://{marker}", url):
            agent.post("/user/", location="here", notify_when="1", timezone="UTC", avatar=avatar)
        assert not other.requests
    assert 'value="here"' in agent.get("/user/")[1]
    for path in ("/comment/upload/", "/comment/upload/file/"):
        files = [("image", str(marker), "text"), ("file", str(marker), "text")]
        assert agent.post(path, page="/topic/2/", files=files)[0] == 404


# An image of one pixel.
PICTURE = "GIF89a\x01\x00\x01\x00\x00\x00\x00;"


def test_the_forum_stores_no_uploaded_files(agents):
    agent = agents["reddit"]
    file = ("avatar", "me.gif", PICTURE)
    agent.post("/user/", location="there", notify_when="1", timezone="UTC", files=[file])
    page = agent.get("/user/")[1]
    assert 'value="there"' in page and "me.gif" not in page


@pytest.mark.parametrize("path", ["/dashboard/comms/", "/dashboard/comms/ORDER_PLACED/"])
def test_the_shop_has_no_pages_for_editing_templates(agents, path):
    assert agents["shopping"].get(path)[0] == 404
    assert "/dashboard/comms" not in agents["shopping"].get("/dashboard/")[1]


def test_the_shop_shows_template_code_of_the_agent_as_plain_text(agents, marker):
    agent = agents["shopping"]
    text = f"Shown {{% include '{marker}' %}} {{% debug %}} {{{{ request.environ }}}}"
    agent.post("/dashboard/pages/create/", title="Notes", url="/notes/", content=text)
    page = agent.get("/notes/")[1]
    assert "Shown" in page and "wsgi.input" not in page


def test_the_shop_stores_no_uploads_and_reads_no_images_from_paths_or_urls(agents, marker):
    agent = agents["shopping"]
    product = re.search(
        r"/dashboard/catalogue/products/(\d+)/", agent.get("/dashboard/catalogue/")[1]
    )
    assert product is not None
    path = f"/dashboard/catalogue/products/{product[1]}/"
    fields = {"images-TOTAL_FORMS": "1", "images-INITIAL_FORMS": "0"}
    with serving(lambda request: (200, MARKER.encode())) as other:
        url = f"{other.url}/secret"
        for place in (str(marker), f"file://{marker}", url):
            for files in ([("images-0-original", "me.gif", PICTURE)], []):
                status, page = agent.post(
                    path, files=files, **fields, **{"images-0-original": place}
                )
                assert status < 500
                assert "me.gif" not in page and "me.gif" not in agent.get(path)[1]
        assert not other.requests


def test_the_agents_accounts_cannot_open_administration_pages(agents):
    assert agents["reddit"].get("/st/admin/")[0] in (302, 403, 404)
    assert agents["gitlab"].get("/admin")[0] in (403, 404)
