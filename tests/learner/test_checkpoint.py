import dataclasses
import errno
import gc
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import chex
import jax
import numpy as np
import pytest

from agentgym_jax.learner import checkpoint, train_state
from agentgym_jax.learner.checkpoint import CheckpointError, Checkpoints
from agentgym_jax.mesh.sharding import TRAIN_RULES, Layout, make_mesh
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.policy import Policy, make_sampler_params
from tests.learner.learner_parts import CONFIG, make_learner, on_host, steps_from
from tests.run_python import output_of
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("compiled_fast")

EXTRA = {"seed": 2**63 + 1, "position": [3, 17], "rate": 0.1, "nested": {"horizon": None}}


def abstract(learner, layout=None):
    return train_state.abstract_state(learner.policy, learner.optimizer, layout)


@pytest.fixture(scope="module")
def saved(learner, tmp_path_factory):
    """Returns a folder with checkpoints 1 and 2, and the state of step 2 as host arrays."""
    directory = tmp_path_factory.mktemp("run") / "checkpoints"
    state = steps_from(learner, learner.state(), [0])
    with Checkpoints(directory, max_to_keep=5) as checkpoints:
        checkpoints.save(1, state, {"step": 1})
        state = steps_from(learner, state, [1])
        checkpoints.save(2, state, EXTRA)
    return directory, on_host(state)


@pytest.fixture
def copied(saved, tmp_path):
    """Returns a copy of `saved` that a test may damage."""
    directory, state = saved
    target = tmp_path / "checkpoints"
    subprocess.run(["cp", "-r", str(directory), str(target)], check=True)
    return target, state


@pytest.mark.slow
def test_a_round_trip_is_exact(learner, saved):
    directory, expected = saved
    with Checkpoints(directory, max_to_keep=5, read_only=True) as checkpoints:
        assert checkpoints.steps() == [1, 2]
        state, extra = checkpoints.restore(checkpoints.latest_step(), abstract(learner))
    chex.assert_trees_all_equal(on_host(state), expected)
    assert state.step == 2
    assert extra == EXTRA


@pytest.mark.slow
def test_a_restored_state_trains_exactly_like_the_original(learner, saved):
    directory, _ = saved
    through = steps_from(learner, learner.state(), [0, 1, 2, 3])
    with Checkpoints(directory, max_to_keep=5, read_only=True) as checkpoints:
        state, _ = checkpoints.restore(2, abstract(learner))
    chex.assert_trees_all_equal(on_host(steps_from(learner, state, [2, 3])), on_host(through))


def test_an_update_during_a_save_does_not_change_the_saved_state(learner, tmp_path):
    state = learner.state()
    expected = on_host(state)
    with Checkpoints(tmp_path, max_to_keep=2) as checkpoints:
        checkpoints.save(1, state, {})
        steps_from(learner, state, [0, 1])  # these steps donate the arrays that are being written
        checkpoints.wait()
        restored, _ = checkpoints.restore(1, abstract(learner))
    chex.assert_trees_all_equal(on_host(restored), expected)


@pytest.mark.parametrize("shape", [(8, 1, 1), (1, 4, 2)], ids=str)
def test_a_checkpoint_restores_onto_another_mesh(learner, saved, shape):
    directory, expected = saved
    data, fsdp, tensor = shape
    layout = Layout(make_mesh(data=data, fsdp=fsdp, tensor=tensor), TRAIN_RULES)
    target = abstract(learner, layout)
    with Checkpoints(directory, max_to_keep=5, read_only=True) as checkpoints:
        state, _ = checkpoints.restore(2, target)
    chex.assert_trees_all_equal(on_host(state), expected)
    for x, wanted in zip(jax.tree.leaves(state), jax.tree.leaves(target), strict=True):
        assert x.sharding.is_equivalent_to(wanted.sharding, x.ndim)


def test_parameters_and_extra_can_be_restored_separately(learner, saved):
    directory, expected = saved
    with Checkpoints(directory, max_to_keep=5, read_only=True) as checkpoints:
        params = checkpoints.restore_params(2, learner.policy.abstract_params())
        assert checkpoints.restore_extra(1) == {"step": 1}
    chex.assert_trees_all_equal(on_host(params), expected.params)


def lists_that_live():
    gc.collect()
    return sum(type(x) is list for x in gc.get_objects())


