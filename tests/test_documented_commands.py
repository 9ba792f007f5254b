"""Every command in a block of the documentation is run by a test, or the table says why not."""

import ast
import os
import pathlib
import re
import shlex
import shutil

import pytest

from tests.run_python import run_python

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "envs").rglob("*.md")),
]
BLOCK = re.compile(r"^ *```(?:bash|sh)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
JAX, ENVS = "python -m agentgym_jax.", "python -m agentgym_envs "

# Run by the tests below in this order, in one folder, with the replacements of SMALLER. Before the
# commands after the first, `runs/quickstart` is made a copy of `runs/smoke`.
RUN = [
    f"{JAX}train --config=configs/quickstart.py:smoke --workdir=runs/smoke",
    f"{JAX}view runs/quickstart",
    f"{JAX}export --model=runs/quickstart --out=exported",
    f"{JAX}export --model=runs/smoke --out=tiny --dtype=float32",
    f"{JAX}evaluate --config=configs/eval/quickstart.py --workdir=runs/eval_quickstart --model=runs/quickstart",
    f"{JAX}evaluate --config=configs/eval/quickstart.py --workdir=runs/eval_random --model=random",
    f"{JAX}results runs/eval_random runs/eval_quickstart --out=runs/results.md",
    f"{JAX}evaluate --config=configs/eval/quickstart.py --workdir=runs/eval --model=runs/quickstart",
    f"{JAX}evaluate --config=configs/eval/quickstart.py --workdir=runs/eval_exported --model=exported",
    f"{JAX}train --config=configs/quickstart.py:smoke --workdir=runs/smoke_slow --config.optimizer.learning_rate=1e-4",
    f"{ENVS}new my_game",
    f"{ENVS}check my_game",
    f"{JAX}train --config=my_game_config.py:smoke --workdir=runs/my_game_smoke",
    f"{JAX}train --config=configs/rl/bandit.py:algorithm=dr_grpo,smoke --workdir=runs/bandit_smoke",
    f"{JAX}train --config=doors.py:smoke --workdir=runs/doors_smoke --config.total_steps=2",
    f"{JAX}train --config=learn_sums.py:smoke --workdir=runs/sums_smoke",
]
SMALLER = [("configs/eval/quickstart.py ", "configs/eval/quickstart.py:smoke ")]

# Maps a command to the test that runs it, with other paths and sizes.
TESTED = {
    f"{JAX}serve --model=runs/quickstart --port=8000": "tests/serving/test_command.py::test_the_command_serves_a_model_until_it_is_stopped",
    f"{JAX}serve --model=M --port=8000": "tests/serving/test_command.py::test_the_command_serves_a_model_until_it_is_stopped",
    f"{JAX}tinker --model=tiny --workdir=runs/tinker --dtype=float32 --context=256": "tests/training_api/test_command.py::test_the_command_trains_until_it_is_stopped_and_loads_what_it_saved",
    f"{JAX}train --config=doors.py --workdir=runs/doors": "tests/integration/test_wheel.py::test_a_custom_config_trains_in_a_custom_folder",
    f"{JAX}train --config=configs/paper/textcraft.py:size=7b --workdir=/shared/run --coordinator=10.0.0.1:8476 --num_processes=4 --process_id=0": "tests/processes/test_runs.py::test_processes_play_the_episodes_of_one_process",
    f"{JAX}plan --config=configs/paper/textcraft.py:size=7b --topology=v5p:2x2x4 --config.learner.micro_rows=16": "tests/planning/test_plan.py::test_a_plan_has_every_program_of_the_run",
    f"{JAX}replay runs/quickstart --episode=step_000012/3 --turn=4": "tests/replays/test_replay.py::test_the_sampling_weights_and_key_give_the_recorded_tokens_at_every_turn",
    f'{JAX}replay runs/quickstart --episode=step_000012/3 --turn=4 --action="move forward"': "tests/replays/test_replay.py::test_a_forced_action_changes_the_continuation_and_only_it",
    f"{JAX}replay runs/quickstart --episode=step_000012/3 --turn=4 --branches=16": "tests/replays/test_replay.py::test_other_weights_or_another_key_continue_with_other_tokens_after_the_same_prefix",
    f"{JAX}replay runs/quickstart --episode=step_000012/3 --every_turn --branches=16": "tests/replays/test_replay.py::test_the_command_writes_both_files_and_overwrites_nothing",
    f"{ENVS}terminals --option tasks=FOLDER --option sandbox=podman": "tests/envs/terminals/test_containers.py::test_containers_of_a_killed_server_are_removed_at_the_next_start",
    f"{JAX}evaluate --config=configs/eval/terminals.py --workdir=runs/expert_terminals --model=expert": "tests/envs/terminals/test_terminals.py::test_the_command_scores_the_expert",
    f"{JAX}sweep --config=configs/sweeps/bandit.py --workdir=runs/sweep": "tests/sweeps/test_sweep_runs.py::test_a_killed_and_resumed_sweep_equals_single_runs",
    f"{JAX}sweep report runs/sweep": "tests/sweeps/test_sweep_runs.py::test_a_killed_and_resumed_sweep_equals_single_runs",
    f'{ENVS}check mcp --option command="python shop.py" --option tasks=tasks.jsonl': "tests/envs/mcp/test_mcp.py::test_a_server_of_the_package_mcp",
    f'{ENVS}mcp --option command="python shop.py" --option tasks=tasks.jsonl': "tests/envs/mcp/test_mcp.py::test_a_server_of_the_package_mcp",
    f"{JAX}evaluate --config=configs/eval/mcp.py --workdir=runs/mcp --model=expert": "tests/jobs/test_tools.py::test_the_expert_solves_the_held_out_tasks",
    f"{ENVS}new guess": "tests/envs/test_scaffold.py::test_the_environment_is_solved_and_its_config_is_valid",
    f"{JAX}view runs/a runs/b": "tests/viewer/test_view.py::test_two_runs_are_compared_in_one_page",
    "python -m agentgym_facts build": "tests/facts/test_corpus_build.py::test_an_existing_corpus_is_not_built_again",
    "python -m agentgym_facts check": "tests/facts/test_corpus_build.py::test_the_check_names_a_changed_file",
}

# Maps a command to the reason why no test runs it.
INSTALLS = "installs packages; .ci/run and tests/integration/test_wheel.py install the project"
HOURS = "takes minutes to hours; the smoke variant of every config is run or bound by tests"
HUB = "downloads a model; the smoke variant of its config needs no network"
RECALL = "takes minutes; tests/programs/test_histories.py has its program"
OTHER_ENVIRONMENT = "needs the package verifiers in an environment of its own"
NOT_RUN = {
    "bash .ci/run": "runs these tests",
    "pip install openai": INSTALLS,
    f"{JAX}train --config=configs/quickstart.py --workdir=runs/quickstart": HOURS,
    "PYTHONPATH=.:envs python experiments/2026-11-27_compaction/write_demonstrations.py --out=runs/recall.jsonl": RECALL,
    f"{JAX}train --config=experiments/2026-11-22_every_algorithm/warm_start.py:of=experiments.2026-11-27_compaction.recall --workdir=runs/recall_start": RECALL,
    f"{JAX}train --config=experiments/2026-11-27_compaction/recall.py:start=runs/recall_start --workdir=runs/recall": RECALL,
    f"{JAX}train --config=my_game_config.py --workdir=runs/my_game": HOURS,
    f"{JAX}train --config=configs/rl/two_rooms.py:algorithm=dapo --workdir=runs/two_rooms": HOURS,
    f"{JAX}train --config=configs/rl/babyai_qwen.py:model=DIR --workdir=runs/babyai_qwen": HOURS,
    f"{JAX}train --config=configs/rl/bandit.py:algorithm=dr_grpo --workdir=runs/bandit": HOURS,
    f"{JAX}train --config=configs/paper/textcraft.py:size=0p5b --workdir=runs/textcraft": HUB,
    f"{JAX}train --config=learn_sums.py --workdir=runs/sums": HUB,
    f"{JAX}evaluate --config=configs/eval/textcraft.py --workdir=runs/eval_qwen --model=Qwen/Qwen2.5-0.5B-Instruct": HUB,
    f"{JAX}view runs/quickstart --serve": "runs until it is interrupted; tests/viewer has the server",
    'curl http://127.0.0.1:8000/v1/chat/completions -H \'Content-Type: application/json\' -d \'{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}\'': "needs curl; tests/serving/test_command.py sends the request with httpx",
    "python -m agentgym_facts status": "prints the state of the corpus that `build` makes",
    'pip install -e ".[plan]"': INSTALLS,
    'pip install -e ".[search]"': INSTALLS,
    'python3 -m venv .venv && source .venv/bin/activate && pip install -e ".[dev]"': INSTALLS,
    "python3 -m venv .venv && source .venv/bin/activate && pip install -e .": INSTALLS,
    "pre-commit install": "changes the hooks of the checkout",
    "apt-get install bubblewrap git python3": INSTALLS,
    "uv venv swe --python 3.11": INSTALLS,
    "uv pip install -p swe/bin/python mini-swe-agent==2.4.6 requests": INSTALLS,
    "uv pip install -p swe/bin/python --no-deps -e . -e envs": INSTALLS,
    f"{JAX}train --config=configs/rl/terminals.py:model=M,agent=mini_swe,python=swe/bin/python --workdir=runs/mini_swe": HOURS,
    "uv venv hub --python 3.11": OTHER_ENVIRONMENT,
    "uv pip install -p hub/bin/python verifiers requests ./my-environment": OTHER_ENVIRONMENT,
    "uv pip install -p hub/bin/python --no-deps -e .": OTHER_ENVIRONMENT,
    "uv pip install -p hub/bin/python verifiers -e envs": OTHER_ENVIRONMENT,
    "hub/bin/python -m agentgym_jax.programs.verifiers_env --env=my-environment": OTHER_ENVIRONMENT,
    "hub/bin/vf-eval agentgym-verifiers --env.taskset.environment textcraft --env.taskset.split test -n 10": OTHER_ENVIRONMENT,
}


def block_commands(text):
    """Returns the commands in the shell blocks of a page, without comments."""
    found = []
    for block in BLOCK.findall(text):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            command = re.sub(r"(^|\s+)#\s.*$", "", line).strip()
            found += [" ".join(command.split())] if command else []
    return found


def documented():
    return {c for page in PAGES for c in block_commands(page.read_text(encoding="utf-8"))}


def test_every_command_in_a_block_is_run_by_a_test_or_has_a_reason():
    unknown = documented() - {*RUN, *TESTED, *NOT_RUN}
    assert not unknown, "add these commands to RUN, TESTED or NOT_RUN"


def test_the_tables_have_no_command_that_the_pages_lack():
    listed = [*RUN, *TESTED, *NOT_RUN]
    assert len(listed) == len(set(listed)) and set(listed) <= documented()


def test_every_named_test_exists():
    for name in TESTED.values():
        path, _, function = name.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert function in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, name


def test_comments_and_continued_lines_are_no_part_of_a_command():
    text = "```bash\na --b=1 \\\n    --c=2   # note\n# only a note\n```\n```python\nd\n```\n"
    assert block_commands(text) == ["a --b=1 --c=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder with the example files of the pages."""
    folder = tmp_path_factory.mktemp("reader")
    own = (ROOT / "docs/runs.md").read_text(encoding="utf-8")
    (folder / "doors.py").write_text(python_blocks(own)[0], encoding="utf-8")
    agents = python_blocks((ROOT / "docs/agents.md").read_text(encoding="utf-8"))
    for name, block in zip(("my_agent.py", "learn_sums.py"), agents, strict=False):
        (folder / name).write_text(block, encoding="utf-8")
    return folder


def python_blocks(text):
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_a_reader_can_type_the_commands_in_an_empty_folder(folder):
    for command in RUN:  # in one test, because some need the result of others
        run(folder, command)


def run(folder, command):
    if "runs/quickstart" in command and not (folder / "runs/quickstart").exists():
        shutil.copytree(folder / "runs/smoke", folder / "runs/quickstart")
    for text, smaller in SMALLER:
        command = command.replace(text, smaller)
    paths = f"{ROOT}{os.pathsep}{ROOT / 'envs'}"
    done = run_python(*shlex.split(command)[1:], cwd=folder, PYTHONPATH=paths, XLA_FLAGS="")
    assert done.returncode == 0, f"{command}\n{done.stderr[-3000:]}"
