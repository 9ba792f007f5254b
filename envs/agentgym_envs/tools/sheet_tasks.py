"""Tasks of the spreadsheet: changes of a table of products."""

import functools
import random
from collections.abc import Sequence

from agentgym_envs.tools.cells import Rows, name_of, text_of
from agentgym_envs.tools.tasks import Call, Task, TaskSet, draw

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
            [good, kind, text_of(prices[i] / 2), str(amounts[i]), f"Store {rng.choice('ABC')}"]
            for i, (good, kind) in enumerate(rng.sample(goods, rng.randrange(6, 10)))
        ]
        self.start = tuple(tuple(row) for row in [_HEADER, *self.body])
        self.row = rng.randrange(len(self.body))
        self.good = self.body[self.row][0]

    def change(self, goal: str, calls: Sequence[Call], rows: Rows) -> Task:
        """Returns a task whose goal are these rows."""
        plan: tuple[Call, ...] = (("open_sheet", {"name": self.name}), _LOOK, *calls)
        setup = {"name": self.name, "rows": self.start}
        return Task(f'In "{self.name}", {goal}', plan, {}, rows, setup)


def _update_a_cell(rng: random.Random) -> Task:
    case, column = _Case(rng), rng.choice([2, 3])
    value = rng.randrange(100, 200)
    case.body[case.row][column] = str(value)
    call: Call = ("update_cell", {"position": name_of(case.row + 1, column), "value": value})
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
    values = [text_of(float(row[2]) * float(row[3])) for row in case.body]
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
    case = _Case(rng)
    last = len(case.body) + 1
    total = text_of(sum(int(row[3]) for row in case.body))
    ends = {"start_position": "D2", "end_position": f"D{last}", "operator": "SUM"}
    call: Call = ("update_cell_by_formula", {**ends, "result_position": f"D{last + 1}"})
    goal = 'write the sum of all quantities into the first empty cell of the column "Quantity".'
    return case.change(goal, [call], [_HEADER, *case.body, ["", "", "", total, ""]])


@functools.cache
def drawn() -> TaskSet:
    """Returns all tasks."""
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