@pytest.mark.slow
def test_a_save_does_not_leak_counters_of_the_array_library(learner, tmp_path):
    """Checks that each save leaves fewer than twelve lists in memory.

    A single report of TensorStore's counters would leave twelve lists.
    """
    with Checkpoints(tmp_path, max_to_keep=2) as checkpoints:
        for step in range(1, 7):
            checkpoints.save(step, learner.state(), {})
            checkpoints.wait()
            if step == 3:
                before = lists_that_live()
    assert (lists_that_live() - before) / 3 < 12


def test_old_checkpoints_are_deleted_and_milestones_kept(learner, tmp_path):
    state = learner.state()
    with Checkpoints(tmp_path, max_to_keep=2, keep_every=4) as checkpoints:
        for step in (1, 4, 5, 6, 7):
            checkpoints.save(step, state, {})
        checkpoints.wait()
        assert checkpoints.steps() == [4, 6, 7]


def test_saving_a_step_twice_keeps_the_first_save(learner, tmp_path):
    with Checkpoints(tmp_path, max_to_keep=2) as checkpoints:
        checkpoints.save(3, learner.state(), {"first": True})
        checkpoints.save(3, learner.state(), {"first": False})
        checkpoints.wait()
        assert checkpoints.restore_extra(3) == {"first": True}


def test_an_older_step_is_not_saved_after_a_newer_one(learner, copied):
    directory, _ = copied
    with Checkpoints(directory, max_to_keep=5) as checkpoints:
        with pytest.raises(CheckpointError, match="has step 2"):
            checkpoints.save(1, learner.state(), {})


@pytest.mark.parametrize("extra", [{"x": {1, 2}}, {"x": float("nan")}])
def test_extra_values_that_are_not_json_fail_at_once(learner, tmp_path, extra):
    with Checkpoints(tmp_path, max_to_keep=2) as checkpoints:
        with pytest.raises((TypeError, ValueError)):
            checkpoints.save(1, learner.state(), extra)
        assert checkpoints.latest_step() is None


def largest_file(folder):
    return max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_one_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "item"),
    [
        *((flip_one_bit, item) for item in ("params", "optimizer", "record")),
        (cut, "params"),
        (pathlib.Path.unlink, "optimizer"),
    ],
)
def test_the_error_for_a_damaged_checkpoint_names_it_and_the_remedy(learner, copied, damage, item):
    directory, _ = copied
    damage(largest_file(directory / "2" / item))
    with Checkpoints(directory, max_to_keep=5, read_only=True) as checkpoints:
        message = rf"checkpoint 2 is damaged.*{item}.*Delete the folder .*/2 to resume from step 1"
        with pytest.raises(CheckpointError, match=message):
            checkpoints.restore(2, abstract(learner))
        with pytest.raises(CheckpointError, match="checkpoint 2 is damaged"):
            checkpoints.restore_params(2, learner.policy.abstract_params())
        _, extra = checkpoints.restore(1, abstract(learner))
    assert extra == {"step": 1}


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_checkpoint_with_damaged_digests_is_damaged(learner, copied, text):
    directory, _ = copied
    (directory / "2" / "digests.json").write_text(text)
    with (
        Checkpoints(directory, max_to_keep=5, read_only=True) as checkpoints,
        pytest.raises(
            CheckpointError, match="damaged: digests.json cannot be read.*Delete the folder"
        ),
    ):
        checkpoints.restore(2, abstract(learner))


def test_an_incomplete_folder_is_never_restored(learner, copied):
    directory, _ = copied
    subprocess.run(["cp", "-r", str(directory / "2"), str(directory / "3")], check=True)
    (directory / "3" / "digests.json").unlink()
    subprocess.run(["rm", "-r", str(directory / "3" / "optimizer")], check=True)
    with Checkpoints(directory, max_to_keep=5, read_only=True) as checkpoints:
        assert checkpoints.latest_step() == 2
        with pytest.raises(CheckpointError, match=r"no complete checkpoint of step 3.*\[1, 2\]"):
            checkpoints.restore(3, abstract(learner))
    with Checkpoints(directory, max_to_keep=5) as checkpoints:
        checkpoints.save(3, learner.state(), {})  # the trainer can still save
        checkpoints.wait()
        assert checkpoints.steps() == [1, 2, 3]


