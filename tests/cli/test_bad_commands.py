"""Command lines with mistakes: each one gives an error of one line and leaves no files behind."""

import socket

import pytest

from tests.cli.commands import run_all
from tests.config.refusals import check_one_line
from tests.run_python import run_python

COMMANDS = [
    ("train --config=configs/quikstart.py --workdir={}", "did you mean configs/quickstart.py?"),
    ("train --config=nowhere/x.py --workdir={}", "there is no such file"),
    ("train --config=configs/rl/two_rooms.py:algorithm=a2c --workdir={}", "Known: ppo"),
    ("train --config=configs/paper/babyai.py:size=70b --workdir={}", "did you mean '7b'?"),
    ("train --config=configs/quickstart.py:fast --workdir={}", "unknown config option 'fast'"),
    ("train --config=configs/quickstart.py:smoke=maybe --workdir={}", "'maybe'"),
    ("train --config=configs/rl/mixture.py:environments=webshop --workdir={}", "'webshop'"),
    ("train --config=configs/sft/trajectories.py:evaluate=chess --workdir={}", "'chess'"),
    ("train --config=configs/quickstart.py --workdir={} --config.optimizer=adam", "is a section"),
    (
        "train --config=configs/quickstart.py --workdir={} --config.total_steps=ten",
        "ten: expected a whole",
    ),
    (
        "train --config=configs/quickstart.py --workdir={} --config.optimizer.learning_rate=x",
        "learning_rate=x: expected a number",
    ),
    ("train --config=configs/quickstart.py --workdir={} --config.sead=1", "did you mean 'seed'?"),
    ("train --config=configs/quickstart.py --workdir={} --wrkdir=x", "wrkdir"),
    ("train --config=configs/quickstart.py --workdir=", "--workdir= is empty"),
    ("train --workdir={}", "--config is missing"),
    ("train --config=configs/eval/suite.py --workdir={}", "config.job must be one of"),
    (
        "train --config=configs/quickstart.py:smoke --workdir={} --config.algorithm.name=ppo",
        "common.ppo()",
    ),
    (
        "evaluate --config=configs/eval/suite.py:environments=chess --workdir={} --model=random",
        "unknown environment 'chess'",
    ),
    ("evaluate --config=configs/eval/textcraft.py --workdir={} --model=nowhere", "nowhere"),
    ("evaluate --config=configs/quickstart.py --workdir={} --model=random", "held_out.py:of=FILE"),
    (
        "evaluate --config=configs/eval/textcraft.py:limit=few --workdir={} --model=random",
        "limit=few",
    ),
    ("export --model=nowhere --out={}", "nowhere"),
    ("export --model=tests/golden/decoder/llama --out={}.gguf", "--out={}.gguf ends in .gguf"),
    ("export --model=tests/golden/decoder/llama --out={}.safetensors", " ends in .safetensors"),
    ("view {}", "is not a run folder"),
    ("sweep report {}", "holds no sweep"),
    ("sweep --config=configs/sweeps/bandit.py", "--workdir is missing"),
    ("sweep --config=configs/sweeps/bandits.py --workdir={}", "did you mean configs/sweeps"),
    ("sweep --config=configs/sweeps/bandit.py --workdir={} --parallel=999", "may use"),
    ("sweep --config=configs/quickstart.py --workdir={}", "describes no sweep"),
    ("sweep --config=configs/sweeps/bandit.py:smok --workdir={}", "did you mean 'smoke'?"),
    ("train --config=configs/sweeps/bandit.py --workdir={}", "agentgym_jax.sweep"),
    ("results {}", "{} has no scores.json"),
    ("results {} --baseline=tiny", "--baseline=tiny: expected a whole number"),
    (
        "evaluate --config=configs/eval/held_out.py:of=CITATION.cff --workdir={} --model=random",
        "CITATION.cff: expected a Python file",
    ),
    ("replay {} --episode=step_1/0 --turn=1", "{} has no recorded episodes"),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Returns output and exit status of each command, and a folder that no command may create."""
    workdir = tmp_path_factory.mktemp("commands") / "run"
    return run_all([text.format(workdir).split() for text, _ in COMMANDS]), workdir


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=[text for text, _ in COMMANDS])
def test_an_invalid_command_line_gives_an_error_of_one_line(answers, number):
    found, workdir = answers
    output, status = found[number]
    assert status == 1
    check_one_line(output, COMMANDS[number][1].format(workdir))
    assert not list(workdir.parent.iterdir())


def test_a_port_in_use_gives_an_error_of_one_line(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = ["--serve", f"--port={port}", "--max_replays=0"]
        done = run_python("-m", "agentgym_jax.view", tmp_path, *flags)
    assert done.returncode == 1
    check_one_line(done.stderr, "or --port=0 for a free one")
