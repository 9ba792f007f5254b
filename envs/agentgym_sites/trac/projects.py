"""People and projects of the invented company that uses Trac."""

import dataclasses

AGENT = "robin.hale"  # person who is logged in
PASSWORD = "larkspur-2024"

_NAMES = (
    "Robin Hale, Avery Stone, Mina Cho, Rafael Ortiz, Noor Aziz, Tess Miller, Jonas Berg, Priya "
    "Nair, Lucia Ferri, Oskar Lind, Hana Sato, Emeka Obi, Greta Vogel, Samir Haddad, Ines "
    "Duarte, Tomas Novak, Wren Calder, Yuki Mori, Freya Dahl, Mateo Rios, Anouk Petit, Dmitri "
    "Volkov, Leila Farsi, Callum Reid"
)
# login -> first and last name
PEOPLE: dict[str, tuple[str, str]] = {
    f"{first.lower()}.{last.lower()}": (first, last)
    for first, last in map(str.split, _NAMES.split(", "))
}


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of a project.

    Attributes:
      status: "open", "locked" or "closed".
      due: Due date in ISO format.
    """

    name: str
    status: str
    due: str
    description: str


@dataclasses.dataclass(frozen=True)
class Project:
    """A project and the facts in its wiki.

    Attributes:
      identifier: Identifier in addresses.
      components: Components of the project; tickets are about one of them.
      categories: Categories of tickets; component i belongs to category i // 2.
      versions: Versions in the order of their dates.
      roles: Login -> role.
      port: Port of the service, given in the wiki.
      retention_days: Number of days for which logs are kept, given in the wiki.
      release_day: Weekday of releases, given in the wiki.
      channel: Chat channel for help, given in the wiki.
      on_call: Person who is on call at night, given in the wiki.
    """

    identifier: str
    name: str
    description: str
    components: tuple[str, ...]
    categories: tuple[str, str, str, str]
    versions: tuple[Version, ...]
    roles: dict[str, str]
    port: int
    retention_days: int
    release_day: str
    channel: str
    on_call: str


def _roles(managers: str, developers: str, reporters: str) -> dict[str, str]:
    """Returns login -> role from three lists of first names."""
    by_first_name = {first: login for login, (first, _) in PEOPLE.items()}
    named = {"Manager": managers, "Developer": developers, "Reporter": reporters}
    return {by_first_name[name]: role for role, names in named.items() for name in names.split()}


def _parts(names: str) -> tuple[str, ...]:
    return tuple(names.split(", "))


PROJECTS: tuple[Project, ...] = (
    Project(
        "tidewatch",
        "Tidewatch",
        "Coastal flood forecasts: reads tide gauges, runs the surge model and warns the harbours.",
        _parts(
            "Gauge importer, Station list, Surge model, Forecast chart, Alert mailer, Harbour map, Archive job, Public API"
        ),
        ("Ingest", "Forecast", "Warnings", "Platform"),
        (
            Version("2.3", "closed", "2023-06-30", "Gauges of the northern coast"),
            Version("2.4", "closed", "2023-11-15", "Faster surge model"),
            Version("2.5", "open", "2024-03-28", "Warnings by text message"),
            Version("3.0", "open", "2024-07-12", "New harbour map"),
        ),
        _roles("Robin Mina", "Avery Rafael Noor Tess Jonas", "Priya Lucia Oskar"),
        8431,
        45,
        "Tuesday",
        "#tidewatch-help",
        "mina.cho",
    ),
    Project(
        "orchard-ledger",
        "Orchard Ledger",
        "Bookkeeping for fruit growers' cooperatives: deliveries, grades, advances and payouts.",
        _parts(
            "Delivery form, Weighbridge import, Grade table, Payout run, Member register, Tax report, Season closing, Bank export"
        ),
        ("Deliveries", "Payments", "Members", "Reports"),
        (
            Version("1.8", "closed", "2023-08-31", "Weighbridges of the valley"),
            Version("1.9", "open", "2024-03-15", "Payouts in two parts"),
            Version("2.0", "open", "2024-08-30", "Several cooperatives in one ledger"),
        ),
        _roles("Robin Hana", "Emeka Greta Samir Ines", "Tomas Wren"),
        8502,
        365,
        "Thursday",
        "#ledger",
        "emeka.obi",
    ),
    Project(
        "railmap",
        "Railmap",
        "Timetables and route planning for the regional railways, with platform changes as they happen.",
        _parts(
            "Route planner, Timetable parser, Platform board, Fare calculator, Delay feed, Stop search, Ticket printer, Accessibility filter"
        ),
        ("Planning", "Timetables", "Stations", "Tickets"),
        (
            Version("5.1", "closed", "2023-12-10", "Winter timetable"),
            Version("5.2", "open", "2024-04-19", "Step-free routes"),
            Version("5.3", "open", "2024-06-09", "Summer timetable"),
        ),
        _roles("Yuki Jonas", "Robin Freya Mateo Anouk Tess", "Dmitri Leila Callum"),
        9120,
        30,
        "Monday",
        "#railmap-dev",
        "freya.dahl",
    ),
    Project(
        "beacon-api",
        "Beacon API",
        "The gateway in front of all services: keys, quotas, routing and audit.",
        _parts(
            "Key rotation, Quota counter, Audit log, Route table, Retry policy, Health page, Client library, Token cache"
        ),
        ("Security", "Routing", "Operations", "Clients"),
        (
            Version("0.9", "closed", "2023-05-22", "First partners"),
            Version("1.0", "closed", "2023-10-02", "Stable routes"),
            Version("1.1", "open", "2024-05-06", "Quotas by key"),
        ),
        _roles("Dmitri Leila", "Noor Oskar Priya Samir Callum", "Avery Emeka"),
        7070,
        90,
        "Wednesday",
        "#beacon",
        "leila.farsi",
    ),
    Project(
        "kiln",
        "Kiln",
        "The build server: checks out, compiles, tests and publishes what the other teams write.",
        _parts(
            "Build queue, Artifact store, Worker agent, Log viewer, Secret vault, Pipeline editor, Test report, Cache server"
        ),
        ("Scheduling", "Storage", "Interface", "Reports"),
        (
            Version("4.0", "closed", "2023-07-14", "Workers on two continents"),
            Version("4.1", "closed", "2024-01-19", "Pipelines as files"),
            Version("4.2", "open", "2024-04-05", "Shared caches"),
            Version("5.0", "open", "2024-09-27", "Builds without a network"),
        ),
        _roles("Robin Greta", "Tomas Wren Rafael Hana Mateo", "Lucia Yuki Freya"),
        6606,
        21,
        "Friday",
        "#kiln-fire",
        "tomas.novak",
    ),
    Project(
        "papertrail",
        "Papertrail",
        "The document archive of the town halls: scanning, text recognition, deadlines and deletion.",
        _parts(
            "Scan station, Text recognition, Deadline calendar, Deletion run, Full-text search, Signature check, Mail intake, Folder tree"
        ),
        ("Intake", "Retention", "Search", "Trust"),
        (
            Version("3.6", "closed", "2023-09-29", "Signatures of the county"),
            Version("3.7", "open", "2024-03-08", "Search in old scans"),
            Version("3.8", "open", "2024-06-28", "Deletion by schedule"),
        ),
        _roles("Robin Ines", "Lucia Anouk Callum Emeka", "Mina Hana Dmitri"),
        8844,
        3650,
        "Wednesday",
        "#papertrail",
        "anouk.petit",
    ),
    Project(
        "skylark-mobile",
        "Skylark Mobile",
        "The hiking companion for phones: offline maps, tracks, huts and weather.",
        _parts(
            "Offline map, Track recorder, Hut finder, Weather panel, Photo pins, Battery saver, Compass view, Trail rating"
        ),
        ("Maps", "Outdoors", "Media", "Device"),
        (
            Version("1.2", "closed", "2023-10-20", "Huts of the high route"),
            Version("1.3", "open", "2024-04-26", "Tracks without a signal"),
            Version("1.4", "open", "2024-07-31", "Trail ratings"),
        ),
        _roles("Freya Mateo", "Yuki Wren Tomas Leila", "Greta Noor Jonas"),
        5210,
        14,
        "Thursday",
        "#skylark",
        "mateo.rios",
    ),
    Project(
        "harvest-ui",
        "Harvest UI",
        "The shared component library: forms, tables, charts and the colours of all our pages.",
        _parts(
            "Date picker, Data table, Colour theme, Modal dialog, Form validator, Icon set, Chart legend, File upload"
        ),
        ("Forms", "Tables", "Style", "Overlays"),
        (
            Version("6.0", "closed", "2023-11-30", "Themes"),
            Version("6.1", "open", "2024-03-22", "Keyboard everywhere"),
            Version("7.0", "open", "2024-10-11", "Without the old grid"),
        ),
        _roles("Robin Priya", "Hana Yuki Avery Samir", "Rafael Tess Anouk Wren"),
        3300,
        7,
        "Monday",
        "#harvest-ui",
        "avery.stone",
    ),
    Project(
        "nightingale",
        "Nightingale",
        "Appointments for small clinics: calendars, reminders, referrals and waiting lists.",
        _parts(
            "Calendar sync, Reminder service, Referral letter, Waiting list, Room planner, Patient login, Holiday table, Invoice draft"
        ),
        ("Calendar", "Messages", "Patients", "Billing"),
        (
            Version("2.0", "closed", "2023-04-28", "Several clinics"),
            Version("2.1", "closed", "2023-12-15", "Waiting lists"),
            Version("2.2", "open", "2024-05-17", "Reminders in three languages"),
        ),
        _roles("Samir Avery", "Robin Mina Dmitri Ines Lucia", "Oskar Emeka Freya"),
        9955,
        180,
        "Tuesday",
        "#nightingale-oncall",
        "ines.duarte",
    ),
)
