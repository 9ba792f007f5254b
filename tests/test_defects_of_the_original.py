"""Defects of the code released with AgentGym-RL, and tests that this project does not have them.

DEFECTS names the tests of each defect; one of these tests is in this file.
"""

import ast
import functools
import pathlib

import numpy as np
import pytest

from agentgym_jax.client.actions import ParsedAction
from agentgym_jax.client.answers import Observation
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes import batch as batching
from agentgym_jax.rollout.episode import AgentTurn, Episode
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.builders import episode_request

pytestmark = pytest.mark.usefixtures("compiled_fast")

TESTS = pathlib.Path(__file__).parent
HERE = pathlib.Path(__file__).name

DEFECTS = {
    "1 the terminal reward is put on an observation, and the action mask removes it": (
        "episodes/test_trajectory.py::test_the_reward_before_a_final_observation_is_on_an_action_token",
        "algorithms/test_advantages.py::test_a_terminal_reward_reaches_the_first_action_token",
        "algorithms/test_advantages.py::test_a_reward_on_the_final_observation_is_not_lost",
        "algorithms/test_golden_peers.py::test_a_reward_on_an_observation_differs",
    ),
    "2 the critic's values are not those of the response; turns bootstrap from observations": (
        "algorithms/test_gae.py::test_observations_do_not_change_the_advantages",
        "algorithms/test_gae.py::test_a_reward_on_the_final_observation_counts_for_the_last_action",
    ),
    "3 resuming at a stage boundary skips a horizon stage": (
        "algorithms/test_horizon.py::test_resuming_at_any_step_skips_no_stage",
        "algorithms/test_horizon.py::test_an_adaptive_horizon_resumes_from_its_state",
    ),
    "4 an empty action mask gives a NaN loss": (
        "algorithms/test_advantages.py::test_an_empty_action_mask_gives_zero_advantages",
        "algorithms/test_masked.py::test_an_empty_mask_gives_zero",
        "learner/test_update.py::test_an_unusable_batch_is_skipped_and_reported",
    ),
    "5 sampled ids are decoded and encoded again for training": (
        f"{HERE}::test_ids_that_do_not_survive_decoding_are_trained_on_as_sampled",
        "rollout/test_episode.py::test_a_solved_episode_has_every_token_once_with_its_source",
        "sampling/test_sampler.py::test_sampled_log_probabilities_equal_those_of_teacher_forcing",
    ),
    "6 a failing environment becomes reward 0 and is trained on": (
        "client/test_client.py::test_a_malformed_answer_to_a_step_is_an_error_without_a_reward",
        "client/test_original_servers.py::"
        "test_alfworld_errors_in_bodies_of_status_200_are_recognised",
        "rollout/test_collect.py::"
        "test_a_task_that_always_fails_gives_no_reward_and_does_not_affect_others",
        "algorithms/test_advantages.py::test_failed_rows_do_not_change_other_rows_of_their_group",
        "learner/test_update.py::test_failed_rows_do_not_change_the_gradient_of_other_rows",
    ),
    "7 micro-batches change the objective; epochs, RLOO and the timeout do not work": (
        "learner/test_update.py::test_micro_batch_split_leaves_the_gradient_unchanged",
        "learner/test_update_losses.py::"
        "test_micro_batch_split_and_order_leave_the_gradient_of_episode_ratios_unchanged",
        "integration/test_mixture.py::test_every_epoch_has_one_update_per_mini_batch",
        "algorithms/test_gradients.py::test_rloo_is_unbiased",
        "rl/test_algorithm_section.py::test_every_algorithm_can_be_chosen_by_name",
        "client/test_client.py::test_a_slow_answer_is_a_timeout",
        "rollout/test_collect.py::test_a_hanging_answer_ends_at_the_timeout",
        "config/test_configs.py::test_every_section_of_every_config_binds",
    ),
    "8 episodes wait for the slowest one and prefill their history again; sessions start in turn": (
        "client/test_pool.py::test_an_episode_continues_while_another_one_waits",
        "client/test_pool.py::test_sessions_start_in_parallel",
        "rollout/test_collect.py::test_slow_answers_in_any_order_do_not_change_episodes",
        "sampling/test_sampler.py::test_every_token_passes_through_the_model_once",
    ),
    "9 task ids depend on the machine; evaluation tasks are trained on": (
        "envs/conformance/test_conformance.py::test_every_environment_of_the_project_has_every_property",
        "envs/textcraft/test_textcraft.py::test_indices_select_agentgyms_goals_in_ascending_file_order",
    ),
    "10 any score counts for pass@k; no evaluation in training, no results, no error bars": (
        "evaluation/test_scores.py::test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample",
        "evaluation/test_scores.py::test_scores_json_contains_everything_and_round_trips",
        "evaluation/test_scores.py::test_the_wilson_interval_matches_hand_computed_values",
        "integration/test_mixture.py::test_each_environment_has_its_own_evaluation",
    ),
    "11 data order, random state and environments are not in the checkpoint": (
        "integration/test_resume.py::test_killing_and_resuming_does_not_change_a_run",
        "learner/test_controller_state.py::test_a_state_restored_from_json_continues_unchanged",
        "rollout/test_collect.py::test_an_episode_restarted_after_a_failed_step_is_the_same",
    ),
}


@functools.cache
def functions_of(file):
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_defect_has_existing_tests(defect):
    for name in DEFECTS[defect]:
        file, _, test = name.partition("::")
        assert test in functions_of(file), f"there is no test {name}; update DEFECTS"


def test_the_table_has_all_eleven_defects():
    assert [int(name.split()[0]) for name in DEFECTS] == list(range(1, 12))


class Nothing:
    """A renderer whose conversations contain only the policy's tokens."""

    def opening(self, messages):
        return [[1], [2]]

    def continuation(self, messages, ended_by_stop):
        return []

    def start_of(self, text, tokens):
        return text


def test_ids_that_do_not_survive_decoding_are_trained_on_as_sampled():
    tokenizer = byte_tokenizer()
    # The ids end with half of a character; decoding gives a replacement mark, which has three other
    # bytes.
    sampled = [*tokenizer.encode("go ")[:3], tokenizer.encode("é")[0]]
    text = tokenizer.decode(sampled)
    assert tokenizer.encode(text) != sampled
    task = Task("textcraft", 7, "depth 1")
    request = episode_request(task, max_turns=1, max_parse_errors=1, max_turn_tokens=9)
    preamble = ({"role": "system", "content": "rules"},)
    episode = Episode(request, renderer=Nothing(), preamble=preamble)
    episode.begin("start")
    logprobs = np.array([-0.1, -0.2, -0.3, -0.4], np.float32)
    turn = AgentTurn(row=0, text=text, tokens=np.array(sampled, np.int32), logprobs=logprobs)
    episode.act(turn, ParsedAction(text))
    episode.observe(Observation("", 1.0, 1.0, done=True, success=True))
    trajectory = episode.trajectory(attempts=1, seconds=0.0)
    packed = batching.pack(
        [
            {
                "tokens": trajectory.tokens,
                "action_mask": trajectory.action_mask,
                "old_logprobs": trajectory.logprobs,
            }
        ],
        row_length=8,
        rows_multiple=1,
    )
    assert packed.tokens[packed.action_mask].tolist() == sampled
    np.testing.assert_array_equal(packed.old_logprobs[packed.action_mask], logprobs)
