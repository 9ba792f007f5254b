"""Manual corrections: names, changed values and disputed facts.

The comments of most tables name the source whose values are corrected. Questions never ask for a
fact that is disputed, has several right answers, or differs between two sources. Passages still
repeat the facts as their source states them.
"""

from collections.abc import Mapping

# GeoNames: states that no longer exist.
NO_COUNTRIES = frozenset({"AN", "CS"})

# GeoNames: names of countries as our passages write them, without commas and leading articles.
COUNTRY_NAMES: Mapping[str, str] = {
    "AX": "Åland",
    "BQ": "Caribbean Netherlands",
    "CC": "Cocos (Keeling) Islands",
    "CW": "Curaçao",
    "FM": "Federated States of Micronesia",
    "MO": "Macau",
    "NL": "Netherlands",
    "PN": "Pitcairn Islands",
    "PS": "Palestine",
    "RE": "Réunion",
    "BL": "Saint Barthélemy",
    "TL": "Timor-Leste",
    "VA": "Vatican City",
}

# Factbook: other names of the former rulers of independent countries.
FORMER_RULERS: Mapping[str, tuple[str, ...]] = {
    "UK": ("United Kingdom", "Great Britain", "Britain", "British Empire"),
    "US": ("United States", "United States of America", "USA"),
    "Soviet Union": ("USSR", "Russia"),
    "Yugoslavia": ("SFR Yugoslavia",),
    "Netherlands": ("Holland",),
    "Ottoman Empire": ("Ottoman Turkey", "Turkey"),
}

# GeoNames: corrections of values that are out of date or lack an accent.
COUNTRY_VALUES: Mapping[str, Mapping[str, str]] = {
    "BR": {"capital": "Brasília"},
    "CO": {"capital": "Bogotá"},
    "CR": {"capital": "San José"},
    "CM": {"capital": "Yaoundé"},
    "KZ": {"capital": "Astana"},
    "MV": {"capital": "Malé"},
    "PY": {"capital": "Asunción"},
    "TG": {"capital": "Lomé"},
    "US": {"capital": "Washington, D.C."},
}

# Countries whose names take "the" within a sentence.
WITH_ARTICLE = frozenset(
    {
        "AE", "AX", "BQ", "BS", "CC", "CD", "CF", "CG", "CK", "DO", "FK", "FM", "FO", "GB", "GM",
        "IM", "KM", "KY", "MH", "MP", "MV", "NL", "PH", "PN", "SB", "SC", "TC", "UM", "US", "VG",
        "VI",
    }
)  # fmt: skip


def in_sentence(iso2: str, name: str) -> str:
    """Returns the name of a country as written within a sentence: `the Netherlands`, `Norway`."""
    return f"the {name}" if iso2 in WITH_ARTICLE else name


# Additional names of a country that are accepted as answers.
COUNTRY_ALIASES: Mapping[str, tuple[str, ...]] = {
    "AE": ("UAE",),
    "BA": ("Bosnia",),
    "CD": ("Democratic Republic of Congo", "DR Congo", "DRC", "Congo-Kinshasa"),
    "CG": ("Congo", "Republic of Congo", "Congo-Brazzaville"),
    "CI": ("Côte d'Ivoire", "Cote d'Ivoire"),
    "CV": ("Cape Verde",),
    "CZ": ("Czech Republic",),
    "FM": ("Micronesia",),
    "GB": ("UK", "Great Britain", "Britain"),
    "KP": ("Democratic People's Republic of Korea", "DPRK"),
    "KR": ("Republic of Korea",),
    "MK": ("Macedonia",),
    "MM": ("Burma",),
    "NL": ("Holland",),
    "SZ": ("Swaziland",),
    "TL": ("East Timor",),
    "TR": ("Türkiye", "Turkiye"),
    "US": ("USA", "United States of America", "America", "U.S."),
    "VA": ("Holy See", "Vatican"),
}

# Countries whose recognition or borders are disputed. No question is about them, and no hop leads
# to them.
CONTESTED_COUNTRIES = frozenset({"EH", "IL", "PS", "TW", "XK"})
NO_STATES = CONTESTED_COUNTRIES | {"AQ"}

