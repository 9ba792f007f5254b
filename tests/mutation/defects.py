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


LEARNER = [
    # The loss is clipped for the wrong sign of the advantage.
    Mutant(
        "learner",
        "advantage_BT > 0, ratio_BT > 1.0 + clip_high",
        "advantage_BT < 0, ratio_BT > 1.0 + clip_high",
        "tests/algorithms/test_losses.py",
    ),
    # The denominator includes episodes without trained tokens.
    Mutant(
        "learner",
        "episodes = jnp.maximum(jnp.sum(tokens_B1 > 0), 1)",
        "episodes = tokens_B1.shape[0]",
        "tests/algorithms/test_aggregation.py",
    ),
    # Turn-level GAE also discounts inside a turn.
    Mutant(
        "learner",
        "token_lambda=1.0,",
        "token_lambda=gae_lambda,",
        "tests/algorithms/test_gae.py",
    ),
    # The cap of truncated importance sampling is compared with the logarithm of the ratio.
    Mutant(
        "learner",
        "np.minimum(log_ratio, np.log(cap))",
        "np.minimum(log_ratio, cap)",
        "tests/learner/test_importance.py",
    ),
    # A penalty is added as a reward.
    Mutant(
        "learner",
        "rewards[turn.action_stop - 1] -= failed_turn_penalty",
        "rewards[turn.action_stop - 1] += failed_turn_penalty",
        "tests/learner/test_experience.py",
    ),
    # A token gets the value of the next state, which depends on the token itself.
    Mutant(
        "learner",
        "value_BT[i, 1:n] = values_after[i][:-1]",
        "value_BT[i, :n] = values_after[i]",
        "tests/learner/test_experience.py",
    ),
    # An observation that does not describe a state is used as an anchor state.
    Mutant(
        "learner",
        "if turn.observation and not turn.is_failed and turn.shows_state:",
        "if turn.observation and not turn.is_failed:",
        "tests/learner/test_experience.py",
    ),
    # The divergence from the reference includes tokens of the environment.
    Mutant(
        "learner",
        "np.where(trajectory.action_mask, kl_coef * divergence, 0.0)",
        "kl_coef * divergence",
        "tests/learner/test_experience.py",
    ),
    # Truncated episodes are trained on although they are masked.
    Mutant(
        "learner",
        "valid_B[i] = trajectory.outcome.is_valid and not is_masked",
        "valid_B[i] = trajectory.outcome.is_valid",
        "tests/learner/test_experience.py",
    ),
    # An update whose norm exceeds the guard's limit is applied.
    Mutant(
        "learner",
        "is_sound = is_finite & (grad_norm <= grad_limit) & (found[",
        "is_sound = is_finite & (found[",
        "tests/learner/test_update.py",
    ),
    # The entropy bonus lowers the entropy instead of raising it.
    Mutant(
        "learner",
        "total_BT = total_BT - entropy_coef * entropy_BT",
        "total_BT = total_BT + entropy_coef * entropy_BT",
        "tests/learner/test_update.py",
    ),
    # The last micro-batch with tokens is not trained on.
    Mutant(
        "learner",
        "jnp.arange(is_used_M.shape[0]) + 1",
        "jnp.arange(is_used_M.shape[0])",
        "tests/learner/test_update.py",
    ),
    # Episodes without any reward are imitated.
    Mutant(
        "learner",
        "value if value >= self.threshold and value > 0 else None",
        "value if value >= self.threshold else None",
        "tests/learner/test_episode_selection.py",
    ),
    # The first update of a warm-up has a learning rate of zero.
    Mutant(
        "learner",
        "jnp.minimum(1.0, (step + 1.0) / float(max(warmup_steps, 1)))",
        "jnp.minimum(1.0, step / float(max(warmup_steps, 1)))",
        "tests/learner/test_optimizer.py",
    ),
    # A damaged checkpoint is restored without an error.
    Mutant(
        "learner",
        "faults = _faults(folder)",
        "faults = []",
        "tests/learner/test_checkpoint.py",
    ),
]

