import base64
import html
import json
import math
import re
import zlib

import pytest

from agentgym_jax.telemetry.metrics_file import MetricWriter
from agentgym_jax.viewer import report
from agentgym_jax.viewer.records import trajectory_files
from agentgym_jax.viewer.report import SCRIPTS, write_report
from agentgym_jax.viewer.run_summary import episode_columns, metric_columns, panels
from agentgym_jax.viewer.series import Run


def write(run, **options):
    return write_report(run, transports={}, max_replays=0, **options).read_text(encoding="utf-8")


def data(page):
    """Returns the data elements of a page by their names."""
    elements = re.findall(
        r'<script type="application/octet-stream" id="data-([^"]+)">([^<]*)</script>', page
    )
    return {name: json.loads(zlib.decompress(base64.b64decode(text))) for name, text in elements}


def test_the_page_contains_every_episode_and_the_index(learning_run):
    found = data(write(learning_run))
    files = [file.name for file in trajectory_files(learning_run / "trajectories")]
    assert set(found) == {"index", *files}
    assert [file["name"] for file in found["index"]["files"]] == files
    assert sum(len(found[name]["episodes"]) for name in files) == 6
    assert len(found["index"]["episodes"]["reward"]) == 6
    assert ["Algorithm", "grpo"] in found["index"]["facts"]
    assert found["index"]["episodes"]["group"]["table"] == ["Unlock"]
    assert ["algorithm.name", '"grpo"'] in found["index"]["config"]


def test_a_resumed_run_shows_its_first_and_its_latest_start(learning_run):
    times = ["2026-01-01T08:00:00Z", "2026-01-01T09:00:00Z", "2026-01-02T10:00:00Z"]
    for n, expected in (
        (1, [["Started", times[0]]]),
        (3, [["Started", times[0]], ["Resumed", times[2]]]),
    ):
        starts = [{"time": time} for time in times[:n]]
        document = {**starts[-1], "starts": starts}
        (learning_run / "provenance.json").write_text(json.dumps(document), encoding="utf-8")
        facts = data(write(learning_run))["index"]["facts"]
        assert [fact for fact in facts if fact[0] in ("Started", "Resumed")] == expected


def test_model_output_cannot_become_markup_of_the_page(learning_run, hostile):
    page = write(learning_run)
    assert "hacked" not in page
    texts = data(page)["step_000002"]["texts"]
    assert hostile in texts  # the page contains the text as data
    assert page.count("<script") == page.count("</script>") == 1 + len(data(page))


def test_a_hostile_folder_name_is_escaped(make_run, make_record):
    run = make_run({"step_000001": [make_record()]}, name="<img src=x onerror=alert(1)>&")
    page = write(run)
    assert "<img" not in page and html.escape("<img src=x onerror=alert(1)>&") in page


def test_a_folder_name_that_looks_like_a_placeholder_is_not_replaced(make_run, make_record):
    page = write(make_run({"step_000001": [make_record()]}, name="{{SCRIPT}}"))
    assert page.count('"use strict"') == 1 and "<title>{{SCRIPT}} - run</title>" in page


def test_only_the_pages_own_script_can_run(learning_run):
    page = write(learning_run)
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1])
    script = page[page.rindex("<script>") + len("<script>") : page.rindex("</script>")]
    assert f"script-src '{report._hash(script)}'" in policy
    assert "connect-src 'none'" in policy and "unsafe" not in policy


def test_the_page_loads_nothing_from_other_servers(learning_run):
    page = write(learning_run)
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    # this URL is an XML namespace, which browsers do not load
    assert addresses == {"http://www.w3.org/2000/svg"}


def test_the_page_contains_all_scripts_and_they_never_parse_html():
    assert {path.name for path in report._PAGE.glob("*.js")} == set(SCRIPTS)
    for name in SCRIPTS:
        text = report._part(name)
        for banned in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert banned not in text, f"{name} has {banned}"


def test_the_report_is_written_to_the_given_path_or_the_folder(learning_run, tmp_path):
    assert write_report(learning_run, transports={}, max_replays=0) == learning_run / "report.html"
    out = tmp_path / "elsewhere.html"
    assert write_report(learning_run, out, transports={}, max_replays=0) == out
    assert out.read_bytes() == (learning_run / "report.html").read_bytes()


