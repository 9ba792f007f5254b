"""Questions about the weather of past and coming days, with the answers of Open-Meteo's API."""

import datetime
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_envs.base.served import ServedEnvironment
from agentgym_envs.tools import climate
from agentgym_envs.tools.places import PLACES, Place
from agentgym_envs.tools.served import tool_environment
from agentgym_envs.tools.tasks import Call, Task, TaskSet, draw, question
from agentgym_envs.tools.world import AskingWorld, read_date

_TOO_LONG = (
    "Error: Sorry, at present, we support a maximum time span of 30 days between start_date and "
    "end_date in a single query. Your input exceeds this range. You can split your current query "
    "into multiple sub-queries that meet our criteria."
)
_LEVELS = ("good", "fair", "moderate", "poor", "very poor")  # twenty points of the index each
_Variables = dict[str, tuple[str, str]]  # unit of each variable, and its field in a day
_TEMP = {"temperature_2m_max": ("°C", "high"), "temperature_2m_min": ("°C", "low")}
_TEMP |= {"temperature_2m_mean": ("°C", "mean")}
_RAIN = {"rain_sum": ("mm", "rain")}
_SNOW = {"snowfall_sum": ("cm", "snow")}
_AIR = {"european_aqi_pm2_5": ("EAQI", "air")}


def _span_tool(variables: _Variables, is_past: bool, text: str) -> Callable[..., Any]:
    """Returns a tool for days before, or after, the current date."""

    def tool(
        self: "WeatherWorld", latitude: float, longitude: float, start_date: str, end_date: str
    ) -> Any:
        for name, date in (("start_date", start_date), ("end_date", end_date)):
            if is_past and read_date(date) >= read_date(self.date):
                return f"Error: {name} should be earlier than current_date"
            if not is_past and read_date(date) <= read_date(self.date):
                return f"Error: {name} should be later than current_date"
        return _days(variables, latitude, longitude, start_date, end_date)

    tool.__doc__ = text
    return tool


def _day_tool(variables: _Variables, text: str) -> Callable[..., Any]:
    def tool(self: "WeatherWorld", latitude: float, longitude: float, current_date: str) -> Any:
        return _days(variables, latitude, longitude, current_date, current_date)

    tool.__doc__ = text
    return tool


class WeatherWorld(AskingWorld):
    """The date and the city of the person who asks."""

    tools = (
        *("get_user_current_date", "get_user_current_location", "get_historical_temp"),
        *("get_historical_rain", "get_historical_snow", "get_snow_forecast", "get_current_snow"),
        *("get_current_temp", "get_latitude_longitude", "get_elevation", "get_temp_forecast"),
        *("get_rain_forecast", "get_current_rain", "get_distance"),
        *("get_historical_air_quality_index", "get_current_air_quality_index"),
        *("get_air_quality_level", "check_valid_actions", "finish"),
    )

    def __init__(self, date: str, city: str):
        self.date = date
        self.city = city

    get_historical_temp = _span_tool(_TEMP, True, "Temperatures of past days, in °C.")
    get_historical_rain = _span_tool(_RAIN, True, "Rainfall of past days, in mm.")
    get_historical_snow = _span_tool(_SNOW, True, "Snowfall of past days, in cm.")
    get_historical_air_quality_index = _span_tool(_AIR, True, "PM2.5 index of past days.")
    get_temp_forecast = _span_tool(_TEMP, False, "Temperatures of coming days.")
    get_rain_forecast = _span_tool(_RAIN, False, "Rainfall of coming days.")
    get_snow_forecast = _span_tool(_SNOW, False, "Snowfall of coming days.")
    get_current_temp = _day_tool(_TEMP, "Temperatures of one day.")
    get_current_rain = _day_tool(_RAIN, "Rainfall of one day.")
    get_current_snow = _day_tool(_SNOW, "Snowfall of one day.")
    get_current_air_quality_index = _day_tool(_AIR, "PM2.5 index of one day.")

    def samples(self) -> dict[str, list[Any]]:
        """Returns arguments with which the tools can be called."""
        return {
            "name": ["Lisbon", "Denver", "Birmingham"],
            **{name: [38.72, 39.74] for name in ("latitude", "latitude1", "latitude2")},
            **{name: [-9.13, -104.98] for name in ("longitude", "longitude1", "longitude2")},
            "start_date": ["2023-03-01", "2023-12-20"],
            "end_date": ["2023-03-08", "2023-12-24"],
            "current_date": ["2023-06-15"],
            "air_quality_index": [30],
            "answer": ["unknown"],
        }

    def get_user_current_date(self) -> str:
        """The date of today for the person who asks."""
        return self.date

    def get_user_current_location(self) -> str:
        """The city of the person who asks."""
        return self.city

    def get_latitude_longitude(self, name: str) -> Any:
        """Up to three places of that name with their coordinates."""
        found = [p.found() for p in PLACES if p.name.lower() == name.strip().lower()]
        return {"results": found[:3]} if found else {}

    def get_elevation(self, latitude: float, longitude: float) -> Any:
        """Height above sea level, in metres."""
        height = climate.elevation(latitude, longitude)
        return _off_the_globe(latitude, longitude) or {"elevation": [height]}

    def get_distance(
        self, latitude1: float, longitude1: float, latitude2: float, longitude2: float
    ) -> Any:
        """Kilometres between two points."""
        wrong = _off_the_globe(latitude1, longitude1) or _off_the_globe(latitude2, longitude2)
        return wrong or climate.distance_km(latitude1, longitude1, latitude2, longitude2)

    def get_air_quality_level(self, air_quality_index: float) -> str:
        """The level of an index, from good to extremely poor."""
        return _level(air_quality_index)


