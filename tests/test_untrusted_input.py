"""Untrusted files, servers and models: their output is data, never a path, program or markup."""

import ast
import html.parser
import json
import logging
import os
import pathlib
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import from_record, to_record
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.runs.redact import HIDDEN, LogFilter
from agentgym_jax.runs.run_folder import RunFolder
from tests.builders import trajectory, turn

ROOT = pathlib.Path(__file__).parents[1]
SECRET = "hunter2-abc"
SOURCES = sorted(
    [*(ROOT / "agentgym_jax").rglob("*.py"), *(ROOT / "envs").glob("agentgym_*/**/*.py")]
)

ALLOWED = {
    # only on a private pipe between a server and its worker processes
    "envs/agentgym_envs/base/worker.py": ["import pickle"],
    "envs/agentgym_envs/base/workers.py": ["import pickle"],
    # under a filter of system calls (tests/envs/searchqa/test_programs.py)
    "envs/agentgym_envs/searchqa/program_child.py": ["compile()", "exec()"],
    # `yaml.safe_load` of a file of the package mini-swe-agent
    "agentgym_jax/programs/mini_swe.py": ["import yaml"],
}
LOADERS = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
    "torch",
}
EXECUTORS = {"eval", "exec", "compile", "__import__", "system", "popen", "getoutput"}

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "../../../../etc/passwd",
    "$(touch /tmp/owned); `id`",
    "\0\x1b[2J\u202e\ud7ff",
    "<!--<script>",
)


def calls(nodes):
    """Yields every function call among the nodes of a module.

    Each result has the name of the function, a flag for a plain name, and the keywords.
    """
    for node in nodes:
        if isinstance(node, ast.Call):
            function = node.func
            name = (
                function.attr
                if isinstance(function, ast.Attribute)
                else getattr(function, "id", "")
            )
            is_plain = isinstance(function, ast.Name)
            yield name, is_plain, {k.arg: ast.unparse(k.value) for k in node.keywords}


def imported(nodes):
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def faults(source):
    """Returns the calls in a module that could execute data as a program."""
    nodes = list(ast.walk(ast.parse(source)))
    found = [f"import {name}" for name in imported(nodes) if name in LOADERS]
    for name, is_plain, keywords in calls(nodes):
        # methods such as re.compile are allowed
        is_method = name in ("compile", "eval", "exec") and not is_plain
        if name in EXECUTORS and not is_method:
            found.append(f"{name}()")
        if "shell" in keywords and keywords["shell"] != "False":
            found.append(f"{name}(shell=...)")
        if "allow_pickle" in keywords and keywords["allow_pickle"] != "False":
            found.append(f"{name}(allow_pickle=...)")
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from torch import load",
        "eval(text)",
        "os.system(text)",
        "subprocess.run(text, shell=True)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_the_search_detects_forbidden_calls(source):
    assert faults(source)
    assert not faults("import re\nre.compile(text)\nsubprocess.run([text], shell=False)")


def test_no_module_loads_pickles_or_executes_text():
    assert len(SOURCES) > 100
    found = {str(path.relative_to(ROOT)): sorted(faults(path.read_text())) for path in SOURCES}
    assert {name: what for name, what in found.items() if what} == ALLOWED


