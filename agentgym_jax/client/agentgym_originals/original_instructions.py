"""Instructions for the agent in AgentGym's original environments, written for this project.

The texts of SciWorld, WebShop and ALFWorld describe only the environment; `with_functions` adds the
actions. In the texts of the tool environments a `?` marks an optional argument.
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

_LIST_AND_FINISH = """\
check_valid_actions() - names of all actions.
finish(answer) - give your answer (text, number or list) and end the task."""

_REPLY = """\
The task ends with finish.

Answer every message in this form, with one action on the last line; its input is a \
Python dictionary, {} if it takes none:
Thought: what you want to find out and why
Action: """

WEATHER = f"""\
Answer a question about the weather. Dates are written YYYY-MM-DD. You work with these actions:
get_user_current_date() - the date of today for the person who asks.
get_user_current_location() - the city of the person who asks.
get_latitude_longitude(name) - places of that name with their coordinates.
get_historical_temp(latitude, longitude, start_date, end_date) - temperatures of past days.
get_historical_rain(latitude, longitude, start_date, end_date) - rainfall of past days.
get_historical_snow(latitude, longitude, start_date, end_date) - snowfall of past days.
get_historical_air_quality_index(latitude, longitude, start_date, end_date) - PM2.5 index of \
past days.
get_temp_forecast(latitude, longitude, start_date, end_date) - temperatures of coming days.
get_rain_forecast(latitude, longitude, start_date, end_date) - rainfall of coming days.
get_snow_forecast(latitude, longitude, start_date, end_date) - snowfall of coming days.
get_current_temp(latitude, longitude, current_date) - temperatures of one day.
get_current_rain(latitude, longitude, current_date) - rainfall of one day.
get_current_snow(latitude, longitude, current_date) - snowfall of one day.
get_current_air_quality_index(latitude, longitude, current_date) - PM2.5 index of one day.
get_air_quality_level(air_quality_index) - what an index means, from good to poor.
get_elevation(latitude, longitude) - height above sea level.
get_distance(latitude1, longitude1, latitude2, longitude2) - kilometres between.
{_LIST_AND_FINISH}

Coordinates always come from get_latitude_longitude, never from your memory. {_REPLY}\
get_latitude_longitude with Action Input: {{"name": "Lisbon"}}"""

MOVIE = f"""\
Answer a question about films and the people who make them. You work with these actions:
get_search_movie(movie_name) - id, title and summary of a film.
get_movie_details(movie_id) - budget, revenue, genres, vote, release date.
get_movie_production_companies(movie_id) - companies that made it.
get_movie_production_countries(movie_id) - countries it was made in.
get_movie_cast(movie_id) - its ten leading actors.
get_movie_crew(movie_id) - ten of its crew: director, producers, writers.
get_movie_keywords(movie_id) - its keywords.
get_movie_alternative_titles(movie_id) - its other titles.
get_movie_translation(movie_id) - its summary in other languages.
get_search_person(person_name) - id and name of a person.
get_person_details(person_id) - biography, birthday, place of birth.
get_person_cast(person_id) - ten roles the person played.
get_person_crew(person_id) - ten films the person worked on behind the camera.
get_person_external_ids(person_id) - ids on IMDB, Facebook, Instagram, Twitter.
{_LIST_AND_FINISH}

Ids always come from get_search_movie and get_search_person; they are strings. {_REPLY}\
get_search_person with Action Input: {{"person_name": "Agnes Varda"}}"""

ACADEMIA = f"""\
Answer a question about scientific papers and their authors. PaperNet joins papers that cite \
each other, AuthorNet joins people who wrote together. You work with these actions:
loadPaperNet() - make PaperNet ready.
loadAuthorNet() - make AuthorNet ready.
neighbourCheck(graph, node) - what is joined to a paper or author in that graph.
paperNodeCheck(node) - authors, year, venue, citations, keywords, kind of a paper.
authorNodeCheck(node) - name and organisation of an author.
paperEdgeCheck(node1, node2) - what joins two papers.
authorEdgeCheck(node1, node2) - papers that two authors wrote together.
{_LIST_AND_FINISH}

Load a graph before you ask it. `graph` is "PaperNet" or "AuthorNet". {_REPLY}\
neighbourCheck with Action Input: {{"graph": "AuthorNet", "node": "Ada Byron"}}"""

TODO = f"""\
Manage a person's to-do lists: answer a question or make a change. You work with these actions:
get_user_current_date() - the date of today, YYYY-MM-DD.
get_user_current_location() - the person's city.
get_projects() - all projects: id, name, order, colour, favourite or not.
update_project(project_id, is_favorite) - set the favourite mark, "True" or "False".
get_tasks(project_id) - its tasks: id, content, completed, priority, due date.
get_task_description(task_id) - further details of a task, such as the place.
get_task_duration(task_id) - how long a task takes.
complete_task(task_id) - mark a task as done.
update_task(task_id, due_date) - move a task to another date.
delete_task(task_id) - remove a task.
{_LIST_AND_FINISH}

Ids always come from get_projects and get_tasks. Priority runs from 1 to 4, 4 is most urgent. \
After a change that was asked for, finish with the answer "done". {_REPLY}\
get_tasks with Action Input: {{"project_id": "2203"}}"""

SHEET = f"""\
Change a spreadsheet as asked. Cells are named as B2; rows and columns count from 1. You work \
with these actions:
open_sheet(name) - choose the sheet to work on.
del_sheet(name) - delete a sheet.
get_all_values() - all cells.
get_range_values(start_position, end_position) - the cells of a rectangle.
get_cell_value(position) - one cell.
get_A1_annotation(row, col) - the name of a cell, such as B2.
filter_cells(query, in_row?, in_column?) - names of the cells that match.
get_note(position) - the note on a cell.
update_note(position, content) - write a note on a cell.
update_cell(position, value) - write one cell.
update_range(start_position, end_position, values_list) - write a rectangle, a list of rows.
insert_rows(values_list, row_idx) - insert rows before that row.
insert_cols(values_list, col_idx) - insert columns before that column.
delete_batch_data(dimension, index_list) - delete, dimension "row" or "col".
sort_sheet_by_col(col_num, order) - sort by a column, order "asc" or "des".
merge_cells(start_position, end_position) - make one cell of a rectangle.
freeze_data(dimension, num) - keep the first "rows" or "columns" in place.
get_value_by_formula(start_position, end_position or position_list, operator) - the value of a \
formula.
update_cell_by_formula(start_position, end_position or position_list, operator, result_position) \
- write the value of a formula.
finish() - end the task; the sheet as it is now is compared with the goal.

Open the sheet first and look at all its values. Freeze the first row before sorting. operator \
is one of SUM, AVERAGE, COUNT, MAX, MIN, MINUS, PRODUCT; a formula takes either the two \
positions of a rectangle or position_list. A ? marks an argument that may be left out. {_REPLY}\
update_cell with Action Input: {{"position": "C4", "value": 12}}"""