SAMPLING = [
    # Embeddings of tied int8 weights lack their scale.
    Mutant(
        "sampling",
        "if HEAD_SCALE in params and self.config.tie_embeddings:",
        "if HEAD_SCALE in params and not self.config.tie_embeddings:",
        "tests/models/test_int8.py",
    ),
    # A loss without a ratio counts as corrected for an int8 sampler.
    Mutant(
        "sampling",
        'return self.row.ratio != "none"',
        "return True",
        "tests/rl/test_algorithm_section.py",
    ),
    # The logits of a row with temperature 0 are divided by zero.
    Mutant(
        "sampling",
        "scale_B = jnp.where(is_greedy_B, 1.0, temperature_B)",
        "scale_B = temperature_B",
        "tests/sampling/test_logits.py",
    ),
    # The recorded log-probability lacks the normalising constant.
    Mutant(
        "sampling",
        "token_B[:, None], axis=-1)[:, 0] - log_total_B",
        "token_B[:, None], axis=-1)[:, 0] - peak_B1[:, 0]",
        "tests/sampling/test_logits.py",
    ),
    # Top-k keeps one token too many.
    Mutant(
        "sampling",
        "jnp.sum(kept_BV, axis=-1) >= top_k_B",
        "jnp.sum(kept_BV, axis=-1) > top_k_B",
        "tests/sampling/test_logits.py",
    ),
    # Top-p uses the probabilities before top-k.
    Mutant(
        "sampling",
        ">= top_p_B * total_B",
        ">= top_p_B * jnp.sum(jax.lax.bitcast_convert_type(bits_BV, jnp.float32), axis=-1)",
        "tests/sampling/test_logits.py",
    ),
    # A turn may exceed the context length.
    Mutant(
        "sampling",
        "min(options.max_turn_tokens, self.remaining_tokens(row))",
        "options.max_turn_tokens",
        "tests/sampling/test_sampler.py",
    ),
    # All tokens of an episode are drawn with one and the same random number.
    Mutant(
        "sampling",
        "jax.random.uniform(jax.random.fold_in(key, position))",
        "jax.random.uniform(key)",
        "tests/sampling/test_sampler.py",
    ),
    # Sampled tokens are not labelled with the version of the sampler's weights.
    Mutant(
        "sampling",
        "version=self._version,",
        "version=0,",
        "tests/sampling/test_sampler.py",
    ),
    # A row whose last token is dropped keeps the state after that token.
    Mutant(
        "sampling",
        "cached > self._state.length[row]:",
        "cached > self._state.length[row] + 1:",
        "tests/sampling/test_hybrid_rows.py",
    ),
    # A row copies the state of a row that has sampled tokens since its prompt.
    Mutant(
        "sampling",
        "if self._has_state:  # the next decode step replaces the state of the prefix",
        "if False:",
        "tests/sampling/test_hybrid_rows.py",
    ),
    # All slices of a row start from the same state.
    Mutant(
        "sampling",
        "prefill.separate_rows(in_bucket) if self._has_state else [in_bucket]",
        "[in_bucket]",
        "tests/sampling/test_hybrid_rows.py",
    ),
    # The convolution of a segment sees the tokens of the previous segment.
    Mutant(
        "models",
        "is_seen_BT = ids[:, w : w + T] == segment_ids_BT",
        "is_seen_BT = ids[:, w : w + T] >= 0",
        "tests/models/test_hybrid.py",
    ),
    # The state of a delta net passes from segment to segment.
    Mutant(
        "models",
        "jnp.where(is_carried_XB1t, from_start, -jnp.inf)",
        "from_start",
        "tests/models/test_delta_net.py",
    ),
    # cuDNN's attention, which knows no segments, computes rows of several episodes.
    Mutant(
        "models",
        "is_whole = jnp.all((ids_BT == ids_BT[:, :1]) | (ids_BT == 0))",
        "is_whole = jnp.all(ids_BT == ids_BT)",
        "tests/models/kernels/test_packed_attention.py",
    ),
    # Padding changes the state of a row.
    Mutant(
        "models",
        "beta_nTN = jnp.where(is_token_nT[..., None], beta_nTN, 0.0)",
        "beta_nTN = jnp.asarray(beta_nTN)",
        "tests/models/test_hybrid.py",
    ),
    # A row that is opened again continues its earlier sequence.
    Mutant(
        "models",
        "is_new_n = positions_nT[:, 0] == 0",
        "is_new_n = positions_nT[:, 0] < 0",
        "tests/models/test_hybrid.py",
    ),
]

