"""What can be called in AgentGym's five tool environments, as tables.

Names and arguments are facts of AgentGym's servers; the descriptions are ours. A `?` marks
an argument that may be left out.
"""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Tool:
    """One action of a tool environment.

    Attributes:
      call: name and arguments, such as `get_tasks(project_id)`.
      does: what it is for and what it returns.
    """

    call: str
    does: str


@dataclasses.dataclass(frozen=True)
class ToolSet:
    """A tool environment.

    Attributes:
      about: what the tools work on.
      tools: all of them.
      advice: what has to be known to use them.
      example: an action as it is written, with plausible arguments.
    """

    about: str
    tools: Sequence[Tool]
    advice: str
    example: str


_PERIOD = "latitude, longitude, start_date, end_date"
_DAY = "latitude, longitude, current_date"
_FINISH = Tool("finish(answer)", "give your answer (text, number or list) and end the task")
_LIST = Tool("check_valid_actions()", "names of all actions")

WEATHER = ToolSet(
    about="Answer a question about the weather. Dates are written YYYY-MM-DD.",
    tools=(
        Tool("get_user_current_date()", "the date of today for the person who asks"),
        Tool("get_user_current_location()", "the city of the person who asks"),
        Tool("get_latitude_longitude(name)", "places of that name with their coordinates"),
        Tool(f"get_historical_temp({_PERIOD})", "temperatures of past days"),
        Tool(f"get_historical_rain({_PERIOD})", "rainfall of past days"),
        Tool(f"get_historical_snow({_PERIOD})", "snowfall of past days"),
        Tool(f"get_historical_air_quality_index({_PERIOD})", "PM2.5 index of past days"),
        Tool(f"get_temp_forecast({_PERIOD})", "temperatures of coming days"),
        Tool(f"get_rain_forecast({_PERIOD})", "rainfall of coming days"),
        Tool(f"get_snow_forecast({_PERIOD})", "snowfall of coming days"),
        Tool(f"get_current_temp({_DAY})", "temperatures of one day"),
        Tool(f"get_current_rain({_DAY})", "rainfall of one day"),
        Tool(f"get_current_snow({_DAY})", "snowfall of one day"),
        Tool(f"get_current_air_quality_index({_DAY})", "PM2.5 index of one day"),
        Tool("get_air_quality_level(air_quality_index)", "what an index means, from good to poor"),
        Tool("get_elevation(latitude, longitude)", "height above sea level"),
        Tool("get_distance(latitude1, longitude1, latitude2, longitude2)", "kilometres between"),
        _LIST,
        _FINISH,
    ),
    advice="Coordinates always come from get_latitude_longitude, never from your memory.",
    example='get_latitude_longitude with Action Input: {"name": "Lisbon"}',
)

MOVIE = ToolSet(
    about="Answer a question about films and the people who make them.",
    tools=(
        Tool("get_search_movie(movie_name)", "id, title and summary of a film"),
        Tool("get_movie_details(movie_id)", "budget, revenue, genres, vote, release date"),
        Tool("get_movie_production_companies(movie_id)", "companies that made it"),
        Tool("get_movie_production_countries(movie_id)", "countries it was made in"),
        Tool("get_movie_cast(movie_id)", "its ten leading actors"),
        Tool("get_movie_crew(movie_id)", "ten of its crew: director, producers, writers"),
        Tool("get_movie_keywords(movie_id)", "its keywords"),
        Tool("get_movie_alternative_titles(movie_id)", "its other titles"),
        Tool("get_movie_translation(movie_id)", "its summary in other languages"),
        Tool("get_search_person(person_name)", "id and name of a person"),
        Tool("get_person_details(person_id)", "biography, birthday, place of birth"),
        Tool("get_person_cast(person_id)", "ten roles the person played"),
        Tool("get_person_crew(person_id)", "ten films the person worked on behind the camera"),
        Tool("get_person_external_ids(person_id)", "ids on IMDB, Facebook, Instagram, Twitter"),
        _LIST,
        _FINISH,
    ),
    advice="Ids always come from get_search_movie and get_search_person; they are strings.",
    example='get_search_person with Action Input: {"person_name": "Agnes Varda"}',
)

