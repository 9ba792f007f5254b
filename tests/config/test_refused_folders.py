"""Folders of other runs and of refused configs: a job leaves their files alone."""

import json

import pytest

from agentgym_jax.config.sections import ConfigError
from agentgym_jax.jobs import as_trained, evaluation
from agentgym_jax.sweeps.folder import SweepFolder
from tests.config.refusals import changed, check_one_line, evaluated, message

KINDS = {
    "a training run": ("config.json", '{"job": "sft"}'),
    "an evaluation": ("config.json", '{"environments": {}}'),
    "a sweep": ("sweep.json", "{}"),
    "a model": ("model.safetensors", ""),
    "saved weights of Tinker's API": ("x_train_0/sampler_weights/a/base.json", "{}"),
}


OWN_KIND = {"rl": "a training run", "evaluate": "an evaluation", "sweep": "a sweep"}


@pytest.mark.parametrize(
    ("job", "kind"), [(job, kind) for job in OWN_KIND for kind in KINDS if kind != OWN_KIND[job]]
)
def test_a_folder_of_another_kind_is_refused_in_one_line_and_left_alone(tmp_path, job, kind):
    file = tmp_path / KINDS[kind][0]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(KINDS[kind][1])
    before = sorted(tmp_path.rglob("*"))
    if job == "sweep":
        with pytest.raises(ConfigError, match="holds other files and no sweep.json"):
            SweepFolder(str(tmp_path)).opened(None).__enter__()
    else:
        config = changed(job) if job == "rl" else evaluated()
        check_one_line(message(job, config, tmp_path), f"holds {kind}, not {OWN_KIND[job]}")
    assert before == sorted(tmp_path.rglob("*"))


def test_a_corrected_config_starts_in_the_folder_of_a_refused_one(tmp_path):
    workdir = tmp_path / "run"
    wrong = evaluated(environments__babyai__eval__groups={"NoSuchLevel": 41})
    assert "need 0 <= r < 40" in message("evaluate", wrong, workdir)
    assert not list(tmp_path.iterdir())
    with evaluation.open_evaluation(evaluated(), str(workdir)) as parts:
        parts.folder.begin()
    assert (workdir / "config.json").exists()


def test_a_refused_config_leaves_existing_files_in_its_folder(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    message("evaluate", evaluated(environments__babyai__eval__groups={"NoSuchLevel": 41}), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_error_for_a_folder_of_another_config_names_five_differences(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(changed("agentevol")))
    text = message("rl", changed("rl"), tmp_path)
    lines = text.splitlines()
    assert len(lines) == 8 and max(map(len, lines)) < 260
    assert lines[6].strip().startswith("... and ") and lines[6].endswith(" more")
    assert "new --workdir" in lines[7]


def test_the_error_for_a_broken_config_of_a_run_names_the_file(tmp_path):
    (tmp_path / "config.json").write_text('{"seed": ')
    check_one_line(message("rl", changed("rl"), tmp_path), "config.json is not JSON")
    with pytest.raises(ConfigError, match="config.json is not JSON"):
        as_trained.take_over(changed("evaluate"), tmp_path, ())