CLIENT = [
    # The boolean True is accepted where the number 1 is required.
    Mutant(
        "client",
        "if type(value) not in types:\n",
        "if not isinstance(value, types):\n",
        "tests/client/test_client.py",
    ),
    # NaN is accepted as a reward.
    Mutant(
        "client",
        "if not (abs(value) <= LARGEST_NUMBER and abs(value * scale) <= LARGEST_NUMBER):",
        "if abs(value) > LARGEST_NUMBER or abs(value * scale) > LARGEST_NUMBER:",
        "tests/client/test_client.py",
    ),
    # A failed step is treated as permanent because its text resembles that of a missing task.
    Mutant(
        "client",
        'is_permanent = where.endswith("/reset") and _NO_SUCH_TASK',
        "is_permanent = _NO_SUCH_TASK",
        "tests/client/test_client.py",
    ),
    # A server without free sessions is treated as a failing server.
    Mutant(
        "client",
        "if error.cause is EnvCause.CAPACITY:\n            return\n",
        "if error.cause is None:\n            return\n",
        "tests/client/test_failures.py",
    ),
    # A few failures in a short time open the circuit breaker.
    Mutant(
        "client",
        "self.count < self._failures or span_s < self._patience_s",
        "self.count < self._failures and span_s < self._patience_s",
        "tests/client/test_failures.py",
    ),
    # A session number from before a server's restart is used again.
    Mutant(
        "client",
        "if session.requested_s > self._gone_s and len(self._idle) < self._max_idle:",
        "if len(self._idle) < self._max_idle:",
        "tests/client/test_pool.py",
    ),
    # A lost answer to `create` leaves a session that nothing closes.
    Mutant(
        "client",
        "self._unanswered.append(wanted)",
        "pass",
        "tests/client/test_lost_creates.py",
    ),
    # If the output has two actions, the first one is executed; no parse error is reported.
    Mutant(
        "client",
        "if len(markers) > 1:",
        "if len(markers) > 2:",
        "tests/client/test_actions.py",
    ),
    # An action of any length is sent to the server.
    Mutant(
        "client",
        "if len(action) > rules.max_characters:",
        "if len(action) > 10 * rules.max_characters:",
        "tests/client/test_actions.py",
    ),
]

SERVERS = [
    # A request number is accepted although earlier numbers are missing.
    Mutant(
        "servers",
        "request_id.number == last.number + 1",
        "request_id.number > last.number",
        "tests/envs/test_request_ids.py",
    ),
    # A repeated step is executed twice.
    Mutant(
        "servers",
        "if is_stateful and is_repeated(request_id, session.last_request):",
        "if is_stateful and is_repeated(None, session.last_request):",
        "tests/envs/test_request_ids.py",
    ),
    # Sessions that are still starting are not included in the capacity.
    Mutant(
        "servers",
        "len(self._sessions) + self._starting >= self.capacity",
        "len(self._sessions) >= self.capacity",
        "tests/envs/test_sessions.py",
    ),
    # A session expires during its own request.
    Mutant(
        "servers",
        "if idle > self._idle_seconds and not session.requests:",
        "if idle > self._idle_seconds:",
        "tests/envs/test_sessions.py",
    ),
    # The maximum length of a session's history is ten times too high.
    Mutant(
        "servers",
        "if len(self.history) > MAX_HISTORY:",
        "if len(self.history) > 10 * MAX_HISTORY:",
        "tests/envs/test_sessions.py",
    ),
    # A multiple of a recipe's output count is accepted, but the recipe is executed only once.
    Mutant(
        "servers",
        "if typed is not None and typed != recipe.count:",
        "if typed is not None and typed % recipe.count:",
        "tests/envs/test_textcraft.py",
    ),
    # The F1 score equals the precision.
    Mutant(
        "servers",
        "return 2 * common / (len(given) + len(expected))",
        "return common / len(given)",
        "tests/envs/searchqa/test_scoring.py",
    ),
    # The maze penalises failure in the default mode, although only AgentGym's maze does so.
    Mutant(
        "servers",
        "failure_reward: float = 0\n",
        "failure_reward: float = -1.0\n",
        "tests/envs/test_maze.py",
    ),
    # A negative index is accepted as a task.
    Mutant(
        "servers",
        "if not 0 <= data_idx < len(VOCABULARY):",
        "if not data_idx < len(VOCABULARY):",
        "tests/envs/test_wordle.py",
    ),
    # The sessions of one task share their to-do lists.
    Mutant(
        "servers",
        "self._projects, self._tasks = copy.deepcopy((projects, tasks))",
        "self._projects, self._tasks = projects, tasks",
        "tests/envs/test_tool_environments.py",
    ),
    # A query may call every function of SQLite, also those that run for long.
    Mutant(
        "servers",
        "str(detail).lower() in _FUNCTIONS",
        "True",
        "tests/envs/test_tool_environments.py",
    ),
    # Every answer is right.
    Mutant(
        "servers",
        "episode.score = float(world.is_solved(episode.task.expected, result))",
        "episode.score = 1.0",
        "tests/envs/test_tool_environments.py",
    ),
]

