"""Changes of a spreadsheet, with the tools that AgentGym has for sheets of Google."""

import functools
import itertools
import math
import random
import re
from collections.abc import Sequence
from typing import Any

from agentgym_envs.base.served import ServedEnvironment
from agentgym_envs.tools.actions import ToolError
from agentgym_envs.tools.served import tool_environment
from agentgym_envs.tools.tasks import Call, Task, TaskSet, draw
from agentgym_envs.tools.world import World

_MAX_ROWS, _MAX_COLUMNS, _MAX_TEXT = 40, 15, 100
_POSITION = re.compile(r"([A-Z])([1-9][0-9]?)")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_NOT_OPEN = "Please open a sheet before operating it"
_WHOLE = "Warning: You cannot {} whole sheet at once, please try other functions"
_NOT_A1 = (
    "In the sheet formula, you should use A1 notation to display all positions in the sheet and "
    "you can use get_A1_annotation(row, col) to get its A1 address."
)
_FORMULAS = {
    "SUM": math.fsum,
    "AVERAGE": lambda numbers: math.fsum(numbers) / len(numbers),
    "COUNT": len,
    "MAX": max,
    "MIN": min,
    "MINUS": lambda numbers: numbers[0] - numbers[1],
    "PRODUCT": math.prod,
}
_Rows = list[list[str]]


class _Refused(ToolError):
    """A call that the sheet refuses; the agent sees only the message, as in AgentGym."""

    def __init__(self, message: str):
        super().__init__("Error", message)
        self.text = message


