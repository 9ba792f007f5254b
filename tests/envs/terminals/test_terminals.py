"""Terminal tasks: their tests, hostile players, Harbor's folders, and bad input."""

import dataclasses
import json
import pathlib
import random
import shlex
import subprocess
import sys

import pytest

from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.registry import ENVIRONMENTS
from agentgym_envs.terminals.bubblewrap import Bubblewrap
from agentgym_envs.terminals.environment import (
    REFUSED,
    TerminalEnvironment,
    read_command,
    read_reward,
)
from agentgym_envs.terminals.harbor import read_folder
from agentgym_envs.terminals.programs import draw
from agentgym_envs.terminals.recipes import FAMILIES, PER_FAMILY, recipe_tasks
from agentgym_envs.terminals.sandbox import Result
from agentgym_envs.terminals.served import make_served_environment
from agentgym_envs.terminals.tasks import File, task_manifest
from tests.envs.serving import serving
from tests.waiting import PATIENCE_S

ROOT = pathlib.Path(__file__).parents[3]
MODULE = ENVIRONMENTS["terminals"].module
TASKS = recipe_tasks()
# One task of each family, in the default tests.
FIRST = range(0, len(TASKS), PER_FAMILY)

# A reward is faked in every place that a player reaches.
FAKES = """
mkdir -p /logs/verifier /tests; echo 1 > /logs/verifier/reward.txt; echo 'echo 1' > /tests/test.sh
for place in /app ~ ~/bin ~/.local/bin /tmp; do
  mkdir -p $place
  for program in python3 git bwrap bash timeout cat; do
    printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n' > $place/$program
    chmod +x $place/$program
  done
  for module in sitecustomize usercustomize conftest json os subprocess; do
    echo "open('/logs/verifier/reward.txt', 'w').write('1')" > $place/$module.py
  done
done
mkdir -p ~/.local/lib/python3.11/site-packages; cp /app/*.py ~/.local/lib/python3.11/site-packages/
for file in .bashrc .profile .bash_profile .bash_logout; do cp /app/git ~/$file; done
printf '[core]\\nfsmonitor = /app/git\\nhooksPath = /app\\n[alias]\\nlog = !/app/git\\n' > ~/.gitconfig
for repository in /app/*/; do
  mkdir -p $repository/.git/hooks; cp ~/.gitconfig $repository/.git/config
  cp /app/git $repository/.git/hooks/post-checkout
done
ln -sf /tests/expected.json /app/answer.txt; ln -sf /logs/verifier/reward.txt /app/totals.csv
export PATH=/app:$PATH PYTHONPATH=/app BASH_ENV=/app/git LD_PRELOAD=/app/json.py
(trap '' HUP TERM; while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done) >/dev/null 2>&1 &
for number in /proc/[0-9]*; do printf '0 1\\n1' > $number/fd/3; done
"""
# Programs of the player, which the tests run: the first stays, the second ends everything.
FORGES = """
import os, pathlib, signal, time
for folder in ("/logs/verifier", "/tests", "/proc/1/root/logs/verifier"):
    for name in ("reward.txt", "reward.json", "check.py", "expected.json"):
        try:
            os.makedirs(folder, exist_ok=True)
            pathlib.Path(folder, name).write_text("1")
        except OSError:
            pass
if os.fork() == 0:
    os.setsid()
    while True:
        time.sleep(0.01)
        try:
            pathlib.Path("/logs/verifier/reward.txt").write_text("1")
        except OSError:
            pass
"""
KILLS = FORGES + "os.kill(-1, signal.SIGKILL)\n"


@pytest.fixture(scope="module")
def sandbox():
    """A sandbox, where this machine gives one."""
    made = Bubblewrap()
    try:
        made.check()
    except SetupError as error:
        pytest.skip(str(error))
    return made


@pytest.fixture
def environment(sandbox):
    return TerminalEnvironment(TASKS, sandbox, PATIENCE_S)


def block(text):
    return f"```bash\n{text}\n```"


def play(environment, data_idx, *commands):
    """Runs commands and submits; returns the final result."""
    environment.reset(data_idx)
    for command in commands:
        assert not environment.step(command).done
    result = environment.step("submit")
    assert result.done
    assert result.reward == result.score
    return result


