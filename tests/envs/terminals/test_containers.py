"""Containers of terminal tasks: with a fake engine, and with podman where it works."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import httpx
import pytest

from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.terminals.bubblewrap import Bubblewrap
from agentgym_envs.terminals.containers import Containers
from agentgym_envs.terminals.harbor import read_folder
from agentgym_envs.terminals.served import make_served_environment
from tests.waiting import PATIENCE_S, until

FAKE = r"""#!/bin/sh
printf '%s\037' "$@" >> "$FAKE_ENGINE/calls"; printf '\036' >> "$FAKE_ENGINE/calls"
[ ! -e "$FAKE_ENGINE/$1" ] || . "$FAKE_ENGINE/$1"
"""
TASK = {
    "instruction.md": "Write 42 to the file answer.\n",
    "task.toml": '[verifier.env]\nEXPECTED = "42"\n[environment]\nmemory_mb = 256\ncpus = 1\n',
    "environment/Dockerfile": "FROM localbase\nWORKDIR /work\nENV A=5\nRUN echo built > /built\n",
    "tests/test.sh": '[ "$(cat answer)" = "$EXPECTED" ] && echo 1 > /logs/verifier/reward.txt\n',
    "solution/solve.sh": "echo 42 > answer\n",
}


def write_task(root, **changes):
    """Writes the folder of a task that needs a container."""
    for name, text in {**TASK, **changes}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


class FakeEngine:
    """An engine that records its calls, and runs a script for each kind of call."""

    def __init__(self, folder):
        self._folder = folder

    def script(self, kind, text):
        (self._folder / kind).write_text(text)

    def calls(self, kind):
        records = (self._folder / "calls").read_text().split("\036")[:-1]
        found = [record.split("\037")[:-1] for record in records]
        return [call for call in found if call[0] == kind]


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """A fake docker, without podman."""
    folder = tmp_path / "fake"
    folder.mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "docker").write_text(FAKE)
    (programs / "docker").chmod(0o755)
    for name in ("sh", "timeout", "sleep"):
        (programs / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("FAKE_ENGINE", str(folder))
    return FakeEngine(folder)


def started(folder, sandbox="docker"):
    """Returns an environment whose sandbox is ready."""
    served = make_served_environment(tasks=str(folder), sandbox=sandbox)
    served.prepare()
    return served.factory()


def block(text):
    return f"```bash\n{text}\n```"


def test_a_container_has_its_limits_no_network_and_a_short_life(docker, tmp_path):
    write_task(tmp_path / "tasks/first")
    docker.script("image", "exit 1")
    docker.script("exec", "printf '3 5\\nhello'")
    environment = started(tmp_path / "tasks", sandbox="auto")
    (build,) = docker.calls("build")
    assert build[-1] == str(tmp_path / "tasks/first/environment")
    image = build[1].removeprefix("--tag=")
    environment.reset(0)
    (run,) = docker.calls("run")
    bash = run.index(image)
    assert run[bash - 1] == "--entrypoint=bash"
    options = set(run[:bash])
    assert {"--network=none", "--memory=256m", "--memory-swap=256m", "--cpus=1"} <= options
    assert "--pids-limit=512" in options
    (name,) = [word.removeprefix("--name=") for word in run if word.startswith("--name=")]

    assert environment.step("echo hello").observation == "exit status 3\nhello"
    (command,) = docker.calls("exec")
    assert command[2].startswith("--env=LIMITS=")
    assert command[3:5] == [name, "bash"]
    assert command[-1] == "echo hello"
    assert not docker.calls("restart")
    docker.script("exec", "cat >/dev/null 2>&1; printf '0 1\\n1'")
    assert environment.step("submit").score == 1
    assert docker.calls("restart") == [["restart", "-t", "0", name]]
    assert "--env=EXPECTED=42" in docker.calls("exec")[1]
    assert docker.calls("rm") == [["rm", "--force", "--volumes", name]]


def test_a_command_without_an_answer_restarts_the_container(docker, tmp_path):
    write_task(tmp_path / "tasks/first")
    environment = started(tmp_path / "tasks")
    environment.reset(0)
    for answer in ("exit 0", "echo broken >&2; exit 1", "printf '%09999d 1\\n' 1"):
        docker.script("exec", answer)
        assert environment.step("ls").observation.endswith("by its memory or time.]")
    assert len(docker.calls("restart")) == 3
    docker.script("ps", "exit 1")
    docker.script("restart", "echo no daemon >&2; exit 1")
    with pytest.raises(EnvironmentFault, match="`docker restart` failed: no daemon") as caught:
        environment.step("ls")
    assert caught.value.kind is ErrorKind.SIMULATOR
    assert len(docker.calls("rm")) == 1


def test_a_failed_build_is_one_line_and_an_error_of_its_task_only(docker, tmp_path):
    write_task(tmp_path / "tasks/first")
    write_task(tmp_path / "tasks/second", **{"environment/Dockerfile": "FROM a\nRUN bad\n"})
    docker.script("image", "exit 1")
    docker.script("build", 'case "$*" in *second*) printf "1\\n2\\n3\\nbad: no" >&2; exit 1;; esac')
    environment = started(tmp_path / "tasks")
    assert environment.reset(0).observation
    with pytest.raises(EnvironmentFault) as caught:
        environment.reset(1)
    assert caught.value.message == (
        "the task second has no image: `docker build` failed: 2 | 3 | bad: no"
    )
    environment.reset(0)
    docker.script("run", "echo no space >&2; exit 125")
    with pytest.raises(EnvironmentFault, match="`docker run` failed: no space"):
        environment.reset(0)
    assert len(docker.calls("rm")) == len(docker.calls("run")) == 3


def test_a_build_ends_with_its_time(docker, tmp_path):
    slow = {"task.toml": "[environment]\nbuild_timeout_sec = 1\n"}  # reached
    write_task(tmp_path / "tasks/first", **slow)
    docker.script("image", "exit 1")
    docker.script("build", "sleep 1000")
    environment = started(tmp_path / "tasks")
    with pytest.raises(EnvironmentFault, match="`docker build` was ended after 1 s"):
        environment.reset(0)


def test_workers_do_not_build_what_their_server_has_built(docker, tmp_path):
    write_task(tmp_path / "tasks/first")
    docker.script("image", "exit 1")
    docker.script("build", "echo bad; exit 1")
    served = make_served_environment(tasks=str(tmp_path / "tasks"), sandbox="docker")
    with served.shared():
        environment = started(tmp_path / "tasks")
        with pytest.raises(EnvironmentFault, match="failed: bad"):
            environment.reset(0)
    assert len(docker.calls("build")) == 1


def test_containers_of_dead_processes_and_old_images_are_removed(docker, tmp_path):
    write_task(tmp_path / "tasks/first")
    environment = started(tmp_path / "tasks")
    environment.reset(0)
    (living,) = [w.removeprefix("--name=") for w in docker.calls("run")[0] if "--name=" in w]
    *machine, _, _, last = living.split("-")
    dead = "-".join([*machine, "999999999", "5", last])
    again = living.replace(f"-{living.split('-')[-2]}-", "-1-")  # the same number, another process
    docker.script("ps", f"echo {living}; echo {dead}; echo {again}")
    docker.script("images", "i=0; while [ $i -lt 103 ]; do echo localhost/a:$i; i=$((i + 1)); done")
    started(tmp_path / "tasks")
    assert [call[-1] for call in docker.calls("rm")] == [dead, again]
    assert [call[1] for call in docker.calls("rmi")] == [
        f"localhost/a:{i}" for i in (100, 101, 102)
    ]


def test_an_image_depends_on_every_file_of_its_folder(docker, tmp_path):
    write_task(tmp_path / "tasks/first")
    context = tmp_path / "tasks/first/environment"

    def image():
        started(tmp_path / "tasks")
        return docker.calls("image")[-1][-1]

    names = [image()]
    assert image() == names[0]
    (context / "data").write_text("1")
    names.append(image())
    (context / "data").write_text("2")
    names.append(image())
    (context / "data").chmod(0o700)
    names.append(image())
    (context / "link").symlink_to("data")
    names.append(image())
    assert len(set(names)) == len(names)


def test_a_finished_image_is_pulled_and_not_built(docker, tmp_path):
    config = '[environment]\ndocker_image = "example.org/task:1"\n'
    write_task(tmp_path / "tasks/first", **{"task.toml": config})
    docker.script("image", "exit 1")
    started(tmp_path / "tasks").reset(0)
    assert docker.calls("pull") == [["pull", "example.org/task:1"]]
    assert "example.org/task:1" in docker.calls("run")[0]
    write_task(tmp_path / "tasks/first", **{"task.toml": '[environment]\ndocker_image = "-x"\n'})
    with pytest.raises(SetupError, match="docker_image='-x'"):
        read_folder(str(tmp_path / "tasks"))


def test_a_server_with_a_limit_builds_the_images_of_its_tasks_only(docker, tmp_path):
    for name in ("first", "second", "third"):
        write_task(tmp_path / "tasks" / name)
        (tmp_path / "tasks" / name / "environment" / "note").write_text(name)  # another image
    docker.script("image", "exit 1")
    folder = str(tmp_path / "tasks")
    served = make_served_environment(tasks=folder, sandbox="docker", limit=2)
    served.prepare()
    assert len(docker.calls("build")) == 2 == served.spec.num_tasks
    whole = make_served_environment(tasks=folder, sandbox="docker").tasks()
    assert list(served.tasks()) == list(whole)[:2]  # a number keeps its task
    for limit in (-1, 4):
        with pytest.raises(SetupError, match=f"limit={limit} must be .* at most 3"):
            make_served_environment(tasks=folder, sandbox="docker", limit=limit)


def test_the_option_selects_the_sandbox(docker, tmp_path):
    write_task(tmp_path / "tasks/first")
    folder = str(tmp_path / "tasks")
    with pytest.raises(SetupError, match="expected auto, bubblewrap, docker or podman"):
        make_served_environment(tasks=folder, sandbox="lxc")
    with pytest.raises(SetupError, match="needs tasks in Harbor's format"):
        make_served_environment(sandbox="docker")
    with pytest.raises(SetupError, match="`RUN echo built > /built` needs docker or podman"):
        make_served_environment(tasks=folder, sandbox="bubblewrap")
    with pytest.raises(SetupError, match="podman is not installed"):
        make_served_environment(tasks=folder, sandbox="podman").prepare()
    docker.script("ps", "echo no daemon >&2; exit 1")
    with pytest.raises(SetupError, match="neither docker nor podman answers here"):
        make_served_environment(tasks=folder)
    with pytest.raises(SetupError, match="`docker ps` failed: no daemon"):
        make_served_environment(tasks=folder, sandbox="docker").prepare()


def test_only_tasks_that_need_a_container_get_one(docker, tmp_path, monkeypatch):
    monkeypatch.setattr(Bubblewrap, "check", lambda self: None)
    write_task(tmp_path / "tasks/first", **{"environment/Dockerfile": "FROM a\nWORKDIR /work\n"})
    write_task(tmp_path / "tasks/second")
    environment = started(tmp_path / "tasks", sandbox="auto")
    assert len(docker.calls("image")) == 1
    environment.reset(0)
    assert environment.snapshot()["files"]
    assert not docker.calls("run")
    environment.reset(1)
    assert len(docker.calls("run")) == 1
    with pytest.raises(NotImplementedError):
        environment.snapshot()
    environment.reset(0)
    assert len(docker.calls("rm")) == 1


# Podman.

PROGRAMS = "bash cat chmod cp head ls mkdir rm sleep stat tail tar timeout touch".split()
SETTINGS = """[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
default_ulimits = ["nproc=4096:4096", "nofile=4096:4096"]
"""


def base_image(path):
    """Writes a small system with programs of this machine, as an archive."""
    files = [shutil.which(program) for program in PROGRAMS]
    listed = subprocess.run(["ldd", *files], capture_output=True, text=True, check=True).stdout
    libraries = {word for word in listed.split() if word.startswith("/") and word[-1] != ":"}
    with tarfile.open(path, "w") as archive:
        for file in files:
            archive.add(os.path.realpath(file), f"usr/bin/{os.path.basename(file)}")
        for library in sorted(libraries):
            archive.add(os.path.realpath(library), library.lstrip("/"))
        for name, target in (("bin", "usr/bin"), ("usr/bin/sh", "bash")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)


@pytest.fixture(scope="module")
def podman(tmp_path_factory):
    """Podman with storage of its own, and the base image of the tasks."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    folder = tmp_path_factory.mktemp("podman")
    base_image(folder / "base.tar")
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/root"\n'
        f'rootless_storage_path = "{folder}/root"\n'
    )
    (folder / "containers.conf").write_text(SETTINGS)
    (folder / "none.conf").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", f"{folder}/storage.conf")
        for settings in ("none.conf", "containers.conf"):
            patch.setenv("CONTAINERS_CONF", f"{folder}/{settings}")
            subprocess.run(["podman", "import", f"{folder}/base.tar", "localbase"], check=False)
            run = ["podman", "run", "--rm", "--network=none", "--memory=256m", "localbase", "ls"]
            tried = subprocess.run(run, capture_output=True, text=True, check=False)
            if tried.returncode == 0:
                break
        else:
            pytest.skip(f"podman gives no container: {tried.stderr.strip()[-200:]}")
        yield folder
        subprocess.run(["podman", "system", "reset", "--force"], check=False)


