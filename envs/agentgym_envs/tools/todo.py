"""Questions about a person's to-do lists and changes of them, with the answers of Todoist's API."""

import copy
import datetime
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_envs.base.served import ServedEnvironment
from agentgym_envs.tools.actions import ToolError
from agentgym_envs.tools.places import PLACES
from agentgym_envs.tools.served import tool_environment
from agentgym_envs.tools.tasks import Call, Task, TaskSet, Template, draw
from agentgym_envs.tools.world import AskingWorld, in_order, read_date, same

_CONTENTS = {
    "Household": "Clean the kitchen,Fix the lamp,Iron the shirts,Sort the mail,Water the plants",
    "Study": "Read chapter five,Revise vocabulary,Solve the exercises,Write the essay",
    "Garden": "Mow the lawn,Plant the tulips,Prune the roses,Repair the fence",
    "Office": "Answer the survey,Book the room,File the invoices,Prepare the slides",
    "Fitness": "Jog in the park,Join the yoga class,Swim ten laps,Visit the gym",
    "Travel": "Check in online,Pack the suitcase,Print the tickets,Renew the passport",
}
_COLORS = ("charcoal", "green", "red", "blue")
_PLACES = ("library", "workshop", "park", "cellar", "town hall")
_SEEDS = 40  # accounts that are different at the start
_Record = dict[str, Any]


@functools.cache
def _account(seed: int) -> tuple[list[_Record], dict[str, list[_Record]], dict[str, _Record], str]:
    """Returns an account: projects, their tasks by the project's id, details by the task's id, and
    the current date."""
    rng = random.Random(f"todo/{seed}")
    today = datetime.date(2024, 1, 1) + datetime.timedelta(days=rng.randrange(360))
    numbers = iter(rng.sample(range(10**5, 10**6), 40))
    projects: list[_Record] = []
    tasks: dict[str, list[_Record]] = {}
    details: dict[str, _Record] = {}
    for order, name in enumerate(rng.sample(sorted(_CONTENTS), 4), 1):
        key = str(next(numbers))
        color, listed = rng.choice(_COLORS), []
        projects.append(
            {"id": key, "order": order, "color": color, "name": name, "is_favorite": False}
        )
        contents = _CONTENTS[name].split(",")
        for place, content in enumerate(rng.sample(contents, rng.randrange(3, 5)), 1):
            due = today + datetime.timedelta(days=rng.randrange(-10, 20))
            record: _Record = {"id": str(next(numbers)), "order": place, "content": content}
            record |= {"is_completed": False, "priority": rng.randrange(1, 5)}
            listed.append({**record, "due_date": str(due)})
            details[record["id"]] = {
                "description": f"- Place: {rng.choice(_PLACES)}",
                "duration": f"{rng.randrange(1, 12) * 10}(minute)",
            }
        tasks[key] = listed
    return projects, tasks, details, str(today)


