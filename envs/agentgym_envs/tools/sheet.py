"""Changes of a spreadsheet, with the tools that AgentGym has for sheets of Google."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentgym_envs.base.served import ServedEnvironment
from agentgym_envs.tools.cells import (
    MAX_COLUMNS,
    MAX_ROWS,
    MAX_TEXT,
    NOT_A1,
    NUMBER,
    Refused,
    Rows,
    corners,
    line_index,
    name_of,
    read_cell,
    sort_key,
    table_of,
    text_of,
)
from agentgym_envs.tools.served import tool_environment
from agentgym_envs.tools.sheet_tasks import drawn
from agentgym_envs.tools.world import World

_NOT_OPEN = "Please open a sheet before operating it"
_WHOLE = "Warning: You cannot {} whole sheet at once, please try other functions"
_FORMULAS: Mapping[str, Callable[[list[float]], float]] = {
    "SUM": math.fsum,
    "AVERAGE": lambda numbers: math.fsum(numbers) / len(numbers),
    "COUNT": len,
    "MAX": max,
    "MIN": min,
    "MINUS": lambda numbers: numbers[0] - numbers[1],
    "PRODUCT": math.prod,
}


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
        self._rows: Rows = [list(row) for row in rows]
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
            raise Refused(repr("Error: the dimension should be one of the rows/columns"))
        self._frozen = max(num, 0) if dimension == "rows" else self._frozen
        return f"You have successfully freeze the {dimension} {num}"

    def get_A1_annotation(self, row: int, col: int) -> str:
        """The name of a cell, such as B2; rows and columns count from 1."""
        return name_of(line_index(row, MAX_ROWS), line_index(col, MAX_COLUMNS))

    def insert_cols(self, values_list: list, col_idx: int) -> Rows:
        """Insert columns, each a list, before that column."""
        columns, at = table_of(values_list), line_index(col_idx, len(self._rows[0]) + 1)
        old = list(map(list, zip(*self._rows, strict=True)))
        height = max(len(column) for column in (*old, *columns))
        filled = [column + [""] * (height - len(column)) for column in (*old, *columns)]
        moved = [*filled[:at], *filled[len(old) :], *filled[at : len(old)]]
        return self._set(list(map(list, zip(*moved, strict=True))))

    def insert_rows(self, values_list: list, row_idx: int) -> Rows:
        """Insert rows before that row."""
        at = line_index(row_idx, len(self._rows) + 1)
        return self._set([*self._rows[:at], *table_of(values_list), *self._rows[at:]])

    def delete_batch_data(self, dimension: str, index_list: list) -> Rows:
        """Delete several lines; dimension is "row" or "col"."""
        if dimension not in ("row", "col"):
            raise Refused(repr("Wrong dimension, please choose from row/col"))
        size = len(self._rows) if dimension == "row" else len(self._rows[0])
        gone = {line_index(index, size) for index in index_list}
        if len(gone) >= size - (dimension == "row"):
            raise Refused(repr(_WHOLE.format("delete")))
        if dimension == "row":
            return self._set([row for i, row in enumerate(self._rows) if i not in gone])
        return self._set([[x for i, x in enumerate(r) if i not in gone] for r in self._rows])

    def update_cell(self, position: str, value: Any) -> Rows:
        """Write one cell."""
        return self._write(*read_cell(position), [[text_of(value)]])

    def update_cell_by_formula(
        self,
        operator: str,
        result_position: str,
        start_position: Any = None,
        end_position: Any = None,
        position_list: Any = None,
    ) -> Rows:
        """Write the value of a formula: SUM, AVERAGE, COUNT, MAX, MIN, MINUS or PRODUCT."""
        value = self.get_value_by_formula(operator, start_position, end_position, position_list)
        return self._write(*read_cell(result_position), [[value]])

    def update_range(self, start_position: str, end_position: str, values_list: list) -> Rows:
        """Write a rectangle, a list of rows."""
        (top, left), (bottom, right), values = (
            *corners(start_position, end_position),
            table_of(values_list),
        )
        if (top, left, bottom, right) == (0, 0, len(self._rows) - 1, len(self._rows[0]) - 1):
            raise Refused(repr(_WHOLE.format("update")))
        if len(values) > bottom - top + 1 or max(map(len, values)) > right - left + 1:
            raise Refused("APIError('the values do not fit into the range')")
        return self._write(top, left, values)

    def sort_sheet_by_col(self, col_num: int, order: str) -> Rows:
        """Sort by a column, order "asc" or "des"."""
        column = line_index(col_num, len(self._rows[0]))
        if order not in ("asc", "des"):
            raise Refused(f"ValueError('order should be asc or des, not {order}')")
        head, body = self._rows[: self._frozen], self._rows[self._frozen :]
        body.sort(key=lambda row: sort_key(row[column]), reverse=order == "des")
        return self._set([*head, *body])

    def merge_cells(self, start_position: str, end_position: str) -> Rows:
        """Make one cell of a rectangle."""
        (top, left), (bottom, right) = corners(start_position, end_position)
        value = self.get_cell_value(name_of(top, left))
        width = right - left + 1
        return self._write(top, left, [[value] * width for _ in range(bottom - top + 1)])

    def update_note(self, position: str, content: str) -> str:
        """Write a note on a cell."""
        read_cell(position)
        self._notes[position] = content[:MAX_TEXT]
        return f"Updated! the {position}'s note is {self._notes[position]}"

    def get_all_values(self) -> Rows:
        """All cells."""
        return self._rows

    def get_range_values(self, start_position: str, end_position: str) -> Rows:
        """The cells of a rectangle."""
        (top, left), (bottom, right) = corners(start_position, end_position)
        return [row[left : right + 1] for row in self._rows[top : bottom + 1]]

    def get_cell_value(self, position: str) -> str:
        """One cell."""
        row, column = read_cell(position)
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
            raise Refused(repr(f"the operator should be one of the {list(_FORMULAS)}"))
        values: Iterable[str]
        if position_list is None:
            values = itertools.chain(*self.get_range_values(start_position, end_position))
        elif isinstance(position_list, list):
            values = (self.get_cell_value(position) for position in position_list)
        else:
            raise Refused(repr(NOT_A1))
        numbers = [float(value) for value in values if NUMBER.fullmatch(value)]
        if len(numbers) < (operator != "COUNT") + (operator == "MINUS"):
            return "#N/A"
        return text_of(_FORMULAS[operator](numbers))

    def filter_cells(self, query: str, in_row: Any = None, in_column: Any = None) -> list[str]:
        """Names of the cells that contain the text."""
        rows = range(len(self._rows)) if in_row is None else [line_index(in_row, len(self._rows))]
        width = len(self._rows[0])
        columns = range(width) if in_column is None else [line_index(in_column, width)]
        return [name_of(r, c) for r in rows for c in columns if query in self._rows[r][c]]

    def get_note(self, position: str) -> str:
        """The note on a cell."""
        read_cell(position)
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
        found: dict[str, list[Any]] = {
            "name": [self._name],
            "col_num": [1, 2, 3],
            "order": ["asc", "des"],
            "num": [1],
        }
        found |= {"dimension": ["row", "rows"], "index_list": [[2], [3]], "query": ["Store"]}
        return {**found, "position": ["A1", "C2"], "value": [1]}

    def state(self) -> dict[str, Any]:
        """Returns the cells and the notes."""
        return {"sheet": self._name, "rows": self._rows, "notes": dict(self._notes)}

    def _check_name(self, name: str) -> None:
        if name != self._name or not name:
            raise Refused(f"WorksheetNotFound({name!r})")

    def _write(self, top: int, left: int, values: Rows) -> Rows:
        """Writes a rectangle, for which the sheet grows."""
        height = max(len(self._rows), top + len(values))
        width = max(len(self._rows[0]), left + max(map(len, values)))
        rows = [row + [""] * (width - len(row)) for row in self._rows]
        rows += [[""] * width for _ in range(height - len(rows))]
        for row, written in zip(rows[top:], values, strict=False):
            row[left : left + len(written)] = written
        return self._set(rows)

    def _set(self, rows: Rows) -> Rows:
        """Replaces the cells; all rows become equally long, and empty lines at the end vanish."""
        width = max((i for row in rows for i, value in enumerate(row, 1) if value), default=1)
        while len(rows) > 1 and not any(rows[-1]):
            rows = rows[:-1]
        if len(rows) > MAX_ROWS or width > MAX_COLUMNS:
            raise Refused(f"APIError('a sheet has at most {MAX_ROWS} x {MAX_COLUMNS} cells')")
        self._rows = [(row + [""] * (width - len(row)))[:width] for row in rows]
        return self._rows


def make_served_environment() -> ServedEnvironment:
    """Returns the spreadsheet as a served environment."""
    return tool_environment(
        "sheet",
        SheetWorld,
        drawn(),
        max_turns=15,
        about="Change a spreadsheet as asked. Cells are named as B2; rows and columns count from 1.",
        hints="Open the sheet first and look at all its values. Freeze the first row before "
        "sorting. A formula takes either the two positions of a rectangle or position_list. A ? "
        "marks an argument that may be left out.",
        example='update_cell with Action Input: {"position": "C4", "value": 12}',
    )
