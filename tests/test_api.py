"""The functions of the package `agentgym_jax`, and the modules of the commands with their names."""

import ast
import importlib
import json
import pathlib

import ml_collections
import pytest

import agentgym_jax
from agentgym_jax import (
    USER_ERRORS,
    ConfigError,
    api,
    compare,
    evaluate,
    load_config,
    load_policy,
    load_run,
    train,
)
from agentgym_jax.config import config_files
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.models.policy import Policy
from agentgym_jax.text.tokenizer import byte_tokenizer
from configs import quickstart
from tests.builders import decoder_config
from tests.model_files import save_run
from tests.run_python import output_of

ROOT = pathlib.Path(__file__).parents[1]
# Modules of commands whose names are functions of the package.
COMMANDS = sorted(name for name in api.__all__ if (ROOT / f"agentgym_jax/{name}.py").exists())
# All eight devices of the test session, and environments in this process.
HERE = {"mesh.data": -1, "env_server.transport": "inprocess"}
TEXTCRAFT = "configs/eval/textcraft.py:limit=1"


def test_the_package_offers_exactly_the_names_of_its_api():
    assert agentgym_jax.__all__ == api.__all__ == sorted(api.__all__, key=_case_first)
    assert all(getattr(agentgym_jax, name) is getattr(api, name) for name in api.__all__)
    assert set(api.__all__) <= set(dir(agentgym_jax))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = agentgym_jax.trian


def _case_first(name):
    """Sorts as ruff does: constants, classes, functions."""
    return (not name.isupper(), name.islower(), name)


def test_importing_the_package_imports_no_jax():
    program = "import sys, agentgym_jax; print({'jax', 'numpy', 'absl'} & set(sys.modules))"
    assert output_of("-c", program).strip() == "set()"


@pytest.mark.parametrize("name", ["view", "results", "viewer.loaded_run"])
def test_programs_that_only_read_runs_import_no_jax(name):
    program = (
        f"import sys, agentgym_jax.{name}; print({{'jax', 'flax', 'orbax'}} & set(sys.modules))"
    )
    assert output_of("-c", program).strip() == "set()"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_module_of_a_command_cannot_replace_the_function(name):
    function = getattr(api, name)
    with pytest.raises(ImportError, match=f"from agentgym_jax import {name}") as refused:
        importlib.import_module(f"agentgym_jax.{name}")
    assert "\n" not in str(refused.value)
    assert getattr(agentgym_jax, name) is function


@pytest.mark.slow
def test_the_functions_can_be_imported_after_the_command_ran_in_this_process():
    program = (
        "import runpy, sys; sys.argv = ['x', '--list']\n"
        "try: runpy.run_module('agentgym_jax.train', run_name='__main__', alter_sys=True)\n"
        "except SystemExit: pass\n"
        "from agentgym_jax import evaluate, train; print(train.__module__, evaluate.__module__)"
    )
    assert output_of("-c", program).splitlines()[-1] == "agentgym_jax.api agentgym_jax.api"


