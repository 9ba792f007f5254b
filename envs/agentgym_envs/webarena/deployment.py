"""Reads the JSON file that describes a real deployment of WebArena's sites.

    {
      "sites": {
        "shopping": {"url": "http://web.example.org:7770", "username": "..", "password": ".."},
        "shopping_admin": {"url": "http://web.example.org:7780/admin", "username": "..", "password": ".."},
        "reddit": {"url": "http://web.example.org:9999", "username": "..", "password": ".."},
        "gitlab": {"url": "http://web.example.org:8023", "username": "..", "password": ".."},
        "map": {"url": "http://web.example.org:3000"}
      },
      "cookies": "~/.cache/agentgym/webarena-cookies",
      "task_file": null,
      "patience_seconds": 3,
      "recordings": null,
      "judge": {"url": "http://127.0.0.1:8000/v1", "model": "..", "key_file": null}
    }

Every field but `sites` is optional. docs/webarena.md explains the fields.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from agentgym_envs.base.environment import SetupError
from agentgym_envs.data_folder import data_folder
from agentgym_envs.webarena.evaluation.endpoint_judge import VERDICT_SECONDS, EndpointJudge
from agentgym_envs.webarena.evaluation.functions import WITHOUT_A_SITE, Function
from agentgym_envs.webarena.evaluation.magento import Magento
from agentgym_envs.webarena.urls import SITES, SiteUrls

# WebArena's sites continue to build a page after it has loaded, so WebArena's evaluators wait 3 s.
PATIENCE_SECONDS = 3.0
_FIELDS = ("sites", "cookies", "task_file", "patience_seconds", "recordings", "judge")
_SITE_FIELDS = ("url", "username", "password")
_JUDGE_FIELDS = ("url", "model", "key_file", "seconds")


@dataclasses.dataclass(frozen=True)
class Account:
    """Account that is logged in on a site."""

    username: str
    password: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Deployment:
    """Sites, accounts and files.

    Attributes:
      accounts: Account by site; sites without an account are visited without a login.
      cookies: Folder of the cookies of the accounts.
      task_file: File of WebArena's tasks; None for the file of an installed package.
      patience_seconds: Time for which a failed check of a page is repeated.
      recordings: Folder for recordings for webarena-verified; if None, nothing is recorded.
      judge: Judge of freely worded answers, which stores its verdicts in the data folder; if None,
        tasks with these answers are left out.
    """

    urls: SiteUrls
    accounts: Mapping[str, Account]
    cookies: pathlib.Path
    task_file: pathlib.Path | None = None
    patience_seconds: float = PATIENCE_SECONDS
    recordings: pathlib.Path | None = None
    judge: EndpointJudge | None = None

    def functions(self) -> Mapping[str, Function]:
        """Returns the functions that tasks can call by name.

        The functions of the shop need its administrator's account.
        """
        admin = self.accounts.get("shopping_admin")
        if admin is None or "shopping" not in self.urls.bases:
            return WITHOUT_A_SITE
        shop = Magento(self.urls.bases["shopping"], admin.username, admin.password)
        return {**WITHOUT_A_SITE, **shop.functions()}


def read_deployment(path: pathlib.Path) -> Deployment:
    """Reads the description of a deployment from a file.

    Raises:
      SetupError: The file does not exist or is invalid. The message never quotes a value, because
        one of them is a password.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SetupError(f"webarena: {path}: {error.strerror}") from None
    except ValueError:
        raise SetupError(f"webarena: {path} is not JSON") from None
    file = _Section(content, str(path), _FIELDS)
    sites = {
        site: _Section(value, f"{path}: sites.{site}", _SITE_FIELDS)
        for site, value in file.get("sites", dict).items()
    }
    if not set(sites) <= set(SITES):
        raise SetupError(f"webarena: {path}: sites should be some of {', '.join(SITES)}")
    try:
        urls = SiteUrls({site: section.get("url", str) for site, section in sites.items()})
    except ValueError as error:
        raise SetupError(f"webarena: {path}: {error}") from None
    return Deployment(
        urls=urls,
        accounts={
            site: Account(section.get("username", str), section.get("password", str))
            for site, section in sites.items()
            if section.has_account
        },
        cookies=file.path("cookies") or data_folder() / "webarena" / "cookies",
        task_file=file.path("task_file"),
        patience_seconds=file.get("patience_seconds", float, default=PATIENCE_SECONDS),
        recordings=file.path("recordings"),
        judge=_judge(file.get("judge", dict, default={}), f"{path}: judge"),
    )


class _Section:
    """Reader of one object of the file; its errors name fields, never values."""

    def __init__(self, content: Any, place: str, fields: tuple[str, ...]):
        if not isinstance(content, dict):
            raise SetupError(f"webarena: {place} should be an object")
        for field in content:
            if field not in fields:
                known = ", ".join(fields)
                raise SetupError(f"webarena: {place} has no field {field!r}; fields are {known}")
        self._content = content
        self._place = place

    def get(self, field: str, kind: type, default: Any = None) -> Any:
        """Returns a field of one type; null counts as missing."""
        value = self._content.get(field)
        if value is None and default is not None:
            return default
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if not isinstance(value, kind):
            found = "nothing" if value is None else type(value).__name__
            raise SetupError(
                f"webarena: {self._place}: {field} should be {kind.__name__}, found {found}"
            )
        return value

    def path(self, field: str) -> pathlib.Path | None:
        """Returns a path of the file system; None if the field is missing or empty."""
        text = self.get(field, str, default="")
        return pathlib.Path(text).expanduser() if text else None

    @property
    def has_account(self) -> bool:
        """Returns True if the site has an account to log in with."""
        return "username" in self._content or "password" in self._content


def _judge(content: dict[str, Any], place: str) -> EndpointJudge | None:
    if not content:
        return None
    section = _Section(content, place, _JUDGE_FIELDS)
    return EndpointJudge(
        url=section.get("url", str),
        model=section.get("model", str),
        api_key=_key(section.path("key_file")),
        seconds=section.get("seconds", float, default=VERDICT_SECONDS),
        folder=data_folder() / "webarena" / "verdicts",
    )


def _key(path: pathlib.Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(
            f"webarena: the key of the judge, {path}: {type(error).__name__}"
        ) from None