EVALUATION = [
    # pass@k is computed as if samples were drawn with replacement, which is biased.
    Mutant(
        "evaluation",
        "return 1.0 - math.comb(n - c, k) / math.comb(n, k)",
        "return 1.0 - ((n - c) / n) ** k",
        "tests/evaluation/test_scores.py",
    ),
    # McNemar's test is one-sided.
    Mutant(
        "evaluation",
        "min(1.0, 2 * tail / 2**discordant)",
        "min(1.0, tail / 2**discordant)",
        "tests/evaluation/test_scores.py",
    ),
    # Samples of the same task are treated as independent.
    Mutant(
        "evaluation",
        "effective = min(samples, max(tasks, round(binomial / variance)))",
        "effective = samples",
        "tests/evaluation/test_scores.py",
    ),
    # An environment error is treated as a failure of the agent.
    Mutant(
        "evaluation",
        "_split((e for e in episodes if e.outcome.is_valid), lambda e: e.item_id)",
        "_split(episodes, lambda e: e.item_id)",
        "tests/evaluation/test_scores.py",
    ),
    # Success in the last turn of a budget is treated as a failure.
    Mutant(
        "evaluation",
        "e.success and e.turns <= turns",
        "e.success and e.turns < turns",
        "tests/evaluation/test_samples.py",
    ),
    # A tie between votes is treated as a success.
    Mutant(
        "evaluation",
        "weight = {True: 1.0, False: 0.5}",
        "weight = {True: 1.0, False: 1.0}",
        "tests/evaluation/test_samples.py",
    ),
]

ROLLOUT = [
    # An episode has one turn too many.
    Mutant(
        "rollout",
        "is_last = len(self._turns) >= self._limits.max_turns",
        "is_last = len(self._turns) > self._limits.max_turns",
        "tests/rollout/test_episode.py",
    ),
    # An episode ends one parse error too early.
    Mutant(
        "rollout",
        "if parse_errors > self._limits.max_parse_errors:",
        "if parse_errors >= self._limits.max_parse_errors:",
        "tests/rollout/test_episode.py",
    ),
    # An observation may fill the context to its last token, so that no action fits.
    Mutant(
        "rollout",
        "if len(self._branch) + len(chunk) >= self._limits.max_tokens:",
        "if len(self._branch) + len(chunk) > self._limits.max_tokens:",
        "tests/rollout/test_episode.py",
    ),
    # Sampled tokens are not labelled with the version of the weights that sampled them.
    Mutant(
        "rollout",
        "turn.logprobs.tolist(), turn.version\n        )\n        self._messages",
        "turn.logprobs.tolist()\n        )\n        self._messages",
        "tests/rollout/test_episode.py",
    ),
    # A failure during an outage uses up an attempt of its sample.
    Mutant(
        "rollout",
        "attempts.of_sample -= 1",
        "attempts.of_sample -= 0",
        "tests/rollout/test_failures.py",
    ),
    # After a task that fails alone, the next failure is treated as an outage.
    Mutant(
        "rollout",
        "if len(calls.failing - calls.alone) < 2:",
        "if len(calls.failing) < 2:",
        "tests/rollout/test_failures.py",
    ),
    # Several failing samples of one task are treated as a failing server.
    Mutant(
        "rollout",
        "len({t.item_id for t in own}) > 1",
        "len(own) > 1",
        "tests/rollout/test_failures.py",
    ),
    # An episode does not wait for the weights of its next turn.
    Mutant(
        "rollout",
        "versions[turn] <= self._version",
        "versions[0] <= self._version",
        "tests/rollout/test_collect.py",
    ),
    # In another row, a later branch continues with the random key of the first.
    Mutant(
        "rollout",
        "        if append.branch:\n",
        "        if append.kept is not None:\n",
        "tests/rollout/test_collect.py",
    ),
    # The first turns use the newest weights.
    Mutant(
        "rollout",
        "(max_turns - 1 - turn) * max_off_policy_steps",
        "turn * max_off_policy_steps",
        "tests/rl/test_prefetch.py",
    ),
    # Overlapping rollouts draw the same tasks.
    Mutant(
        "rollout",
        "taken = (number - step) * per_step",
        "taken = 0",
        "tests/faults/test_overlapping_rollouts.py",
    ),
    # The agent is shown one turn fewer than it has left.
    Mutant(
        "rollout",
        "Turns left: {max_turns - turns}.",
        "Turns left: {max_turns - turns - 1}.",
        "tests/rollout/test_budget.py",
    ),
]

