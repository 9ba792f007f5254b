import matplotlib
import pytest
from matplotlib.figure import Figure

from agentgym_jax.telemetry.metrics import METRICS
from agentgym_jax.telemetry.metrics_file import MetricWriter
from agentgym_jax.viewer import plots
from agentgym_jax.viewer.panels import PANELS, TIME_COLORS
from agentgym_jax.viewer.plots import write_plots
from agentgym_jax.viewer.series import Run, time_shares

RL = {
    "rollout/success": 0.5,
    "rollout/reward_mean": 0.5,
    "rollout/turns_mean": 4.0,
    "horizon/turns": 5.0,
    "policy/kl_k3": 0.01,
    "policy/entropy": 0.7,
    "policy/grad_norm": 1.5,
    "policy/logprob_gap_mean": 1e-6,
    "time/iteration_s": 10.0,
    "time/rollout_s": 6.0,
    "time/decode_s": 4.0,
    "time/update_s": 3.0,
}
EVALUATION = {
    "eval/success": 0.4,
    "eval/success_low": 0.3,
    "eval/success_high": 0.5,
    "eval/success_greedy": 0.6,
}


def write(folder, lines):
    folder.mkdir(exist_ok=True)
    with MetricWriter(folder / "metrics.jsonl") as writer:
        for step, metrics in enumerate(lines, 1):
            writer.write(step, metrics)


def drawn(name, lines):
    """Returns the axes of one panel after the panel was drawn."""
    (panel,) = [panel for panel in PANELS if panel.file == name]
    ax = Figure().add_subplot()
    plots._draw(panel, ax, Run([{"step": i, **line} for i, line in enumerate(lines, 1)]))
    return ax


def labels(ax):
    return ax.get_legend_handles_labels()[1]


def test_only_figures_with_data_are_drawn(tmp_path):
    write(tmp_path, [{"policy/grad_norm": 1.0}, {"policy/grad_norm": 2.0}])
    files = write_plots(tmp_path)
    assert [path.name for path in files] == ["grad_norm.png", "summary.png"]
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {p.name for p in files}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in files)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 40])
def test_a_run_of_any_length_is_drawn(tmp_path, steps):
    write(tmp_path, [RL | (EVALUATION if step % 2 == 0 else {}) for step in range(steps)])
    names = {path.name for path in write_plots(tmp_path)}
    assert {"success.png", "turns.png", "time.png", "summary.png"} <= names


def test_figures_do_not_depend_on_user_settings(tmp_path):
    line = {"rollout/success": 0.5, "horizon/turns": 5.0, **EVALUATION}
    for name in ("a", "b"):
        write(tmp_path / name, [line, line | {"horizon/turns": 10.0}])
    first = write_plots(tmp_path / "a")
    with matplotlib.rc_context({"xtick.labelsize": 30, "axes.linewidth": 5}):
        second = write_plots(tmp_path / "b")
        assert matplotlib.rcParams["xtick.labelsize"] == 30
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_the_error_for_an_empty_run_says_that_there_is_nothing_to_plot(tmp_path):
    write(tmp_path, [])
    with pytest.raises(ValueError, match="0 steps and none of the metrics"):
        write_plots(tmp_path)


def test_the_error_for_a_folder_without_metrics_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="metrics.jsonl does not exist"):
        write_plots(tmp_path)


def test_every_metric_of_a_panel_is_in_the_metric_table():
    for panel in PANELS:
        for name in panel.needs:
            assert name in METRICS, (panel.file, name)


def test_every_horizon_stage_is_labelled_in_the_background():
    ax = drawn("success", [RL] * 3 + [RL | {"horizon/turns": 10.0}] * 3)
    assert [text.get_text() for text in ax.texts] == ["5 turns", "10 turns"]


def test_training_sampled_and_greedy_success_are_distinguished():
    ax = drawn("success", [RL | EVALUATION] * 20)
    assert labels(ax) == ["training, mean of 10 steps", "evaluation, sampled", "evaluation, greedy"]
    assert len(ax.collections) == 1  # intervals are drawn only for steps with both bounds


def test_a_gap_of_exactly_zero_keeps_a_linear_axis():
    assert drawn("logprob_gap", [RL, RL]).get_yscale() == "log"
    zero = RL | {"policy/logprob_gap_mean": 0.0}
    assert drawn("logprob_gap", [RL, zero]).get_yscale() == "linear"


@pytest.mark.parametrize("groups, kind", [(3, "lines"), (12, "map")])
def test_few_groups_are_drawn_as_lines_and_many_as_a_heat_map(groups, kind):
    metrics = {f"eval/success/level {i}": i / groups for i in range(1, groups + 1)}
    ax = drawn("groups", [metrics, {}, metrics])
    names = [f"level {i}" for i in range(1, groups + 1)]
    if kind == "lines":
        assert labels(ax) == names
    else:
        assert [text.get_text() for text in ax.get_yticklabels()] == names
        table = ax.collections[0].get_array()
        assert table.shape == (groups, 2)
        assert table[groups - 1].tolist() == [1.0, 1.0]


MIXTURE = {
    "rollout/success": 0.4,
    "rollout/babyai/success": 0.5,
    "rollout/textcraft/success": 0.3,
    "rollout/turns_mean": 5.0,
    "rollout/babyai/turns_mean": 4.0,
    "rollout/textcraft/turns_mean": 6.0,
    "horizon/turns": 10.0,
    "horizon/babyai/turns": 6.0,
    "horizon/textcraft/turns": 10.0,
    "eval/maze/success": 0.1,
}


