"""What the people of the forum talk about: the categories with their subjects, tools and products."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Circle:
    """A category and its vocabulary.

    Attributes:
      title: of the category.
      description: of the category.
      things: what topics are about.
      tool: what one buys for it.
      products: invented names of such tools.
      place: where the members meet.
    """

    title: str
    description: str
    things: tuple[str, ...]
    tool: str
    products: tuple[str, ...]
    place: str


def _circle(title: str, description: str, things: str, tool: str, products: str, place: str):
    split = lambda text: tuple(word.strip() for word in text.split(","))
    return Circle(title, description, split(things), tool, split(products), place)


CIRCLES: tuple[Circle, ...] = (
    _circle(
        "Baking",
        "Bread, cakes and everything else from the oven",
        "rye sourdough, brioche, ciabatta, plum cake, croissants, pretzels, focaccia, puff pastry",
        "mixer",
        "Harlan 40, Doughmaster S, Brill Compact, Ankora Mix, Teller 900, Mollen Duo",
        "the community kitchen",
    ),
    _circle(
        "Gardening",
        "Beds, borders and balconies",
        "tomatoes, box hedges, dahlias, runner beans, raspberries, lavender, pumpkins, roses",
        "spade",
        "Greenhand Classic, Digwell 2, Fernby Short, Oakline Pro, Turf King, Loamy",
        "the allotments behind the station",
    ),
    _circle(
        "Cycling",
        "Two wheels, every day and every weekend",
        "gravel tours, winter commuting, tubeless tyres, disc brakes, cargo bikes, hill climbs, "
        "night rides, gear hubs",
        "pump",
        "Airlane Mini, Pressto 11, Zephyr Floor, Velobit, Cobb Travel, Gustav XL",
        "the bridge by the old mill",
    ),
    _circle(
        "Astronomy",
        "The sky above the town, clouds permitting",
        "Jupiter's moons, double stars, the Orion nebula, meteor showers, lunar craters, sunspots, "
        "the Andromeda galaxy, Saturn's rings",
        "telescope",
        "Noctis 130, Farlight 8, Starwell 70, Perseid Go, Coldsky 102, Vela Dobson",
        "the meadow at Harrow Hill",
    ),
    _circle(
        "Board Games",
        "Rules, reviews and people to play with",
        "solo variants, trading games, rule summaries, card sleeves, campaign games, dice towers, "
        "two-player evenings, house rules",
        "storage box",
        "Tidy Meeple, Inserto, Foldwell Crate, Big Lid, Sortimo Play, Cardhaven",
        "the back room of the Blue Heron",
    ),
    _circle(
        "Photography",
        "Cameras, lenses and pictures",
        "portraits, long exposures, film scanning, street scenes, macro shots, old lenses, "
        "prints at home, cloudy days",
        "tripod",
        "Standfast 3, Legato Carbon, Pikto Low, Trivane, Mono Plus, Heronleg",
        "the print shop in Mill Lane",
    ),
    _circle(
        "Home Repair",
        "Fix it before you replace it",
        "dripping taps, squeaking stairs, old sash windows, loose tiles, damp cellars, "
        "light switches, sticking doors, plaster cracks",
        "drill",
        "Borax 18, Handy Torque, Krell Impact, Drillo Light, Masonpal, Twistor",
        "the repair cafe in the school",
    ),
    _circle(
        "Hiking",
        "Paths, huts and weather",
        "the ridge path, winter boots, packed lunches, map reading, wet tents, the coast trail, "
        "hut bookings, blisters",
        "rucksack",
        "Fellgate 30, Packhorse 45, Ambler Light, Stonepath 50, Roamer Kid, Tarnside",
        "the car park at Fern Gap",
    ),
    _circle(
        "Vinyl Records",
        "Pressings, players and flea markets",
        "surface noise, first pressings, jazz reissues, dust, broken sleeves, mono records, "
        "needle wear, record fairs",
        "turntable",
        "Rondo 2, Platterline, Groovemate, Silent Disc, Tonearm One, Belt and Co",
        "the record shop cellar",
    ),
    _circle(
        "Coffee",
        "Beans, water and patience",
        "cold brew, light roasts, milk foam, hard water, stale beans, decaf, moka pots, filter papers",
        "grinder",
        "Burrell Hand, Finegrind 64, Pestle 9, Molino Quiet, Coarsely, Kernel Duo",
        "the roastery in Dock Street",
    ),
    _circle(
        "Knitting",
        "Wool, needles and patterns",
        "lace shawls, sock heels, cable patterns, baby blankets, felted slippers, colour work, "
        "raglan sleeves, leftover yarn",
        "needle set",
        "Woolgate Bamboo, Clickety, Purl Steel, Loopwise, Nimble Nine, Birchpoint",
        "the wool shop on Church Square",
    ),
    _circle(
        "Woodworking",
        "From the board to the bench",
        "dovetails, oil finishes, workbenches, spoon carving, warped boards, hand planes, "
        "picture frames, glue joints",
        "saw",
        "Ripwell, Pullstroke 24, Dovetta, Ashcroft Panel, Kerf Zero, Tenonmate",
        "the shed behind the fire station",
    ),
    _circle(
        "Aquariums",
        "Fish, plants and clear water",
        "algae, neon tetras, planted tanks, water changes, snails, shrimp, driftwood, cloudy water",
        "filter",
        "Clearflow 300, Bubblet, Stillwater Pro, Reefby, Cascade Nano, Minnow Max",
        "the pet shop at the harbour",
    ),
    _circle(
        "Birdwatching",
        "What flies over and who saw it",
        "kingfishers, winter feeders, owl calls, nesting boxes, migrating geese, garden robins, "
        "marsh harriers, bird song",
        "pair of binoculars",
        "Larkview 8, Sedge 10, Wader Compact, Hide and Seek, Goldcrest ED, Plover 7",
        "the reed bed car park",
    ),
    _circle(
        "Houseplants",
        "Green things indoors",
        "orchids, spider plants, root rot, succulents, fungus gnats, monsteras, cuttings, dry air",
        "grow lamp",
        "Sunny Spot, Lumigrow 20, Windowlight, Daylong, Leafbeam, Fernlamp",
        "the plant swap at the library",
    ),
    _circle(
        "Language Learning",
        "Words, grammar and courage",
        "Portuguese verbs, Finnish cases, listening practice, flash cards, Japanese particles, "
        "tandem partners, accents, reading novels",
        "dictionary",
        "Wordhoard, Lexi Pocket, Polyglot Plus, Verba Grande, Tonguetwist, Glossa",
        "the adult school, room 12",
    ),
    _circle(
        "Model Railways",
        "Small trains, big plans",
        "narrow gauge, station buildings, ballast, digital control, weathering, hidden yards, "
        "steam sounds, tight curves",
        "controller",
        "Railboss 3, Steamline D, Shunter Mini, Tracktalk, Semafor, Branchline One",
        "the attic of the station museum",
    ),
    _circle(
        "Cheese Making",
        "Milk, time and mould",
        "fresh curd, blue veins, goat's milk, rennet, brine baths, cheese cloth, ripening boxes, mozzarella",
        "thermometer",
        "Curdwatch, Tempra Long, Milkmate, Degree One, Dairy Dial, Cellarcheck",
        "the dairy at Low Farm",
    ),
    _circle(
        "Sailing",
        "Dinghies, moorings and tides",
        "reefing, mooring lines, winter covers, night sailing, capsizing drills, antifouling, "
        "tide tables, single-handed trips",
        "life jacket",
        "Seabright 150, Buoyant Kid, Harbour Vest, Tidewise, Spinnaker Lite, Keelsafe",
        "the slipway of the old yard",
    ),
    _circle(
        "Book Club",
        "What we read and what we thought",
        "short novels, translated crime, long classics, poetry evenings, unreliable narrators, "
        "audio books, travel writing, family sagas",
        "reading lamp",
        "Pagelight, Clip and Glow, Nightowl, Bedside Two, Bookmark Beam, Quietlamp",
        "the reading room of the library",
    ),
    _circle(
        "Amateur Radio",
        "Antennas, bands and distant voices",
        "dipole antennas, Morse practice, portable stations, noise indoors, contest weekends, "
        "repeaters, kit building, battery packs",
        "transceiver",
        "Hamlet 20, Wavecrest, QSO Pocket, Skipzone, Longwire 5, Bandmaster",
        "the water tower",
    ),
    _circle(
        "Running",
        "Slow miles and fast evenings",
        "first marathons, knee pain, trail shoes, interval training, early mornings, winter runs, "
        "half marathons, pacing",
        "watch",
        "Stridemate, Pulse 4, Lapline, Tempo Go, Milestone S, Cadence Pro",
        "the track behind the swimming pool",
    ),
    _circle(
        "Retro Computing",
        "Old machines and how to keep them alive",
        "leaking capacitors, floppy disks, yellowed cases, text adventures, monitor cables, "
        "tape loaders, keyboard repair, pixel fonts",
        "floppy emulator",
        "Disketta, Sector Zero, Trackfaker, Floppiless, Index Hole, Readwrite",
        "the basement of the technical college",
    ),
    _circle(
        "Town Talk",
        "Everything that happens here and has no other place",
        "bus timetables, the new crossing, market days, street lamps, the swimming pool, noisy bins, "
        "lost cats, the spring fair",
        "shopping trolley",
        "Rollwell, Market Mule, Cartlet, Easy Steps, Townie, Two Bags",
        "the town hall, second floor",
    ),
)

# Names of members: every pair of a first and a second word.
FIRST = "quiet brass copper lucky north paper river silver tiny velvet".split()
SECOND = "badger fox heron lantern maple otter pebble sparrow wagon".split()
AGENT = "copper_otter"  # who is logged in
PASSWORD = "harbour-2024"
MODERATOR = "moderator"
SITE_NAME = "Harbour Forum"

OPENINGS = (
    "I have been trying this for a month now and would like to hear from others.",
    "Searching here gave me nothing newer than two years, so I ask again.",
    "A neighbour told me that this forum knows everything, so here I am.",
    "Please be patient, I am still a beginner.",
    "Maybe somebody has been through the same.",
    "I promise to report what came out of it.",
)
REPLIES = (
    "Take your time with {thing}, it gets better after the third try.",
    "For {thing} I always write down what I did; memory is no friend here.",
    "I would start smaller and come back to {thing} later.",
    "There was a good talk on {thing} last autumn, maybe they repeat it.",
    "Same here, and I still have no answer.",
    "With {thing} the weather makes all the difference.",
    "My father did it the other way round and it worked for forty years.",
    "Do not spend money before you have asked somebody with experience in {thing}.",
    "That is normal with {thing}, do not worry.",
    "I disagree, {thing} was never that difficult.",
    "Could you post a picture next time?",
    "Thank you, that helped me more than any book about {thing}.",
    "Two weekends and a lot of tea, that is my recipe for {thing}.",
    "Ask at the next meeting, there are people who know {thing} inside out.",
    "I had the same trouble with {thing} in spring; patience solved it.",
    "Nice work, I will try that with {thing}, too.",
)