def imported_modules(source):
    """Returns the modules that the import statements of a program name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        found += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found += [node.module] if isinstance(node, ast.ImportFrom) else []
    return found


def test_nothing_imports_the_module_of_a_command_with_the_name_of_a_function():
    assert COMMANDS == ["evaluate", "train"]
    banned = {f"agentgym_jax.{name}" for name in COMMANDS}
    paths = [path for f in ("agentgym_jax", "configs", "envs") for path in (ROOT / f).rglob("*.py")]
    paths += [path for f in ("experiments", "tests") for path in (ROOT / f).rglob("*.py")]
    sources = [(path, path.read_text("utf-8")) for path in paths]
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        sources += [(path, "".join(c["source"])) for c in cells if c["cell_type"] == "code"]
    found = []
    for path, source in sources:
        if any(name in source for name in banned):  # parsing all files would take seconds
            found += [(path, name) for name in imported_modules(source) if name in banned]
    assert not found


def test_a_config_is_a_path_with_options_a_config_or_a_dictionary(monkeypatch, tmp_path):
    expected = quickstart.get_config("smoke").to_dict()
    monkeypatch.chdir(tmp_path)  # without a folder configs/, so that the installed file is found
    loaded = load_config("configs/quickstart.py:smoke")
    assert isinstance(loaded, ml_collections.ConfigDict)
    for config in ("configs/quickstart.py:smoke", loaded, loaded.to_dict()):
        assert config_files.resolve(config, {}) == expected


def test_the_file_of_a_sweep_is_no_config():
    with pytest.raises(ConfigError, match=r"configs/sweeps/bandit.py: .*returned Sweep, expected"):
        load_config("configs/sweeps/bandit.py")


def test_overrides_are_dotted_keys_or_nested_dictionaries():
    config = {"seed": 0, "optimizer": {"learning_rate": 1.0, "b2": 0.9}, "guards": "default"}
    dotted = config_files.resolve(config, {"optimizer.learning_rate": 2.0, "seed": 1})
    nested = config_files.resolve(config, {"optimizer": {"learning_rate": 2.0}, "seed": 1})
    assert (
        dotted
        == nested
        == {
            "seed": 1,
            "optimizer": {"learning_rate": 2.0, "b2": 0.9},
            "guards": "default",
        }
    )
    added = config_files.resolve(config, {"optimizer.schedule": {"kind": "x"}, "guards": {"a": 1}})
    assert added["optimizer"]["schedule"] == {"kind": "x"} and added["guards"] == {"a": 1}
    assert config["seed"] == 0 and config["optimizer"]["learning_rate"] == 1.0


WRONG = [
    ("configs/quikstart.py", {}, "did you mean configs/quickstart.py?"),
    ("nowhere.py:smoke", {}, "config=nowhere.py: there is no such file"),
    ("configs/quickstart.py:fast", {}, "unknown config option 'fast'"),
    ("configs/eval/suite.py", {}, "config.job must be one of"),
    ("configs/quickstart.py:smoke", {"optimzer.b2": 0.9}, "did you mean 'optimizer'?"),
    ("configs/quickstart.py:smoke", {"optimizer.bb2": 0.9} | HERE, "did you mean 'b2'?"),
    ("configs/quickstart.py:smoke", {"total_steps": "ten"} | HERE, "config.total_steps='ten'"),
    ("configs/quickstart.py:smoke", {"optimizer": "adam"} | HERE, "config.optimizer is 'adam'"),
]


@pytest.mark.parametrize(("config", "overrides", "words"), WRONG, ids=[w for *_, w in WRONG])
def test_an_invalid_config_is_refused_with_one_line_and_without_a_folder(
    config, overrides, words, tmp_path
):
    with pytest.raises(ConfigError) as refused:
        train(config, tmp_path / "run", overrides)
    assert words in str(refused.value) and "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_an_evaluation_returns_its_scores(tmp_path):
    scores = evaluate(TEXTCRAFT, "expert", tmp_path / "expert", HERE)
    assert scores.success == 1.0 and scores.greedy is None
    assert scores.path == tmp_path / "expert" / "scores.json"
    assert all(group["success"] == 1.0 for group in scores.groups.values())
    episodes = load_run(tmp_path / "expert").trajectories()
    assert [episode.outcome for episode in episodes] == [Outcome.SUCCESS] * len(scores.episodes)
    random = evaluate(TEXTCRAFT, "random", tmp_path / "random", HERE, same_tasks_as=scores.path)
    assert compare(random, scores)["overall"]["tasks"] == scores.overall["tasks"]


def test_an_evaluation_of_unknown_environments_is_refused(tmp_path):
    with pytest.raises(USER_ERRORS, match="the config has no 'chess'"):
        evaluate(TEXTCRAFT, "expert", tmp_path / "e", HERE, environments=["chess"])


def test_a_model_whose_weights_cannot_be_read_leaves_no_evaluation(tmp_path):
    tokenizer, run = byte_tokenizer(), tmp_path / "run"
    save_run(run, Policy(decoder_config(vocab_size=tokenizer.vocab_size)), {})
    tokenizer.save(run / "tokenizer")
    with pytest.raises(USER_ERRORS, match="no complete checkpoint yet"):
        evaluate(TEXTCRAFT, run, tmp_path / "e", HERE)
    assert not (tmp_path / "e").exists()


@pytest.mark.slow
def test_a_run_is_trained_resumed_evaluated_and_loaded_as_a_policy(tmp_path):
    config = ROOT / "tests/integration/tiny.py"
    first = train(
        config, tmp_path / "run", {"total_steps": 1, "learner.micro_rows": 8} | HERE, plots=False
    )
    assert first.metrics["step"].tolist() == [1]
    run = train(config, tmp_path / "run", {"total_steps": 2, "learner.micro_rows": 8} | HERE)
    assert run.metrics["step"].tolist() == [1, 2] and run.trajectory_steps() == [1, 2]
    assert run.config["total_steps"] == 2 and run.summary().startswith("finished: 2 steps")
    assert (tmp_path / "run/plots/summary.png").exists()
    scores = evaluate("configs/eval/quickstart.py:smoke", run.workdir, tmp_path / "eval", HERE)
    assert scores.episodes and scores.success is not None
    with load_policy(run.workdir, rows=8, context=64) as policy:
        assert isinstance(policy.chat("Your goal: go to the red door.", max_tokens=4), str)
