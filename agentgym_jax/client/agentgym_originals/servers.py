"""Facts about AgentGym's fifteen original servers, one row each.

The facts come from AgentGym's servers and clients (arXiv:2406.04151, arXiv:2509.08755).
docs/agentgym_environments.md shows this table.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from agentgym_jax.client.actions import ActionFormat, ActionRules
from agentgym_jax.client.agentgym_originals import functions, original_instructions
from agentgym_jax.client.instructions import with_functions
from agentgym_jax.client.server_facts import ABOVE_ZERO, MAX_TEXT_CHARACTERS, ServerFacts, Success

_MAX_CHARACTERS = 500  # more than the length of any sensible action in these environments

_REACT = ActionRules(ActionFormat.REACT, _MAX_CHARACTERS)
_RAW = ActionRules(ActionFormat.RAW, MAX_TEXT_CHARACTERS)
# removes the same characters as AgentGym's clients for TextCraft and BabyAI
_PLAIN_REACT = dataclasses.replace(_REACT, dropped=r"[^A-Za-z0-9,\s]")
_SQL_BLOCK = dataclasses.replace(
    _RAW,
    block=r"```sql(.*?)(?:```|\Z)",
    block_problem="No statement was found in this answer. Write it in a ```sql block.",
)
_ANY_BLOCK = dataclasses.replace(
    _RAW,
    block=r"```.+?```",
    block_problem="No action was found in this answer. Write it between ``` and ```.",
)
# SearchQA and the tool servers answer with bare numbers and texts; `id` is the task index.
_RESET_BY_ID: Mapping[str, Any] = dict(
    session_field="env_idx", create_body={"id": 0}, reset_key="id", reset_fields=(), actions=_RAW
)
# name, instructions, number of tasks and maximum turns of the tool server's environments
_TOOL_SETS = (
    ("weather", original_instructions.WEATHER, 343, 10),
    ("movie", original_instructions.MOVIE, 238, 12),
    ("academia", original_instructions.ACADEMIA, 20, 12),
    ("todo", original_instructions.TODO, 155, 15),
    ("sheet", original_instructions.SHEET, 20, 15),
)


_ROWS = (
    ServerFacts(
        environment="textcraft",
        refusal=r"Could not |Wrong item format",
        actions=_PLAIN_REACT,
        num_tasks=544,
        max_turns=30,
        instructions=original_instructions.TEXTCRAFT,
    ),
    ServerFacts(
        environment="babyai",
        score_fields=("score",),
        # The score is not used: the original server increases it even if the success is too late.
        succeeded=Success("reward", ABOVE_ZERO, needs_done=True),
        # A view without objects begins with "You cannot see any objects", which is not a rejection.
        refusal=r"The action is not recognized|You cannot (?!see any objects)",
        stateless=r"No change in state\.|You can take the following actions",
        actions=_PLAIN_REACT,
        # There are 40 levels with 100 seeds each. The original server accepts any seed, but
        # AgentGym's item ids are below this number.
        num_tasks=40 * 100,
        max_turns=20,
        instructions=original_instructions.BABYAI,
    ),
    ServerFacts(
        environment="sciworld",
        reset_fields=("task_description", "observation"),
        score_fields=("score",),
        reward_scale=0.01,
        succeeded=Success("score", 100.0),
        refusal=(
            r"No known action matches|Unknown action|You can't |The door is not open"
            r"|The .* isn't open|The .* can't be "
        ),
        actions=_REACT,
        functions=functions.SCIWORLD,
        num_tasks=4639,
        max_turns=30,
        world=original_instructions.SCIWORLD,
        instructions=with_functions(
            original_instructions.SCIWORLD, functions.SCIWORLD, ActionFormat.REACT
        ),
    ),
    ServerFacts(
        environment="webshop",
        session_field="env_idx",
        reset_key="session_id",
        reset_fields=(),
        observation_field="state",
        refusal="",  # after an impossible action the server shows the same page again
        actions=dataclasses.replace(_REACT, bare=r"search\[|click\["),
        functions=functions.WEBSHOP,
        has_close=False,
        num_tasks=6910,  # number of goals for the 1000 products that AgentGym's server loads
        max_turns=10,
        world=original_instructions.WEBSHOP,
        instructions=with_functions(
            original_instructions.WEBSHOP, functions.WEBSHOP, ActionFormat.REACT
        ),
    ),
    ServerFacts(
        environment="alfworld",
        reset_key="game",
        reset_extra={"world_type": "Text"},
        actions_field="available_actions",
        refusal=r"Nothing happen",
        actions=_REACT,
        functions=functions.ALFWORLD,
        has_close=False,
        num_tasks=2620,  # tasks 0-2419 are for training, 2420-2619 for testing
        max_turns=30,
        world=original_instructions.ALFWORLD,
        instructions=with_functions(
            original_instructions.ALFWORLD, functions.ALFWORLD, ActionFormat.REACT
        ),
    ),
    ServerFacts(
        environment="maze",
        path_prefix="/maze",
        reset_key="game",
        refusal="",  # after a move into a wall the server shows the same position again
        actions=_REACT,
        has_close=False,
        # number of start cells; the server's 26th cell is the goal and is not a start cell
        num_tasks=25,
        max_turns=15,
        instructions=original_instructions.MAZE,
    ),
    ServerFacts(
        environment="wordle",
        path_prefix="/wordle",
        reset_key="seed",
        vocabulary_route="/filtered_vocab",
        refusal=r"invalid word",
        actions=_REACT,
        has_close=False,
        num_tasks=980,  # every seed is a task; AgentGym uses this number of seeds
        max_turns=8,
        instructions=original_instructions.WORDLE,
    ),
    ServerFacts(
        environment="sqlgym",
        session_field="env_idx",
        reset_key="item_id",
        reset_fields=(),
        observation_field="state",
        refusal=r"(?!\[)",  # a result is a list of rows; any other text is SQLite's error
        actions=_SQL_BLOCK,
        has_close=False,
        num_tasks=10_962,  # tasks 0-9427 are train, 9428-10961 dev
        max_turns=1,
        instructions=original_instructions.SQLGYM,
    ),
    ServerFacts(
        environment="searchqa",
        **_RESET_BY_ID,
        refusal=r"Your previous action is invalid",
        num_tasks=221_328,
        max_turns=30,
        instructions=original_instructions.SEARCHQA,
    ),
    ServerFacts(
        environment="webarena",
        session_field="env_idx",
        reset_key="idx",
        reset_extra={"seed": 0},
        reset_fields=(),
        reset_error=r"\s*(TimeoutError|Error)\b",
        done_field="terminated",
        reward_at_end=True,
        # An answer that does not begin like a page is the message of an exception.
        refusal=r"(?!OBSERVATION:|Tab \d)",
        actions=_ANY_BLOCK,
        num_tasks=812,
        max_turns=15,
        instructions=original_instructions.WEBARENA,
    ),
    *(
        # the reward of the tool server is the best progress up to the step
        ServerFacts(
            environment=name,
            **_RESET_BY_ID,
            refusal=r"Format error|Observation: ERROR \|",
            has_close=False,
            num_tasks=num_tasks,
            max_turns=max_turns,
            instructions=text,
        )
        for name, text, num_tasks, max_turns in _TOOL_SETS
    ),
)

ORIGINALS: Mapping[str, ServerFacts] = {row.environment: row for row in _ROWS}