def _level(index: float) -> str:
    levels = (name for i, name in enumerate(_LEVELS, 1) if index <= 20 * i)
    return next(levels, "extremely poor")


def _off_the_globe(latitude: float, longitude: float) -> dict[str, Any] | None:
    for name, value, top in (("Latitude", latitude, 90), ("Longitude", longitude, 180)):
        if abs(value) > top:
            reason = f"{name} must be in range of -{top} to {top}°. Given: {value}."
            return {"error": True, "reason": reason}
    return None


def _days(variables: _Variables, y: float, x: float, start: str, end: str) -> Any:
    first, last = read_date(start), read_date(end)
    if (last - first).days > 30:
        return _TOO_LONG
    if last < first:
        return {"error": True, "reason": "End-date must be larger or equals than start-date"}
    wrong = _off_the_globe(y, x)
    if wrong is not None:
        return wrong
    ordinals = range(first.toordinal(), last.toordinal() + 1)
    dates = [datetime.date.fromordinal(number) for number in ordinals]
    days = [climate.weather(y, x, date) for date in dates]
    suffix = "T12:00" if variables is _AIR else ""
    return {
        "latitude": y,
        "longitude": x,
        "daily_units": {"time": "iso8601", **{name: unit for name, (unit, _) in variables.items()}},
        "daily": {
            "time": [f"{date}{suffix}" for date in dates],
            **{name: [getattr(d, field) for d in days] for name, (_, field) in variables.items()},
        },
    }


_TODAY: Call = ("get_user_current_date", {})
_HERE: Call = ("get_user_current_location", {})
_HOMES = tuple(place for place in PLACES if place.asked_name == place.name)