@pytest.mark.parametrize("place", ["_digest", "_faults", "_record", "_read"])
def test_a_checkpoint_that_its_run_deletes_while_it_is_read_is_named(
    copied, learner, monkeypatch, place
):
    directory, _ = copied
    owner = checkpoint if place in ("_digest", "_faults") else Checkpoints
    read = getattr(owner, place)

    def delete_and_read(*arguments):
        shutil.rmtree(directory / "1", ignore_errors=True)
        return read(*arguments)

    monkeypatch.setattr(owner, place, delete_and_read)
    params = abstract(learner).params
    with Checkpoints(directory, max_to_keep=5, read_only=True) as checkpoints:
        with pytest.raises(CheckpointError, match=r"no complete checkpoint of step 1 .*\[2\]"):
            checkpoints.restore_params(1, params)


def test_the_error_for_another_model_names_the_differing_array(learner, saved):
    directory, _ = saved
    changes = {"hidden_size": CONFIG.hidden_size, "intermediate_size": 48}
    fields = {k: getattr(CONFIG, k) for k in CONFIG.__dataclass_fields__}
    other = Policy(DecoderConfig(**{**fields, **changes}))
    with Checkpoints(directory, max_to_keep=5, read_only=True) as checkpoints:
        with pytest.raises(
            CheckpointError, match=r"params/layers/mlp/down_kernel: saved .*32,16.*expected .*48,16"
        ):
            checkpoints.restore(2, train_state.abstract_state(other, learner.optimizer))
        with pytest.raises(CheckpointError, match="params/layers/mlp/down_kernel"):
            checkpoints.restore_params(2, other.abstract_params())
        muon = make_learner(name="muon")
        with pytest.raises(CheckpointError, match="another model or optimiser"):
            checkpoints.restore(2, abstract(muon))


def test_a_missing_folder_is_an_error_for_a_reader(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        Checkpoints(tmp_path / "nothing", max_to_keep=1, read_only=True)
    assert not (tmp_path / "nothing").exists()


WRITER = """
import sys
import jax, numpy as np
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.learner.train_state import TrainState

def state(step, size):
    return TrainState(np.int32(step), {"w": np.full(size, step, np.float32)}, {"m": np.zeros(3)})

def on_device(step, size):
    return jax.tree.map(jax.numpy.asarray, state(step, size))

checkpoints = Checkpoints(sys.argv[1], max_to_keep=3)
checkpoints.save(1, on_device(1, int(sys.argv[2])), {"step": 1})
checkpoints.wait()
checkpoints.save(2, on_device(2, int(sys.argv[2])), {"step": 2})
print("writing", flush=True)
checkpoints.wait()
print("done", flush=True)
import time; time.sleep(600)
"""


@pytest.mark.slow
def test_after_a_kill_during_a_save_the_previous_step_is_restored(tmp_path):
    """Checks a process killed by SIGKILL while the second checkpoint still has its temporary name."""
    size = 30_000_000  # 120 MB of float32, which take some tenths of a second to write
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), str(size)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    try:
        assert process.stdout.readline() == "writing\n"
        until(lambda: any(tmp_path.glob("2.*tmp*/*")))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finally:
        process.kill()
    assert any(tmp_path.glob("2.*tmp*")), "the save had finished: make the state larger"
    with Checkpoints(tmp_path, max_to_keep=3, read_only=True) as checkpoints:
        assert checkpoints.latest_step() == 1
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    shapes = train_state.TrainState(
        jax.ShapeDtypeStruct((), np.int32, sharding=here),
        {"w": jax.ShapeDtypeStruct((size,), np.float32, sharding=here)},
        {"m": jax.ShapeDtypeStruct((3,), np.float32, sharding=here)},
    )
    with Checkpoints(tmp_path, max_to_keep=3) as checkpoints:
        state, extra = checkpoints.restore(checkpoints.latest_step(), shapes)
        assert (int(state.step), extra) == (1, {"step": 1})
        assert (np.asarray(state.params["w"]) == 1).all()
        assert not any(tmp_path.glob("*tmp*"))  # the trainer removes temporary folders
        checkpoints.save(2, state, {"step": 2})
        checkpoints.wait()
        assert checkpoints.steps() == [1, 2]