ACADEMIA = ToolSet(
    about=(
        "Answer a question about scientific papers and their authors. PaperNet joins papers that "
        "cite each other, AuthorNet joins people who wrote together."
    ),
    tools=(
        Tool("loadPaperNet()", "make PaperNet ready"),
        Tool("loadAuthorNet()", "make AuthorNet ready"),
        Tool("neighbourCheck(graph, node)", "what is joined to a paper or author in that graph"),
        Tool("paperNodeCheck(node)", "authors, year, venue, citations, keywords, kind of a paper"),
        Tool("authorNodeCheck(node)", "name and organisation of an author"),
        Tool("paperEdgeCheck(node1, node2)", "what joins two papers"),
        Tool("authorEdgeCheck(node1, node2)", "papers that two authors wrote together"),
        _LIST,
        _FINISH,
    ),
    advice='Load a graph before you ask it. `graph` is "PaperNet" or "AuthorNet".',
    example='neighbourCheck with Action Input: {"graph": "AuthorNet", "node": "Ada Byron"}',
)

TODO = ToolSet(
    about="Look after somebody's to-do lists: answer a question or change what is asked for.",
    tools=(
        Tool("get_user_current_date()", "the date of today, YYYY-MM-DD"),
        Tool("get_user_current_location()", "the person's city"),
        Tool("get_projects()", "all projects: id, name, order, colour, favourite or not"),
        Tool(
            "update_project(project_id, is_favorite)", 'set the favourite mark, "True" or "False"'
        ),
        Tool("get_tasks(project_id)", "its tasks: id, content, completed, priority, due date"),
        Tool("get_task_description(task_id)", "further details of a task, such as the place"),
        Tool("get_task_duration(task_id)", "how long a task takes"),
        Tool("complete_task(task_id)", "mark a task as done"),
        Tool("update_task(task_id, due_date)", "move a task to another date"),
        Tool("delete_task(task_id)", "remove a task"),
        _LIST,
        _FINISH,
    ),
    advice=(
        "Ids always come from get_projects and get_tasks. Priority runs from 1 to 4, 4 is most "
        'urgent. After a change that was asked for, finish with the answer "done".'
    ),
    example='get_tasks with Action Input: {"project_id": "2203"}',
)

_RANGE = "start_position, end_position"
_FORMULA = f"{_RANGE} or position_list, operator"

SHEET = ToolSet(
    about="Change a spreadsheet as asked. Cells are named as B2; rows and columns count from 1.",
    tools=(
        Tool("open_sheet(name)", "choose the sheet to work on"),
        Tool("del_sheet(name)", "delete a sheet"),
        Tool("get_all_values()", "all cells"),
        Tool(f"get_range_values({_RANGE})", "the cells of a rectangle"),
        Tool("get_cell_value(position)", "one cell"),
        Tool("get_A1_annotation(row, col)", "the name of a cell, such as B2"),
        Tool("filter_cells(query, in_row?, in_column?)", "names of the cells that match"),
        Tool("get_note(position)", "the note on a cell"),
        Tool("update_note(position, content)", "write a note on a cell"),
        Tool("update_cell(position, value)", "write one cell"),
        Tool(f"update_range({_RANGE}, values_list)", "write a rectangle, a list of rows"),
        Tool("insert_rows(values_list, row_idx)", "insert rows before that row"),
        Tool("insert_cols(values_list, col_idx)", "insert columns before that column"),
        Tool("delete_batch_data(dimension, index_list)", 'delete, dimension "row" or "col"'),
        Tool("sort_sheet_by_col(col_num, order)", 'sort by a column, order "asc" or "des"'),
        Tool(f"merge_cells({_RANGE})", "make one cell of a rectangle"),
        Tool("freeze_data(dimension, num)", 'keep the first "rows" or "columns" in place'),
        Tool(f"get_value_by_formula({_FORMULA})", "the value of a formula"),
        Tool(
            f"update_cell_by_formula({_FORMULA}, result_position)", "write the value of a formula"
        ),
        Tool("finish()", "end the task; the sheet as it is now is compared with the goal"),
    ),
    advice=(
        "Open the sheet first and look at all its values. Freeze the first row before sorting. "
        "operator is one of SUM, AVERAGE, COUNT, MAX, MIN, MINUS, PRODUCT; a formula takes either the "
        "two positions of a rectangle or position_list. A ? marks an argument that may be left out."
    ),
    example='update_cell with Action Input: {"position": "C4", "value": 12}',
)