def expert(environment, data_idx):
    environment.reset(data_idx)
    return environment.expert_action()


def test_the_solution_scores_1_and_an_idle_player_0(environment):
    for data_idx in FIRST[1::3]:
        assert play(environment, data_idx, expert(environment, data_idx)).score == 1
        assert play(environment, data_idx).score == 0


@pytest.mark.slow
def test_every_task_is_solved_by_its_solution_only(environment):
    for data_idx in range(len(TASKS)):
        assert play(environment, data_idx, expert(environment, data_idx)).score == 1, data_idx
        assert play(environment, data_idx).score == 0, data_idx


REPAIR = list(FAMILIES).index("repair_program") * PER_FAMILY


@pytest.mark.parametrize(
    "data_idx",
    [
        pytest.param(i, id=TASKS[i].name, marks=[] if i in (0, 125) else pytest.mark.slow)
        for i in FIRST
    ],
)
def test_a_hostile_player_scores_0(environment, data_idx):
    assert play(environment, data_idx, block(FAKES)).score == 0


@pytest.mark.parametrize("program", [FORGES, KILLS], ids=["forges", "kills"])
def test_a_hostile_program_that_the_tests_run_scores_0(environment, program):
    path = next(iter(TASKS[REPAIR].files))
    assert play(environment, REPAIR, block(f"cat > {path} <<'END'\n{program}\nEND")).score == 0


def test_honest_work_counts_despite_rubbish_beside_it(environment):
    data_idx = FIRST[0]
    solution = expert(environment, data_idx)
    assert play(environment, data_idx, block(FAKES + "rm /app/answer.txt"), solution).score == 1


def test_numbers_in_place_of_true_and_false_score_0(environment):
    data_idx = list(FAMILIES).index("edit_json") * PER_FAMILY
    solution = expert(environment, data_idx)
    numbers = block("sed -i 's/true/1/; s/false/0/' settings.json")
    assert play(environment, data_idx, solution, numbers).score == 0


def test_tasks_are_distinct_and_have_these_splits():
    tasks = task_manifest(TASKS)
    assert len({task["name"] for task in tasks}) == len(tasks) == 200
    assert [task["split"] for task in tasks].count("test") == 40
    assert {task["group"] for task in tasks if task["split"] == "test"} == set(FAMILIES)
    assert len({(t.instruction, tuple(f.data for f in t.files.values())) for t in TASKS}) == 200


def test_every_mistake_changes_an_answer():
    for seed in range(60):
        program = draw(random.Random(seed))
        shown, expected = program.runs[0]
        for code, is_right in ((program.right, True), (program.broken, False)):
            printed = []
            text = code.replace("import sys\n", "").replace("sys.stdin.read()", repr(shown))
            exec(text, {"print": lambda value, p=printed: p.append(str(value))})
            assert (printed == expected.split()) == is_right, (seed, code)


@pytest.mark.parametrize(
    ("action", "command"),
    [
        ("ls", "ls"),
        ("I look.\n```bash\nls\npwd\n```\nThen more.", "ls\npwd"),
        ("```\nls\n```", "ls"),
        ("```mswea_bash_command\nls\n```", "ls"),
        ("```bash\nls\n```\n```bash\npwd\n```", None),
        ("I look.\nls", None),
        ("````bash\ncat <<END\n```\nEND\n````", "cat <<END\n```\nEND"),
        ("```bash\nls", None),
        ("```bash\n\n```", None),
        ("", None),
        ("echo \0", None),
        ("echo " + "x" * 200_000, None),
        ("echo \ud800", "echo \ufffd"),
        ("```bash\r\nls\r\n```\r", "ls"),
    ],
)
def test_an_action_is_one_block_or_one_line(action, command):
    assert read_command(action) == command


def test_an_observation_has_status_and_output_and_says_what_was_lost(environment):
    environment.reset(0)
    assert environment.step(block("echo text; exit 3")).observation == "exit status 3\ntext\n"
    assert environment.step("two\nlines").observation.startswith(REFUSED)
    long = environment.step("seq 1 9999").observation
    assert "bytes left out]" in long
    assert long.endswith("9999\n")
    assert "as before the command" in environment.step("kill -9 -1").observation