def test_the_stale_rollout_weights_are_saved_with_the_state(learner, tmp_path):
    state = learner.state()
    older = jax.tree.map(lambda x: (x + 1).astype(np.float16), state.params)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), older)
    with Checkpoints(tmp_path, max_to_keep=2) as checkpoints:
        checkpoints.save(1, state, {})
        checkpoints.save(2, state, {}, older)
        checkpoints.wait()
        for step in (1, 2):
            found, _ = checkpoints.restore(step, abstract(learner))
            chex.assert_trees_all_equal(on_host(found.params), on_host(state.params))
        chex.assert_trees_all_equal(
            on_host(checkpoints.restore_behaviour(2, shapes)), on_host(older)
        )
        with pytest.raises(CheckpointError, match="saved None"):
            checkpoints.restore_behaviour(1, shapes)


def test_stale_int8_weights_are_restored_to_the_last_bit(learner, tmp_path):
    state = learner.state()
    policy = dataclasses.replace(learner.policy, is_int8=True)
    older = make_sampler_params(None)(policy, state.params)
    with Checkpoints(tmp_path, max_to_keep=2) as checkpoints:
        checkpoints.save(1, state, {}, {"0": older})
        checkpoints.wait()
        found = checkpoints.restore_behaviour(1, {"0": policy.abstract_sampler_params()})["0"]
    chex.assert_trees_all_equal(on_host(found), on_host(older))
    assert found["layers"].base["mlp"]["up_kernel"].dtype == np.int8


def test_digests_cover_every_array_file(saved):
    directory, _ = saved
    listed = set(json.loads((directory / "2" / "digests.json").read_text()))
    files = {
        str(p.relative_to(directory / "2")) for p in (directory / "2").rglob("*") if p.is_file()
    }
    missing = {p for p in files - listed if "/d/" in p or p.endswith("metadata")}
    assert missing == set()


def test_read_only_checkpoints_log_no_warning(tmp_path, caplog):
    (tmp_path / "checkpoints").mkdir()
    with Checkpoints(tmp_path / "checkpoints", max_to_keep=1, read_only=True) as checkpoints:
        assert checkpoints.latest_step() is None
    assert not caplog.records


FILLER = """
import resource
import sys
import jax, numpy as np
from agentgym_jax.learner.checkpoint import CheckpointError, Checkpoints
from agentgym_jax.learner.train_state import TrainState

def state(step, size):
    weights = np.random.default_rng(step).random(size, np.float32)
    state = TrainState(np.int32(step), {"w": weights}, {"m": np.zeros(3)})
    return jax.tree.map(jax.numpy.asarray, state)

checkpoints = Checkpoints(sys.argv[1], max_to_keep=3)
checkpoints.save(1, state(1, 1000), {"step": 1})
checkpoints.wait()
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
checkpoints.save(2, state(2, 1_000_000), {"step": 2})
try:
    checkpoints.wait()
except CheckpointError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
with Checkpoints(sys.argv[1], max_to_keep=3) as checkpoints:
    checkpoints.save(2, state(2, 1_000_000), {"step": 2})
    checkpoints.wait()
    print(checkpoints.steps(), checkpoints.restore_extra(2))
"""


def test_a_full_disk_is_reported_and_the_previous_checkpoint_stays(tmp_path):
    output = output_of("-c", FILLER, tmp_path, timeout=120, JAX_PLATFORMS="cpu")
    message, after = output.splitlines()
    assert "checkpoint 2 could not be written" in message and "Step 1 is complete" in message
    assert "File too large" in message and "ulimit" in message
    assert after == "[1, 2] {'step': 2}"


def test_a_checkpoint_without_complete_digests_is_incomplete(learner, tmp_path, monkeypatch):
    """Checks a disk that becomes full while the very last file of a checkpoint is written."""
    write = pathlib.Path.write_text

    def full(path, text, *args, **kwargs):
        if path.name.startswith("digests"):
            write(path, text[: len(text) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, text, *args, **kwargs)

    with Checkpoints(tmp_path, max_to_keep=3) as checkpoints:
        checkpoints.save(1, learner.state(), {})
        checkpoints.wait()
    with (
        monkeypatch.context() as patch,
        pytest.raises(CheckpointError, match="1 is complete.*full"),
    ):
        patch.setattr(pathlib.Path, "write_text", full)
        checkpoints = Checkpoints(tmp_path, max_to_keep=3)
        checkpoints.save(2, learner.state(), {})
        checkpoints.wait()
    with Checkpoints(tmp_path, max_to_keep=3) as checkpoints:
        assert checkpoints.steps() == [1]
        checkpoints.save(2, learner.state(), {})
        checkpoints.wait()
        checkpoints.restore(2, abstract(learner))
