"""The world of a real deployment of WebArena: its sites as they are, its own tasks, its accounts."""

import functools
import hashlib
import json
import logging
import pathlib
from collections.abc import Sequence
from typing import Any

from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.webarena.browser.errors import BrowserLost
from agentgym_envs.webarena.browser.process import BrowserProcess
from agentgym_envs.webarena.browser.reach import Reach, server_of
from agentgym_envs.webarena.browser.start import Start
from agentgym_envs.webarena.cookies import CookieFolder
from agentgym_envs.webarena.deployment import Deployment, read_deployment
from agentgym_envs.webarena.homepage import Homepage
from agentgym_envs.webarena.login import FORMS, LoginError
from agentgym_envs.webarena.login_browser import cookies_of
from agentgym_envs.webarena.recordings import Recordings
from agentgym_envs.webarena.task_file import Selection, find_task_file, load_tasks, select
from agentgym_envs.webarena.tasks import TaskFormatError, WebTask, task_row
from agentgym_envs.webarena.urls import SiteUrls
from agentgym_envs.webarena.world import Entry, Scoring, World

_LOGGER = logging.getLogger(__name__)
LOGIN_SECONDS = 20.0
_HOME = "homepage"
_HOME_SEEN = "homepage.test"  # a domain that is nobody's (RFC 2606)


class DeployedWorld(World):
    """WebArena's tasks on sites that somebody runs. What an episode does to them stays.

    Args:
      deployment: sites, accounts and files.
      tasks: with placeholders.
    """

    def __init__(self, deployment: Deployment, tasks: Sequence[WebTask]):
        # A benchmark: none of its tasks are for training.
        self.entries = [Entry(task, split="test") for task in tasks]
        self.scoring = Scoring(
            deployment.functions(), deployment.make_judge(), deployment.patience_seconds
        )
        self._deployment = deployment
        bases = dict(deployment.urls.bases)
        servers = {server_of(base): server_of(base) for base in bases.values()}
        if _HOME not in bases:
            self._homepage = Homepage(bases)
            bases[_HOME] = f"http://{_HOME_SEEN}"
            servers[f"{_HOME_SEEN}:80"] = self._homepage.server
        self._urls = SiteUrls(bases)
        self._reach = Reach(servers)
        self._cookies = CookieFolder(deployment.cookies, self._log_in)
        folder = deployment.recordings
        self._recordings = Recordings(folder) if folder is not None else None

    @property
    def urls(self) -> SiteUrls:
        """Addresses of the sites."""
        return self._urls

    @property
    def reach(self) -> Reach:
        """The sites and the page that lists them."""
        return self._reach

    def log_in_everywhere(self) -> None:
        """Has cookies of all accounts, so that no episode waits for a login.

        Raises:
          SetupError: an account is refused or a site does not answer.
        """
        for site in self._deployment.accounts:
            try:
                self._cookies.of(site)
            except (LoginError, TimeoutError, BrowserLost) as error:
                raise SetupError(f"webarena: {error}") from None

    def start(self, task: WebTask, *, is_original: bool) -> Start:
        """A new episode with the cookies of the task's accounts.

        Raises:
          EnvironmentFault: SIMULATOR, nobody can be logged in.
        """
        cookies: list[Any] = []
        for site in task.accounts:
            if site not in self._deployment.accounts:
                continue  # the task is played as a stranger, as the deployment wants it
            try:
                cookies += self._cookies.of(site)
            except (LoginError, TimeoutError, BrowserLost) as error:
                raise EnvironmentFault(ErrorKind.SIMULATOR, f"webarena: {error}") from None
        recordings = self._recordings
        recording = None if recordings is None else recordings.begin(task.task_id)
        return Start(
            urls=task.start_urls,
            cookies=tuple(cookies),
            is_original=is_original,
            recording=recording,
        )

    def finish(self, start: Start, answer: str | None = None) -> None:
        """Keeps the recording of a scored episode. WebArena resets its sites by starting them anew."""
        if self._recordings is not None and start.recording is not None:
            self._recordings.end(start.recording, answer)

    def _log_in(self, site: str) -> list[Any]:
        """New cookies of the site's account.

        Raises:
          LoginError: nobody could be logged in.
        """
        process = BrowserProcess.of(self._reach)
        process.start()
        chromium = process.chromium
        if chromium is None:
            raise LoginError(f"{site}: there is no browser to log in with")
        base, account = self._urls.bases[site], self._deployment.accounts[site]
        _LOGGER.info("webarena: logging in on %s as %s", site, account.username)
        work = cookies_of(chromium.browser, site, base, account)
        return process.run(work, LOGIN_SECONDS)


def choose_tasks(deployment: Deployment) -> Selection:
    """WebArena's tasks that this deployment allows, and what is left out.

    Raises:
      SetupError: there is no task file, or it is none.
    """
    try:
        tasks = load_tasks(find_task_file(deployment.task_file))
    except (FileNotFoundError, TaskFormatError) as error:
        raise SetupError(f"webarena: {error}") from None
    sites = deployment.urls.bases
    return select(tasks, sites, has_judge=deployment.judge is not None)


def tasks_version(tasks: Sequence[WebTask]) -> str:
    """Names these tasks: other tasks, or the same ones worded otherwise, have another name."""
    rows = json.dumps([task_row(task) for task in tasks], sort_keys=True)
    return f"webarena-{hashlib.sha256(rows.encode()).hexdigest()[:8]}"


def read_world(path: pathlib.Path) -> DeployedWorld:
    """The world of a deployment's file; says how many tasks there are and how many are left out.

    Raises:
      SetupError: the file or the task file is not what it should be.
    """
    deployment = read_deployment(path)
    no_form = sorted(set(deployment.accounts) - set(FORMS))
    if no_form:
        raise SetupError(f"webarena: {path}: there is no login form for {', '.join(no_form)}")
    selection = choose_tasks(deployment)
    # A warning, because a server shows no less: a score is of these tasks and no others.
    level = logging.WARNING if selection.left_out else logging.INFO
    _LOGGER.log(level, "webarena: %s", selection.sentence())
    return DeployedWorld(deployment, selection.tasks)


deployed_world = functools.cache(read_world)
"""The one of this process for a file."""