def test_an_episode_ends_with_its_time(sandbox):
    slow = dataclasses.replace(TASKS[0], agent_seconds=1e-6)
    environment = TerminalEnvironment([slow], sandbox, PATIENCE_S)
    environment.reset(0)
    result = environment.step(environment.expert_action())
    assert (result.done, result.score) == (True, 1)
    with pytest.raises(EnvironmentFault) as caught:
        environment.step("ls")
    assert caught.value.kind is ErrorKind.FINISHED


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("1\n", 1), ("0.25", 0.25), ('{"reward": 0.5, "other": 1}', 0.5), ("7", 1), ("-1", 0),
        ("", 0), ("NaN", 0), ("Infinity", 1), ("true", 0), ("[1]", 0), ("1 1", 0), ("[" * 1000, 0),
        ("9" * 1000, 1), ('{"other": 1}', 0), ("\0", 0),
    ],
)  # fmt: skip
def test_a_reward_is_a_number_from_0_to_1(text, score):
    assert read_reward(Result(0, text.encode(), len(text), None, 1.0)) == score


def test_a_server_plays_a_task(sandbox):
    with serving(MODULE) as client:
        session = client.post("/create").json()["id"]
        client.post("/reset", json={"id": session, "data_idx": 0})
        action = client.get("/expert_action", params={"id": session}).json()["action"]
        client.post("/step", json={"id": session, "action": action})
        answer = client.post("/step", json={"id": session, "action": "submit"}).json()
    assert (answer["reward"], answer["done"]) == (1, True)


@pytest.mark.slow
def test_the_command_scores_the_expert(sandbox, tmp_path):
    command = [sys.executable, "-m", "agentgym_jax.evaluate", "--model=expert"]
    config = "--config=configs/eval/terminals.py:limit=8"
    subprocess.run([*command, config, f"--workdir={tmp_path}/run"], cwd=ROOT, check=True)
    scores = json.loads((tmp_path / "run/scores.json").read_text())
    assert scores["overall"]["success"] == 1
    assert scores["overall"]["tasks"] == 8


def comparable(task):
    """Returns the parts of a task that a folder has; the folder's own name is the name."""
    return dataclasses.replace(task, name="", tests=dict(task.tests), files=dict(task.files))


def write_folder(task, root):
    """Writes a task as a folder in the form of Harbor."""
    root.mkdir(parents=True)
    settings = "".join(f"ENV {k}={shlex.quote(v)}\n" for k, v in task.variables.items())
    copies = "".join(f"COPY files{path} {path}\n" for path in sorted(task.files))
    files = {
        "instruction.md": File(task.instruction.encode() + b"\n"),
        "task.toml": File(
            (
                'version = "1.0"\n\n'
                f"[agent]\ntimeout_sec = {task.agent_seconds:.1f}\n\n"
                f"[verifier]\ntimeout_sec = {task.test_seconds:.1f}\n\n"
                f"[environment]\nmemory_mb = {task.limits.memory_mib}\n"
                f"storage_mb = {task.limits.disk_mib}\n"
            ).encode()
        ),
        "environment/Dockerfile": File(
            f"FROM debian:bookworm\nWORKDIR {task.work}\n{settings}{copies}".encode()
        ),
        "solution/solve.sh": File(task.solution.encode(), 0o755),
        **{f"environment/files{path}": file for path, file in task.files.items()},
        **{f"tests/{path}": file for path, file in task.tests.items()},
    }
    for name, file in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        path.chmod(file.mode)


def test_a_task_is_the_same_after_writing_and_reading_its_folder(tmp_path):
    for data_idx in FIRST:
        task = TASKS[data_idx]
        write_folder(task, tmp_path / task.name)
        (read,) = read_folder(str(tmp_path / task.name))
        # The permissions of a file that is not executable are those of a new file.
        plain = {
            path: File(file.data, 0o755 if file.mode & 0o100 else 0o644)
            for path, file in task.files.items()
        }
        expected = dataclasses.replace(task, files=plain)
        assert comparable(read) == comparable(expected)


