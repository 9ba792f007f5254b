import contextlib
import datetime
import json
import os
import sqlite3
import threading
import time

import pytest

from agentgym_sites.chance import Dice
from agentgym_sites.episode_database import EpisodeDatabases, add_clock, next_second
from agentgym_sites.episode_server import EpisodeApplication, StaticFiles
from tests.run_python import output_of


def make(tmp_path):
    add_clock(tmp_path / "template.sqlite3")
    return EpisodeDatabases(tmp_path / "template.sqlite3", tmp_path / "episodes")


def test_episodes_do_not_affect_each_other(tmp_path):
    databases = make(tmp_path)
    for _ in range(3):
        with databases.opened("a") as path:
            last = next_second(path)
    with databases.opened("b") as path:
        assert (last, next_second(path)) == (2, 0)


def test_a_removed_episode_starts_from_the_beginning(tmp_path):
    databases = make(tmp_path)
    with databases.opened("a") as path:
        next_second(path)
    databases.remove("a")
    databases.remove("never-there")
    with databases.opened("a") as path:
        assert next_second(path) == 0


@pytest.mark.parametrize("episode", ["", "A", "../a", "a/b", "a.b", "x" * 65, "a\n"])
def test_an_invalid_id_is_refused(tmp_path, episode):
    databases = make(tmp_path)
    with pytest.raises(ValueError, match="no episode id"), databases.opened(episode):
        pass
    with pytest.raises(ValueError, match="no episode id"):
        databases.remove(episode)


def test_requests_of_one_episode_are_served_sequentially(tmp_path):
    databases = make(tmp_path)
    inside, most = [0], [0]

    def request():
        with databases.opened("a"):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.02)
            inside[0] -= 1

    threads = [threading.Thread(target=request) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_episodes_older_than_a_day_are_removed_at_the_start(tmp_path):
    databases = make(tmp_path)
    for episode in ("old", "new"):
        with databases.opened(episode):
            pass
    yesterday = time.time() - 25 * 3600
    os.utime(tmp_path / "episodes" / "old.sqlite3", (yesterday, yesterday))
    EpisodeDatabases(tmp_path / "template.sqlite3", tmp_path / "episodes")
    assert [path.name for path in (tmp_path / "episodes").iterdir()] == ["new.sqlite3"]


def test_the_changes_of_an_episode_are_served_to_evaluators_but_not_to_browsers(tmp_path):
    databases = make(tmp_path)
    with databases.opened("a") as path:
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE note (text TEXT)")
            connection.execute("INSERT INTO note VALUES ('new')")
        next_second(path)
    application = EpisodeApplication(
        lambda environ, start_response: [b"a page"],
        databases,
        StaticFiles("/static/", lambda name: None),
        lambda database: None,
    )

    def ask(path, **headers):
        statuses = []
        environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET", "QUERY_STRING": "", **headers}
        body = b"".join(application(environ, lambda status, *_: statuses.append(status)))
        return statuses[0][:3], body

    status, body = ask("/__episode__/a")
    assert status == "200"
    assert json.loads(body) == {"note": {"removed": [], "added": [{"text": "new"}]}}
    assert ask("/__episode__/never-there") == ("200", b"{}")
    assert ask("/__episode__/a", HTTP_X_EPISODE="a")[0] == "404"
    assert ask("/__episode__/a", HTTP_ORIGIN="http://shopping.test")[0] == "404"
    for header in ({"HTTP_X_EPISODE": "a"}, {"HTTP_ORIGIN": "http://shopping.test"}):
        assert ask("/__episode__/a", REQUEST_METHOD="DELETE", **header)[0] == "404"
        assert json.loads(ask("/__episode__/a")[1]), "a page ended the episode"
    assert ask("/__episode__/a", REQUEST_METHOD="DELETE")[0] == "204"
    assert ask("/__episode__/a") == ("200", b"{}")


def test_pseudo_random_numbers_are_the_same_on_every_machine():
    dice = Dice("a name")
    assert [dice.below(100) for _ in range(5)] == [84, 35, 25, 68, 22]
    assert sorted(Dice("x").sample(range(9), 9)) == list(range(9))


CLOCK = """
from agentgym_sites import chance, clock
clock.install(); chance.install()
import datetime
from django.conf import settings
from django.core import signing
from django.utils import timezone, crypto
settings.configure(USE_TZ=True, SECRET_KEY="k")
clock.install_in_signatures()
def look():
    now = (timezone.now(), datetime.datetime.now(), datetime.date.today())
    return (*now, crypto.get_random_string(9), signing.dumps("session"))
with clock.at(clock.episode_time(61)), chance.seed_request(61):
    first = look()
    assert crypto.get_random_string(9) != first[3]
with clock.at(clock.episode_time(61)), chance.seed_request(61):
    assert look() == first
assert first[0].isoformat() == "2024-03-01T12:01:01+00:00", first
assert first[1].isoformat() == "2024-03-01T12:01:01", first
assert first[2].isoformat() == "2024-03-01", first
assert first[3] == "ISSXCQdJ7", first  # the keys of prepared sites must not change
assert signing.loads(first[4]) == "session" and ":1rg1ZV:" in first[4], first
assert isinstance(first[0], datetime.datetime) and isinstance(first[2], datetime.date)
assert look()[0].year >= YEAR and look()[3] != look()[3]
"""


def test_time_and_random_numbers_of_an_episode_are_reproducible():
    pytest.importorskip("django", reason="needs Django: pip install -e '.[web]'")
    year = datetime.datetime.now(datetime.UTC).year
    output_of("-c", CLOCK.replace("YEAR", str(year)))
