import json
import shlex

from agentgym_jax.telemetry import last_lines


def write_lines(workdir, lines):
    workdir.mkdir()
    (workdir / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))


def test_the_summary_shows_first_and_last_success_and_the_next_command(tmp_path):
    workdir = tmp_path / "my run"
    before = {"step": 0, "eval/success": 0.241, "eval/success_greedy": 0.288}
    after = {"step": 26, "eval/success": 0.594, "rollout/success": 0.7}
    write_lines(workdir, [before, {"step": 1, "rollout/success": 0.2}, after])
    assert last_lines.summary_lines(str(workdir), 26) == [
        f"finished: 26 steps in {workdir}",
        "  held-out success, sampled: 24.1% (step 0) -> 59.4% (step 26)",
        f"  look inside: python -m agentgym_jax.view {shlex.quote(str(workdir))}",
        f"  export: python -m agentgym_jax.export --model={shlex.quote(str(workdir))} --out=exported",
    ]


def test_the_summary_of_a_run_without_evaluations_shows_its_loss(tmp_path):
    write_lines(tmp_path / "run", [{"step": 1, "sft/loss": 2.5}, {"step": 9, "sft/loss": 0.25}])
    (tmp_path / "run" / "plots").mkdir()
    (tmp_path / "run" / "plots" / "summary.png").touch()
    lines = last_lines.summary_lines(str(tmp_path / "run"), 9)
    assert lines[1] == "  loss: 2.5 (step 1) -> 0.25 (step 9)"
    assert lines[2] == f"  figures: {tmp_path / 'run' / 'plots' / 'summary.png'}"


def test_the_resume_command_is_quoted_and_contains_no_secret():
    arguments = ["--config=a b.py:smoke", "--workdir=runs/x", "--config.client.token=abc"]
    command = last_lines.resume_command(arguments)
    assert shlex.split(command)[:5] == ["python", "-m", "agentgym_jax.train", *arguments[:2]]
    assert "abc" not in command