SWEEPS = [
    # A run counts as finished as soon as its metrics are complete.
    Mutant(
        "sweeps",
        "return (newest or 0) >= total_steps and (self.steps_done(run) or 0) >= total_steps",
        "return (self.steps_done(run) or 0) >= total_steps",
        "tests/sweeps/test_run.py",
    ),
    # Runs of another process are started a second time.
    Mutant(
        "sweeps",
        "for run in [run for run in waiting if run not in busy]:",
        "for run in list(waiting):",
        "tests/sweeps/test_run.py",
    ),
    # The report pairs runs in their order, not by seed.
    Mutant(
        "sweeps",
        "pairs = [b[seed] - a[seed] for seed in sorted(a.keys() & b.keys())]",
        "pairs = [y - x for x, y in zip(sorted(a.values()), sorted(b.values()))]",
        "tests/sweeps/test_results.py",
    ),
    # p-values are not corrected for the number of comparisons.
    Mutant(
        "sweeps",
        "min(1.0, (len(p_values) - rank) * p_values[i])",
        "min(1.0, p_values[i])",
        "tests/evaluation/test_seed_statistics.py",
    ),
    # A variant with more finished seeds has a larger weight in the effect of an axis.
    Mutant(
        "sweeps",
        "means = [float(np.mean(list(part.values()))) for part in parts if part]",
        "means = [value for part in parts for value in part.values()]",
        "tests/sweeps/test_results.py",
    ),
]

SERVING = [
    # An answer that lost its thinking continues the sampled one.
    Mutant(
        "serving",
        "[part.strip() if is_loose else part for part in (parts.thinking, parts.text)]",
        "[parts.text.strip() if is_loose else parts.text]",
        "tests/serving/test_answers.py",
    ),
    # A number of a call that JavaScript writes without its fraction starts a new sequence.
    Mutant(
        "serving",
        'json.dumps(_same_numbers(_object({"function": call})), sort_keys=True)',
        'json.dumps(_object({"function": call}), sort_keys=True)',
        "tests/serving/test_continuation.py",
    ),
    # An answer that comes back with its stop string starts a new sequence.
    Mutant(
        "serving",
        '"content": answer["content"] + stop}',
        '"content": answer["content"]}',
        "tests/serving/test_continuation.py",
    ),
    # An answer may have several calls although the request allows one.
    Mutant(
        "serving",
        'is_single = not is_parallel or tool_choice != "required"',
        'is_single = tool_choice != "required"',
        "tests/serving/test_constraints.py",
    ),
    # Each function call of a response is a message.
    Mutant(
        "serving",
        'self._answer()["tool_calls"].append(call)',
        'self._messages.append({"role": "assistant", "content": "", "tool_calls": [call]})',
        "tests/serving/test_continuation.py",
    ),
    # Counting the tokens of a prompt uses a turn of the episode.
    Mutant(
        "serving",
        """Implements `Chat.count_tokens`.\"\"\"\n""",
        """Implements `Chat.count_tokens`.\"\"\"\n        self._on_request()\n""",
        "tests/programs/test_collect.py",
    ),
    # A stream shows the beginning of the tag that ends the thinking.
    Mutant(
        "serving",
        "without_start(thinking, [THINKING_END])",
        "thinking",
        "tests/serving/test_answers.py",
    ),
]
MUTANTS = [*LEARNER, *SAMPLING, *CLIENT, *SERVERS, *EVALUATION, *ROLLOUT, *SWEEPS, *SERVING]
