import contextlib
import errno
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys

import pytest

from agentgym_jax.runs.atomic_files import (
    RunFolderError,
    check_writable,
    replacing,
    write_atomic,
)
from agentgym_jax.runs.config_differences import config_differences, flatten
from agentgym_jax.runs.provenance import commit_of, git_state
from agentgym_jax.runs.run_folder import RunFolder, visible

CONFIG = {"job": "rl", "total_steps": 10, "horizon": {"turns": (5, 10), "boundaries": [3]}}


def start(workdir, config=CONFIG, adjustable=("total_steps",)):
    folder = RunFolder(workdir)
    resumed = folder.start(config, devices=["cpu:0"], adjustable=adjustable, command=["train"])
    return folder, resumed


def test_a_new_run_folder_has_the_documented_layout(tmp_path):
    folder, resumed = start(tmp_path / "a" / "run")
    assert not resumed
    names = {path.name for path in folder.path.iterdir()}
    assert names >= {
        "config.json",
        "provenance.json",
        "trajectories",
        "checkpoints",
        "plots",
        "model",
        "tokenizer",
    }
    assert folder.config()["horizon"]["turns"] == [5, 10]


def test_creating_the_object_creates_no_folder(tmp_path):
    RunFolder(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_same_config_resumes_and_every_start_is_recorded(tmp_path):
    folder, _ = start(tmp_path)
    folder.close()
    folder, resumed = start(tmp_path)
    assert resumed
    facts = folder.provenance()
    assert [entry["command"] for entry in facts["starts"]] == [["train"], ["train"]]
    assert facts["devices"] == ["cpu:0"]
    assert facts["versions"]["jax"] and facts["python"].startswith("3.")


def test_a_resume_that_fails_before_it_begins_leaves_config_and_starts_as_they_were(tmp_path):
    folder, _ = start(tmp_path)
    folder.begin()
    folder.close()
    before = {path: path.read_text() for path in tmp_path.glob("*.json")}
    folder, resumed = start(tmp_path, CONFIG | {"total_steps": 20})
    assert resumed and folder.config()["total_steps"] == 20
    folder.withdraw()
    folder.close()
    assert before == {path: path.read_text() for path in tmp_path.glob("*.json")}
    folder, _ = start(tmp_path, CONFIG | {"total_steps": 20})
    folder.begin()
    folder.withdraw()  # no effect after `begin`
    assert folder.config()["total_steps"] == 20 and len(folder.provenance()["starts"]) == 2


@pytest.mark.parametrize("config", [CONFIG, {"environments": {}}])
def test_a_start_that_fails_or_is_replaced_leaves_the_files_that_were_there_before(
    tmp_path, config
):
    own = [tmp_path / name / "mine.txt" for name in ("data", "logs", "plots")]
    for path in own:
        path.parent.mkdir()
        path.write_text("mine")
    folder, _ = start(tmp_path, config)
    folder.withdraw()
    folder.close()
    assert sorted(tmp_path.iterdir()) == [path.parent for path in own]
    start(tmp_path, config)[0].close()
    folder, _ = start(tmp_path, config | {"seed": 1})
    folder.withdraw()
    folder.close()
    assert sorted(tmp_path.iterdir()) == [path.parent for path in own]
    assert all(path.read_text() == "mine" for path in own)


EVALUATION = {"environments": {}, "seed": 0}


@pytest.mark.parametrize(
    ("config", "path", "text", "is_result"),
    [
        (CONFIG, "metrics.jsonl", '{"step": 0, "time": 1}\n', False),
        (CONFIG, "trajectories/step_000001.jsonl", "{}\n", False),
        (CONFIG, "model/source.json", "{}", False),
        (CONFIG, "metrics.jsonl", '{"step": 0, "time": 1}\n{"step": 1, "time": 2}\n', True),
        (CONFIG, "checkpoints/1/facts", "", True),
        (CONFIG, "warm_start/metrics.jsonl", '{"step": 1, "time": 1}\n', False),
        (CONFIG, "warm_start/checkpoints/2/facts", "", True),
        (EVALUATION, "evaluation.json", "{}", False),
        (EVALUATION, "trajectories/eval_000000.jsonl.partial", "{}\n", True),
    ],
)
def test_a_run_without_results_gives_its_folder_to_another_config(
    tmp_path, caplog, config, path, text, is_result
):
    folder, _ = start(tmp_path, config)
    folder.begin()
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    folder.close()
    other = config | {"seed": 7}
    if is_result:
        with pytest.raises(ValueError, match="holds a run with another config"):
            start(tmp_path, other)
        assert file.exists()
        return
    folder, resumed = start(tmp_path, other)
    assert not resumed and not file.exists() and "had no results" in caplog.text
    assert folder.config()["seed"] == 7 and len(folder.provenance()["starts"]) == 1


@pytest.mark.parametrize("is_new", [True, False])
def test_a_start_that_cannot_be_undone_shows_the_error_that_made_it_fail(
    tmp_path, monkeypatch, caplog, is_new
):
    if not is_new:
        folder, _ = start(tmp_path)
        folder.begin()
        folder.close()

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "the disk is full")

    folder, _ = start(tmp_path)
    with pytest.raises(ValueError, match="the first error"), contextlib.ExitStack() as stack:
        stack.callback(folder.withdraw)
        monkeypatch.setattr(os, "replace", fail)
        monkeypatch.setattr(pathlib.Path, "unlink", fail)
        raise ValueError("the first error")
    assert "keeps files of the start that failed" in caplog.text
    folder.close()