class Bomb:
    """An object that creates a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickled_array_file_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([Bomb(tmp_path / "owned")], object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        # No call in the package changes np.load's default, which refuses pickles.
        np.load(tmp_path / "a.npy")
    assert not (tmp_path / "owned").exists()


def test_checkpoints_are_saved_and_restored_without_pickle(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a pickle was read")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    state = TrainState(jnp.zeros((), jnp.int32), {"w": jnp.arange(6.0)}, {"m": jnp.ones((2,))})
    with Checkpoints(tmp_path / "c", max_to_keep=1) as checkpoints:
        checkpoints.save(1, state, {"note": HOSTILE[0]})
        checkpoints.wait()
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
        )
        restored, extra = checkpoints.restore(1, shapes)
    np.testing.assert_array_equal(restored.params["w"], state.params["w"])
    assert extra == {"note": HOSTILE[0]}
    for path in (tmp_path / "c").rglob("*"):
        assert not path.is_file() or not path.read_bytes().startswith(b"\x80\x04")


def episode(text, item_id="textcraft_1"):
    """Returns an episode of one turn whose action and observation have the same text."""
    return trajectory(
        "paa",
        [turn(1, 3, text=text, action=text, observation=text)],
        item_id=item_id,
        messages=({"role": "user", "content": text}, {"role": "assistant", "content": text}),
    )


def tree_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("text", HOSTILE)
def test_model_output_is_stored_unchanged_and_creates_no_other_file(tmp_path, text):
    folder = RunFolder(tmp_path / "run")
    folder.start({"seed": 0}, devices=[], adjustable=(), command=["train"])
    folder.write_trajectories(1, [to_record(episode(text))])
    assert "trajectories/step_000001.jsonl" in tree_of(folder.path)
    assert len(tree_of(folder.path / "trajectories")) == 1
    (record,) = folder.read_trajectories(1)
    folder.close()
    found = from_record(record)
    assert found.messages[1]["content"] == text
    assert to_record(found) == json.loads(json.dumps(record))


@pytest.mark.parametrize("item_id", ["../../etc/cron.d/x_1", "a\0b_1", "/etc/passwd_2", "..\\x_3"])
def test_an_item_id_never_becomes_part_of_a_path(tmp_path, item_id):
    folder = RunFolder(tmp_path / "deep" / "er" / "run")
    folder.start({"seed": 0}, devices=[], adjustable=(), command=["train"])
    before = tree_of(tmp_path)
    folder.write_trajectories(1, [to_record(episode("look", item_id))])
    folder.write_trajectories(1, [to_record(episode("look", item_id))], kind="eval")
    folder.close()
    assert tree_of(tmp_path) - before == {
        f"deep/er/run/trajectories/{kind}_000001.jsonl" for kind in ("step", "eval")
    }
    assert Task("../x", 1, "g").item_id == "../x_1"


class Elements(html.parser.HTMLParser):
    """A parser that collects the elements and attributes of a page as a browser would."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, tuple(sorted(name for name, _ in attrs))))


def report_of(folder, text):
    """Returns the page of a run in which the model and the environment produced this text."""
    report = pytest.importorskip("agentgym_jax.viewer.report")
    run = RunFolder(folder)
    run.start({"seed": 0}, devices=[], adjustable=(), command=["train"])
    run.metrics_path.write_text(json.dumps({"step": 1, "time": 1.0, "rollout/success": 0.0}) + "\n")
    run.write_trajectories(1, [to_record(episode(text))])
    run.close()
    report.write_report(folder, transports={}, max_replays=0)
    return run.report_path.read_text()


@pytest.mark.parametrize("text", HOSTILE)
def test_model_output_is_not_markup_in_the_report(tmp_path, text):
    pages = []
    for name, said in (("harmless", "x"), ("hostile", text)):
        parser = Elements()
        page = report_of(tmp_path / name / "run", said)
        parser.feed(page)
        pages.append(parser.found)
        assert len(text) < 9 or text not in page
    assert pages[0] == pages[1]


def test_no_secret_is_in_a_run_folder_or_in_the_log(tmp_path, caplog):
    config = {
        "seed": 0,
        "client": {"token": SECRET},
        "environments": {"a": {"url": f"https://me:{SECRET}@host:1/x?api_key={SECRET}"}},
    }
    command = ["train", f"--config.client.token={SECRET}", "--api_key", SECRET]
    with RunFolder(tmp_path / "run") as folder:
        folder.start(config, devices=["cpu"], adjustable=(), command=command)
        texts = [p.read_text() for p in folder.path.rglob("*") if p.is_file()]
        assert HIDDEN in folder.config_path.read_text()
        assert HIDDEN in folder.provenance_path.read_text()
    assert not any(SECRET in text for text in texts)
    with RunFolder(tmp_path / "run") as folder:  # a second start of the run, with another password
        changed = json.loads(json.dumps(config).replace(SECRET, "another"))
        assert folder.start(changed, devices=["cpu"], adjustable=(), command=command)
    lines = []
    handler = logging.Handler()
    handler.addFilter(LogFilter())
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("absl").addHandler(handler)
    logging.getLogger("absl").error("%s refused us", config["environments"]["a"]["url"])
    logging.getLogger("absl").removeHandler(handler)
    assert len(lines) == 1 and SECRET not in lines[0]
