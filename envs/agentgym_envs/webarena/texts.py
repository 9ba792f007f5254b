"""Texts for the agent: instructions, observations and rejections."""

INSTRUCTIONS = """\
You work in a web browser to reach an objective. Each message shows the open tabs and the visible \
part of the page as a tree of elements, each with its number in brackets, then the address, the \
objective, and your last action. Use only numbers that stand in the present message.

Actions:
- click [id]: an element. A click on a combobox lists its options below it; a click on one chooses it.
- type [id] [text] [1]: types into a field, after what it holds already, and presses Enter; with 0 \
instead of 1, Enter is not pressed. In a combobox, the text is the option to choose; dates are \
typed like 2024-03-31.
- hover [id]: holds the pointer over an element.
- press [keys]: such as Enter or Control+a.
- scroll [down], scroll [up]: by one screen.
- new_tab, close_tab: opens an empty tab, closes this one.
- tab_focus [number]: goes to a tab, counted from 0.
- goto [address]: opens an address.
- go_back, go_forward: in the history of this tab.
- stop [answer]: ends the task. The answer is what was asked for, empty if nothing was; N/A if the \
objective cannot be reached.

The page http://homepage.com leads to all sites.

Think about what the page shows, then end your reply with exactly one action between three \
backquotes, in this form:
Thought: what the page shows and why this action helps.
Action: ```click [42]```"""

REFUSED = "The action was not done: "
NO_PREVIOUS = "None"
HUNG = "The page does not respond any more. The task has ended."


def observation(tree: str, url: str, intent: str, previous: str) -> str:
    """Writes the observation after an action, in AgentGym's form."""
    return f"OBSERVATION:\n{tree}\nURL: {url}\nOBJECTIVE: {intent}\nPREVIOUS ACTION: {previous}"


def refusal(reason: str) -> str:
    """Writes the observation after an action that is impossible."""
    end = "" if reason.endswith((".", "!", "?")) else "."
    return f"{REFUSED}{reason}{end} The page is as it was."
