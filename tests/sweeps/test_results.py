"""Numbers and pages of a sweep's report, from files written by hand."""

import csv
import json

import numpy as np
import pytest

from agentgym_jax.runs.atomic_files import RunFolderError
from agentgym_jax.sweeps import sweep_results as numbers
from agentgym_jax.sweeps.expand import expand
from agentgym_jax.sweeps.folder import SweepFolder, make_record
from agentgym_jax.sweeps.spec import Sweep, grid
from agentgym_jax.sweeps.sweep_report import write_report

SWEEP = Sweep(
    config="configs/rl/bandit.py",
    axes=(
        grid(":algorithm", ("grpo", "ppo")),
        grid("algorithm.critic.warmup_steps", (0, 5), only={"algorithm": ("ppo",)}),
    ),
    seeds=(0, 1, 2),
    metric="eval/success",
    baseline={"algorithm": "grpo"},
)
GRPO = (("algorithm", "grpo"),)
PPO_0 = (("algorithm", "ppo"), ("warmup_steps", "0"))
PPO_5 = (("algorithm", "ppo"), ("warmup_steps", "5"))
# Final success by variant, for seeds 0, 1 and 2.
SUCCESS = {GRPO: (0.25, 0.75, 0.5), PPO_0: (0.5, 0.875, 0.75), PPO_5: (0.25, 0.5, None)}


def write_run(folder, run, success):
    """Writes a run of two steps that took an hour and sampled 100 tokens; None: after one step."""
    path = folder.run_path(run)
    path.mkdir(parents=True)
    starts = [{"time": "1970-01-01T00:00:00Z"}]
    (path / "provenance.json").write_text(json.dumps({"starts": starts}))
    steps = [{"step": 1, "time": 1800.0, "eval/success": 0.9, "rollout/sampled_tokens": 40.0}]
    if success is not None:
        measured = {"eval/success": success, "rollout/sampled_tokens": 60.0}
        steps.append({"step": 2, "time": 3600.0} | measured)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps))
    saved = path / f"checkpoints/{len(steps)}"
    saved.mkdir(parents=True)
    (saved / "digests.json").write_text("{}")


def make_folder(tmp_path, sweep=SWEEP, success=SUCCESS):
    folder, runs = SweepFolder(str(tmp_path / "sweep")), expand(sweep)
    with folder.opened(make_record(sweep, runs, {run.name: 2 for run in runs})):
        for run in runs:
            known = success.get(tuple(run.variant.items()))
            if known is not None:
                write_run(folder, run, known[run.seed])
    return folder


def read(folder):
    return numbers.read_results(folder, folder.read())


def test_the_value_of_a_finished_run_is_its_last_or_its_best(tmp_path):
    found = read(make_folder(tmp_path))
    assert [r.value for r in found if r.variant == GRPO] == [0.25, 0.75, 0.5]
    assert [r.state for r in found if r.variant == PPO_5] == ["finished", "finished", "unfinished"]
    assert [r.value for r in found if r.variant == PPO_5] == [0.25, 0.5, None]
    best = {"step": "best"}
    folder = make_folder(tmp_path / "best", Sweep(**vars(SWEEP) | best))
    assert {r.value for r in read(folder) if r.state == "finished"} == {0.9}
    worst = {"step": "best", "goal": "min"}
    folder = make_folder(tmp_path / "worst", Sweep(**vars(SWEEP) | worst))
    assert [r.value for r in read(folder) if r.variant == GRPO] == [0.25, 0.75, 0.5]


def with_curve(folder, run, points):
    """Replaces the metrics of a run: points of tokens in a step (sampled, all) and success."""
    lines = []
    for step, (sampled, tokens, success) in enumerate(points, 1):
        measured = {"rollout/sampled_tokens": sampled, "rollout/episodes": 2.0}
        measured |= {"rollout/tokens_mean": tokens / 2} if tokens else {}
        measured |= {} if success is None else {"eval/success": success}
        lines.append({"step": step, "time": 1800.0 * step} | measured)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder.run_path(run) / "metrics.jsonl").write_text(text)


def test_equal_tokens_compares_runs_at_the_tokens_that_all_finished_runs_reach(tmp_path):
    folder = make_folder(tmp_path, Sweep(**vars(SWEEP) | {"step": "equal_tokens"}))
    for run in folder.read().runs:
        if run.variant == dict(GRPO):
            with_curve(folder, run, [(5, 100, 0.0), (5, 300, 1.0)])
        elif run.variant == dict(PPO_0):
            nan = float("nan")  # a step without episodes has no mean
            with_curve(folder, run, [(5, 100, 0.2), (nan, nan, None), (5, 100, 0.6)])
        elif run.seed < 2:  # no count of all tokens: the sampled tokens count
            with_curve(folder, run, [(250, 0, 0.5), (50, 0, 0.7)])
    found = read(folder)
    assert numbers.common_tokens(found) == 200
    assert {r.value for r in found if r.variant == PPO_0} == {0.6}
    grpo = [r.value for r in found if r.variant == GRPO]
    assert grpo == pytest.approx([1 / 3] * 3)  # 200 tokens are a third of the way from 100 to 400
    assert {r.value for r in found if r.variant == PPO_5} == {None}  # first value at 250 tokens
    places, mean, _, _ = numbers.mean_curve([r for r in found if r.variant == GRPO], 200.0)
    assert (places[0], places[-1]) == (100, 200) and mean[-1] == pytest.approx(1 / 3)
    assert not len(numbers.mean_curve([r for r in found if r.variant == PPO_5], 200.0)[0])
    write_report(str(folder.path))
    assert "after 200 training tokens" in (folder.path / "report.md").read_text()


