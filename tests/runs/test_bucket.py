"""Run folders in a bucket: a folder that only the mirror copies to, or objects in memory."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from agentgym_jax.config.sections import ConfigError
from agentgym_jax.evaluation.contamination import read_training_data
from agentgym_jax.jobs.evaluation import open_evaluation
from agentgym_jax.learner import checkpoint
from agentgym_jax.mesh import processes
from agentgym_jax.runs import bucket
from agentgym_jax.runs.atomic_files import RunFolderError
from agentgym_jax.runs.run_folder import RunFolder
from tests.objects import storing

CONFIG = {"job": "rl", "total_steps": 3}


@pytest.fixture(autouse=True)
def staging(monkeypatch, tmp_path):
    """Returns the folder of all staging folders."""
    monkeypatch.setattr(bucket, "_STAGING", str(tmp_path / "staging"))
    return tmp_path / "staging"


@pytest.fixture(params=["file", "gs"])
def url(request, monkeypatch, tmp_path):
    """Returns the URL of a run folder in each kind of bucket."""
    if request.param == "file":
        yield f"file://{tmp_path}/bucket/run"
        return
    with storing(monkeypatch):
        yield "gs://somewhere/run"


@pytest.fixture
def mirror(url, tmp_path):
    """Returns an empty local folder, the folder in the bucket, and the mirror between them."""
    local, remote = tmp_path / "local", bucket.to_folder(url)
    local.mkdir()
    return local, remote, bucket.Mirror(local, remote)


def write(folder, **texts):
    for name, text in texts.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(folder):
    return {str(path.relative_to(folder)) for path in bucket.walk(folder)}


def start(url, config=CONFIG):
    folder = RunFolder(url)
    resumed = folder.start(config, devices=[], adjustable=())
    folder.attach()
    return folder, resumed


def test_a_push_uploads_new_and_changed_files_only(mirror):
    local, remote, mirror = mirror
    write(local, config="1", data__set="2")
    mirror.push()
    assert names(remote) == {"config", "data/set"}
    write(remote, data__set="changed in the bucket")
    write(local, config="longer", model__config="3")
    mirror.push()
    assert (remote / "config").read_text() == "longer"
    assert (remote / "data" / "set").read_text() == "changed in the bucket"
    assert names(remote) == {"config", "data/set", "model/config"}


def test_locks_logs_and_large_folders_stay_out_of_a_push(mirror):
    local, remote, mirror = mirror
    write(local, **{".lock": "pid", ".metrics.1.tmp": "half", "metrics": "whole"})
    write(local, logs__server="output", checkpoints__1="x", trajectories__step="x")
    mirror.push()
    assert names(remote) == {"metrics"}


def test_a_pull_restores_missing_and_changed_files(mirror):
    local, remote, mirror = mirror
    write(remote, config="new", data__set="set", reference__a="array", logs__server="output")
    write(remote, checkpoints__1__digests="d", warm_start__checkpoints__2="w", trajectories__s="t")
    write(local, config="older")
    assert mirror.pull() == 3
    assert names(local) == {"config", "data/set", "reference/a"}
    assert (local / "config").read_text() == "new"
    assert mirror.pull(with_trajectories=True) == 4
    assert "trajectories/s" in names(local)


def test_a_pulled_file_is_not_uploaded_again(mirror):
    local, remote, mirror = mirror
    write(remote, config="first")
    mirror.pull()
    write(remote, config="other")
    mirror.push()
    assert (remote / "config").read_text() == "other"


def test_pushes_can_have_a_shortest_interval(mirror):
    local, remote, mirror = mirror
    mirror.push(3600.0)
    write(local, metrics="line")
    mirror.push(3600.0)
    assert names(remote) == set()
    mirror.push()
    assert names(remote) == {"metrics"}


def test_removed_files_are_gone_from_the_bucket_and_can_return(mirror):
    local, remote, mirror = mirror
    write(local, config="1", data__set="2", model__config="3")
    mirror.push()
    mirror.remove(["config", "data", "nothing"])
    assert names(remote) == {"model/config"}
    mirror.push()
    assert names(remote) == {"config", "data/set", "model/config"}


def test_stale_files_of_the_staging_folder_are_cleared_but_not_the_lock(mirror):
    local, _, mirror = mirror
    write(local, **{".lock": "pid"}, config="1", data__set="2")
    mirror.clear()
    assert names(local) == {".lock"}


def test_every_process_and_url_has_its_own_staging_folder(monkeypatch):
    first = bucket.staging_folder("gs://a/run")
    assert first == bucket.staging_folder("gs://a/run/") and first.name == "run"
    other = bucket.staging_folder("gs://b/run")
    monkeypatch.setattr(processes, "index", lambda: 1)
    assert len({first, other, bucket.staging_folder("gs://a/run")}) == 3


@pytest.mark.parametrize(
    ("workdir", "message"),
    [
        ("s3://a/run", "expected gs://BUCKET/FOLDER, a path, or file:///PATH"),
        ("file://run", "expected gs://BUCKET/FOLDER"),
        ("gs://a", "expected gs://BUCKET/FOLDER"),
    ],
)
def test_unusable_urls_are_refused(workdir, message):
    with pytest.raises(RunFolderError, match=f"--workdir={workdir}.*{message}"):
        RunFolder(workdir)


def test_commands_that_need_a_local_folder_refuse_a_url():
    with pytest.raises(ConfigError, match="--workdir=gs://a/run: an evaluation needs a local"):
        open_evaluation({}, "gs://a/run").__enter__()
    command = [sys.executable, "-m", "agentgym_jax.view", "gs://a/run", "--serve"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "view: --serve cannot follow gs://a/run" in done.stderr


def test_training_data_of_an_earlier_run_in_a_bucket_are_reported_as_unread(tmp_path):
    write(tmp_path, **{"config.json": '{"model": {"source": "gs://a/earlier"}}'})
    assert read_training_data(tmp_path).unread == ["gs://a/earlier (in a bucket)"]


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(bucket.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RunFolderError, match=r"needs the package gcsfs.*\[gcs\]"):
        RunFolder("gs://a/run")


def test_a_started_run_is_found_again_without_the_staging_folder(url, staging):
    folder, resumed = start(url)
    write(folder.path, **{"metrics.jsonl": '{"step": 1}\n'})
    folder.push()
    folder.close()
    assert not resumed and names(bucket.to_folder(url)) >= {"config.json", "provenance.json"}
    shutil.rmtree(staging)
    folder, resumed = start(url)
    assert resumed and folder.metrics_path.read_text() == '{"step": 1}\n'
    assert len(folder.provenance()["starts"]) == 2
    folder.close()
    with pytest.raises(ValueError, match="holds a run with another config"):
        start(url, CONFIG | {"total_steps": 4})


def test_a_run_that_fails_at_its_start_leaves_nothing_in_the_bucket(url):
    folder, _ = start(url)
    folder.withdraw()
    assert not folder.permanent.exists() and names(folder.path) == set()


def test_the_other_processes_see_what_process_0_wrote_first(url, monkeypatch):
    folder, _ = start(url)
    with folder.writer_first():
        write(folder.path, tokenizer__tokenizer="ids")
    monkeypatch.setattr(processes, "index", lambda: 1)
    monkeypatch.setattr(processes, "gather", lambda value, channel: [value])
    other = RunFolder(url)
    with other.writer_first():
        assert (other.tokenizer / "tokenizer").read_text() == "ids"
        write(other.path, own="not pushed", **{"judge_cache.1.jsonl": "its own file"})
    found = names(other.permanent)
    assert "own" not in found and "judge_cache.1.jsonl" in found


def test_trajectories_are_in_the_bucket_only(url):
    folder, _ = start(url)
    for step in (1, 2):
        folder.write_trajectories(step, [{"reward": step}, {"text": "ä"}])
    assert names(folder.trajectories) == {"step_000001.jsonl", "step_000002.jsonl"}
    assert not (folder.path / "trajectories").exists()
    assert RunFolder(url).read_trajectories(2) == [{"reward": 2}, {"text": "ä"}]
    assert [path.name for path in folder.remove_trajectories_after(1)] == ["step_000002.jsonl"]
    assert folder.trajectory_steps() == [1]
    with pytest.raises(FileNotFoundError, match=r"steps with trajectories: \[1\]"):
        folder.read_trajectories(2)


def test_an_object_that_fails_while_it_is_written_keeps_its_content(url):
    def fails():
        yield {"reward": 2}
        raise KeyError

    folder, _ = start(url)
    folder.write_trajectories(1, [{"reward": 1}])
    with pytest.raises(KeyError):
        folder.write_trajectories(1, fails())
    assert folder.read_trajectories(1) == [{"reward": 1}]


def test_objects_of_an_interrupted_save_are_no_checkpoint(monkeypatch):
    with storing(monkeypatch):
        directory = bucket.to_folder("gs://somewhere/checkpoints")
        assert checkpoint._step_folders(directory) == []
        for step in (1, 2, 3):
            write(directory, **{f"{step}/params/a": "array"})
        write(directory, **{"1/commit_success.txt": "", "2/commit_success.txt": ""})
        write(directory, **{"1/digests.json": "{}"})
        checkpoint._seal(directory)  # of step 3, which is not committed
        assert json.loads((directory / "3" / "digests.json").read_text()).keys() == {"params/a"}
        complete = filter(checkpoint._is_complete, checkpoint._step_folders(directory))
        assert [folder.name for folder in complete] == ["1"]
        checkpoint._set_aside_incomplete(directory)
        kept = {path.name for path in directory.iterdir()}
        assert kept == {"1", "incomplete-2"}


def test_a_changed_object_of_a_checkpoint_is_found(monkeypatch):
    with storing(monkeypatch):
        directory = bucket.to_folder("gs://somewhere/checkpoints")
        write(directory, **{"1/params/a": "array", "1/params/b": "array"})
        checkpoint._seal(directory)
        assert checkpoint._faults(directory / "1") == []
        write(directory, **{"1/params/a": "arrow"})
        (directory / "1" / "params" / "b").unlink()
        assert checkpoint._faults(directory / "1") == [
            "params/a has changed since it was written",
            "params/b is missing",
        ]


def test_a_local_copy_has_the_files_of_a_run_in_a_bucket(url):
    folder, _ = start(url)
    folder.write_trajectories(1, [{"reward": 1}])
    copy = bucket.local_copy(url, with_trajectories=True)
    assert copy.name == "run" and RunFolder(copy).config() == CONFIG
    assert RunFolder(copy).read_trajectories(1) == [{"reward": 1}]
    assert not (bucket.local_copy(url, with_trajectories=False) / "trajectories").exists()
    with pytest.raises(FileNotFoundError, match="has no files of a run"):
        bucket.local_copy(f"{url}2", with_trajectories=False)
    assert bucket.local_copy("some/run", with_trajectories=True) == pathlib.Path("some/run")