# Time zones and names of places that are disputed, or that a country other than the one in GeoNames
# controls.
CONTESTED_ZONES = frozenset({"Europe/Simferopol", "Asia/Gaza", "Asia/Hebron", "Africa/El_Aaiun"})
CONTESTED_PLACES = frozenset(
    {
        "Alchevsk", "Altchevsk", "Bakhmut", "Batken", "Berdyansk", "Bender", "Bendery", "Donetsk",
        "Enerhodar", "Famagusta", "Gagra", "Gilgit", "Girne", "Horlivka", "Jammu", "Khrustalnyi",
        "Kramatorsk", "Kyrenia", "Luhansk", "Lysychansk", "Makiyivka", "Mariupol", "Melitopol",
        "Mirpur", "Muzaffarabad", "Rîbniţa", "Rubizhne", "Sievierodonetsk", "Skardu", "Srinagar",
        "Stakhanov", "Sukhumi", "Tiraspol", "Tighina", "Tokmak", "Tskhinvali", "Xankandi",
        "Yenakiyeve", "Itanagar",
    }
)  # fmt: skip

# Words in names of divisions that only describe a position in the country. Other countries have
# divisions with the same names in other languages.
GENERAL_NAMES = frozenset(
    {
        "borealis", "capital", "central", "centre", "centro", "east", "eastern", "est", "este",
        "leste", "nord", "norte", "north", "northern", "northwest", "northeast", "nordest", "nordeste",
        "nordwest", "occidental", "oeste", "oriental", "ouest", "south", "southeast", "southern",
        "southwest", "sud", "sudest", "sudouest", "sul", "sur", "west", "western", "litoral",
        "littoral", "union", "metropolitan",
    }
)  # fmt: skip

# Countries that have several capitals, or whose capital is disputed, was moved or is named
# differently by the sources. No question asks for their capital.
NO_CAPITAL = frozenset(
    {"BI", "BJ", "BO", "CI", "GQ", "ID", "KI", "LK", "MM", "NR", "PW", "SZ", "ZA"}
)
CAPITAL_ALIASES: Mapping[str, tuple[str, ...]] = {
    "AG": ("Saint John's",),
    "BN": ("Bandar Seri Begawan",),
    "FM": ("Palikir",),
    "GD": ("Saint George's",),
    "IN": ("Delhi",),
    "KZ": ("Nur-Sultan",),
    "TD": ("Ndjamena",),
    "TO": ("Nukualofa",),
    "UA": ("Kiev",),
    "US": ("Washington", "Washington DC", "Washington D.C."),
    "VU": ("Port-Vila",),
    "YE": ("Sana'a",),
}

# Countries whose currency was replaced recently, or that have a second currency.
NO_CURRENCY = frozenset({"BG", "CU", "HR", "LI", "LS", "NA", "PA", "SL", "TV", "VE", "ZW", "BT"})

# Factbook: countries whose aircraft prefix is out of date, or that have several prefixes.
NO_PREFIX = frozenset({"AR", "BA", "BR", "FJ", "ML", "MX", "RS", "RU"})

# Factbook: countries with a royal hymn, a replaced anthem, or an anthem whose title is not a name.
NO_ANTHEM = frozenset(
    {"AF", "CH", "DK", "LU", "MR", "NO", "SE", "SY", "TH", "XK", "ZA", "ZW", "TG", "BI", "IE"}
)

ANTHEM_ALIASES: Mapping[str, tuple[str, ...]] = {
    "AZ": ("Azərbaycan marşı",),
    "BD": ("Amar Sonar Bangla",),
    "BG": ("Mila rodino",),
    "CN": ("March of the Volunteers", "Yiyongjun Jinxing Qu"),
    "CY": ("Hymn to Liberty",),
    "CZ": ("Kde domov můj",),
    "DE": ("Deutschlandlied", "Das Lied der Deutschen"),
    "DZ": ("Qassaman",),
    "EG": ("Bilady",),
    "FR": ("Marseillaise",),
    "GR": ("Hymn to Liberty",),
    "HR": ("Lijepa naša domovino",),
    "IN": ("Jana Gana Mana",),
    "IS": ("Lofsöngur",),
    "IT": ("Fratelli d'Italia", "Inno di Mameli", "Brothers of Italy"),
    "JP": ("Kimi ga yo",),
    "LT": ("Tautiška giesmė",),
    "LV": ("Dievs, svētī Latviju!",),
    "PL": ("Mazurek Dąbrowskiego", "Poland Is Not Yet Lost", "Dąbrowski's Mazurka"),
    "PT": ("A Portuguesa",),
    "RO": ("Deșteaptă-te, române!",),
    "RS": ("Bože pravde",),
    "SK": ("Nad Tatrou sa blýska",),
    "TR": ("İstiklal Marşı",),
    "UA": ("Shche ne vmerla Ukrainy",),
    "VN": ("Tiến Quân Ca",),
}

