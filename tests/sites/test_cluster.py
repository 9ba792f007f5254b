import os
import signal
import urllib.request

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_sites import cluster
from agentgym_sites.cluster import Cluster
from agentgym_sites.preparation import fingerprint, prepare
from agentgym_sites.site import end_episode
from tests.sites.tiny_site import TinySite
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow


def seconds_of(url, episode):
    request = urllib.request.Request(url, headers={"X-Episode": episode})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return int(response.read())


def test_a_site_is_prepared_once(tmp_path):
    site = TinySite()
    assert prepare(site, tmp_path) == prepare(site, tmp_path) == tmp_path / "tiny" / "v1"
    assert site.builds == 1


def test_a_failed_preparation_leaves_no_finished_folder(tmp_path):
    with pytest.raises(RuntimeError, match="no more disk"):
        prepare(TinySite(fails=True), tmp_path)
    assert not (tmp_path / "tiny" / "v1").exists()
    finished = prepare(TinySite(), tmp_path)
    assert (finished / "template.sqlite3").exists()
    assert [path.name for path in (tmp_path / "tiny").iterdir() if path.is_dir()] == ["v1"]


def test_a_preparation_reports_its_progress(tmp_path, capsys):
    site = TinySite()
    build = site.build
    site.build = lambda folder, say: (say("filling"), build(folder, say))
    prepare(site, tmp_path)
    told = capsys.readouterr().err.splitlines()
    assert told[1] == "webarena: tiny: filling" and "prepared in" in told[-1]


def test_the_error_for_a_missing_package_names_it(tmp_path):
    site = TinySite()
    site.missing = lambda: "tiny needs apt-get install tiny"
    with pytest.raises(SetupError, match="apt-get install tiny"):
        prepare(site, tmp_path)


def test_a_fingerprint_depends_on_file_contents_and_package_versions(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("1")
    before = fingerprint([file], ("pytest", "no-such-package"))
    assert before == fingerprint([file], ("pytest", "no-such-package"))
    assert before != fingerprint([file], ("no-such-package",))
    file.write_text("2")
    assert before != fingerprint([file], ("pytest", "no-such-package"))


def test_sites_are_found_by_webarenas_site_names():
    assert [site.name for site in cluster.sites_for(["shopping_admin"])] == ["shop"]
    with pytest.raises(SetupError, match="no embedded site 'map'"):
        cluster.sites_for(["map"])


def test_a_dead_site_restarts_with_its_episodes(tmp_path):
    with Cluster(tmp_path, [TinySite()]) as sites:
        url = sites.urls["shopping"]
        assert sites.urls["shopping_admin"] == url + "/dashboard"
        assert [seconds_of(url, "a") for _ in range(3)] == [0, 1, 2]
        assert cluster.running_clusters(tmp_path)[0]["urls"] == sites.urls
        os.kill(sites.pids()["tiny"], signal.SIGKILL)
        until(lambda: sites.restarts == 1 and sites.is_healthy())
        assert seconds_of(url, "a") == 3
        sites.end_episode("a")
        assert seconds_of(url, "a") == 0
        states = sites.storage_state(["shopping_admin"])
        assert [cookie["name"] for cookie in states["cookies"]] == ["shopping_admin"]
        pid = sites.pids()["tiny"]
    assert not cluster.running_clusters(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_site_that_cannot_start_is_reported_with_its_last_output(tmp_path):
    site = TinySite()
    site.command = lambda *_: ["python3", "-c", "raise SystemExit('the port is haunted')"]
    with pytest.raises(SetupError, match="the port is haunted"):
        Cluster(tmp_path, [site]).start()


def test_ending_an_episode_of_a_dead_site_raises_an_os_error():
    with pytest.raises(OSError):
        end_episode("http://127.0.0.1:1", "a")
