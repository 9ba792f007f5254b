"""Places with their coordinates and heights, for several tool environments."""

import dataclasses
from typing import Any

# name, ISO code of the country, latitude and longitude in degrees, height in metres
_ROWS = """
Amsterdam,NL,52.37,4.89,2; Athens,GR,37.98,23.73,70; Auckland,NZ,-36.85,174.76,26
Bangkok,TH,13.75,100.50,4; Beijing,CN,39.91,116.40,49; Berlin,DE,52.52,13.41,74
Birmingham,GB,52.48,-1.90,149; Birmingham,US,33.52,-86.80,196; Bogota,CO,4.61,-74.08,2582
Brisbane,AU,-27.47,153.03,27; Cairo,EG,30.06,31.25,23; Cape Town,ZA,-33.93,18.42,25
Chicago,US,41.85,-87.65,179; Denver,US,39.74,-104.98,1609; Dublin,IE,53.33,-6.25,8
Harare,ZW,-17.83,31.05,1490; Helsinki,FI,60.17,24.94,26; Istanbul,TR,41.01,28.95,39
Kathmandu,NP,27.70,85.32,1317; Kyoto,JP,35.02,135.75,50; La Paz,BO,-16.50,-68.15,3640
Lagos,NG,6.45,3.39,41; Lima,PE,-12.04,-77.03,154; Lisbon,PT,38.72,-9.13,45
Madrid,ES,40.42,-3.70,665; Melbourne,AU,-37.81,144.96,25; Montreal,CA,45.51,-73.59,216
Mumbai,IN,19.07,72.88,8; Nairobi,KE,-1.28,36.82,1684; Oslo,NO,59.91,10.75,26
Paris,FR,48.85,2.35,42; Paris,US,33.66,-95.56,183; Portland,US,45.52,-122.68,15
Prague,CZ,50.09,14.42,202; Quito,EC,-0.23,-78.52,2850; Reykjavik,IS,64.14,-21.90,37
Rome,IT,41.89,12.51,20; San Jose,CR,9.93,-84.08,1172; San Jose,US,37.34,-121.89,23
Santiago,CL,-33.46,-70.65,556; Seoul,KR,37.57,126.98,38; Singapore,SG,1.29,103.85,23
Sofia,BG,42.70,23.32,562; Stockholm,SE,59.33,18.07,17; Toronto,CA,43.70,-79.42,175
Ulaanbaatar,MN,47.91,106.88,1285; Valencia,ES,39.47,-0.38,24; Valencia,VE,10.16,-68.00,480
Vancouver,CA,49.25,-123.12,70; Vienna,AT,48.21,16.37,171; Warsaw,PL,52.23,21.01,113
Wellington,NZ,-41.29,174.78,31; Windhoek,NA,-22.56,17.08,1655; Zurich,CH,47.37,8.55,429
"""


@dataclasses.dataclass(frozen=True)
class Place:
    """A city; `latitude` and `longitude` in degrees, `elevation` in metres."""

    name: str
    country: str
    latitude: float
    longitude: float
    elevation: float

    def found(self) -> dict[str, Any]:
        """Returns the place as a result of a search."""
        point = {"latitude": self.latitude, "longitude": self.longitude}
        return {"name": self.name, **point, "country_code": self.country}

    @property
    def asked_name(self) -> str:
        """Name in a question; the country is added if several places have this name."""
        is_unique = sum(place.name == self.name for place in PLACES) == 1
        return self.name if is_unique else f"{self.name} ({self.country})"


def _read() -> tuple[Place, ...]:
    rows = [row.strip().split(",") for row in _ROWS.replace("\n", ";").split(";") if row.strip()]
    return tuple(Place(n, c, float(y), float(x), float(h)) for n, c, y, x, h in rows)


PLACES = _read()