def test_a_resume_with_other_versions_names_them(tmp_path, caplog):
    folder, _ = start(tmp_path)
    facts = folder.provenance()
    folder.close()
    folder.provenance_path.write_text(
        json.dumps({"starts": [facts | {"versions": facts["versions"] | {"jax": "0.1"}}]})
    )
    start(tmp_path)[0].close()
    assert f"(jax 0.1 to {facts['versions']['jax']})" in caplog.text
    caplog.clear()
    start(tmp_path)[0].close()
    assert "other versions" not in caplog.text


def test_a_resume_with_other_tasks_names_their_environment(tmp_path, caplog):
    for manifests in ({"maze": "1", "other": "1"}, None, {"maze": "2", "other": "1", "third": "1"}):
        assert "other tasks" not in caplog.text
        with start(tmp_path)[0] as folder:
            if manifests is not None:  # a start may fail before its servers answer
                folder.record_tasks(manifests)
    assert "continues with other tasks of maze than before" in caplog.text
    assert folder.provenance()["manifests"] == manifests
    assert [s.get("manifests", {}).get("maze") for s in folder.provenance()["starts"]] == [
        *("1", None, "2")
    ]


def test_hidden_files_are_no_episodes(tmp_path):
    with start(tmp_path)[0] as folder:
        (folder.trajectories / "._step_000001.jsonl").write_bytes(b"\0Mac OS X")
        (folder.trajectories / "step_000001.jsonl").touch()
        assert folder.trajectory_steps("._step") == [] and folder.trajectory_steps() == [1]
        names = [path.name for path in visible(folder.trajectories.glob("*.jsonl"))]
        assert names == ["step_000001.jsonl"]


def test_a_resume_with_other_conversations_is_a_warning(tmp_path, caplog):
    for data in ("1", None, "1", "2"):
        assert "other conversations" not in caplog.text
        with start(tmp_path)[0] as folder:
            if data is not None:  # a start may fail before it has read them
                folder.record_data(data)
    assert f"{folder.permanent} continues with other conversations than before" in caplog.text
    assert [s.get("data") for s in folder.provenance()["starts"]] == ["1", None, "1", "2"]