class _Case:
    """A date and a person in a city, about whom a question is asked."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self._today = datetime.date(2023, 2, 1) + datetime.timedelta(days=rng.randrange(320))
        self.home = rng.choice(_HOMES)

    def days(self, first: int, last: int) -> list[datetime.date]:
        """Returns the days from `first` to `last`, counted from today."""
        return [self._today + datetime.timedelta(days=i) for i in range(first, last + 1)]

    def ask(self, goal: str, calls: Sequence[Call], answer: Any) -> Task:
        return question(goal, calls, answer, date=str(self._today), city=self.home.name)


def _find(place: Place) -> Call:
    return ("get_latitude_longitude", {"name": place.name})


def _span(tool: str, place: Place, days: Sequence[datetime.date]) -> Call:
    point = {"latitude": place.latitude, "longitude": place.longitude}
    return (tool, {**point, "start_date": str(days[0]), "end_date": str(days[-1])})


def _of(field: str, place: Place, days: Sequence[datetime.date]) -> list[float]:
    return [getattr(climate.weather(place.latitude, place.longitude, d), field) for d in days]


def _temperature_of_a_past_day(rng: random.Random) -> Task:
    case, place, ago = _Case(rng), rng.choice(PLACES), rng.randrange(2, 30)
    word, field = rng.choice([("highest", "high"), ("lowest", "low"), ("average", "mean")])
    day = case.days(-ago, -ago)
    return case.ask(
        f"What was the {word} temperature in {place.asked_name} {ago} days ago? Please provide the "
        "answer in Celsius as a number.",
        [_TODAY, _find(place), _span("get_historical_temp", place, day)],
        _of(field, place, day)[0],
    )


def _total_rain(rng: random.Random) -> Task:
    case, place, n = _Case(rng), rng.choice(PLACES), rng.randrange(3, 15)
    days = case.days(-n, -1)
    return case.ask(
        f"How much rain fell in {place.asked_name} over the past {n} days, today not included? "
        "Please provide the answer in millimetres as a number with one decimal.",
        [_TODAY, _find(place), _span("get_historical_rain", place, days)],
        round(sum(_of("rain", place, days)), 1),
    )


def _rainy_days(rng: random.Random) -> Task:
    case, place, n = _Case(rng), rng.choice(PLACES), rng.randrange(4, 15)
    days = case.days(1, n)
    return case.ask(
        f"On how many of the next {n} days will it rain in {place.asked_name}, not counting today? "
        "Please provide the answer as a number.",
        [_TODAY, _find(place), _span("get_rain_forecast", place, days)],
        sum(rain > 0 for rain in _of("rain", place, days)),
    )


def _hottest_day(rng: random.Random) -> Task | None:
    case, place, n = _Case(rng), rng.choice(PLACES), rng.randrange(3, 10)
    days = case.days(1, n)
    highs = _of("high", place, days)
    if highs.count(max(highs)) > 1:
        return None
    return case.ask(
        f"Which of the next {n} days will have the highest maximum temperature in "
        f"{place.asked_name}? Please provide the answer in the form of a date 'YYYY-MM-DD'.",
        [_TODAY, _find(place), _span("get_temp_forecast", place, days)],
        str(days[highs.index(max(highs))]),
    )


def _distance_from_here(rng: random.Random) -> Task | None:
    case, there = _Case(rng), rng.choice(_HOMES)
    if there is case.home:
        return None
    points = (case.home.latitude, case.home.longitude, there.latitude, there.longitude)
    names = ("latitude1", "longitude1", "latitude2", "longitude2")
    return case.ask(
        f"How far is {there.name} from my current location? Please provide the distance in "
        "kilometres as a number, rounded to a whole number.",
        [
            *(_HERE, _find(case.home), _find(there)),
            ("get_distance", dict(zip(names, points, strict=True))),
        ],
        round(climate.distance_km(*points)),
    )


def _air_level_yesterday(rng: random.Random) -> Task:
    case = _Case(rng)
    day = case.days(-1, -1)
    (index,) = _of("air", case.home, day)
    return case.ask(
        "What was the level of the air quality here yesterday? Please answer with the level.",
        [
            *(_TODAY, _HERE, _find(case.home)),
            _span("get_historical_air_quality_index", case.home, day),
            ("get_air_quality_level", {"air_quality_index": index}),
        ],
        _level(index),
    )


def _warmer_city_tomorrow(rng: random.Random) -> Task | None:
    case, pair = _Case(rng), rng.sample(_HOMES, 2)
    day = case.days(1, 1)
    means = [_of("mean", place, day)[0] for place in pair]
    if means[0] == means[1]:
        return None
    return case.ask(
        f"Which city will have the higher average temperature tomorrow, {pair[0].name} or "
        f"{pair[1].name}? Please answer with the name of the city.",
        [_TODAY, *(c for p in pair for c in (_find(p), _span("get_temp_forecast", p, day)))],
        pair[means.index(max(means))].name,
    )


def _snow_here(rng: random.Random) -> Task | None:
    case, n = _Case(rng), rng.randrange(4, 20)
    days = case.days(-n, -1)
    snow = round(sum(_of("snow", case.home, days)), 1)
    if snow == 0:
        return None
    return case.ask(
        f"How much snow fell here over the last {n} days, today not included? Please provide the "
        "answer in centimetres as a number with one decimal.",
        [_TODAY, _HERE, _find(case.home), _span("get_historical_snow", case.home, days)],
        snow,
    )


@functools.cache
def _tasks() -> TaskSet:
    return draw(
        "weather",
        25,
        train=dict(
            temperature_of_a_past_day=_temperature_of_a_past_day,
            total_rain=_total_rain,
            rainy_days=_rainy_days,
            hottest_day=_hottest_day,
            distance_from_here=_distance_from_here,
        ),
        test=dict(
            air_level_yesterday=_air_level_yesterday,
            warmer_city_tomorrow=_warmer_city_tomorrow,
            snow_here=_snow_here,
        ),
    )


def make_served_environment() -> ServedEnvironment:
    """Returns the weather tools as a served environment."""
    return tool_environment(
        "weather",
        WeatherWorld,
        _tasks(),
        max_turns=10,
        about="Answer a question about the weather. Dates are written YYYY-MM-DD.",
        hints="Coordinates always come from get_latitude_longitude, never from your memory. One "
        "call covers at most 30 days.",
        example='get_latitude_longitude with Action Input: {"name": "Lisbon"}',
    )
