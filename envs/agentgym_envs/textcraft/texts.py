"""Instructions of TextCraft for an agent."""

BANNER = "This is environment TextCraft."

INSTRUCTIONS = """\
You craft items in a small block-building world until you hold the goal item. The first \
observation lists crafting commands, some of which you do not need, and names the goal.

In each turn do one of three things:
- craft <number> <item> using <number> <ingredient>, <number> <ingredient>: turns ingredients \
you hold into an item. Take the command from the list, with all its numbers; each use makes one \
batch. Where the list names a family of items, such as planks, write a member that you hold, \
such as oak planks.
- get <number> <item>: fetches an item from the surroundings. This works only for items that \
cannot be crafted; all others must be crafted, step by step.
- inventory: shows what you hold.

The task is done when you craft the goal item. Reply in this form, with a single action:
Thought: what you need next and why.
Action: the action"""
