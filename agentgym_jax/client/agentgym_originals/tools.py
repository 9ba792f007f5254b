"""Instructions for AgentGym's five tool environments.

Names and arguments are facts of AgentGym's servers; the descriptions were written for this project.
A `?` marks an optional argument.
"""

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