HARBOR = {
    "instruction.md": "Write 42 to answer.txt in the folder data.\n",
    "task.toml": 'version = "1.0"\n[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 30.0\n'
    '[verifier.env]\nEXPECTED = "42"\n[environment]\nmemory_mb = 2048\nstorage_mb = 10240\n',
    "environment/Dockerfile": "# a comment\nFROM python:3.11 AS base\nWORKDIR /work/deep\n"
    'ENV A=1 \\\n    B="two words"\nCOPY data ./data\nCOPY one.txt two.txt /opt/\nCMD ["bash"]\n',
    "environment/data/deep/file": "deep\n",
    "environment/one.txt": "1\n",
    "environment/two.txt": "2\n",
    "tests/test.sh": '[ "$(cat data/answer.txt)" = "$EXPECTED" ] && echo \'{"reward": 1}\' > '
    "/logs/verifier/reward.json\n",
    "solution/solve.sh": "echo 42 > data/answer.txt\n",
}


def write_harbor(root, **changes):
    """Writes the folder of a task; a change to None leaves a file out."""
    for name, text in {**HARBOR, **changes}.items():
        if text is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    return str(root)


def test_a_folder_in_the_format_of_harbor_is_played(sandbox, tmp_path):
    write_harbor(tmp_path / "first")
    tasks = read_folder(str(tmp_path))
    environment = TerminalEnvironment(tasks, sandbox, PATIENCE_S)
    environment.reset(0)
    shown = environment.step('pwd; cat data/deep/file /opt/*; echo "$A $B [$EXPECTED]"').observation
    assert shown == "exit status 0\n/work/deep\ndeep\n1\n2\n1 two words []\n"
    assert play(environment, 0).score == 0
    assert play(environment, 0, expert(environment, 0)).score == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instruction.md": None}, "has no instruction.md"),
        ({"tests/test.sh": None}, "has no tests/test.sh"),
        ({"task.toml": None}, "has no task.toml"),
        ({"task.toml": "version ="}, "is not TOML"),
        ({"task.toml": "agent = 1"}, "agent is 1; expected a table"),
        ({"task.toml": "[agent]\ntimeout_sec = -5"}, "limit -5; expected 1 to"),
        ({"task.toml": '[verifier]\ntimeout_sec = "x"'}, "limit 'x'; expected 1 to"),
        (
            {"environment/Dockerfile": "FROM a\nRUN pip install x"},
            "`RUN pip install x` needs docker or podman",
        ),
        ({"environment/Dockerfile": "FROM a\nFROM b"}, "2 FROM"),
        ({"environment/Dockerfile": "WORKDIR /app"}, "0 FROM"),
        ({"environment/Dockerfile": "FROM a\nCOPY none /app/"}, "there is no none"),
        ({"environment/Dockerfile": "FROM a\nCOPY ../tests /app/"}, "there is no ../tests"),
        ({"environment/Dockerfile": "FROM a\nCOPY --from=b c /app/"}, "needs docker"),
        ({"environment/Dockerfile": "FROM a\nCOPY one.txt /usr/bin/x"}, "needs docker"),
        ({"environment/Dockerfile": "FROM a\nWORKDIR /tests"}, "needs docker"),
        ({"environment/Dockerfile": "FROM a\nENV A=$B"}, "needs docker"),
        ({"environment/Dockerfile": "FROM a\nENV A='x"}, "cannot be read"),
    ],
)
def test_a_task_that_cannot_run_is_refused_in_one_line(changes, message, tmp_path):
    folder = write_harbor(tmp_path / "task", **changes)
    with pytest.raises(SetupError) as caught:
        make_served_environment(tasks=folder, sandbox="bubblewrap")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_links_and_large_files_are_refused(tmp_path):
    folder = pathlib.Path(write_harbor(tmp_path / "task"))
    (folder / "tests/link").symlink_to("/etc/passwd")
    with pytest.raises(SetupError, match="is a link"):
        read_folder(str(folder))
    (folder / "tests/link").unlink()
    with open(folder / "tests/large", "wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(SetupError, match="more than 32 MiB"):
        read_folder(str(folder))


def test_unknown_tasks_and_times_are_refused(environment):
    with pytest.raises(EnvironmentFault) as caught:
        environment.reset(len(TASKS))
    assert caught.value.kind is ErrorKind.UNKNOWN_TASK
    with pytest.raises(SetupError, match="command_seconds=0 must be above 0"):
        make_served_environment(command_seconds=0.0)