def listed():
    """Returns the names of all containers."""
    command = ["podman", "ps", "--all", "--format={{.Names}}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture
def player(podman, tmp_path, monkeypatch):
    """An environment with one task in podman; it leaves no container and no file."""
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path / "tasks/first")
    served = make_served_environment(
        tasks=str(tmp_path / "tasks"), sandbox="podman", command_seconds=PATIENCE_S
    )
    served.prepare()
    environment = served.factory()
    environment.reset(0)
    yield environment
    environment.close()
    assert not listed()
    assert [path.name for path in tmp_path.iterdir()] == ["tasks"]


@pytest.mark.slow
def test_podman_builds_and_plays_a_task(player):
    seen = player.step(block("pwd; cat /built; echo $A [$EXPECTED]; ls /tests /sys/class/net"))
    assert seen.observation == "exit status 0\n/work\nbuilt\n5 []\n/sys/class/net:\nlo\n\n/tests:\n"
    player.step(block("echo text > /root-file; cd /; B=1; sleep 1000 &"))
    again = player.step(block("pwd; cat /root-file; echo [$B]; cat /proc/[0-9]*/comm")).observation
    assert again.startswith("exit status 0\n/work\ntext\n[]\n")
    assert again.split().count("sleep") == 1  # that of process 1
    assert player.step("submit").score == 0
    assert not listed()
    player.reset(0)
    player.step(player.expert_action())
    assert player.step("submit").score == 1