def test_every_environment_of_a_mixture_has_a_curve_even_if_only_evaluated():
    lines = [MIXTURE, MIXTURE | {"horizon/turns": 20.0}]
    assert labels(drawn("environments", lines)) == ["babyai", "maze, evaluation", "textcraft"]
    turns = labels(drawn("environment_turns", lines))
    assert turns == ["babyai", "babyai, limit", "textcraft", "textcraft, limit"]
    # the environments have different stages, so no stage is drawn
    assert not drawn("success", lines).texts


@pytest.mark.slow
def test_a_run_of_one_environment_has_no_figure_of_environments(tmp_path):
    write(tmp_path / "one", [RL])
    write(tmp_path / "two", [MIXTURE])
    names = ["environments.png", "environment_turns.png"]
    one, two = ([p.name for p in write_plots(tmp_path / run)] for run in ("one", "two"))
    assert [name in one for name in names] == [False, False]
    assert [name in two for name in names] == [True, True]


def test_every_part_of_a_step_has_its_own_colour():
    _, shares = time_shares(Run([{"step": 1, "time/iteration_s": 1.0}]))
    assert set(shares) == set(TIME_COLORS)
    assert len(set(TIME_COLORS.values())) == len(shares)


def test_a_fine_tuning_run_has_its_own_summary(tmp_path):
    write(tmp_path, [{"sft/loss": 2.0, "time/iteration_s": 1.0}] * 2)
    names = [path.name for path in write_plots(tmp_path)]
    assert names == ["sft_loss.png", "time.png", "summary.png"]


DPO = {
    "dpo/loss": 0.6,
    "dpo/accuracy": 0.75,
    "dpo/margin": 0.3,
    "dpo/chosen_reward": 0.1,
    "dpo/rejected_reward": -0.2,
    "dpo/chosen_logprob": -40.0,
    "dpo/rejected_logprob": -60.0,
    "policy/grad_norm": 1.0,
    "policy/learning_rate": 1e-6,
    "batch/padding_share": 0.1,
    "rate/train_tokens_per_s": 100.0,
    "time/iteration_s": 2.0,
    "time/data_s": 0.1,
    "time/update_s": 1.8,
}


def summary(monkeypatch, folder, lines):
    """Returns the titles of the panels in summary.png."""
    saved = {}
    original = plots.save_figure
    monkeypatch.setattr(
        plots,
        "save_figure",
        lambda figure, path: (saved.update({path.name: figure}), original(figure, path)),
    )
    write(folder, lines)
    write_plots(folder)
    return [ax.get_title(loc="left") for ax in saved["summary.png"].axes]


@pytest.mark.slow
def test_the_summary_of_a_preference_run_begins_with_preference_metrics(tmp_path, monkeypatch):
    assert summary(monkeypatch, tmp_path, [DPO, DPO]) == [
        "Preference loss",
        "Pairs in the right order",
        "Implicit rewards",
        "Log-probability of an episode",
        "Where the time goes",
        "Gradient norm",
    ]


@pytest.mark.slow
def test_the_summary_of_an_evaluated_preference_run_begins_with_solved_tasks(tmp_path, monkeypatch):
    evaluated = EVALUATION | {"eval/turns_mean": 3.0}
    titles = summary(monkeypatch, tmp_path, [evaluated, DPO, DPO | evaluated])
    assert titles[:3] == ["Solved tasks", "Turns and horizon", "Preference loss"]


def test_chosen_rejected_and_margin_are_three_curves_of_one_figure():
    ax = drawn("dpo_rewards", [DPO, DPO])
    assert labels(ax) == ["chosen", "rejected", "margin"]
    curves = {curve.get_label(): list(curve.get_ydata()) for curve in ax.lines}
    assert curves["rejected"] == [-0.2, -0.2] and curves["margin"] == [0.3, 0.3]
    assert labels(drawn("dpo_logprobs", [DPO, DPO])) == ["chosen", "rejected"]


def test_preference_accuracy_is_drawn_with_the_chance_level():
    chance = drawn("dpo_accuracy", [DPO, DPO]).lines[0]
    assert set(chance.get_ydata()) == {0.5}


def test_the_rounds_of_agentevol_show_explored_and_kept_episodes(tmp_path, monkeypatch):
    fit = {"sft/loss": 1.0, "agentevol/round": 1.0, "agentevol/demonstrations": 6.0}
    fit |= {"agentevol/explored": 24.0, "agentevol/kept": 9.0, "rollout/success": 0.4}
    fit |= {"rollout/turns_mean": 2.0}
    titles = summary(monkeypatch, tmp_path, [fit, fit | EVALUATION])
    assert titles == ["Solved tasks", "Turns and horizon", "Episodes that are imitated", "Loss"]
    assert labels(drawn("rounds", [fit, fit])) == ["explored", "kept", "demonstrations"]


def test_turns_without_a_limit_have_no_limit_in_the_legend():
    assert labels(drawn("turns", [{"eval/turns_mean": 3.0}])) == ["evaluation, sampled"]
    assert "turn limit" in labels(drawn("turns", [RL]))
