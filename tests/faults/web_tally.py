"""Web navigation on a site that counts the requests.

A repeated or missing request changes all later pages.

As with the full sites, the site is a process with one database per episode, and each worker has a
browser.
"""

import functools

from agentgym_envs.webarena.browser.process import BrowserProcess
from agentgym_envs.webarena.embedded_sites import shared
from agentgym_envs.webarena.embedded_world import EmbeddedWorld
from agentgym_envs.webarena.served import build_environment
from agentgym_envs.webarena.tasks import read_task
from agentgym_envs.webarena.world import Entry
from agentgym_sites import cluster
from agentgym_sites.episode_database import add_clock
from agentgym_sites.tasks.script import find
from tests.sites import counting_site

SITES = ("shopping",)
TASKS = 6
PAGES = 4  # number of pages that a solution opens, including the start page


PAGE = "<!doctype html><title>Page</title><h1>{count}</h1><a href=/next>Next</a>"


class CountingSite:
    """A site whose clock is the request count of the episode: every page advances it by one second."""

    name = "counting"
    paths = {"shopping": ""}
    accounts = {}

    def missing(self):
        return None

    def version(self):
        return "1"

    def build(self, folder, say):
        add_clock(folder / "template.sqlite3")
        (folder / "storage_state").mkdir()
        (folder / "storage_state" / "shopping.json").write_text('{"cookies": []}')

    def command(self, prepared, episodes, port, parent_pid):
        return counting_site.command(prepared, episodes, port, parent_pid, PAGE)


def make_site():
    """Returns the site for the cluster of sites."""
    return CountingSite()


def entry(number):
    """Returns a task that is solved if the last page shows that every page was opened once."""
    check = {
        "url": "last",
        "locator": "document.querySelector('h1').innerText",
        "required_contents": {"exact_match": str(PAGES - 1)},
    }
    wanted = {"reference_answers": None, "reference_url": "", "program_html": [check]}
    task = read_task(
        {
            "task_id": number,
            "sites": list(SITES),
            "start_url": "__SHOPPING__",
            "intent": f"Open {PAGES} pages, and no more.",
            "intent_template_id": 0,
            "require_login": False,
            "eval": {"eval_types": ["program_html"]} | wanted,
        }
    )
    return Entry(task, "test", functools.partial(solution, number % 3))


def solution(left_out):
    """Yields the actions of a solution that omits `left_out` pages.

    Two of three tasks use a solution with omitted pages, so that failures occur in several tasks.
    """
    seen = yield
    for page in range(PAGES - 1 - left_out):
        # An element number is valid on one page only, so repeating a click does nothing; repeating
        # a request for an address counts.
        is_address = page % 2
        link = f"click [{find(seen, 'link', 'Next').id}]"
        seen = yield "goto [http://onestopmarket.com/next]" if is_address else link
    yield "stop []"


def make_served_environment():
    # This function runs in the server process, which starts the sites.
    cluster.all_sites = lambda: [make_site()]
    entries = [entry(number) for number in range(TASKS)]
    world = functools.cache(lambda: EmbeddedWorld(entries, SITES))
    return build_environment(
        entries,
        world,
        origin="embedded",
        version="tally",
        prepare=lambda: BrowserProcess.get(world().reach).start(),
        shared=lambda: shared(SITES),
    )