def test_facts_about_the_machine_are_recorded(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.start({}, devices=[], machine={"cpu": "Z80", "native": False}, adjustable=())
    assert folder.provenance()["cpu"] == "Z80"
    assert folder.provenance()["starts"][0]["native"] is False


def test_the_error_for_another_config_shows_both_values_and_the_remedy(tmp_path):
    folder, _ = start(tmp_path)
    folder.metrics_path.write_text('{"step": 1, "time": 1}\n')
    folder.close()
    other = {"job": "rl", "total_steps": 10, "horizon": {"turns": (5, 15)}, "seed": 1}
    with pytest.raises(ValueError) as caught:
        start(tmp_path, other)
    message = str(caught.value)
    assert "horizon.turns: [5, 10] in the folder, [5, 15] now" in message
    assert "horizon.boundaries: [3] in the folder, absent now" in message
    assert "seed: absent in the folder, 1 now" in message
    assert "new --workdir" in message
    assert f"Absent keys may be newer than {commit_of(folder.provenance())}" in message
    assert "total_steps" not in message
    assert folder.config()["horizon"]["turns"] == [5, 10]


@pytest.mark.parametrize("pattern", ["total_steps", "total_*"])
def test_an_adjustable_key_can_change_and_its_new_value_is_saved(tmp_path, pattern):
    folder, _ = start(tmp_path)
    folder.close()
    folder, resumed = start(tmp_path, {**CONFIG, "total_steps": 20}, adjustable=(pattern,))
    assert resumed
    assert folder.config()["total_steps"] == 20


def test_a_refused_start_releases_the_lock(tmp_path):
    folder, _ = start(tmp_path)
    (folder.checkpoints / "1").mkdir()
    folder.close()
    # The object must stay referenced, because garbage collection would release the lock.
    refused = RunFolder(tmp_path)
    with pytest.raises(ValueError):
        refused.start({"job": "sft"}, devices=[], adjustable=())
    assert start(tmp_path)[1]


def test_the_error_for_a_folder_in_use_names_the_process(tmp_path):
    folder, _ = start(tmp_path)
    with pytest.raises(RunFolderError, match=f"in use by another process .pid {os.getpid()} on"):
        start(tmp_path)
    folder.close()
    assert start(tmp_path)[1]


def test_a_killed_trainer_leaves_no_lock(tmp_path):
    code = (
        "import sys, time; from agentgym_jax.runs.run_folder import RunFolder\n"
        "f = RunFolder(sys.argv[1]); f.start({}, devices=[], adjustable=())\n"
        "sys.stdout.write('ready\\n'); sys.stdout.flush(); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(RunFolderError, match=f"pid {process.pid} on"):
            start(tmp_path, {})
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert start(tmp_path, {})[1]


def test_the_error_for_a_file_in_place_of_the_folder_names_the_remedy(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(RunFolderError, match="choose another --workdir"):
        start(tmp_path / "run")
    with pytest.raises(RunFolderError, match="choose another --workdir"):
        start(tmp_path / "run" / "below")


@pytest.mark.parametrize(
    "number, advice",
    [
        (errno.ENOSPC, "disk or quota is full"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EROFS, "No permission to write there"),
        (errno.EIO, "Check the path and its file system"),
    ],
)
def test_the_error_for_a_failed_write_gives_advice(tmp_path, number, advice):
    path = tmp_path / "file"
    write_atomic(path, "old")

    def refused(file):
        file.write("new")
        raise OSError(number, os.strerror(number))

    with pytest.raises(RunFolderError, match=f"cannot write {path}: .*{advice}"):
        write_atomic(path, refused)
    assert path.read_text() == "old"


def test_an_interrupted_write_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, "old")

    def interrupted(file):
        file.write("half of the n")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, interrupted)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_reader_can_finish_reading_a_file_that_is_replaced(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, "old and longer")
    with open(path) as reader:
        write_atomic(path, "new")
        assert reader.read() == "old and longer"
    assert path.read_text() == "new"


def test_a_file_that_fails_while_it_is_written_stays_as_it_was(tmp_path):
    (tmp_path / "figure.png").write_text("old")
    for name in ("figure.png", "other.png"):
        with pytest.raises(RunFolderError), replacing(tmp_path / name) as temporary:
            temporary.write_text("half")
            raise OSError(errno.ENOSPC, "the disk is full")
    assert [path.name for path in tmp_path.iterdir()] == ["figure.png"]
    assert (tmp_path / "figure.png").read_text() == "old"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("", "A folder exists where a file is needed"),
        ("file/page.html", "A file exists where a folder is needed"),
        ("x" * 300, "The name is too long"),
    ],
)
def test_a_file_that_cannot_be_written_is_named_before_the_work(tmp_path, name, remedy):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=remedy):
        check_writable(tmp_path / name)
    check_writable(tmp_path / "new" / "folder" / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_trajectories_round_trip_in_order(tmp_path):
    folder, _ = start(tmp_path)
    records = [{"item_id": f"textcraft_{i}", "reward": i / 3, "text": "ä\n"} for i in range(3)]
    path = folder.write_trajectories(42, iter(records))
    assert path.name == "step_000042.jsonl"
    assert folder.read_trajectories(42) == records
    assert folder.trajectory_steps() == [42]


def test_a_trajectory_with_a_number_that_is_not_finite_is_not_written(tmp_path):
    folder, _ = start(tmp_path)
    with pytest.raises(ValueError):
        folder.write_trajectories(1, [{"reward": float("nan")}])
    assert folder.trajectory_steps() == []


def test_the_error_for_a_missing_step_lists_the_existing_steps(tmp_path):
    folder, _ = start(tmp_path)
    folder.write_trajectories(2, [])
    with pytest.raises(FileNotFoundError, match=r"step_000003.*\[2\]"):
        folder.read_trajectories(3)


def test_resuming_only_removes_the_files_of_later_steps(tmp_path):
    folder, _ = start(tmp_path)
    for step in (1, 2, 3, 1_000_000):
        folder.write_trajectories(step, [])
    folder.write_trajectories(3, [], kind="eval")
    (folder.trajectories / "readme.jsonl").write_text("")
    partial = folder.trajectories / ".step_000002.jsonl.7.tmp"  # of a process that was killed
    partial.write_text("")
    removed = folder.remove_trajectories_after(2)
    assert {p.name for p in removed} == {
        "step_000003.jsonl",
        "eval_000003.jsonl",
        "step_1000000.jsonl",
    }
    assert folder.trajectory_steps() == [1, 2]
    assert (folder.trajectories / "readme.jsonl").exists() and not partial.exists()


def test_a_folder_that_is_not_a_run_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        RunFolder(tmp_path).config()


def test_flatten_keeps_empty_sections():
    assert flatten({"a": {"b": 1, "c": {}}, "d": 2}) == {"a.b": 1, "a.c": {}, "d": 2}


def test_equal_configs_do_not_differ():
    plain = json.loads(json.dumps(CONFIG))
    assert config_differences(plain, plain) == {}


def test_the_commit_is_only_recorded_for_a_checkout_that_tracks_the_code(tmp_path):
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}

    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments],
            check=True,
            capture_output=True,
            env=environment,
        )

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    git("init")
    git("commit", "--allow-empty", "-m", "somebody else's")
    assert git_state(package) is None
    git("add", ".")
    git("commit", "-m", "first")
    state = git_state(package)
    assert len(state["commit"]) == 40 and not state["dirty"]
    (package / "__init__.py").write_text("changed = True\n")
    assert git_state(package)["dirty"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_cannot_sync_folders_is_accepted(tmp_path, monkeypatch, number):
    """Simulates CIFS and FUSE; a real fault such as EIO is an error."""
    sync = os.fsync

    def fail_for_folders(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_folders)
    faults = pytest.raises(RunFolderError) if number == errno.EIO else contextlib.nullcontext()
    with faults:
        write_atomic(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"