class SheetWorld(World):
    """One sheet, whose cells are texts. Frozen rows are not sorted."""

    tools = (
        *("open_sheet", "del_sheet", "freeze_data", "get_A1_annotation", "insert_cols"),
        *("insert_rows", "delete_batch_data", "update_cell", "update_cell_by_formula"),
        *("update_range", "sort_sheet_by_col", "merge_cells", "update_note", "get_all_values"),
        *("get_range_values", "get_cell_value", "get_value_by_formula", "filter_cells"),
        *("get_note", "finish"),
    )

    def __init__(self, name: str, rows: Sequence[Sequence[str]]):
        self._name = name
        self._rows: _Rows = [list(row) for row in rows]
        self._notes: dict[str, str] = {}
        self._frozen = 0
        self._is_open = False

    def run(self, name: str, given: Any) -> Any:
        """Returns the result of a tool; before the sheet is open, a request to open it."""
        if not self._is_open and name not in ("open_sheet", "del_sheet"):
            return _NOT_OPEN
        return super().run(name, given)

    def open_sheet(self, name: str) -> str:
        """Choose the sheet to work on."""
        self._check_name(name)
        self._is_open = True
        return f"<Worksheet {name!r} id:0>"

    def del_sheet(self, name: str) -> str:
        """Delete a sheet."""
        self._check_name(name)
        self._name, self._rows, self._is_open = "", [], False
        return f"You have deleted sheet {name} successfully"

    def freeze_data(self, dimension: str, num: int) -> str:
        """Keep the first "rows" or "columns" in place."""
        if dimension not in ("rows", "columns"):
            raise _Refused(repr("Error: the dimension should be one of the rows/columns"))
        self._frozen = max(num, 0) if dimension == "rows" else self._frozen
        return f"You have successfully freeze the {dimension} {num}"

    def get_A1_annotation(self, row: int, col: int) -> str:
        """The name of a cell, such as B2; rows and columns count from 1."""
        return _position(_index(row, _MAX_ROWS), _index(col, _MAX_COLUMNS))

    def insert_cols(self, values_list: list, col_idx: int) -> _Rows:
        """Insert columns, each a list, before that column."""
        columns, at = _table(values_list), _index(col_idx, len(self._rows[0]) + 1)
        old = list(map(list, zip(*self._rows, strict=True)))
        height = max(len(column) for column in (*old, *columns))
        filled = [column + [""] * (height - len(column)) for column in (*old, *columns)]
        moved = [*filled[:at], *filled[len(old) :], *filled[at : len(old)]]
        return self._set(list(map(list, zip(*moved, strict=True))))

    def insert_rows(self, values_list: list, row_idx: int) -> _Rows:
        """Insert rows before that row."""
        at = _index(row_idx, len(self._rows) + 1)
        return self._set([*self._rows[:at], *_table(values_list), *self._rows[at:]])

    def delete_batch_data(self, dimension: str, index_list: list) -> _Rows:
        """Delete several lines; dimension is "row" or "col"."""
        if dimension not in ("row", "col"):
            raise _Refused(repr("Wrong dimension, please choose from row/col"))
        size = len(self._rows) if dimension == "row" else len(self._rows[0])
        gone = {_index(index, size) for index in index_list}
        if len(gone) >= size - (dimension == "row"):
            raise _Refused(repr(_WHOLE.format("delete")))
        if dimension == "row":
            return self._set([row for i, row in enumerate(self._rows) if i not in gone])
        return self._set([[x for i, x in enumerate(r) if i not in gone] for r in self._rows])

    def update_cell(self, position: str, value: Any) -> _Rows:
        """Write one cell."""
        return self._write(*_cell(position), [[_text(value)]])

    def update_cell_by_formula(
        self,
        operator: str,
        result_position: str,
        start_position: Any = None,
        end_position: Any = None,
        position_list: Any = None,
    ) -> _Rows:
        """Write the value of a formula: SUM, AVERAGE, COUNT, MAX, MIN, MINUS or PRODUCT."""
        value = self.get_value_by_formula(operator, start_position, end_position, position_list)
        return self._write(*_cell(result_position), [[value]])

    def update_range(self, start_position: str, end_position: str, values_list: list) -> _Rows:
        """Write a rectangle, a list of rows."""
        (top, left), (bottom, right), values = (
            *_ends(start_position, end_position),
            _table(values_list),
        )
        if (top, left, bottom, right) == (0, 0, len(self._rows) - 1, len(self._rows[0]) - 1):
            raise _Refused(repr(_WHOLE.format("update")))
        if len(values) > bottom - top + 1 or max(map(len, values)) > right - left + 1:
            raise _Refused("APIError('the values do not fit into the range')")
        return self._write(top, left, values)

    def sort_sheet_by_col(self, col_num: int, order: str) -> _Rows:
        """Sort by a column, order "asc" or "des"."""
        column = _index(col_num, len(self._rows[0]))
        if order not in ("asc", "des"):
            raise _Refused(f"ValueError('order should be asc or des, not {order}')")
        head, body = self._rows[: self._frozen], self._rows[self._frozen :]
        body.sort(key=lambda row: _sorted_as(row[column]), reverse=order == "des")
        return self._set([*head, *body])

    def merge_cells(self, start_position: str, end_position: str) -> _Rows:
        """Make one cell of a rectangle."""
        (top, left), (bottom, right) = _ends(start_position, end_position)
        value = self.get_cell_value(_position(top, left))
        width = right - left + 1
        return self._write(top, left, [[value] * width for _ in range(bottom - top + 1)])

    def update_note(self, position: str, content: str) -> str:
        """Write a note on a cell."""
        _cell(position)
        self._notes[position] = content[:_MAX_TEXT]
        return f"Updated! the {position}'s note is {self._notes[position]}"

    def get_all_values(self) -> _Rows:
        """All cells."""
        return self._rows

    def get_range_values(self, start_position: str, end_position: str) -> _Rows:
        """The cells of a rectangle."""
        (top, left), (bottom, right) = _ends(start_position, end_position)
        return [row[left : right + 1] for row in self._rows[top : bottom + 1]]

    def get_cell_value(self, position: str) -> str:
        """One cell."""
        row, column = _cell(position)
        is_inside = row < len(self._rows) and column < len(self._rows[0])
        return self._rows[row][column] if is_inside else ""

    def get_value_by_formula(
        self,
        operator: str,
        start_position: Any = None,
        end_position: Any = None,
        position_list: Any = None,
    ) -> str:
        """The value of a formula over a rectangle or over position_list."""
        if operator not in _FORMULAS:
            raise _Refused(repr(f"the operator should be one of the {list(_FORMULAS)}"))
        if position_list is None:
            values = itertools.chain(*self.get_range_values(start_position, end_position))
        elif isinstance(position_list, list):
            values = (self.get_cell_value(position) for position in position_list)
        else:
            raise _Refused(repr(_NOT_A1))
        numbers = [float(value) for value in values if _NUMBER.fullmatch(value)]
        if len(numbers) < (operator != "COUNT") + (operator == "MINUS"):
            return "#N/A"
        return _text(_FORMULAS[operator](numbers))

    def filter_cells(self, query: str, in_row: Any = None, in_column: Any = None) -> list[str]:
        """Names of the cells that contain the text."""
        rows = range(len(self._rows)) if in_row is None else [_index(in_row, len(self._rows))]
        width = len(self._rows[0])
        columns = range(width) if in_column is None else [_index(in_column, width)]
        return [_position(r, c) for r in rows for c in columns if query in self._rows[r][c]]

    def get_note(self, position: str) -> str:
        """The note on a cell."""
        _cell(position)
        return self._notes.get(position, "")

    def finish(self) -> Any:
        """End the task; the sheet as it is now is compared with the goal."""
        return self._rows

    def unknown(self, name: str) -> str:
        """Returns the answer to a call of a tool that does not exist."""
        choice = f"Please choose another valid action from {list(self.tools)}"
        return f"ERROR | Invalid action: {name}. {choice}"

    def is_solved(self, expected: Any, answer: Any) -> bool:
        """Compares the cells."""
        return self._rows == expected

    def progress(self, expected: Any, result: Any) -> float:
        """Returns the share of equal cells in the rectangle that both tables have."""
        pairs = [
            found == wanted
            for row, other in zip(self._rows if self._is_open else [], expected, strict=False)
            for found, wanted in zip(row, other, strict=False)
        ]
        return sum(pairs) / len(pairs) if pairs else 0.0

    def samples(self) -> dict[str, list[Any]]:
        """Returns arguments with which the tools can be called."""
        return {
            "name": [self._name],
            "dimension": ["row"],
            "num": [1],
            "row": [2],
            "col": [2],
            "row_idx": [2],
            "col_idx": [2],
            "values_list": [[["1"]]],
            "index_list": [[2]],
            "position": ["A1", "C2"],
            "value": [1],
            "operator": ["SUM", "MAX"],
            "result_position": ["F2"],
            "start_position": ["C2"],
            "end_position": ["C2", "D3"],
            "col_num": [1, 2, 3],
            "order": ["asc", "des"],
            "content": ["check"],
            "query": ["Store"],
        }

    def state(self) -> dict[str, Any]:
        """Returns the cells and the notes."""
        return {"sheet": self._name, "rows": self._rows, "notes": dict(self._notes)}

    def _check_name(self, name: str) -> None:
        if name != self._name or not name:
            raise _Refused(f"WorksheetNotFound({name!r})")

    def _write(self, top: int, left: int, values: _Rows) -> _Rows:
        """Writes a rectangle, for which the sheet grows."""
        height = max(len(self._rows), top + len(values))
        width = max(len(self._rows[0]), left + max(map(len, values)))
        rows = [row + [""] * (width - len(row)) for row in self._rows]
        rows += [[""] * width for _ in range(height - len(rows))]
        for row, written in zip(rows[top:], values, strict=False):
            row[left : left + len(written)] = written
        return self._set(rows)

    def _set(self, rows: _Rows) -> _Rows:
        """Replaces the cells; all rows become equally long, and empty lines at the end vanish."""
        width = max((i for row in rows for i, value in enumerate(row, 1) if value), default=1)
        while len(rows) > 1 and not any(rows[-1]):
            rows = rows[:-1]
        if len(rows) > _MAX_ROWS or width > _MAX_COLUMNS:
            raise _Refused(f"APIError('a sheet has at most {_MAX_ROWS} x {_MAX_COLUMNS} cells')")
        self._rows = [(row + [""] * (width - len(row)))[:width] for row in rows]
        return self._rows


