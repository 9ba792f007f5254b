import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def command():
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "agentgym_jax.view", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def test_the_command_writes_the_page_into_the_run_folder(command, learning_run):
    done = command(learning_run, "--max_replays=0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"wrote {learning_run}/report.html")
    assert (learning_run / "report.html").stat().st_size > 10_000


def test_a_folder_that_is_not_a_run_gives_an_error_of_one_line(command, tmp_path):
    done = command(tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "is not a run folder" in done.stderr
