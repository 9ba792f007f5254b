"""Calls in the texts of agents: how they are read, and the answers to wrong ones."""

import pytest

from agentgym_envs.tools.actions import find_call, read_call
from tests.envs.tools.tool_play import CALLED, HOSTILE, call, start

WRONG_INPUT = (
    "ERROR | Exception(Parameters in action input are not valid, please change your action input.)"
)


@pytest.mark.filterwarnings("error")  # Python warns about some escapes
@pytest.mark.parametrize(
    ("text", "tool", "given"),
    [
        ("Action: f with Action Input: {}", "f", {}),
        (
            "Thought: t\n\n  Action:  f  with   Action Input:{'a': [1, -2.5]} \n",
            "f",
            {"a": [1, -2.5]},
        ),
        ("Action: f\nwith Action Input:\n\n{'a': 'b'}", "f", {"a": "b"}),
        (
            "say Action: f with Action Input: {'a': 'x with Action Input: y'}",
            "f",
            {"a": "x with Action Input: y"},
        ),
        ("Action: f with Action Input: {}\nAction: g with Action Input: {'a': 1}", "g", {"a": 1}),
        (r"Action: f with Action Input: {'a': '\d+\n\\'}", "f", {"a": "\\d+\n\\"}),
        (r"Action: f with Action Input: {'a': '\ud800'}", "f", {"a": "\ufffd"}),
        ("Action: f with Action Input: ('a', 2)", "f", ["a", 2]),
    ],
)
def test_a_call_is_read_as_by_agentgyms_server(text, tool, given):
    assert read_call(find_call(text)) == (tool, given)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "Action: f",
        "Action: f with Action Input: {}\nmore",
        "Action: f with Action Input: {}\n\n",
        "Action: f with action input: {}",
    ],
)
def test_other_texts_are_no_calls(text):
    assert find_call(text) is None
    assert start("weather").step(text).observation.startswith("Format error, please response in")


@pytest.mark.parametrize("given", HOSTILE)
@CALLED
def test_an_input_that_is_no_plain_literal_is_refused_and_never_evaluated(name, given):
    environment = start(name)
    if name == "sheet":
        call(environment, "open_sheet", name=environment.state()["sheet"])
    tool = next(t for t in environment.episode.world.tools if t not in ("finish", "open_sheet"))
    text = environment.step(f"Action: {tool} with Action Input: {given}").observation
    assert text == f"Observation: {WRONG_INPUT}\nGive me one action."


@pytest.mark.parametrize(
    ("name", "tool", "given", "expected"),
    [
        ("weather", "nope", {}, "ERROR | Invalid action: nope."),
        ("weather", "samples", {}, "ERROR | Invalid action: samples."),
        ("weather", "get_elevation", {"latitude": 1}, "ERROR | KeyError('longitude')"),
        (
            "weather",
            "get_elevation",
            {"latitude": 1, "longitude": "nan"},
            "ERROR | TypeError(argument 'longitude' must be float, not str)",
        ),
        (
            "weather",
            "get_latitude_longitude",
            {"name": ["Rome"]},
            "ERROR | TypeError(argument 'name' must be str, not list)",
        ),
        (
            "weather",
            "get_current_rain",
            {"latitude": 1, "longitude": "2", "current_date": "June 1"},
            "ERROR | ValueError(time data 'June 1' does not match format '%Y-%m-%d')",
        ),
        (
            "weather",
            "get_current_rain",
            {"latitude": 91, "longitude": 2, "current_date": "2023-06-01"},
            "{'error': True, 'reason': 'Latitude must be in range of -90 to 90°. Given: 91.0.'}",
        ),
        (
            "movie",
            "get_search_movie",
            {"movie_name": "zz"},
            "ERROR | IndexError(list index out of range)",
        ),
        ("movie", "get_search_person", {"person_name": ""}, "[]"),
        ("movie", "finish", {"answer": [1, "a"]}, "ERROR | TypeError("),
        ("academia", "authorNodeCheck", {"node": "x"}, "Please load the AuthorNet first."),
        ("todo", "get_tasks", {"project_id": 1}, "Project 1 is not exists."),
        ("todo", "update_task", {"task_id": 1, "due_date": "soon"}, "ERROR | ValueError(time data"),
        ("sheet", "get_all_values", {}, "Please open a sheet before operating it"),
        ("sheet", "open_sheet", {"name": "x"}, "WorksheetNotFound('x')"),
    ],
)
def test_a_wrong_call_is_answered_with_agentgyms_text(name, tool, given, expected):
    environment = start(name)
    found = call(environment, tool, **given)
    assert found == expected or (expected.endswith(("(", "data")) and found.startswith(expected))
    assert not environment.episode.done


def test_an_input_that_is_no_dictionary_fails_as_in_python():
    environment = start("movie")
    for given, problem in (("5", "'int' object is not subscriptable"), ("[]", "list indices must")):
        text = environment.step(f"Action: get_movie_cast with Action Input: {given}").observation
        assert text.startswith(f"Observation: ERROR | TypeError({problem}")


def test_past_and_coming_days_have_different_tools():
    environment = start("weather")
    today = call(environment, "get_user_current_date")
    span = dict(latitude=38.72, longitude=-9.13, start_date=today, end_date=today)
    past = call(environment, "get_historical_temp", **span)
    coming = call(environment, "get_temp_forecast", **span)
    assert past == "Error: start_date should be earlier than current_date"
    assert coming == "Error: start_date should be later than current_date"
    long = {**span, "start_date": "2020-01-01", "end_date": "2020-03-01"}
    assert "maximum time span of 30 days" in call(environment, "get_historical_rain", **long)
