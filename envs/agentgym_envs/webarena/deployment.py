"""A real deployment of WebArena's sites, described by one JSON file.

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

Everything but `sites` may be left out. docs/webarena.md explains the fields.
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
from agentgym_envs.webarena.evaluation.judge import Judge
from agentgym_envs.webarena.evaluation.magento import Magento
from agentgym_envs.webarena.urls import SITES, SiteUrls

# WebArena's sites go on building a page after it has loaded; its evaluators wait 3 s.
PATIENCE_SECONDS = 3.0
_FIELDS = ("sites", "cookies", "task_file", "patience_seconds", "recordings", "judge")
_SITE_FIELDS = ("url", "username", "password")
_JUDGE_FIELDS = ("url", "model", "key_file", "seconds")


@dataclasses.dataclass(frozen=True)
class Account:
    """Who is logged in on a site."""

    username: str
    password: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class JudgeSettings:
    """Where freely worded answers are judged.

    Attributes:
      url: base address of an OpenAI-compatible endpoint.
      model: name of the model.
      key_file: file that holds the key alone; None for endpoints without one.
      seconds: how long one verdict may take.
    """

    url: str
    model: str
    key_file: pathlib.Path | None = None
    seconds: float = VERDICT_SECONDS


@dataclasses.dataclass(frozen=True)
class Deployment:
    """Sites, accounts and files.

    Attributes:
      urls: where the sites are.
      accounts: by site; sites without one are visited as a stranger.
      cookies: folder of the cookies of the accounts.
      task_file: WebArena's tasks; None: those of an installed package.
      patience_seconds: how long a check of a page is repeated until it holds.
      recordings: folder that scored episodes are recorded in, for webarena-verified; None: they
        are not recorded.
      judge: None: tasks with freely worded answers are left out.
    """

    urls: SiteUrls
    accounts: Mapping[str, Account]
    cookies: pathlib.Path
    task_file: pathlib.Path | None = None
    patience_seconds: float = PATIENCE_SECONDS
    recordings: pathlib.Path | None = None
    judge: JudgeSettings | None = None

    def functions(self) -> Mapping[str, Function]:
        """What tasks may call by name: the shop's need the account of its administrator."""
        admin = self.accounts.get("shopping_admin")
        if admin is None or "shopping" not in self.urls.bases:
            return WITHOUT_A_SITE
        shop = Magento(self.urls.bases["shopping"], admin.username, admin.password)
        return {**WITHOUT_A_SITE, **shop.functions()}

    def make_judge(self) -> Judge | None:
        """The judge, which keeps its verdicts in the data folder.

        Raises:
          SetupError: the file with its key cannot be read.
        """
        if self.judge is None:
            return None
        return EndpointJudge(
            self.judge.url,
            self.judge.model,
            api_key=_key(self.judge.key_file),
            seconds=self.judge.seconds,
            folder=data_folder() / "webarena" / "verdicts",
        )


def read_deployment(path: pathlib.Path) -> Deployment:
    """The deployment that a file describes.

    Raises:
      SetupError: the file is not there or does not describe one; the message never quotes a
        value, because one of them is a password.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
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
    cookies = file.get("cookies", str, default="") or str(data_folder() / "webarena" / "cookies")
    task_file = file.get("task_file", str, default="")
    recordings = file.get("recordings", str, default="")
    return Deployment(
        urls=urls,
        accounts={
            site: _account(section) for site, section in sites.items() if section.has_account
        },
        cookies=pathlib.Path(cookies).expanduser(),
        task_file=pathlib.Path(task_file).expanduser() if task_file else None,
        patience_seconds=file.get("patience_seconds", float, default=PATIENCE_SECONDS),
        recordings=pathlib.Path(recordings).expanduser() if recordings else None,
        judge=_judge(file.get("judge", dict, default={}), f"{path}: judge"),
    )


class _Section:
    """An object of the file, with errors that name fields and never values."""

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
        """A field of one type; null counts as left out."""
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

    @property
    def has_account(self) -> bool:
        """Whether somebody is to be logged in."""
        return "username" in self._content or "password" in self._content


def _account(section: _Section) -> Account:
    return Account(section.get("username", str), section.get("password", str))


def _judge(content: dict[str, Any], place: str) -> JudgeSettings | None:
    if not content:
        return None
    section = _Section(content, place, _JUDGE_FIELDS)
    key_file = section.get("key_file", str, default="")
    return JudgeSettings(
        url=section.get("url", str),
        model=section.get("model", str),
        key_file=pathlib.Path(key_file).expanduser() if key_file else None,
        seconds=section.get("seconds", float, default=VERDICT_SECONDS),
    )


def _key(path: pathlib.Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(
            f"webarena: the key of the judge, {path}: {type(error).__name__}"
        ) from None
