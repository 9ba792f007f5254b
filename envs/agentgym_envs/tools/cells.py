"""Cells of a spreadsheet: their names, and the texts of their values."""

import re
from typing import Any

from agentgym_envs.tools.actions import ToolError

MAX_ROWS, MAX_COLUMNS, MAX_TEXT = 40, 15, 100
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
NOT_A1 = (
    "In the sheet formula, you should use A1 notation to display all positions in the sheet and "
    "you can use get_A1_annotation(row, col) to get its A1 address."
)
_POSITION = re.compile(r"([A-Z])([1-9][0-9]?)")
Rows = list[list[str]]


class Refused(ToolError):
    """A call that the sheet refuses; the agent sees only the message, as in AgentGym."""

    def __init__(self, message: str):
        super().__init__("Error", message)
        self.text = message


def name_of(row: int, column: int) -> str:
    """Returns the name of a cell, such as B2; row and column count from 0."""
    return f"{chr(ord('A') + column)}{row + 1}"


def line_index(value: Any, size: int) -> int:
    """Returns a number that counts from 1 as an index of a line."""
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= size):
        raise Refused(f"APIError('{text[:MAX_TEXT]} is not in 1 .. {size}')")
    return int(text) - 1


def read_cell(position: Any) -> tuple[int, int]:
    """Returns the row and the column of a cell, from its name."""
    match = _POSITION.fullmatch(position) if isinstance(position, str) else None
    if match is None:
        raise Refused(repr(NOT_A1))
    return int(match[2]) - 1, ord(match[1]) - ord("A")


def corners(start: Any, end: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the upper left and the lower right corner of a rectangle."""
    (row1, column1), (row2, column2) = read_cell(start), read_cell(end)
    rows, columns = sorted((row1, row2)), sorted((column1, column2))
    if rows[1] >= MAX_ROWS or columns[1] >= MAX_COLUMNS:
        raise Refused(f"APIError('a sheet has at most {MAX_ROWS} x {MAX_COLUMNS} cells')")
    return (rows[0], columns[0]), (rows[1], columns[1])


def text_of(value: Any) -> str:
    """Returns the text of a cell; numbers are written with at most ten digits."""
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).upper()
    text = value if isinstance(value, str) else repr(value)
    if isinstance(value, int | float) or (len(text) < 20 and NUMBER.fullmatch(text)):
        return f"{float(value):.10g}"
    if len(text) > MAX_TEXT:
        raise Refused(f"APIError('a cell has at most {MAX_TEXT} characters')")
    return text


def table_of(values: Any) -> Rows:
    """Returns lists of values as texts of cells."""
    if not values or not all(isinstance(row, list) and row for row in values):
        message = "The values_list needs to be a 2D list, please check your parameter"
        raise Refused(repr(message))
    return [[text_of(value) for value in row] for row in values]


def sort_key(text: str) -> tuple[int, float, str]:
    """Returns the key by which a cell is sorted: numbers before texts."""
    return (0, float(text), "") if NUMBER.fullmatch(text) else (1, 0.0, text)