def _position(row: int, column: int) -> str:
    return f"{chr(ord('A') + column)}{row + 1}"


def _index(value: Any, size: int) -> int:
    """Returns a number that counts from 1 as an index of a line."""
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= size):
        raise _Refused(f"APIError('{text[:_MAX_TEXT]} is not in 1 .. {size}')")
    return int(text) - 1


def _cell(position: Any) -> tuple[int, int]:
    match = _POSITION.fullmatch(position) if isinstance(position, str) else None
    if match is None:
        raise _Refused(repr(_NOT_A1))
    return int(match[2]) - 1, ord(match[1]) - ord("A")


def _ends(start: Any, end: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the upper left and the lower right corner of a rectangle."""
    (row1, column1), (row2, column2) = _cell(start), _cell(end)
    rows, columns = sorted((row1, row2)), sorted((column1, column2))
    if rows[1] >= _MAX_ROWS or columns[1] >= _MAX_COLUMNS:
        raise _Refused(f"APIError('a sheet has at most {_MAX_ROWS} x {_MAX_COLUMNS} cells')")
    return (rows[0], columns[0]), (rows[1], columns[1])


def _text(value: Any) -> str:
    """Returns the text of a cell; numbers are written with at most ten digits."""
    if isinstance(value, bool) or value is None:
        return str(value or "").upper()
    text = value if isinstance(value, str) else repr(value)
    if isinstance(value, int | float) or (len(text) < 20 and _NUMBER.fullmatch(text)):
        return f"{float(value):.10g}"
    if len(text) > _MAX_TEXT:
        raise _Refused(f"APIError('a cell has at most {_MAX_TEXT} characters')")
    return text


def _table(values: Any) -> _Rows:
    """Returns lists of values as texts of cells."""
    if not values or not all(isinstance(row, list) and row for row in values):
        message = "The values_list needs to be a 2D list, please check your parameter"
        raise _Refused(repr(message))
    return [[_text(value) for value in row] for row in values]


def _sorted_as(text: str) -> tuple[int, float, str]:
    """Returns the key by which a cell is sorted: numbers before texts."""
    return (0, float(text), "") if _NUMBER.fullmatch(text) else (1, 0.0, text)


_HEADER = ["Product", "Category", "Price", "Quantity", "Store"]
_GOODS = {
    "Fruit": "apple,banana,cherry,grape,mango",
    "Meat": "beef,chicken,duck,lamb,pork",
    "Seafood": "crab,salmon,shrimp,squid,tuna",
}
_LOOK: Call = ("get_all_values", {})


class _Case:
    """A table of products, and one of its rows."""

    def __init__(self, rng: random.Random):
        self.name = f"Sheet{rng.randrange(1, 21)}"
        goods = [(good, kind) for kind, names in _GOODS.items() for good in names.split(",")]
        prices = rng.sample(range(2, 60), 9)
        amounts = rng.sample(range(1, 99), 9)
        self.body = [
            [good, kind, _text(prices[i] / 2), str(amounts[i]), f"Store {rng.choice('ABC')}"]
            for i, (good, kind) in enumerate(rng.sample(goods, rng.randrange(6, 10)))
        ]
        self.start = tuple(tuple(row) for row in [_HEADER, *self.body])
        self.row = rng.randrange(len(self.body))
        self.good = self.body[self.row][0]

    def change(self, goal: str, calls: Sequence[Call], rows: _Rows) -> Task:
        """Returns a task whose goal are these rows."""
        plan: tuple[Call, ...] = (("open_sheet", {"name": self.name}), _LOOK, *calls)
        setup = {"name": self.name, "rows": self.start}
        return Task(f'In "{self.name}", {goal}', plan, {}, rows, setup)


def _update_a_cell(rng: random.Random) -> Task:
    case, column = _Case(rng), rng.choice([2, 3])
    value = rng.randrange(100, 200)
    case.body[case.row][column] = str(value)
    call: Call = ("update_cell", {"position": _position(case.row + 1, column), "value": value})
    goal = f"set the {_HEADER[column].lower()} of {case.good} to {value}."
    return case.change(goal, [call], [_HEADER, *case.body])


def _sort(rng: random.Random) -> Task:
    case, column, order = _Case(rng), rng.choice([2, 3]), rng.choice(["asc", "des"])
    case.body.sort(key=lambda row: float(row[column]), reverse=order == "des")
    word = "ascending" if order == "asc" else "descending"
    goal = f'sort the products by "{_HEADER[column]}" in {word} order; the header stays first.'
    freeze: Call = ("freeze_data", {"dimension": "rows", "num": 1})
    call: Call = ("sort_sheet_by_col", {"col_num": column + 1, "order": order})
    return case.change(goal, [freeze, call], [_HEADER, *case.body])


def _remove_a_kind(rng: random.Random) -> Task | None:
    case, kind = _Case(rng), rng.choice(sorted(_GOODS))
    gone = [i for i, row in enumerate(case.body, 2) if row[1] == kind]
    if not 0 < len(gone) < len(case.body) - 1:
        return None
    call: Call = ("delete_batch_data", {"dimension": "row", "index_list": gone})
    rows = [row for row in case.body if row[1] != kind]
    return case.change(f'delete all products of the category "{kind}".', [call], [_HEADER, *rows])


def _append(rng: random.Random) -> Task:
    case = _Case(rng)
    row = ["honey", "Other", str(rng.randrange(5, 30)), str(rng.randrange(1, 99)), "Store A"]
    call: Call = ("insert_rows", {"values_list": [row], "row_idx": len(case.body) + 2})
    return case.change(f"add the row {row} at the end.", [call], [_HEADER, *case.body, row])


def _column_of_values(rng: random.Random) -> Task:
    case = _Case(rng)
    values = [_text(float(row[2]) * float(row[3])) for row in case.body]
    call: Call = ("insert_cols", {"values_list": [["Value", *values]], "col_idx": 6})
    goal = 'add a last column "Value" with the product of price and quantity.'
    rows = [[*row, value] for row, value in zip(case.body, values, strict=True)]
    return case.change(goal, [call], [[*_HEADER, "Value"], *rows])


def _remove_the_smallest(rng: random.Random) -> Task:
    case, column = _Case(rng), rng.choice([2, 3])
    smallest = min(case.body, key=lambda row: float(row[column]))
    at = case.body.index(smallest)
    call: Call = ("delete_batch_data", {"dimension": "row", "index_list": [at + 2]})
    goal = f"delete the product with the smallest {_HEADER[column].lower()}."
    return case.change(goal, [call], [_HEADER, *case.body[:at], *case.body[at + 1 :]])


def _total(rng: random.Random) -> Task:
    case, last = _Case(rng), 0
    last = len(case.body) + 1
    total = _text(sum(int(row[3]) for row in case.body))
    ends = {"start_position": "D2", "end_position": f"D{last}", "operator": "SUM"}
    call: Call = ("update_cell_by_formula", {**ends, "result_position": f"D{last + 1}"})
    goal = 'write the sum of all quantities into the first empty cell of the column "Quantity".'
    return case.change(goal, [call], [_HEADER, *case.body, ["", "", "", total, ""]])


@functools.cache
def _tasks() -> TaskSet:
    return draw(
        "sheet",
        20,
        train=dict(
            update_a_cell=_update_a_cell,
            sort=_sort,
            remove_a_kind=_remove_a_kind,
            append=_append,
            column_of_values=_column_of_values,
        ),
        test=dict(remove_the_smallest=_remove_the_smallest, total=_total),
    )


def make_served_environment() -> ServedEnvironment:
    """Returns the spreadsheet as a served environment."""
    return tool_environment(
        "sheet",
        SheetWorld,
        _tasks(),
        version="1",
        max_turns=15,
        about="Change a spreadsheet as asked. Cells are named as B2; rows and columns count from 1.",
        hints="Open the sheet first and look at all its values. Freeze the first row before "
        "sorting. A formula takes either the two positions of a rectangle or position_list. A ? "
        "marks an argument that may be left out.",
        example='update_cell with Action Input: {"position": "C4", "value": 12}',
    )