HOSTILE = """
echo 1 > /logs/verifier/reward.txt; echo 'echo 1' > /tests/test.sh; echo x > /tests/conftest.py
(while :; do cp /tests/test.sh /stolen; echo 1 > /logs/verifier/reward.txt; sleep 0.01; done) &
disown; ls /tests
"""


@pytest.mark.slow
def test_in_podman_a_hostile_player_scores_0_and_limits_hold(player):
    player.step(block(HOSTILE))
    big = player.step(block("head -c 400M /dev/zero | tail -c 399M > /dev/null")).observation
    assert "exit status 137" in big or "memory" in big
    assert "exit status" in player.step(block("kill -9 -1; kill -9 1")).observation
    assert player.step("ls").observation.startswith("exit status 0\n")
    assert player.step("submit").score == 0
    player.reset(0)
    player.step("rm /usr/bin/bash")
    assert player.step("submit").score == 0


@pytest.mark.slow
def test_containers_of_a_killed_server_are_removed_at_the_next_start(podman, tmp_path):
    write_task(tmp_path / "tasks/first")
    folder = str(tmp_path / "tasks")
    command = [sys.executable, "-m", "agentgym_envs", "terminals", "--port=0"]
    command += ["--option", f"tasks={folder}", "--option", "sandbox=podman"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        url = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            session = client.post("/create").json()["id"]
            reset = client.post("/reset", json={"id": session, "data_idx": 0}).json()
            assert reset["observation"] == "Write 42 to the file answer."
            action = {"id": session, "action": "pwd"}
            assert client.post("/step", json=action).json()["observation"].endswith("/work\n")
        Containers("podman", read_folder(folder)).check()
        assert len(listed()) == 1  # that of a server which works
        server.kill()
    until(lambda: not processes(folder), "the end of the worker")
    Containers("podman", read_folder(folder)).check()
    assert not listed()


def processes(mark):
    """Returns the processes whose command line contains the mark."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [path] if mark.encode() in path.read_bytes() else []
    return found


@pytest.mark.slow
def test_podman_ends_a_build_with_its_time(podman, tmp_path):
    changes = {
        "task.toml": "[environment]\nbuild_timeout_sec = 8\n",  # reached
        "environment/Dockerfile": "FROM localbase\nRUN touch /a && sleep 4321\n",
    }
    write_task(tmp_path / "tasks/first", **changes)
    environment = started(tmp_path / "tasks", "podman")
    with pytest.raises(EnvironmentFault, match="`podman build` was ended after 8 s"):
        environment.reset(0)
    until(lambda: not processes("sleep\0004321"), "the end of the build")
