"""Tasks on a real deployment of WebArena, whose sites are used unchanged."""

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
from agentgym_envs.webarena.login import FORMS, LoginError, cookies_of
from agentgym_envs.webarena.recordings import Recordings
from agentgym_envs.webarena.task_file import find_task_file, load_tasks, select
from agentgym_envs.webarena.tasks import TaskFormatError, WebTask, task_row
from agentgym_envs.webarena.urls import SiteUrls
from agentgym_envs.webarena.world import Entry, Scoring, World

_LOGGER = logging.getLogger(__name__)
LOGIN_SECONDS = 20.0
_HOME = "homepage"
_HOME_SEEN = "homepage.test"  # a domain without an owner (RFC 2606)


class DeployedWorld(World):
    """WebArena's tasks on sites of the user. An episode's changes to the sites are permanent."""

    def __init__(self, deployment: Deployment, tasks: Sequence[WebTask]):
        # This is a benchmark, so no task is for training.
        self.entries = [Entry(task, split="test") for task in tasks]
        self.scoring = Scoring(
            deployment.functions(), deployment.judge, deployment.patience_seconds
        )
        self._deployment = deployment
        bases = dict(deployment.urls.bases)
        servers = {server_of(base): server_of(base) for base in bases.values()}
        if _HOME not in bases:
            self._homepage = Homepage(bases)
            bases[_HOME] = f"http://{_HOME_SEEN}"
            servers[f"{_HOME_SEEN}:80"] = self._homepage.server
        self.urls = SiteUrls(bases)
        self.reach = Reach(servers)
        self._cookies = CookieFolder(deployment.cookies, self._log_in)
        folder = deployment.recordings
        self._recordings = None if folder is None else Recordings(folder)

    def log_in_everywhere(self) -> None:
        """Logs in all accounts, so that no episode waits for a login.

        Raises:
          SetupError: An account is rejected, or a site does not answer.
        """
        for site in self._deployment.accounts:
            try:
                self._cookies.get(site)
            except (LoginError, TimeoutError, BrowserLost) as error:
                raise SetupError(f"webarena: {error}") from None

    def start(self, task: WebTask, *, is_original: bool) -> Start:
        """Returns the settings of an episode, with the cookies of the task's accounts.

        Raises:
          EnvironmentFault: SIMULATOR if the login failed.
        """
        cookies: list[Any] = []
        for site in task.accounts:
            if site not in self._deployment.accounts:
                # the deployment has no account for this site, so the task runs without a login
                continue
            try:
                cookies += self._cookies.get(site)
            except (LoginError, TimeoutError, BrowserLost) as error:
                raise EnvironmentFault(ErrorKind.SIMULATOR, f"webarena: {error}") from None
        recordings = self._recordings
        return Start(
            urls=task.start_urls,
            cookies=tuple(cookies),
            is_original=is_original,
            recording=None if recordings is None else recordings.begin(task.task_id),
        )

    def finish(self, start: Start, answer: str | None = None) -> None:
        """Keeps the recording of a scored episode.

        Resets no site, because WebArena's sites are reset by a restart.
        """
        if self._recordings is not None and start.recording is not None:
            self._recordings.end(start.recording, answer)

    def _log_in(self, site: str) -> list[Any]:
        """Logs in and returns the new cookies of the site's account.

        Raises:
          LoginError: The login failed.
        """
        process = BrowserProcess.get(self.reach)
        process.start()
        chromium = process.chromium
        if chromium is None:
            raise LoginError(f"{site}: there is no browser to log in with")
        base, account = self.urls.bases[site], self._deployment.accounts[site]
        _LOGGER.info("webarena: logging in on %s as %s", site, account.username)
        work = cookies_of(chromium.browser, site, base, account)
        return process.run(work, LOGIN_SECONDS)


def tasks_version(tasks: Sequence[WebTask]) -> str:
    """Returns a version that changes with the set of tasks and with their content."""
    rows = json.dumps([task_row(task) for task in tasks], sort_keys=True)
    return f"webarena-{hashlib.sha256(rows.encode()).hexdigest()[:8]}"


def read_world(path: pathlib.Path) -> DeployedWorld:
    """Reads a deployment's file and the tasks for it; logs the numbers of tasks kept and left out.

    Raises:
      SetupError: The file or the task file is invalid.
    """
    deployment = read_deployment(path)
    no_form = sorted(set(deployment.accounts) - set(FORMS))
    if no_form:
        raise SetupError(f"webarena: {path}: there is no login form for {', '.join(no_form)}")
    try:
        tasks = load_tasks(find_task_file(deployment.task_file))
    except (FileNotFoundError, TaskFormatError) as error:
        raise SetupError(f"webarena: {error}") from None
    selection = select(tasks, deployment.urls.bases, has_judge=deployment.judge is not None)
    # The level is WARNING so that servers show it: a score covers only the selected tasks.
    level = logging.WARNING if selection.left_out else logging.INFO
    _LOGGER.log(level, "webarena: %s", selection.sentence())
    return DeployedWorld(deployment, selection.tasks)


# Returns the world of a deployment file, read once per process.
deployed_world = functools.cache(read_world)
