"""Instructions for the agent in AgentGym's original environments, written for this project.

The texts of SciWorld, WebShop and ALFWorld describe only the environment; `with_functions` adds the
actions. The texts of the tool environments are in tools.py.
"""

from agentgym_jax.client.instructions import REACT_REPLY

TEXTCRAFT = f"""\
You are playing a crafting game in text form. The first message lists the crafting recipes \
that exist and names the item you have to make. You start with empty hands.

You can do three things:
get <number> <item> - take basic items from the world; this works only for items that cannot be crafted.
craft <number> <item> using <number> <item>, <number> <item> - make an item; copy the numbers and \
ingredients of a listed recipe and hold all of them first.
inventory - see what you are holding.

Some items have to be crafted from other crafted items. Where a recipe names a family of items, \
such as planks, any member of the family will do.

{REACT_REPLY}"""

BABYAI = """\
You move through a world of rooms on a grid and have to reach the goal that the first message \
states. Each message describes what you can see from where you stand and lists the actions that \
are possible now.

Actions have these forms:
turn left, turn right, move forward - move by one step.
go to <colour> <object> <number> - walk to an object you can see.
pickup <colour> <object> <number> - walk to an object and take it; you can carry one.
drop - put down what you carry.
toggle - open, close or unlock the door right in front of you.
go through <colour> open door <number>, toggle and go through <colour> closed door <number>, \
toggle and go through <colour> locked door <number> - pass a door; a locked one needs its key.
check available actions - see the list again.

The number tells apart objects of the same colour and kind, counted from 1.

Answer every message in this form, with exactly one action from the list:
Thought: what you want to do and why
Action: the action"""

MAZE = f"""\
Find the way through a maze to the goal, in as few moves as you can. Each message tells the \
position of the goal, your position, and on which sides of you there are walls. A position is \
two numbers, row and column: going down raises the first, going right raises the second.

There are four actions: move up, move down, move left, move right. Walking into a wall leaves \
you where you are. After 50 moves the game is lost.

{REACT_REPLY}"""

WORDLE = f"""\
Find a hidden word of five letters with at most six guesses. The first message lists the words \
that the game knows; guess one of them. The answer to a guess has one mark per letter:
g - the letter is right and stands in the right place.
y - the word has this letter, but in another place.
b - the word does not have this letter.
A guess that is no word of the list is answered with "invalid word" and is lost all the same.

An action is the guessed word with a blank between its letters, such as: c r a n e

{REACT_REPLY}"""

SQLGYM = """\
A message describes the tables and columns of an SQLite database and asks a question. Answer it \
with one SQL statement. You have a single attempt: the rows that your statement returns are \
compared with the right ones.

Think first, then write the statement in a block of code, and nothing after it:
Thought: how the question is answered from these tables
Action: ```sql
SELECT ...
```"""

SEARCHQA = """\
Answer a question with the help of a search engine. Write in these tags:
<think> ... </think> - what you know, what is missing, what you do next. Think before every action.
<search> ... </search> - a query. The next message brings the passages that were found, between \
<information> and </information>.
<answer> ... </answer> - your final answer, as short as possible: a name, a date, a number.

Every reply holds one search or one answer, and ends with it. Never write the information \
yourself. Search again with other words if the passages do not help."""

WEBARENA = """\
You work in a web browser to reach an objective. Each message shows the open tabs, the page as \
a tree of elements, each with its number in brackets, then the address, the objective, and your \
last action. Use only numbers that stand in the present page.

Actions:
click [id] - click an element.
type [id] [text] [1] - type into a field and press Enter; with 0 instead of 1, Enter is not pressed.
hover [id] - hold the pointer over an element.
press [keys] - press keys, such as Control+a.
scroll [down], scroll [up] - see more of the page.
new_tab, close_tab - open an empty tab, close this one.
tab_focus [number] - go to a tab, counted from 0.
goto [address] - open an address.
go_back, go_forward - move in the history of this tab.
stop [answer] - the objective is reached. The answer is what was asked for, empty if nothing \
was; write N/A if it cannot be done.

The page http://homepage.com leads to all sites.

Think about what the page shows, then end your reply with exactly one action between three \
backquotes, such as ```click [42]```"""

SCIWORLD = """\
You are in a small world of rooms in which things behave as in elementary science: they can be \
heated, mixed, connected, planted, measured. The first message states a task and shows the room \
you are in; each further one tells what your action did. Parts of the task that are done raise \
the score to 100 at most; the task fails if you focus on a wrong thing or use more than a hundred \
moves. Name things as they are shown, together with the place where that is needed (door to \
kitchen, water in sink). If a name fits several things, a numbered list asks which one is meant: \
the next action is the number alone."""

WEBSHOP = """\
You shop on a web site. The messages show the present page and what to buy: a kind of product \
with certain properties, options and a limit on the price. Search for it, open a product of the \
list by its code, choose the options on its page, look at its description or features if you \
are in doubt, go back if it does not fit, and buy with `buy now`. Buying ends the task, and the \
reward says how well the product fits. An action that is not possible on this page changes nothing."""

ALFWORLD = """\
You are in a house and have a household task. The first message describes the room and the \
task; each further one tells what your action did. Every message ends with the list of the actions \
that are possible now: take one of them, word for word, with the numbers of objects and \
furniture. "Nothing happens" means that an action was not possible."""
