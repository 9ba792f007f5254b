"""Weather by place and date, drawn from a simple climate. No weather was ever like this."""

import dataclasses
import datetime
import functools
import math
import random

from agentgym_envs.tools.places import PLACES

_EARTH_KM = 6371.0088  # mean radius
_NEAR_KM = 50.0  # a point this near to a place has its height
_WET_DAYS = 0.35  # share of days with rain or snow


@dataclasses.dataclass(frozen=True)
class Day:
    """Weather of a day: temperatures in °C, rain in mm, snow in cm, European index of PM2.5."""

    high: float
    low: float
    mean: float
    rain: float
    snow: float
    air: int


def distance_km(latitude1: float, longitude1: float, latitude2: float, longitude2: float) -> float:
    """Returns the great-circle distance, by the haversine formula on a sphere."""
    y1, x1, y2, x2 = map(math.radians, (latitude1, longitude1, latitude2, longitude2))
    half = math.sin((y2 - y1) / 2) ** 2 + math.cos(y1) * math.cos(y2) * math.sin((x2 - x1) / 2) ** 2
    return 2 * _EARTH_KM * math.asin(math.sqrt(min(1.0, half)))


@functools.lru_cache(maxsize=4096)
def elevation(latitude: float, longitude: float) -> float:
    """Returns the height of the nearest place in metres; far from all places, 0."""
    km, height = min(
        (distance_km(latitude, longitude, p.latitude, p.longitude), p.elevation) for p in PLACES
    )
    return height if km <= _NEAR_KM else 0.0


@functools.lru_cache(maxsize=16384)
def weather(latitude: float, longitude: float, day: datetime.date) -> Day:
    """Returns the weather of a day; chance is the same within a tenth of a degree."""
    rng = random.Random(f"{latitude:.1f}/{longitude:.1f}/{day.toordinal()}")
    # It is coldest in the middle of January in the north, and of July in the south; the year is a
    # triangle, because sines are rounded differently on different machines.
    year = ((day.timetuple().tm_yday - 17 + (0 if latitude >= 0 else 182)) % 365) / 365
    season = 1 - 4 * abs(year - 0.5)
    mean = 30 - 0.45 * abs(latitude) - 0.006 * elevation(latitude, longitude)
    mean += 0.3 * abs(latitude) * season + rng.uniform(-5, 5)
    high, low = mean + rng.uniform(2, 7), mean - rng.uniform(2, 7)
    wet = round(20 * rng.random() ** 2, 1) if rng.random() < _WET_DAYS else 0.0
    is_snow = mean < 1
    return Day(
        high=round(high, 1) + 0.0,  # the sum of -0.0 and 0.0 is 0.0
        low=round(low, 1) + 0.0,
        mean=round(mean, 1) + 0.0,
        rain=0.0 if is_snow else wet,
        snow=round(0.7 * wet, 1) if is_snow else 0.0,
        air=rng.randrange(4, 100),
    )