# Factbook: names of the highest point by country. The first name is the preferred answer; the other
# names are also accepted.
PEAKS: Mapping[str, tuple[str, ...]] = {
    "AD": ("Pic de Coma Pedrosa", "Coma Pedrosa", "Comapedrosa"),
    "AF": ("Noshak", "Noshaq"),
    "AG": ("Mount Obama", "Boggy Peak"),
    "AL": ("Maja e Korabit", "Golem Korab", "Mount Korab", "Korab"),
    "AM": ("Aragats Lerrnagagat'", "Mount Aragats", "Aragats"),
    "AO": ("Moco", "Mount Moco", "Morro de Moco"),
    "AR": ("Cerro Aconcagua", "Aconcagua"),
    "AT": ("Grossglockner", "Großglockner"),
    "AU": ("Mount Kosciuszko", "Kosciuszko"),
    "AZ": ("Bazarduzu Dagi", "Mount Bazardüzü", "Bazarduzu"),
    "BD": ("Mowdok Taung", "Saka Haphong"),
    "BE": ("Botrange", "Signal de Botrange"),
    "BG": ("Musala",),
    "BN": ("Bukit Pagon", "Pagon"),
    "BO": ("Nevado Sajama", "Sajama"),
    "BR": ("Pico da Neblina", "Neblina"),
    "BT": ("Gangkar Puensum", "Gangkhar Puensum"),
    "BY": ("Dzyarzhynskaya Hara", "Dzyarzhynsk Hill"),
    "CA": ("Mount Logan",),
    "CD": ("Pic Marguerite", "Margherita Peak", "Mount Stanley", "Marguerite Peak"),
    "CF": ("Mont Ngaoui", "Mount Ngaoui"),
    "CG": ("Mont Nabeba", "Mount Nabeba"),
    "CH": ("Dufourspitze", "Monte Rosa"),
    "CI": ("Monts Nimba", "Mont Nimba", "Mount Nimba"),
    "CL": ("Nevado Ojos del Salado", "Ojos del Salado"),
    "CM": ("Fako", "Mont Cameroun", "Mount Cameroon"),
    "CN": ("Mount Everest", "Everest"),
    "CO": ("Pico Cristobal Colon", "Cristóbal Colón"),
    "CR": ("Cerro Chirripo", "Mount Chirripó", "Chirripó"),
    "CU": ("Pico Turquino", "Turquino"),
    "CV": ("Mt. Fogo", "Mount Fogo", "Pico do Fogo", "Fogo"),
    "CZ": ("Snezka", "Sněžka"),
    "DJ": ("Moussa Ali", "Mousa Ali"),
    "DK": ("Store Mollehoj", "Store Møllehøj", "Møllehøj"),
    "DM": ("Morne Diablotins", "Morne Diablotin"),
    "DZ": ("Tahat", "Mount Tahat"),
    "EC": ("Chimborazo", "Mount Chimborazo"),
    "EE": ("Suur Munamagi", "Suur Munamägi"),
    "EG": ("Mount Catherine", "Gebel Katherina"),
    "ER": ("Soira", "Emba Soira", "Mount Soira"),
    "ES": ("Pico de Teide", "Teide", "Mount Teide", "Pico del Teide"),
    "ET": ("Ras Dejen", "Ras Dashen"),
    "FI": ("Halti", "Haltia", "Haltitunturi", "Haltiatunturi"),
    "FJ": ("Tomanivi", "Mount Tomanivi", "Mount Victoria"),
    "FM": ("Nanlaud", "Mount Nanlaud"),
    "GA": ("Mont Bengoue", "Mont Bengoué"),
    "GB": ("Ben Nevis",),
    "GE": ("Mt'a Shkhara", "Shkhara", "Mount Shkhara"),
    "GH": ("Mount Afadjato", "Afadjato"),
    "GN": ("Mont Nimba", "Mount Nimba"),
    "GQ": ("Pico Basile", "Pico Basilé"),
    "GR": ("Mount Olympus", "Olympus", "Mytikas"),
    "GT": ("Volcan Tajumulco", "Tajumulco"),
    "GY": ("Laberintos del Norte", "Mount Roraima"),
    "HT": ("Pic la Selle", "Chaîne de la Selle"),
    "HU": ("Kekes", "Kékes"),
    "ID": ("Puncak Jaya", "Carstensz Pyramid"),
    "IE": ("Carrauntoohil", "Carrantuohill"),
    "IN": ("Kanchenjunga", "Kangchenjunga"),
    "IQ": ("Cheekha Dar",),
    "IR": ("Kuh-e Damavand", "Mount Damavand", "Damavand"),
    "IS": ("Hvannadalshnukur", "Hvannadalshnjúkur"),
    "IT": ("Mont Blanc", "Monte Bianco", "Monte Bianco de Courmayeur", "Mont Blanc de Courmayeur"),
    "JM": ("Blue Mountain Peak", "Blue Mountain"),
    "JP": ("Mount Fuji", "Fuji", "Fujisan"),
    "KE": ("Mount Kenya",),
    "KG": ("Jengish Chokusu", "Pik Pobedy", "Peak Pobeda"),
    "KH": ("Phnum Aoral", "Phnom Aural"),
    "KM": ("Karthala", "Mount Karthala"),
    "KP": ("Paektu-san", "Mount Paektu", "Paektusan", "Paektu"),
    "KR": ("Halla-san", "Hallasan", "Mount Halla"),
    "KZ": ("Pik Khan-Tengri", "Khan Tengri"),
    "LA": ("Phu Bia", "Phou Bia"),
    "LB": ("Qornet es Saouda", "Qurnat as Sawda"),
    "LI": ("Vorder-Grauspitz", "Grauspitz", "Vordere Grauspitze"),
    "LK": ("Pidurutalagala", "Mount Pedro"),
    "LR": ("Mount Wuteve", "Wuteve"),
    "LS": ("Thabana Ntlenyana", "Thabana-Ntlenyana"),
    "LT": ("Aukstojas", "Aukštojas"),
    "LU": ("Buurgplaatz", "Buurgplaatz Hill"),
    "LV": ("Gaizina Kalns", "Gaiziņkalns", "Gaizinkalns"),
    "LY": ("Bikku Bitti",),
    "MA": ("Jebel Toubkal", "Toubkal"),
    "MC": ("Chemin des Revoires", "Chemin des Révoires"),
    "MD": ("Dealul Balanesti", "Bălănești Hill"),
    "MG": ("Maromokotro",),
    "MK": ("Golem Korab", "Maja e Korabit", "Mount Korab", "Korab"),
    "MN": ("Nayramadlin Orgil", "Khuiten Peak", "Huiten Peak"),
    "MR": ("Kediet Ijill", "Kediet ej Jill"),
    "MT": ("Ta'Dmejrek", "Ta' Dmejrek"),
    "MU": ("Mont Piton", "Piton de la Petite Rivière Noire"),
    "MW": ("Sapitwa", "Mount Mlanje", "Mount Mulanje", "Sapitwa Peak"),
    "MX": ("Volcan Pico de Orizaba", "Pico de Orizaba", "Citlaltépetl"),
    "MY": ("Gunung Kinabalu", "Mount Kinabalu", "Kinabalu"),
    "MZ": ("Monte Binga", "Mount Binga"),
    "NA": ("Konigstein", "Königstein", "Brandberg"),
    "NG": ("Chappal Waddi", "Gangirwal"),
    "NI": ("Mogoton", "Mogotón"),
    "NO": ("Galdhopiggen", "Galdhøpiggen"),
    "NP": ("Mount Everest", "Everest"),
    "NZ": ("Aoraki/Mount Cook", "Mount Cook", "Aoraki", "Aoraki Mount Cook"),
    "PA": ("Volcan Baru", "Volcán Barú", "Barú"),
    "PE": ("Nevado Huascaran", "Huascarán", "Mount Huascarán"),
    "PH": ("Mount Apo",),
    "PK": ("K2", "Mt. Godwin-Austen", "Mount Godwin-Austen"),
    "PL": ("Rysy",),
    "PT": ("Ponta do Pico", "Pico", "Pico Alto", "Mount Pico"),
    "PY": ("Cerro Pero", "Cerro Peró"),
    "RO": ("Moldoveanu", "Moldoveanu Peak"),
    "RS": ("Midzor", "Midžor"),
    "RU": ("Gora El'brus", "Mount Elbrus", "Elbrus"),
    "RW": ("Volcan Karisimbi", "Mount Karisimbi", "Karisimbi"),
    "SD": ("Jabal Marrah", "Deriba Caldera", "Marrah Mountains"),
    "SE": ("Kebnekaise South", "Kebnekaise"),
    "SG": ("Bukit Timah", "Bukit Timah Hill"),
    "SI": ("Triglav",),
    "SK": ("Gerlachovsky Stit", "Gerlachovský štít"),
    "SL": ("Loma Mansa", "Bintimani", "Mount Bintumani", "Bintumani"),
    "SO": ("Mount Shimbiris", "Shimbiris"),
    "SR": ("Juliana Top", "Julianatop"),
    "SS": ("Kinyeti", "Mount Kinyeti"),
    "ST": ("Pico de Sao Tome", "Pico de São Tomé"),
    "SV": ("Cerro El Pital", "El Pital"),
    "SY": ("Mount Hermon",),
    "TG": ("Mont Agou", "Mount Agou"),
    "TJ": ("Qullai Somoniyon", "Ismoil Somoni Peak", "Qullai Ismoili Somoni"),
    "TL": ("Foho Tatamailau", "Tatamailau", "Mount Ramelau", "Ramelau"),
    "TM": ("Gora Ayribaba", "Ayrybaba"),
    "TN": ("Jebel ech Chambi", "Mount Chambi"),
    "TO": ("Kao Volcano", "Kao"),
    "TR": ("Mount Ararat", "Ararat"),
    "TT": ("El Cerro del Aripo", "Mount Aripo"),
    "TZ": ("Kilimanjaro", "Mount Kilimanjaro"),
    "UA": ("Hora Hoverla", "Hoverla"),
    "UG": ("Margherita Peak", "Mount Stanley"),
    "US": ("Mount McKinley", "Denali"),
    "UZ": ("Xazrat Sulton Tog'", "Khazret Sultan"),
    "VC": ("La Soufriere", "La Soufrière", "Soufrière"),
    "VE": ("Pico Bolivar", "Pico Bolívar"),
    "VN": ("Fan Si Pan", "Fansipan"),
    "VU": ("Tabwemasana", "Mount Tabwemasana"),
    "WS": ("Mount Silisili", "Silisili"),
    "YE": ("Jabal an Nabi Shu'ayb",),
    "ZA": ("Ntheledi", "Mafadi"),
    "ZW": ("Inyangani", "Mount Nyangani", "Nyangani"),
}
# Countries whose highest point is unnamed, disputed or on a distant island, or whose name differs
# between sources.
NO_PEAK = frozenset(
    {
        "AE", "BA", "BD", "BI", "BJ", "BS", "EH", "FR", "GM", "GW", "IL", "KI", "KW", "ME", "MH",
        "ML", "MM", "MV", "NE", "NL", "OM", "QA", "SA", "SN", "SY", "TV", "VA", "XK",
    }
)  # fmt: skip

