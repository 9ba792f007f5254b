"""A tiny web site as an environment with tasks, for all tests that do not need the full sites."""

import functools
import time
import urllib.parse

from agentgym_envs.webarena.browser.reach import Reach
from agentgym_envs.webarena.browser.start import Start
from agentgym_envs.webarena.evaluation.functions import WITHOUT_A_SITE
from agentgym_envs.webarena.served import build_environment
from agentgym_envs.webarena.tasks import read_task
from agentgym_envs.webarena.urls import SiteUrls
from agentgym_envs.webarena.world import Entry, Scoring, World, new_episode
from tests.fake_server import FakeServer

ITEMS = ("Kite", "Teapot", "Lantern")
FRONT = """<!doctype html><title>Tiny shop</title><h1>Tiny shop</h1>
<nav><a href=/about>About us</a> <a href=/window target=_blank>New window</a> <a href=/file.zip>Price list</a>
<a href=http://elsewhere.test/>Elsewhere</a></nav>
<form action=/search><label>Search <input name=q></label>
<select name=kind aria-label=Kind><option>All<option>Toys<option>Kitchen</select>
<input type=date name=day aria-label=Day><button>Go</button></form>
<ul>{items}</ul>
<button onclick="this.textContent = confirm('Sure?') ? 'Said yes' : 'Said no'">Ask</button>
<button onclick="fetch('/slow').then(() => {{ this.textContent = 'Fetched' }})">Fetch</button>
<button onclick="this.textContent = new Date().getFullYear()">Year</button>
<iframe src=/about title=Inner></iframe>
<div style='height: 2000px'></div><p>The bottom</p>"""


BASKETS: dict[str, list[str]] = {}


def answer(request):
    """Answers as the tiny site; a header names the episode, and each episode has a separate basket."""
    url = urllib.parse.urlsplit(request.path)
    query = urllib.parse.parse_qs(url.query)
    basket = BASKETS.setdefault(request.headers["X-Episode"], [])
    status, kind = 200, "text/html; charset=utf-8"
    if url.path == "/":
        links = "".join(f"<li><a href=/item/{name}>{name}</a>" for name in ITEMS)
        body = FRONT.format(items=links)
    elif url.path.startswith("/item/"):
        name = url.path.removeprefix("/item/")
        body = f"<title>{name}</title><h1>{name}</h1><p>It costs {len(name)} coins.</p>"
        body += f"<form action=/basket><button name=add value={name}>Add to basket</button></form>"
    elif url.path == "/basket":
        basket += query.get("add", [])
        body = f"<title>Basket</title><h1>Basket</h1><p id=basket>{', '.join(basket)}</p>"
    elif url.path == "/file.zip":
        body, kind = "PK", "application/zip"
    elif url.path == "/broken":
        body, status = "no", 503
    elif url.path == "/restless":
        script = "setInterval(() => { document.body.className = performance.now() }, 5)"
        body = f"<title>Restless</title><h1>Restless</h1><script>{script}</script>"
    elif url.path == "/endless":
        body = (
            "<title>Endless</title><h1>Endless</h1>"
            '<button onclick="while (true) {}">Once</button>'
            '<button onclick="for (let i = 0; i < 999; i++) setTimeout(() => { while (true) {} })">'
            "Always</button>"
        )
    elif url.path == "/slow":
        time.sleep(0.3)
        body = "late"
    else:
        found = ", ".join(f"{k}={v[0]}" for k, v in sorted(query.items()))
        body = f"<title>{url.path}</title><h1>{url.path}</h1><p>{found}</p><a href=/>Back</a>"
    return status, body.encode(), {"Content-Type": kind}


@functools.cache
def site():
    """Returns `host:port` of the tiny site, which runs in this process."""
    return f"127.0.0.1:{FakeServer(answer).start().port}"


def reach():
    """Returns the site addresses: shopping.test is the tiny site, reddit.test has no server."""
    return Reach({"shopping.test:80": site(), "reddit.test:80": "127.0.0.1:1"})


class PageWorld(World):
    """A world in which the tiny site replaces WebArena's shop."""

    def __init__(self):
        self.entries = entries()
        self.scoring = Scoring(WITHOUT_A_SITE)
        self.finished = []

    @property
    def urls(self):
        return SiteUrls({"shopping": "http://shopping.test"})

    @property
    def reach(self):
        return reach()

    def start(self, task, *, is_original):
        headers = {"X-Episode": new_episode()}
        return Start(task.start_urls, headers, has_calendar=True, is_original=is_original)

    def finish(self, start, answer=None):
        self.finished.append(start.headers["X-Episode"])


def number(observation, words):
    """Returns the number of the first element whose line in the observation contains these words."""
    line = next(line for line in observation.splitlines() if words in line)
    return line.strip().partition("]")[0][1:]


def price(name):
    def solution():
        seen = yield
        seen = yield f"click [{number(seen, 'link ' + repr(name))}]"
        assert f"It costs {len(name)} coins." in seen
        yield f"stop [{len(name)}]"

    return solution


def buy(name):
    def solution():
        seen = yield
        seen = yield f"click [{number(seen, 'link ' + repr(name))}]"
        yield f"click [{number(seen, 'Add to basket')}]"
        yield "stop []"

    return solution


def row(number, intent, **evaluation):
    wanted = {"reference_answers": None, "reference_url": "", "program_html": []} | evaluation
    return {
        "task_id": number,
        "sites": ["shopping"],
        "start_url": "__SHOPPING__",
        "intent": intent,
        "intent_template_id": number % 2,
        "eval": wanted,
    }


@functools.cache
def entries():
    """Returns two tasks per item: name its price, and put it into the basket."""
    found = []
    for name in ITEMS:
        task = row(
            len(found),
            f"What does the {name} cost?",
            eval_types=["string_match"],
            reference_answers={"exact_match": str(len(name))},
        )
        found.append(Entry(read_task(task), "train", price(name)))
        check = {
            "url": "__SHOPPING__/basket",
            "locator": "document.querySelector('#basket').outerText",
            "required_contents": {"exact_match": name},
        }
        task = row(
            len(found),
            f"Put the {name} into the basket.",
            eval_types=["program_html"],
            program_html=[check],
        )
        found.append(Entry(read_task(task), "test", buy(name)))
    return tuple(found)


world = functools.cache(PageWorld)


def make_served_environment():
    """Returns the tiny site as a served environment."""
    return build_environment(
        entries(), world, origin="embedded", version="tiny", prepare=lambda: None
    )