def test_a_run_with_only_metrics_or_only_episodes_has_a_page(make_run, make_record, tmp_path):
    assert data(write(make_run({"step_000001": [make_record()]})))["index"]["panels"] == []
    (tmp_path / "only").mkdir()
    with MetricWriter(tmp_path / "only" / "metrics.jsonl") as writer:
        writer.write(1, {"rollout/success": 0.5})
    index = data(write(tmp_path / "only"))["index"]
    assert [panel["title"] for panel in index["panels"]] == ["Solved tasks"]
    assert index["files"] == [] and index["episodes"] == {}
    assert index["verdict"]["title"] == "No evaluation"


def test_a_folder_that_is_not_a_run_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        write(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda record: "{",
        lambda record: json.dumps(record | {"tokens": 1.5}),
        lambda record: json.dumps(record | {"turns": [record["turns"][0] | {"reward": "high"}]}),
        lambda record: json.dumps(record | {"turns": [{"action": "go"}]}),
    ],
)
def test_a_damaged_file_is_an_error_and_leaves_no_page(learning_run, make_record, damage):
    path = learning_run / "trajectories" / "step_000003.jsonl"
    path.write_text(f"{json.dumps(make_record())}\n{damage(make_record())}\n")
    with pytest.raises(ValueError, match="step_000003.jsonl, line 2"):
        write(learning_run)
    assert not (learning_run / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("config.json", ("environments",)),
        ("config.json", ("environments", "babyai", "train", "modulus")),
        ("config.json", ("environments", "babyai", "train", "groups")),
        ("config.json", ("environments", "babyai", "train", "groups", "Unlock")),
        ("config.json", ("evaluation", "samples")),
        ("config.json", ("learner", "max_logprob_gap")),
        ("provenance.json", ("git", "commit")),
        ("provenance.json", ("starts",)),
        ("provenance.json", ("devices",)),
    ],
)
def test_a_value_of_a_wrong_type_is_an_error_that_names_it(learning_run, name, keys):
    path = learning_run / name
    document = json.loads(path.read_text()) if path.exists() else {"starts": []}
    part = document
    for key in keys[:-1]:
        part = part.setdefault(key, {})
    part[keys[-1]] = [-0.5]
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=f"{name}.*{keys[-1]}"):
        write(learning_run)


def test_columns_store_repeated_texts_once():
    rows = [
        {"item": "a_1", "reward": 0.5},
        {"item": "b_2", "reward": 1.0},
        {"item": "a_1", "reward": 0.0},
    ]
    columns = episode_columns(rows)
    assert columns["item"] == {"table": ["a_1", "b_2"], "index": [0, 1, 0]}
    assert columns["reward"] == [0.5, 1.0, 0.0]


def test_metrics_keep_six_digits_and_their_unit():
    columns = metric_columns(Run([{"step": 1, "time": 9.0, "policy/approx_kl": 1.23456789e-7}]))
    assert list(columns) == ["policy/approx_kl"]
    assert columns["policy/approx_kl"]["values"] == [1.23457e-07]
    assert columns["policy/approx_kl"]["unit"] == "nats"


def test_values_that_are_not_finite_are_reported_by_their_steps_and_never_become_zero():
    values = [0.5, math.nan, 0.0, math.inf]
    lines = [{"step": step, "policy/entropy": value} for step, value in enumerate(values, 1)]
    columns = metric_columns(Run([*lines, {"step": 5, "policy/approx_kl": math.nan}]))
    entropy, kl = columns["policy/entropy"], columns["policy/approx_kl"]
    assert (entropy["steps"], entropy["values"]) == ([1, 3], [0.5, 0.0])
    assert entropy["nonfinite"] == [2, 4]
    assert (kl["steps"], kl["nonfinite"]) == ([], [5])


def test_panels_distinguish_groups_environments_and_outcomes():
    line = {"eval/success/Pick": 0.5, "rollout/outcome/success": 7.0, "rollout/babyai/success": 0.2}
    found = {panel["title"]: panel for panel in panels(Run([{"step": 1} | line]))}
    groups = found["Solved tasks per group, evaluation"]
    assert (groups["metrics"], groups["labels"]) == (["eval/success/Pick"], ["Pick"])
    assert found["Solved tasks per environment"]["metrics"] == ["rollout/babyai/success"]