# Factbook: other common forms of adjectives of nationality and of local names.
ADJECTIVE_ALIASES: Mapping[str, tuple[str, ...]] = {
    "AR": ("Argentinian", "Argentinean"),
    "BY": ("Belarussian",),
    "KG": ("Kyrgyz",),
    "KP": ("North Korean",),
    "KR": ("South Korean",),
    "KZ": ("Kazakh",),
    "MR": ("Mauritanian",),
    "NP": ("Nepalese",),
    "PH": ("Filipino",),
    "SI": ("Slovene",),
    "SV": ("Salvadorian", "Salvadorean"),
    "TJ": ("Tajik",),
    "TM": ("Turkmen",),
    "UZ": ("Uzbek",),
    "WS": ("Samoan",),
}
LOCAL_NAME_ALIASES: Mapping[str, tuple[str, ...]] = {
    "AL": ("Shqipëria",),
    "AT": ("Österreich",),
    "AZ": ("Azərbaycan",),
    "CZ": ("Česko",),
    "GW": ("Guiné-Bissau",),
    "HU": ("Magyarország",),
    "IE": ("Éire",),
    "IS": ("Ísland",),
    "KP": ("Chosŏn",),
    "KR": ("Hanguk",),
    "MZ": ("Moçambique",),
    "ST": ("São Tomé e Príncipe",),
}
# Factbook: countries whose entry for the local name is, for example, an abbreviation, a city or
# misspelled.
NO_LOCAL_NAME = frozenset({"CD", "TN", "VN"})

# mendeleev: place of discovery -> the country in which the place is today. An entry for an
# element's symbol takes precedence over an entry for the place.
DISCOVERY_COUNTRIES: Mapping[str, str] = {
    "Austria": "AT",
    "Denmark": "DK",
    "England": "GB",
    "France": "FR",
    "Germany": "DE",
    "Great Britain": "GB",
    "Italy": "IT",
    "Japan": "JP",
    "Russia": "RU",
    "Scotland": "GB",
    "Spain": "ES",
    "Sweden": "SE",
    "Switzerland": "CH",
    "United States": "US",
    # elements claimed by several laboratories, or whose place of discovery is disputed
    **dict.fromkeys(("Pt", "Ho", "Lu", "Rn", "No", "Lr", "Rf", "Db", "Fl", "Mc", "Lv", "Og"), ""),
}
# mendeleev: corrected years of discovery.
ELEMENT_YEARS: Mapping[str, int] = {"Nd": 1885}
# Atomic number of the last element with an undisputed year of discovery. Later elements were made
# in laboratories, and the sources give several years for each element.
LAST_DATED_ELEMENT = 92
