"""The files that `python -m agentgym_envs new NAME` writes."""

import errno
import os
import pathlib
import runpy

import pytest

from agentgym_envs.__main__ import main
from agentgym_envs.base.served import load_environment
from agentgym_envs.demonstrations import plain_text, record
from agentgym_jax.config.sections import plain
from agentgym_jax.rl.rl_config import parse
from tests.run_python import run_python


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_the_environment_is_solved_and_its_config_is_valid(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder.parent)
    (folder.parent / "sign_game").mkdir()
    monkeypatch.syspath_prepend(folder.parent)  # where `sign_game` is a folder
    assert main(["new", "sign_game", "--folder", str(folder)]) == 0
    names = ["sign_game.py", "sign_game_config.py", "test_sign_game.py"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert f"in {folder}:\ncheck it: python -m agentgym_envs check sign_" in capsys.readouterr().out
    options = dict(agent="expert", epsilon=0.0, seed=0, max_turns=6, to_text=plain_text)
    episodes = list(record(load_environment("sign_game"), range(3), **options))
    assert [episode["success"] for episode in episodes] == [1, 1, 1]
    config = runpy.run_path(str(folder / "sign_game_config.py"))["get_config"]("smoke")
    assert list(parse(plain(config)).agent.environments) == ["sign_game"]


@pytest.mark.slow
def test_the_written_test_passes(folder):
    main(["new", "other_game", "--folder", str(folder)])
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", folder, cwd=folder)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("maze", "is an environment of this project"),
        ("My-Game", "is no name of a module"),
        ("class", "is no name of a module"),
        ("taken", "exists already"),
        ("random", "Python has a module 'random' already"),
        ("numpy", "Python has a module 'numpy' already"),
        ("check", "is a command of agentgym_envs"),
    ],
)
def test_a_name_that_cannot_be_used_writes_nothing(folder, capsys, name, expected):
    (folder / "test_taken.py").write_text("mine")
    assert main(["new", name, "--folder", str(folder)]) == 1
    assert expected in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["test_taken.py"]


def test_files_that_cannot_be_written_leave_nothing_and_one_line(folder, capsys, monkeypatch):
    write_text = pathlib.Path.write_text

    def write(path, text, **options):
        write_text(path, "" if "config" in path.name else text, **options)
        if "config" in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as a full disk does it

    monkeypatch.setattr(pathlib.Path, "write_text", write)
    assert main(["new", "full_game", "--folder", str(folder)]) == 1
    expected = f"agentgym_envs: {folder}: No space left on device; free some space on the disk\n"
    assert capsys.readouterr().err == expected
    assert not list(folder.iterdir())


def test_a_file_in_place_of_the_folder_is_named_with_a_remedy(folder, capsys):
    (folder / "file").touch()
    assert main(["new", "some_game", "--folder", str(folder / "file" / "x")]) == 1
    assert "file/x: Not a directory; a file is in the place" in capsys.readouterr().err