def test_comparisons_pair_equal_seeds_and_are_corrected_for_their_number(tmp_path):
    zero, five = numbers.compare(read(make_folder(tmp_path)), SWEEP.baseline)
    assert (zero.variant, zero.baseline, zero.pairs) == (PPO_0, GRPO, 3)
    # differences 0.25, 0.125, 0.25: of the 8 sign patterns, two are as extreme
    assert zero.difference == pytest.approx(0.625 / 3) and zero.p_value == 0.25
    half = 4.302653 * np.std([0.25, 0.25, 0.125], ddof=1) / np.sqrt(3)
    assert zero.interval == pytest.approx((0.625 / 3 - half, 0.625 / 3 + half))
    # differences 0 and -0.25: all four sign patterns are as extreme
    assert (five.pairs, five.difference, five.p_value) == (2, -0.125, 1.0)
    assert (zero.corrected, five.corrected) == (0.5, 1.0)


def test_a_counterpart_has_equal_labels_on_the_other_axes():
    def variant(**labels):
        return tuple(labels.items())

    known = [variant(a=a, b=b) for a in "xy" for b in "pq"]
    assert numbers.find_counterpart(known[3], known, {"a": "x"}) == variant(a="x", b="q")
    assert numbers.find_counterpart(known[3], known, {"a": "x", "b": "p"}) == known[0]
    assert numbers.find_counterpart(variant(a="y"), known, {"a": "x"}) is None  # two candidates
    assert numbers.find_counterpart(known[3], known, {}) is None


def test_marginal_means_give_each_variant_the_same_weight(tmp_path):
    found = read(make_folder(tmp_path))
    axis = numbers.marginal_means(found, "algorithm", ("grpo", "ppo", "rloo"))
    ppo = (2.125 / 3 + 0.375) / 2
    assert axis[0] == ("grpo", 1, 0.5) and axis[2] == ("rloo", 0, None)
    assert axis[1][:2] == ("ppo", 2) and axis[1][2] == pytest.approx(ppo)


def test_a_mean_curve_has_the_steps_of_all_finished_runs(tmp_path):
    part = numbers.variants(read(make_folder(tmp_path)))[GRPO]
    steps, mean, low, high = numbers.mean_curve(part)
    assert steps.tolist() == [1, 2] and mean == pytest.approx([0.9, 0.5])
    assert (low[1], high[1]) == (0.25, 0.75)


def test_hours_are_counted_from_each_start_to_its_last_step():
    starts = ["1970-01-01T00:00:00Z", "1970-01-01T02:00:00Z", "1970-01-01T09:00:00Z"]
    assert numbers.wall_hours(starts, [1800.0, 3600.0, 7200.0 + 1800.0]) == 1.5
    assert numbers.wall_hours([], [1800.0]) == 0.0


def test_the_report_counts_finished_runs_and_is_one_page_without_links(tmp_path):
    folder = make_folder(tmp_path)
    paths = write_report(str(folder.path))
    assert [path.name for path in paths] == ["report.md", "runs.csv", "report.html"]
    text = paths[0].read_text()
    assert "8 of 9 runs are finished; the tables use only these." in text
    assert "| algorithm=ppo, warmup_steps=0 | algorithm=grpo | 3 | +0.2083 |" in text
    assert "With 2 pairs, p cannot be below 0.5." in text
    assert "corrected for the 2 comparisons" in text
    assert "| all | 9 | 8.500 | 0.944 | 840 | 93 |" in text
    rows = list(csv.DictReader(paths[1].open()))
    assert len(rows) == 9 and rows[0]["eval/success"] == "0.25" and rows[0]["warmup_steps"] == ""
    page = paths[2].read_text()
    assert page.count("data:image/png;base64,") == 1 and "<script" not in page
    assert "http" not in page.replace("http-equiv", "") and "algorithm=ppo, warmup_steps=5" in page


def test_the_best_variant_is_first(tmp_path):
    folder = make_folder(tmp_path)
    write_report(str(folder.path))
    lines = (folder.path / "report.md").read_text().splitlines()
    table = [line for line in lines if " of 3 |" in line]
    assert [line.split(" |")[0] for line in table] == [
        "| algorithm=ppo, warmup_steps=0",
        "| algorithm=grpo",
        "| algorithm=ppo, warmup_steps=5",
    ]


def test_names_are_escaped_in_the_page(tmp_path):
    folder = make_folder(tmp_path, Sweep(**vars(SWEEP) | {"config": "<b>.py"}))
    page = write_report(str(folder.path))[-1].read_text()
    assert "&lt;b&gt;.py" in page and "<b>" not in page


def test_a_report_without_finished_runs_is_one_line_and_writes_nothing(tmp_path):
    with pytest.raises(RunFolderError, match="holds no sweep: it has no sweep.json"):
        write_report(str(tmp_path))
    folder = make_folder(tmp_path, success={})
    with pytest.raises(RunFolderError, match="0 of 9 runs are finished"):
        write_report(str(folder.path))
    assert not (folder.path / "report.md").exists()
    folder.record_path.write_text("{}")
    with pytest.raises(RunFolderError, match="is damaged"):
        write_report(str(folder.path))