class TodoWorld(AskingWorld):
    """One account. Completed and deleted tasks are no longer listed."""

    tools = (
        *("get_user_current_date", "get_user_current_location", "get_projects", "update_project"),
        *("get_tasks", "get_task_description", "get_task_duration", "complete_task"),
        *("update_task", "delete_task", "check_valid_actions", "finish"),
    )

    def __init__(self, seed: int):
        projects, tasks, self._details, self._today = _account(seed)
        self._projects, self._tasks = copy.deepcopy((projects, tasks))
        self._completed: set[str] = set()
        self._city = PLACES[seed % len(PLACES)].name

    def get_user_current_date(self) -> str:
        """The date of today, YYYY-MM-DD."""
        return self._today

    def get_user_current_location(self) -> str:
        """The person's city."""
        return self._city

    def get_projects(self) -> Any:
        """All projects: id, order, colour, name, favourite or not."""
        return self._projects

    def update_project(self, project_id: str, is_favorite: Any) -> Any:
        """Set the favourite mark, "True" or "False"."""
        found = [p for p in self._projects if p["id"] == project_id]
        if not found:
            return f"Project {project_id} is not exists."
        if str(is_favorite).lower() not in ("true", "false"):
            raise ToolError("ValueError", f"is_favorite must be True or False, not {is_favorite}")
        found[0]["is_favorite"] = str(is_favorite).lower() == "true"
        return {"message": "Update the project successfully.", "project": found[0]}

    def get_tasks(self, project_id: str) -> Any:
        """Its open tasks: id, order, content, completed, priority from 1 to 4, due date."""
        return self._tasks.get(project_id, f"Project {project_id} is not exists.")

    def get_task_description(self, task_id: str) -> Any:
        """Further details of a task, such as the place."""
        return self._detail(task_id, "description")

    def get_task_duration(self, task_id: str) -> Any:
        """The time that a task takes."""
        return self._detail(task_id, "duration")

    def complete_task(self, task_id: str) -> Any:
        """Mark a task as done."""
        return self._remove(task_id, "Complete task successfully.", is_completed=True)

    def update_task(self, task_id: str, due_date: str) -> Any:
        """Move a task to another date."""
        day, found = read_date(due_date), self._find(task_id)
        if found is None:
            return f"Task {task_id} is not exists."
        found["due_date"] = str(day)
        return {"message": "Update the task successfully", "task": found}

    def delete_task(self, task_id: str) -> Any:
        """Remove a task."""
        return self._remove(task_id, "Delete the task successfully.", is_completed=False)

    def is_solved(self, expected: Any, answer: Any) -> bool:
        """Compares the whole account with its completed tasks, and the answer of a question."""
        account, expected_answer = expected
        is_right = expected_answer is None or same(expected_answer, answer)
        return is_right and account == [self._projects, self._tasks, self._completed]

    def progress(self, expected: Any, result: Any) -> float:
        """Returns 1 if the task is solved with this result of a tool as the answer."""
        return float(self.is_solved(expected, result))

    def samples(self) -> dict[str, list[Any]]:
        """Returns arguments with which the tools can be called."""
        tasks = [task["id"] for listed in self._tasks.values() for task in listed]
        return {
            "project_id": [project["id"] for project in self._projects],
            "task_id": tasks[::3] or ["1002"],
            "is_favorite": ["True"],
            "due_date": ["2024-06-01"],
            "answer": ["unknown"],
        }

    def state(self) -> dict[str, Any]:
        """Returns the account."""
        completed = sorted(self._completed)
        return {"projects": self._projects, "tasks": self._tasks, "completed": completed}

    def _find(self, task_id: str) -> _Record | None:
        tasks = (task for listed in self._tasks.values() for task in listed)
        return next((task for task in tasks if task["id"] == task_id), None)

    def _detail(self, task_id: str, field: str) -> Any:
        task = self._find(task_id)
        if task is None:
            return f"Task {task_id} is not exists."
        shown = {"id": task["id"], "content": task["content"]}
        return {**shown, field: self._details[task["id"]][field]}

    def _remove(self, task_id: str, message: str, *, is_completed: bool) -> Any:
        task = self._find(task_id)
        if task is None:
            return f"Task {task_id} is not exists."
        for listed in self._tasks.values():
            listed[:] = [other for other in listed if other is not task]
        shown = dict(task)
        if is_completed:
            self._completed.add(task["id"])
            del shown["is_completed"]
        return {"message": message, "task": shown}


_TODAY: Call = ("get_user_current_date", {})
_PROJECTS: Call = ("get_projects", {})


class _Case:
    """An account, one of its projects, and one task of this project."""

    def __init__(self, rng: random.Random):
        self.seed = rng.randrange(_SEEDS)
        projects, tasks, self.details, self.today = _account(self.seed)
        self.projects, self.all_tasks = copy.deepcopy((projects, tasks))
        self.completed: set[str] = set()
        self.project = rng.choice(self.projects)
        self.tasks = self.all_tasks[self.project["id"]]
        self.task = rng.choice(self.tasks)
        self.where = f"{self.task['content']} in {self.project['name']}"

    def look(self, *calls: Call) -> tuple[Call, ...]:
        return (_PROJECTS, ("get_tasks", {"project_id": self.project["id"]}), *calls)

    def on_task(self, tool: str, **arguments: Any) -> Call:
        return (tool, {"task_id": self.task["id"], **arguments})

    def ask(self, goal: str, calls: Sequence[Call], answer: Any) -> Task:
        return self._task(goal, calls, in_order(answer), answer)

    def change(self, goal: str, calls: Sequence[Call]) -> Task:
        """Returns a task whose final state is the present state of the records."""
        return self._task(goal, calls, None, "done")

    def _task(self, goal: str, calls: Sequence[Call], expected: Any, answer: Any) -> Task:
        final = ([self.projects, self.all_tasks, self.completed], expected)
        return Task(goal, tuple(calls), {"answer": answer}, final, {"seed": self.seed})


