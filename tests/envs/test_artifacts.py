"""Artifacts: each is either complete or absent, even after kills, failures and concurrent builds."""

import multiprocessing
import pathlib
import signal
import threading
import time

import pytest

from agentgym_envs import artifacts
from agentgym_envs.artifacts import (
    announcer,
    appearing,
    appearing_file,
    build_once,
    locked,
    signs_of_life,
)
from tests.waiting import PATIENCE_S, until


def nobody(text):
    """Ignores a progress message."""


def fill(folder):
    (folder / "file").write_text("whole")


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_folder_is_built_once(tmp_path):
    for _ in range(2):
        build_once(tmp_path / "deep" / "made", fill, nobody)
    assert names(tmp_path / "deep" / "made") == ["file"]
    with pytest.raises(ZeroDivisionError):
        build_once(tmp_path / "other", lambda folder: 1 // 0, nobody)
    build_once(tmp_path / "deep" / "made", lambda folder: 1 // 0, nobody)


def test_concurrent_callers_wait_and_are_notified(tmp_path):
    builds, told, began = [], [], threading.Event()

    def slowly(folder):
        builds.append(folder)
        began.set()
        until(lambda: len(told) == 2)
        fill(folder)

    def ask():
        build_once(tmp_path / "made", slowly, told.append)
        assert names(tmp_path / "made") == ["file"]

    threads = [threading.Thread(target=ask) for _ in range(3)]
    threads[0].start()
    assert began.wait(PATIENCE_S)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert told == [f"another process builds {tmp_path / 'made'}; waiting for it"] * 2


def test_a_failed_build_leaves_no_files(tmp_path):
    def halfway(folder):
        fill(folder)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        build_once(tmp_path / "made", halfway, nobody)
    assert names(tmp_path) == []
    with pytest.raises(OSError), appearing_file(tmp_path / "a") as partial:
        partial.write_text("half")
        raise OSError
    assert names(tmp_path) == []


def _until_killed(folder: pathlib.Path) -> None:
    (folder / "half").touch()
    time.sleep(600)


def test_a_killed_build_leaves_no_folder_and_the_next_build_cleans_up(tmp_path):
    made = tmp_path / "made"
    child = multiprocessing.get_context("spawn").Process(
        target=build_once, args=(made, _until_killed, nobody), daemon=True
    )
    child.start()
    until(lambda: list(tmp_path.glob("*/half")))
    waiting = threading.Thread(target=build_once, args=(made, fill, nobody))
    waiting.start()  # the waiting build continues as soon as the other process has ended
    assert not made.exists()
    child.kill()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    waiting.join(PATIENCE_S)
    assert names(tmp_path) == ["made"] and names(made) == ["file"]


def test_a_rebuilt_artifact_replaces_the_old_one_once_it_is_complete(tmp_path):
    made = tmp_path / "made"
    build_once(made, fill, nobody)
    with (made / "file").open() as reader:
        with pytest.raises(ZeroDivisionError):
            build_once(made, lambda folder: 1 // 0, nobody, anew=True)
        assert names(made) == ["file"]
        build_once(made, lambda folder: (folder / "newer").touch(), nobody, anew=True)
        assert reader.read() == "whole"  # readers of the old version may continue to read
    assert names(tmp_path) == ["made"] and names(made) == ["newer"]


def test_locks_of_different_paths_are_independent(tmp_path):
    told = []
    with locked(tmp_path / "a", told.append), locked(tmp_path / "b", told.append):
        assert not told


def test_an_artifact_is_filled_in_an_empty_folder_and_appears_complete(tmp_path):
    (tmp_path / "made.partial").mkdir()
    (tmp_path / "made.partial" / "half").touch()
    with appearing(tmp_path / "made") as partial:
        assert names(partial) == []
    with appearing_file(tmp_path / "file") as partial:
        partial.write_text("whole")
        assert not (tmp_path / "file").exists()
    assert (tmp_path / "file").read_text() == "whole"


def test_a_silent_build_regularly_reports_that_it_runs(capsys, monkeypatch):
    monkeypatch.setattr(artifacts, "SIGN_S", 0.05)
    told = []

    def is_told_twice():
        told.append(capsys.readouterr().err)
        return "".join(told).count("deep search: still building, ") >= 2

    with signs_of_life(announcer("deep search")):
        until(is_told_twice)
    capsys.readouterr()
    time.sleep(0.1)
    assert not capsys.readouterr().err


def test_a_long_wait_for_a_lock_is_regularly_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "SIGN_S", 0.02)
    told = []
    with locked(tmp_path / "made", nobody):
        waiting = threading.Thread(target=build_once, args=(tmp_path / "made", fill, told.append))
        waiting.start()
        until(lambda: len(told) >= 3)
    waiting.join(PATIENCE_S)
    assert told[1].startswith("still building, ")
    assert names(tmp_path) == ["made"]
