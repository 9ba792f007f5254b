"""Web navigation on a site that counts: an action that is taken twice, or left out, shows in all that follows.

As with the real sites, the site is a process with a database for every episode, and each worker has
a browser.
"""

import functools

from agentgym_envs.webarena.browser.process import BrowserProcess
from agentgym_envs.webarena.embedded.script import find
from agentgym_envs.webarena.embedded_sites import shared
from agentgym_envs.webarena.embedded_world import EmbeddedWorld
from agentgym_envs.webarena.kind import kind_of
from agentgym_envs.webarena.sites import cluster
from agentgym_envs.webarena.tasks import read_task
from agentgym_envs.webarena.world import Entry
from tests.faults.counting_site import CountingSite

SITES = ("shopping",)
TASKS = 6
PAGES = 4  # that solve a task, the first included


def make_site():
    """For the cluster."""
    return CountingSite()


def entry(number):
    """Solved if the page that the agent leaves says that all pages were opened, each once."""
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
    """Fails two of three tasks, so that a wrong score is not the only one."""
    seen = yield
    for page in range(PAGES - 1 - left_out):
        # A number belongs to one page, so a click that comes late does nothing: an address does.
        is_address = page % 2
        link = f"click [{find(seen, 'link', 'Next').id}]"
        seen = yield "goto [http://onestopmarket.com/next]" if is_address else link
    yield "stop []"


def make_kind():
    # In the process of the server, which starts the sites.
    cluster.all_sites = lambda: [make_site()]
    entries = [entry(number) for number in range(TASKS)]
    world = functools.cache(lambda: EmbeddedWorld(entries, SITES))
    return kind_of(
        entries,
        world,
        origin="embedded",
        version="tally",
        prepare=lambda: BrowserProcess.of(world().reach).start(),
        shared=lambda: shared(SITES),
    )