def _detail(goal: str, tool: str, read: Callable[[_Record], Any]) -> Template:
    """Returns a template that asks for a detail of a task."""

    def template(rng: random.Random) -> Task:
        case = _Case(rng)
        answer = read(case.details[case.task["id"]])
        return case.ask(goal.format(case.where), case.look(case.on_task(tool)), answer)

    return template


def _due_date(rng: random.Random) -> Task:
    case = _Case(rng)
    goal = f"When is the due date of {case.where}? Please provide the answer as YYYY-MM-DD."
    return case.ask(goal, case.look(), case.task["due_date"])


def _of_priority(rng: random.Random) -> Task:
    case = _Case(rng)
    level = case.task["priority"]  # of at least one task
    found = [task["content"] for task in case.tasks if task["priority"] == level]
    goal = (
        f"Which tasks in {case.project['name']} have priority {level}? Please answer with a list."
    )
    return case.ask(goal, case.look(), found)


def _move(rng: random.Random) -> Task | None:
    case, day = _Case(rng), f"2025-0{rng.randrange(1, 10)}-{rng.randrange(10, 29)}"
    case.task["due_date"] = day
    call = case.on_task("update_task", due_date=day)
    return case.change(f"Please move the due date of {case.where} to {day}.", case.look(call))


def _delete(rng: random.Random) -> Task:
    case = _Case(rng)
    case.tasks.remove(case.task)
    calls = case.look(case.on_task("delete_task"))
    return case.change(f"Please delete the task {case.where}.", calls)


def _complete_overdue(rng: random.Random) -> Task | None:
    case = _Case(rng)
    late = [task for task in case.tasks if task["due_date"] < case.today]
    if not late:
        return None
    case.tasks[:] = [task for task in case.tasks if task not in late]
    case.completed = {task["id"] for task in late}
    calls: list[Call] = [("complete_task", {"task_id": task["id"]}) for task in late]
    goal = f"Please complete all tasks in {case.project['name']} whose due date is before today."
    return case.change(goal, (_TODAY, *case.look(*calls)))


def _postpone_most_urgent(rng: random.Random) -> Task | None:
    case, days = _Case(rng), rng.randrange(2, 15)
    top = max(task["priority"] for task in case.tasks)
    urgent = [task for task in case.tasks if task["priority"] == top]
    if len(urgent) > 1:
        return None
    (case.task,) = urgent
    due = datetime.date.fromisoformat(case.task["due_date"]) + datetime.timedelta(days=days)
    case.task["due_date"] = str(due)
    goal = (
        f"Please postpone the task with the highest priority in {case.project['name']} by {days} "
        "days after its due date."
    )
    return case.change(goal, case.look(case.on_task("update_task", due_date=str(due))))


def _favourite(rng: random.Random) -> Task:
    case = _Case(rng)
    case.project["is_favorite"] = True
    call = ("update_project", {"project_id": case.project["id"], "is_favorite": "True"})
    return case.change(f"Please mark {case.project['name']} as a favorite.", (_PROJECTS, call))


@functools.cache
def _tasks() -> TaskSet:
    duration = _detail(
        "How many minutes does {} take? Please answer in the form of a number.",
        "get_task_duration",
        lambda details: int(details["duration"].partition("(")[0]),
    )
    place = _detail(
        "Where does {} take place? Please answer with the place as a string.",
        "get_task_description",
        lambda details: details["description"].partition(": ")[2],
    )
    return draw(
        "todo",
        20,
        train=dict(
            due_date=_due_date,
            of_priority=_of_priority,
            duration=duration,
            move=_move,
            delete=_delete,
            complete_overdue=_complete_overdue,
        ),
        test=dict(place=place, postpone_most_urgent=_postpone_most_urgent, favourite=_favourite),
    )


def make_served_environment() -> ServedEnvironment:
    """Returns the to-do lists as a served environment."""
    return tool_environment(
        "todo",
        TodoWorld,
        _tasks(),
        version="3",
        max_turns=15,
        about="Manage a person's to-do lists: answer a question or make a change.",
        hints="Ids always come from get_projects and get_tasks. Priority 4 is most urgent. After a "
        'change that was asked for, finish with the answer "done".',
        example='get_tasks with Action Input: {"project_id": "2203"}',
    )
