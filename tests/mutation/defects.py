"""Table of small defects, each with the tests that must notice it; mutants.py applies them."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A small defect and the tests that must fail because of it.

    Attributes:
      area: Part of the project that contains the code.
      before: Exact code to replace; it occurs once in exactly one source file.
      after: Code with the defect.
      tests: Path of the tests that must fail.
    """

    area: str
    before: str
    after: str
    tests: str


# Maps each area and each path below tests/ to the defects that these tests must notice, as the code
# before and after.
DEFECTS = {
    "learner": {
        "algorithms/test_losses.py": [
            # The loss is clipped for the wrong sign of the advantage.
            (
                "advantage_BT > 0, ratio_BT > 1.0 + clip_high",
                "advantage_BT < 0, ratio_BT > 1.0 + clip_high",
            ),
        ],
        "algorithms/test_aggregation.py": [
            # The denominator includes episodes without trained tokens.
            ("episodes = jnp.maximum(jnp.sum(tokens_B1 > 0), 1)", "episodes = tokens_B1.shape[0]"),
        ],
        "algorithms/test_gae.py": [
            # Turn-level GAE also discounts inside a turn.
            ("token_lambda=1.0,", "token_lambda=gae_lambda,"),
        ],
        "learner/test_importance.py": [
            # The cap of truncated importance sampling is compared with the logarithm of the ratio.
            ("np.minimum(log_ratio, np.log(cap))", "np.minimum(log_ratio, cap)"),
        ],
        "learner/test_experience.py": [
            # A penalty is added as a reward.
            (
                "rewards[turn.action_stop - 1] -= failed_turn_penalty",
                "rewards[turn.action_stop - 1] += failed_turn_penalty",
            ),
            # A token gets the value of the next state, which depends on the token itself.
            ("value_BT[i, 1:n] = values_after[i][:-1]", "value_BT[i, :n] = values_after[i]"),
            # An observation that does not describe a state is used as an anchor state.
            (
                "if turn.observation and not turn.is_failed and turn.shows_state:",
                "if turn.observation and not turn.is_failed:",
            ),
            # The divergence from the reference includes tokens of the environment.
            ("np.where(trajectory.action_mask, kl_coef * divergence, 0.0)", "kl_coef * divergence"),
            # Truncated episodes are trained on although they are masked.
            (
                "valid_B[i] = trajectory.outcome.is_valid and not is_masked",
                "valid_B[i] = trajectory.outcome.is_valid",
            ),
        ],
        "learner/test_update.py": [
            # An update whose norm exceeds the guard's limit is applied.
            (
                "is_sound = is_finite & (grad_norm <= grad_limit) & (found[",
                "is_sound = is_finite & (found[",
            ),
            # The entropy bonus lowers the entropy instead of raising it.
            (
                "total_BT = total_BT - entropy_coef * entropy_BT",
                "total_BT = total_BT + entropy_coef * entropy_BT",
            ),
            # The last micro-batch with tokens is not trained on.
            ("jnp.arange(is_used_M.shape[0]) + 1", "jnp.arange(is_used_M.shape[0])"),
        ],
        "learner/test_episode_selection.py": [
            # Episodes without any reward are imitated.
            (
                "value if value >= self.threshold and value > 0 else None",
                "value if value >= self.threshold else None",
            ),
        ],
        "learner/test_optimizer.py": [
            # The first update of a warm-up has a learning rate of zero.
            (
                "jnp.minimum(1.0, (step + 1.0) / float(max(warmup_steps, 1)))",
                "jnp.minimum(1.0, step / float(max(warmup_steps, 1)))",
            ),
        ],
        "learner/test_checkpoint.py": [
            # A damaged checkpoint is restored without an error.
            ("faults = _faults(folder)", "faults = []"),
        ],
    },
    "sampling": {
        "models/test_int8.py": [
            # Embeddings of tied int8 weights lack their scale.
            (
                "if HEAD_SCALE in params and self.config.tie_embeddings:",
                "if HEAD_SCALE in params and not self.config.tie_embeddings:",
            ),
        ],
        "rl/test_algorithm_section.py": [
            # A loss without a ratio counts as corrected for an int8 sampler.
            ('return self.row.ratio != "none"', "return True"),
        ],
        "sampling/test_logits.py": [
            # The logits of a row with temperature 0 are divided by zero.
            ("scale_B = jnp.where(is_greedy_B, 1.0, temperature_B)", "scale_B = temperature_B"),
            # The recorded log-probability lacks the normalising constant.
            (
                "token_B[:, None], axis=-1)[:, 0] - log_total_B",
                "token_B[:, None], axis=-1)[:, 0] - peak_B1[:, 0]",
            ),
            # Top-k keeps one token too many.
            ("jnp.sum(kept_BV, axis=-1) >= top_k_B", "jnp.sum(kept_BV, axis=-1) > top_k_B"),
            # Top-p uses the probabilities before top-k.
            (
                ">= top_p_B * total_B",
                ">= top_p_B * jnp.sum(jax.lax.bitcast_convert_type(bits_BV, jnp.float32), axis=-1)",
            ),
        ],
        "sampling/test_sampler.py": [
            # A turn may exceed the context length.
            ("min(options.max_turn_tokens, self.remaining_tokens(row))", "options.max_turn_tokens"),
            # All tokens of an episode are drawn with one and the same random number.
            ("jax.random.uniform(jax.random.fold_in(key, position))", "jax.random.uniform(key)"),
            # Sampled tokens are not labelled with the version of the sampler's weights.
            ("is_stopped, self.version)", "is_stopped, 0)"),
        ],
        "sampling/test_hybrid_rows.py": [
            # A row whose last token is dropped keeps the state after that token.
            ("cached > self.state.length[row]:", "cached > self.state.length[row] + 1:"),
            # A row copies the state of a row that has sampled tokens since its prompt.
            (
                "if self._cache.is_state:  # the next decode step replaces the state of the prefix",
                "if False:",
            ),
            # All slices of a row start from the same state.
            ("prefill.separate_rows(in_bucket) if self.is_state else [in_bucket]", "[in_bucket]"),
        ],
    },
    "models": {
        "models/test_hybrid.py": [
            # The convolution of a segment sees the tokens of the previous segment.
            (
                "is_seen_BT = ids[:, w : w + T] == segment_ids_BT",
                "is_seen_BT = ids[:, w : w + T] >= 0",
            ),
            # Padding changes the state of a row.
            (
                "beta_nTN = jnp.where(is_token_nT[..., None], beta_nTN, 0.0)",
                "beta_nTN = jnp.asarray(beta_nTN)",
            ),
            # A row that is opened again continues its earlier sequence.
            ("is_new_n = positions_nT[:, 0] == 0", "is_new_n = positions_nT[:, 0] < 0"),
        ],
        "models/test_delta_net.py": [
            # The state of a delta net passes from segment to segment.
            ("jnp.where(is_carried_XB1t, from_start, -jnp.inf)", "from_start"),
        ],
        "models/kernels/test_packed_attention.py": [
            # cuDNN's attention, which knows no segments, computes rows of several episodes.
            (
                "is_whole = jnp.all((ids_BT == ids_BT[:, :1]) | (ids_BT == 0))",
                "is_whole = jnp.all(ids_BT == ids_BT)",
            ),
        ],
    },
    "client": {
        "client/test_client.py": [
            # The boolean True is accepted where the number 1 is required.
            ("if type(value) not in types:\n", "if not isinstance(value, types):\n"),
            # NaN is accepted as a reward.
            (
                "if not (abs(value) <= LARGEST_NUMBER and abs(value * scale) <= LARGEST_NUMBER):",
                "if abs(value) > LARGEST_NUMBER or abs(value * scale) > LARGEST_NUMBER:",
            ),
            # A failed step is treated as permanent because its text resembles that of a missing task.
            (
                'is_permanent = where.endswith("/reset") and _NO_SUCH_TASK',
                "is_permanent = _NO_SUCH_TASK",
            ),
        ],
        "client/test_failures.py": [
            # A server without free sessions is treated as a failing server.
            (
                "if error.cause is EnvCause.CAPACITY:\n            return\n",
                "if error.cause is None:\n            return\n",
            ),
            # A few failures in a short time open the circuit breaker.
            (
                "self.count < self._failures or span_s < self._patience_s",
                "self.count < self._failures and span_s < self._patience_s",
            ),
        ],
        "client/test_pool.py": [
            # A session number from before a server's restart is used again.
            (
                "if session.requested_s > self._gone_s and len(self._idle) < self._max_idle:",
                "if len(self._idle) < self._max_idle:",
            ),
        ],
        "client/test_lost_creates.py": [
            # A lost answer to `create` leaves a session that nothing closes.
            ("self._unanswered.append(wanted)", "pass"),
        ],
        "client/test_actions.py": [
            # If the output has two actions, the first one is executed; no parse error is reported.
            ("if len(markers) > 1:", "if len(markers) > 2:"),
            # An action of any length is sent to the server.
            (
                "if len(action) > rules.max_characters:",
                "if len(action) > 10 * rules.max_characters:",
            ),
        ],
    },
    "servers": {
        "envs/base/test_request_ids.py": [
            # A request number is accepted although earlier numbers are missing.
            ("request_id.number == last.number + 1", "request_id.number > last.number"),
            # A repeated step is executed twice.
            (
                "if is_stateful and is_repeated(request_id, session.last_request):",
                "if is_stateful and is_repeated(None, session.last_request):",
            ),
        ],
        "envs/base/test_sessions.py": [
            # Sessions that are still starting are not included in the capacity.
            (
                "len(self._sessions) + self._starting >= self.capacity",
                "len(self._sessions) >= self.capacity",
            ),
            # A session expires during its own request.
            (
                "if idle > self._idle_seconds and not session.requests:",
                "if idle > self._idle_seconds:",
            ),
            # The maximum length of a session's history is ten times too high.
            ("if len(self.history) > MAX_HISTORY:", "if len(self.history) > 10 * MAX_HISTORY:"),
        ],
        "envs/textcraft/test_textcraft.py": [
            # A multiple of a recipe's output count is accepted, but the recipe is executed only once.
            (
                "if typed is not None and typed != recipe.count:",
                "if typed is not None and typed % recipe.count:",
            ),
        ],
        "envs/searchqa/test_scoring.py": [
            # The F1 score equals the precision.
            ("return 2 * common / (len(given) + len(expected))", "return common / len(given)"),
        ],
        "envs/maze/test_maze.py": [
            # The maze penalises failure in the default mode, although only AgentGym's maze does so.
            ("failure_reward: float = 0\n", "failure_reward: float = -1.0\n"),
        ],
        "envs/conformance/test_conformance.py": [
            # A negative index is accepted as a task.
            ("if not 0 <= data_idx < num_tasks:", "if not data_idx < num_tasks:"),
        ],
        "envs/tools/test_tool_environments.py": [
            # The sessions of one task share their to-do lists.
            (
                "self._projects, self._tasks = copy.deepcopy((projects, tasks))",
                "self._projects, self._tasks = projects, tasks",
            ),
            # Every answer is right.
            (
                "episode.score = float(world.is_solved(episode.task.expected, result))",
                "episode.score = 1.0",
            ),
        ],
        "envs/tools/test_sql_queries.py": [
            # A query may call every function of SQLite, also those that run for long.
            ("str(detail).lower() in _FUNCTIONS", "True"),
        ],
    },
    "evaluation": {
        "evaluation/test_scores.py": [
            # pass@k is computed as if samples were drawn with replacement, which is biased.
            (
                "return 1.0 - math.comb(n - c, k) / math.comb(n, k)",
                "return 1.0 - ((n - c) / n) ** k",
            ),
            # McNemar's test is one-sided.
            ("min(1.0, 2 * tail / 2**discordant)", "min(1.0, tail / 2**discordant)"),
            # Samples of the same task are treated as independent.
            (
                "effective = min(samples, max(tasks, round(binomial / variance)))",
                "effective = samples",
            ),
            # An environment error is treated as a failure of the agent.
            (
                "_split((e for e in episodes if e.outcome.is_valid), lambda e: e.item_id)",
                "_split(episodes, lambda e: e.item_id)",
            ),
        ],
        "evaluation/test_samples.py": [
            # Success in the last turn of a budget is treated as a failure.
            ("e.success and e.turns <= turns", "e.success and e.turns < turns"),
            # A tie between votes is treated as a success.
            ("weight = {True: 1.0, False: 0.5}", "weight = {True: 1.0, False: 1.0}"),
        ],
    },
    "rollout": {
        "rollout/test_episode.py": [
            # An episode has one turn too many.
            (
                "is_last = len(self._turns) >= self._limits.max_turns",
                "is_last = len(self._turns) > self._limits.max_turns",
            ),
            # An episode ends one parse error too early.
            (
                "if parse_errors > self._limits.max_parse_errors:",
                "if parse_errors >= self._limits.max_parse_errors:",
            ),
            # An observation may fill the context to its last token, so that no action fits.
            (
                "if len(self._branch) + len(chunk) >= self._limits.max_tokens:",
                "if len(self._branch) + len(chunk) > self._limits.max_tokens:",
            ),
            # Sampled tokens are not labelled with the version of the weights that sampled them.
            (
                "turn.logprobs.tolist(), turn.version\n        )\n        self._messages",
                "turn.logprobs.tolist()\n        )\n        self._messages",
            ),
        ],
        "rollout/test_failures.py": [
            # A failure during an outage uses up an attempt of its sample.
            ("attempts.of_sample -= 1", "attempts.of_sample -= 0"),
            # After a task that fails alone, the next failure is treated as an outage.
            ("if len(calls.failing - calls.alone) < 2:", "if len(calls.failing) < 2:"),
            # Several failing samples of one task are treated as a failing server.
            ("len({t.item_id for t in own}) > 1", "len(own) > 1"),
        ],
        "rollout/test_collect.py": [
            # An episode does not wait for the weights of its next turn.
            ("versions[turn] <= self._version", "versions[0] <= self._version"),
            # In another row, a later branch continues with the random key of the first.
            ("        if append.branch:\n", "        if append.kept is not None:\n"),
        ],
        "rl/test_prefetch.py": [
            # The first turns use the newest weights.
            ("(max_turns - 1 - turn) * max_off_policy_steps", "turn * max_off_policy_steps"),
        ],
        "faults/test_overlapping_rollouts.py": [
            # Overlapping rollouts draw the same tasks.
            ("taken = (number - step) * per_step", "taken = 0"),
        ],
        "rollout/test_budget.py": [
            # The agent is shown one turn fewer than it has left.
            ("Turns left: {max_turns - turns}.", "Turns left: {max_turns - turns - 1}."),
        ],
    },
    "sweeps": {
        "sweeps/test_run.py": [
            # A run counts as finished as soon as its metrics are complete.
            (
                "return (newest or 0) >= total_steps and (self.steps_done(run) or 0) >= total_steps",
                "return (self.steps_done(run) or 0) >= total_steps",
            ),
            # Runs of another process are started a second time.
            (
                "for run in [run for run in waiting if run not in busy]:",
                "for run in list(waiting):",
            ),
        ],
        "sweeps/test_results.py": [
            # The report pairs runs in their order, not by seed.
            (
                "pairs = [b[seed] - a[seed] for seed in sorted(a.keys() & b.keys())]",
                "pairs = [y - x for x, y in zip(sorted(a.values()), sorted(b.values()))]",
            ),
            # A variant with more finished seeds has a larger weight in the effect of an axis.
            (
                "means = [float(np.mean(list(part.values()))) for part in parts if part]",
                "means = [value for part in parts for value in part.values()]",
            ),
        ],
        "evaluation/test_seed_statistics.py": [
            # p-values are not corrected for the number of comparisons.
            ("min(1.0, (len(p_values) - rank) * p_values[i])", "min(1.0, p_values[i])"),
        ],
    },
    "serving": {
        "serving/test_answers.py": [
            # An answer that lost its thinking continues the sampled one.
            (
                "[part.strip() if is_loose else part for part in (parts.thinking, parts.text)]",
                "[parts.text.strip() if is_loose else parts.text]",
            ),
            # A stream shows the beginning of the tag that ends the thinking.
            ("without_start(thinking, [THINKING_END])", "thinking"),
        ],
        "serving/test_continuation.py": [
            # A number of a call that JavaScript writes without its fraction starts a new sequence.
            (
                "    return _same_numbers(arguments)\n",
                "    return arguments\n",
            ),
            # An answer that comes back with its stop string starts a new sequence.
            ('"content": answer["content"] + stop}', '"content": answer["content"]}'),
            # Each function call of a response is a message.
            (
                'self._answer()["tool_calls"].append(call)',
                'self._messages.append({"role": "assistant", "content": "", "tool_calls": [call]})',
            ),
        ],
        "serving/test_constraints.py": [
            # An answer may have several calls although the request allows one.
            (
                'is_single = not is_parallel or tool_choice != "required"',
                'is_single = tool_choice != "required"',
            ),
        ],
        "programs/test_collect.py": [
            # Counting the tokens of a prompt uses a turn of the episode.
            (
                """Implements `Chat.count_tokens`.\"\"\"\n""",
                """Implements `Chat.count_tokens`.\"\"\"\n        self._on_request()\n""",
            ),
        ],
    },
}
MUTANTS = [
    Mutant(area, before, after, f"tests/{path}")
    for area, paths in DEFECTS.items()
    for path, pairs in paths.items()
    for before, after in pairs
]
