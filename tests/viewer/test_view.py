import pytest

from tests.run_python import run_python


@pytest.fixture(scope="module")
def command():
    def run(*arguments):
        return run_python("-m", "agentgym_jax.view", *arguments, timeout=120)

    return run


def test_the_command_writes_the_page_into_the_run_folder(command, learning_run, tmp_path):
    done = command(learning_run, "--max_replays=0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"wrote {learning_run}/report.html")
    assert (learning_run / "report.html").stat().st_size > 10_000
    done = command(learning_run, "--max_replays=0", f"--out={tmp_path}/new/folder/page.html")
    assert done.stdout.startswith(f"wrote {tmp_path}/new/folder/page.html"), done.stderr


def test_two_runs_are_compared_in_one_page(command, learning_run, make_run, make_record):
    other = make_run({"eval_000002": [make_record(item="babyai_64")]}, name="other")
    done = command(learning_run, other, "--max_replays=0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"wrote {other}/comparison.html")


def test_a_folder_in_place_of_the_page_is_named_before_the_run_is_read(command, tmp_path):
    done = command(tmp_path / "no_run", f"--out={tmp_path}")
    assert done.returncode == 1
    assert "A folder exists where a file is needed" in done.stderr


def test_two_runs_cannot_be_served(command, learning_run):
    done = command(learning_run, learning_run, "--serve")
    assert done.returncode != 0 and "--serve follows one run" in done.stdout + done.stderr


def test_a_folder_that_is_not_a_run_gives_an_error_of_one_line(command, tmp_path):
    done = command(tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "is not a run folder" in line
