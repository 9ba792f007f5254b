"""Categories of the forum, each with the words for one subject."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Circle:
    """A category and the words for the topics of its members.

    Attributes:
      tool: Type of product that members recommend to each other.
      uses: Uses of such a product, one topic each.
      products: Invented names of such products.
      place: Meeting place of the members.
      questions: Titles of the topics that ask for advice.
      projects: Projects of the members, one topic each.
      plans: Options of the poll.
      tips: Advice that fits every question in the category.
    """

    title: str
    description: str
    tool: str
    uses: tuple[str, ...]
    products: tuple[str, ...]
    place: str
    questions: tuple[str, ...]
    projects: tuple[str, ...]
    plans: tuple[str, ...]
    tips: tuple[str, ...]


def _circle(head: str, place: str, tool: str, lists: str) -> Circle:
    """Returns a circle from its texts.

    Args:
      head: Title and description, separated by a colon.
      place: Meeting place.
      tool: Type of product and product names, separated by a colon.
      lists: Uses, questions, projects, plans and tips: one line each, items separated by `|`.
    """
    title, description = head.split(": ")
    name, products = tool.split(": ")
    uses, questions, projects, plans, tips = (
        tuple(item.strip() for item in line.split("|")) for line in lists.strip().splitlines()
    )
    return Circle(
        title,
        description,
        name,
        uses,
        tuple(products.split(", ")),
        place,
        questions,
        projects,
        plans,
        tips,
    )


CIRCLES: tuple[Circle, ...] = (
    _circle(
        "Baking: Bread, cakes and everything else from the oven",
        "the community kitchen",
        "stand mixer: Harlan 40, Doughmaster S, Brill Compact, Ankora Mix, Teller 900, Mollen Duo",
        """
        stiff rye dough | a very small kitchen | a family of five | egg whites and cream
        How do I keep a sourdough starter alive over the holidays? | Why does my bread crack on one side? | How do I get croissants with clear layers?
        A rye loaf every Sunday | Learning to plait challah | Baking without a recipe | Pretzels for the school fair
        A focaccia evening | A visit to the windmill | A swap of old recipes | A bread stall at the fair
        Weigh everything, cups are not precise enough. | Give the dough an hour more than the recipe says. | Check the oven with a thermometer, the dial is rarely right. | A bowl of hot water below the bread makes a better crust. | Let it cool completely before you cut it. | Fresh flour makes more difference than a new machine. | Fold instead of kneading and wait half an hour in between. | Keep a notebook with the temperature of the kitchen.
        """,
    ),
    _circle(
        "Gardening: Beds, borders and balconies",
        "the allotments behind the station",
        "spade: Greenhand Classic, Digwell 2, Fernby Short, Oakline Pro, Turf King, Loamy",
        """
        heavy clay | narrow raised beds | somebody with a bad back | planting trees
        How do I keep slugs away without poison? | When should I prune my old box hedge? | Why do my tomatoes split before they are ripe?
        Turning a lawn into a meadow | Growing pumpkins on a balcony | A bed of dahlias from seed | Making my own compost
        An exchange of seedlings | A walk through the walled garden | A day for sharpening tools | A new bed at the school
        Water in the morning and never on the leaves. | A layer of straw keeps the soil moist for days. | Look below the leaves, that is where trouble begins. | Add compost in autumn and let the worms do the rest. | Plant later than the calendar says, the nights are still cold. | Ask your neighbours what grows well in their soil. | Cut less and more often. | Label everything, you will not remember it in spring.
        """,
    ),
    _circle(
        "Cycling: Two wheels, every day and every weekend",
        "the bridge by the old mill",
        "bicycle pump: Airlane Mini, Pressto 11, Zephyr Floor, Velobit, Cobb Travel, Gustav XL",
        """
        tubeless tyres | a cargo bike | long tours with little luggage | a shared cellar
        How do you dress for a commute in the rain? | How often should I replace the chain? | What helps against brakes that squeal?
        Cycling to work through the winter | My first hundred kilometres | Rebuilding a touring bike from 1985 | Taking two children to school by bike
        A night ride to the coast | A repair evening | A slow ride for beginners | A tour with a picnic
        Check the tyre pressure once a week, it solves half of all problems. | A clean chain lasts twice as long. | Let a workshop measure your saddle height before you buy anything. | Brake before the corner and not in it. | Carry a spare tube even for short trips. | Mudguards are worth more than any rain jacket. | Do not tighten bolts by feeling, borrow a torque wrench. | Ride the route on a Sunday first, when there is no traffic.
        """,
    ),
    _circle(
        "Astronomy: The sky above the town, clouds permitting",
        "the meadow at Harrow Hill",
        "telescope: Noctis 130, Farlight 8, Starwell 70, Perseid Go, Coldsky 102, Vela Dobson",
        """
        a balcony in the town | children of ten | the moons of Jupiter | travelling by train
        How dark must it be to see the Andromeda galaxy? | How do I keep dew off the lens? | Which constellations are easy for beginners?
        Drawing a lunar crater every month | Counting sunspots with a projection screen | Photographing star trails from the roof | Splitting double stars with small optics
        A visit to the observatory | A night of meteors | A talk about eclipses | A star walk for families
        Let the telescope cool down outside for half an hour. | Start with binoculars and a simple map. | A red torch keeps your eyes used to the dark. | The best nights come right after a cold front. | Low magnification shows more than you think. | Sit down, a steady observer sees finer detail. | Write down the time and the weather with every drawing. | Avoid looking across roofs, warm air spoils the picture.
        """,
    ),
    _circle(
        "Board Games: Rules, reviews and people to play with",
        "the back room of the Blue Heron",
        "storage box: Tidy Meeple, Inserto, Foldwell Crate, Big Lid, Sortimo Play, Cardhaven",
        """
        a game with a thousand tokens | taking games to friends | cards in sleeves | a shelf that is not deep
        How do you explain a long game to new players? | What can two people play in half an hour? | How do you handle players who think for ages?
        Playing one campaign to its end | Teaching chess to my grandmother | Designing a card game about bees | A different solo game every week
        A tournament in teams | An evening for games of two | A flea market for games | A weekend with one long game
        Begin with the goal of the game and explain the rest as you play. | Read the rules the evening before. | Put the game on the table before the guests arrive. | A sand timer helps and nobody feels hurried. | Play the first round with open cards. | Write a one-page summary of the rules. | Choose the game by the mood of the group. | Leave out the expansion until everybody knows the basic game.
        """,
    ),
    _circle(
        "Photography: Cameras, lenses and pictures",
        "the print shop in Mill Lane",
        "tripod: Standfast 3, Legato Carbon, Pikto Low, Trivane, Mono Plus, Heronleg",
        """
        macro shots near the ground | long walks | a heavy camera | filming at home
        How do I photograph people who dislike cameras? | How long do you expose for a waterfall? | How do you scan old negatives at home?
        One portrait a week | Street scenes in black and white | Printing at home | A year of the same tree
        An exhibition in the library | A walk through the harbour | An evening about light | A swap of prints
        Move closer before you change the lens. | The hour after sunrise does most of the work. | Take fewer pictures and look longer. | Turn the screen off and check the pictures at home. | A white sheet of paper is the cheapest reflector. | Back up twice before you delete anything. | Focus on the nearer eye. | Print your favourites, a screen hides mistakes.
        """,
    ),
    _circle(
        "Home Repair: Fix it before you replace it",
        "the repair cafe in the school",
        "drill: Borax 18, Handy Torque, Krell Impact, Drillo Light, Masonpal, Twistor",
        """
        concrete ceilings | soft old walls | occasional use | furniture from a kit
        How do I stop a tap from dripping? | How do you find a cable behind plaster? | What can I do about a damp cellar wall?
        Making the old stairs quiet | Restoring a sash window | Laying tiles for the first time | Repairing a toaster from 1972
        A course about electricity | A list of tools to share | A Saturday for bicycles and chairs | A visit to the scrapyard
        Switch the power off and check twice. | Take a photograph before you take anything apart. | Buy the better screws, they cost a few cents more. | Clean the surface well, most repairs fail because of dust. | Measure three times. | Try it in a corner where nobody looks. | Ask at the repair cafe before you throw it away. | Old houses move, leave a gap.
        """,
    ),
    _circle(
        "Hiking: Paths, huts and weather",
        "the car park at Fern Gap",
        "rucksack: Fellgate 30, Packhorse 45, Ambler Light, Stonepath 50, Roamer Kid, Tarnside",
        """
        a week from hut to hut | day walks with children | rainy weather | people with short backs
        How do you avoid blisters on long descents? | What do you pack for a day on the ridge? | How early do I have to book the huts?
        Walking the coast trail in stages | The ridge path in winter | Learning to read a map | Every summit of the county
        A sunrise on Fern Gap | A weekend on the coast trail | An evening about first aid | A walk with llamas
        Two thin pairs of socks are better than a thick one. | Turn round at noon, wherever you are. | Keep the heavy things close to your back. | Tell somebody which way you are going. | Download the map before the valley ends. | Eat before you are hungry. | Poles save your knees on the way down. | Dry your boots with newspaper and never on a stove.
        """,
    ),
    _circle(
        "Vinyl Records: Pressings, players and flea markets",
        "the record shop cellar",
        "turntable: Rondo 2, Platterline, Groovemate, Silent Disc, Tonearm One, Belt Brothers",
        """
        a first collection | a floor that shakes | old mono records | a small shelf
        How do I get rid of surface noise? | How do you recognise a first pressing? | When does a needle have to be replaced?
        Cleaning my uncle's collection | Listening to one jazz record a day | Repairing torn sleeves | Digitising tapes and singles
        A listening evening with headphones | A stall at the record fair | A visit to the pressing plant | A night of B-sides
        Wash the record before you judge it. | Level the player first, it costs nothing. | A carbon brush before every side is enough. | Ask to see the record in daylight. | Store them upright and never too tight. | Replace the inner sleeves, they cause most scratches. | Heavy furniture below the player helps against rumble. | Compare the numbers in the run-out groove.
        """,
    ),
    _circle(
        "Coffee: Beans, water and patience",
        "the roastery in Dock Street",
        "coffee grinder: Burrell Hand, Finegrind 64, Pestle 9, Molino Quiet, Coarsely, Kernel Duo",
        """
        filter coffee | espresso on a budget | an office of eight | early mornings in a thin-walled flat
        How do you make good coffee with hard water? | How long do beans stay fresh after roasting? | Why does my moka pot taste bitter?
        Roasting beans in a pan | A month without sugar | Cold brew for the whole street | Learning to pour milk foam
        A blind tasting | A visit to the roastery | A course about milk foam | A swap of beans
        Grind right before you brew. | Change one thing at a time. | Weigh the water as well as the beans. | Rinse the paper filter first. | Buy small bags and note the date of roasting. | Let boiling water rest for half a minute. | Clean the grinder once a month. | A coarser grind takes the bitterness away.
        """,
    ),
    _circle(
        "Knitting: Wool, needles and patterns",
        "the wool shop on Church Square",
        "needle set: Woolgate Bamboo, Clickety, Purl Steel, Loopwise, Nimble Nine, Birchpoint",
        """
        lace shawls | socks | stiff fingers | knitting on the train
        How do you turn a heel without holes? | How much yarn does a child's jumper need? | How do I fix a mistake twenty rows back?
        A baby blanket in garter stitch | My first pair of socks | A jumper from leftover yarn | A shawl with a pattern of leaves
        Squares for a charity blanket | A trip to the spinning mill | An evening about colour work | A swap of leftover yarn
        Knit a sample first, even if it is boring. | Put in a lifeline before every difficult row. | Count at the end of each row. | Wash the yarn before you measure anything. | Blocking hides small mistakes. | Wooden needles are slower and drop fewer stitches. | Take a photograph of the ball band. | Rest your hands every half hour.
        """,
    ),
    _circle(
        "Woodworking: From the board to the bench",
        "the shed behind the fire station",
        "hand saw: Ripwell, Pullstroke 24, Dovetta, Ashcroft Panel, Kerf Zero, Tenonmate",
        """
        fine joints | rough boards | left-handed people | a shared workshop
        How do I keep boards from warping? | Which finish do you use for a kitchen table? | How do you sharpen a plane without a machine?
        A workbench from old beams | Carving a spoon every week | A cradle for my sister's baby | Picture frames without nails
        A day of sharpening | A shared order of oak | A course about dovetails | Toys for the children's ward
        Sharp tools first, everything else follows. | Let the wood rest in the room for two weeks. | Mark the waste side before you cut. | Glue on a dry day. | Use the pencil less and the knife more. | Test the finish on an offcut. | Work with the grain and listen to the plane. | Leave clamps on overnight.
        """,
    ),
    _circle(
        "Aquariums: Fish, plants and clear water",
        "the pet shop at the harbour",
        "filter: Clearflow 300, Bubblet, Stillwater Pro, Reefby, Cascade Nano, Minnow Max",
        """
        a tank of sixty litres | shrimp | a quiet bedroom | a tank full of plants
        How do I get rid of green algae? | How often should I change the water? | Why do my neon tetras hide all day?
        Setting up a tank from scratch | Breeding red shrimp | A tank without any technology | Moving house with forty fish
        A visit to the sea life centre | A swap of plants | An evening about water tests | A tour of home tanks
        Feed half as much. | Test the water before you buy anything. | Change a third of the water every week. | Eight hours of light are enough. | Add new fish slowly and only a few at a time. | Rinse the filter in tank water and never under the tap. | Fast-growing plants take the food away from the algae. | Be patient, a tank needs six weeks to settle.
        """,
    ),
    _circle(
        "Birdwatching: What flies over and who saw it",
        "the reed bed car park",
        "pair of binoculars: Larkview 8, Sedge 10, Wader Compact, Marshlight, Goldcrest ED, Plover 7",
        """
        people with glasses | dark woods | long days at the coast | children
        How do I tell a marsh harrier from a buzzard? | What do you put into a winter feeder? | When do the geese arrive at the reed bed?
        Counting birds from the kitchen window | A nesting box with a camera | Learning ten songs by heart | Following the kingfishers of the mill stream
        A dawn walk | A trip to the island | Nesting boxes for the park | An evening about migration
        Listen first and look afterwards. | Stay in one place for half an hour. | Wear dull colours and soft shoes. | Note the wind, it explains most surprises. | Look at the shape before the colour. | Clean the feeder every week. | Early mornings are worth it, especially in May. | Keep your distance from nests.
        """,
    ),
    _circle(
        "Houseplants: Green things indoors",
        "the plant swap at the library",
        "grow lamp: Sunny Spot, Lumigrow 20, Windowlight, Daylong, Leafbeam, Fernlamp",
        """
        a north-facing window | seedlings in February | orchids on a shelf | an office without windows
        How do I save a plant with root rot? | What helps against fungus gnats? | How do you water plants during a long holiday?
        A wall of spider plants | Growing an avocado from a stone | Bringing orchids into flower again | Cuttings for the whole office
        A swap of cuttings | A visit to the palm house | A repotting afternoon | A talk about pests
        Let the soil dry out between two waterings. | A pot with a hole is more important than fertiliser. | Turn the plant a little every week. | Wipe the leaves, dust costs light. | Repot in spring and only one size larger. | Rain water is better than tap water. | Keep new plants apart for two weeks. | Less water in winter, much less.
        """,
    ),
    _circle(
        "Language Learning: Words, grammar and courage",
        "the adult school, room 12",
        "dictionary: Wordhoard, Lexi Pocket, Polyglot Plus, Verba Grande, Tonguetwist, Glossa",
        """
        reading novels | a trip to Portugal | exam preparation | absolute beginners
        How do you remember irregular verbs? | How do I find a tandem partner? | When did you start to read novels?
        Finnish in twenty minutes a day | Reading a newspaper in Portuguese | Learning to write Japanese by hand | Speaking without being afraid
        An evening of songs | A film without subtitles | A tandem day | A dinner where nobody speaks English
        A little every day is better than a lot on Sunday. | Learn sentences and not single words. | Read aloud, even if it feels strange. | Listen to the same text several times. | Make mistakes, people will be kind. | Write five lines in a diary every evening. | Change the language of your phone. | Children's books are harder than they look, try short news first.
        """,
    ),
    _circle(
        "Model Railways: Small trains, big plans",
        "the attic of the station museum",
        "controller: Railboss 3, Steamline D, Shunter Mini, Tracktalk, Semafor, Branchline One",
        """
        a narrow-gauge layout | several trains at once | a folding layout | old locomotives
        How do you ballast track without glue everywhere? | How tight can curves be for long coaches? | How do I clean the rails in a tunnel?
        A station on a bookshelf | Weathering my first wagon | A hidden yard below the bed | Adding steam sounds to a tank engine
        An open day at the museum | A shared layout | A trip on the narrow gauge | An evening about digital control
        Draw the plan on paper at full size first. | Clean the wheels before you clean the track. | Buy fewer locomotives and better ones. | Leave a hand's breadth of access everywhere. | Test every section before you add scenery. | Dilute the glue with a drop of washing-up liquid. | Look at photographs of the real place. | Label the cables, you will thank yourself later.
        """,
    ),
    _circle(
        "Cheese Making: Milk, time and mould",
        "the dairy at Low Farm",
        "thermometer: Curdwatch, Tempra Long, Milkmate, Degree One, Dairy Dial, Cellarcheck",
        """
        a pot of ten litres | a ripening cellar | mozzarella | people who forget the stove
        Why does my curd stay soft? | How do you keep a brine bath clean? | How long does goat's cheese ripen?
        A blue cheese in the fridge | Fresh curd every Friday | Turning a wardrobe into a ripening box | Mozzarella with my class
        A visit to the dairy | A tasting of goat's cheese | A shared order of rennet | A course about washed rinds
        Everything that touches the milk has to be boiled. | Use milk that was not heated too much. | Warm it slowly, one degree a minute. | Cut the curd later than you think. | Write down every temperature. | Turn the cheese once a day. | A damp cloth in the box keeps the rind soft. | Throw it away if it smells wrong, there will be another one.
        """,
    ),
    _circle(
        "Sailing: Dinghies, moorings and tides",
        "the slipway of the old yard",
        "life jacket: Seabright 150, Buoyant Kid, Harbour Vest, Tidewise, Spinnaker Lite, Keelsafe",
        """
        dinghy sailing | a child of six | single-handed trips | guests who cannot swim
        How do you reef alone in strong wind? | How do I protect the boat in winter? | What do I have to know about the tides here?
        Restoring a wooden dinghy | My first night at sea | Sailing to the island and back | Sewing a winter cover
        A capsize drill | A regatta for beginners | A trip to the island | An evening about knots
        Reef before you ask yourself whether you should. | Look at the tide table the evening before. | Keep one hand for the boat. | Practise in the harbour when there is no wind. | A second line costs little and saves a night. | Rinse everything with fresh water. | Listen to the forecast twice. | Take somebody along who knows the sandbanks.
        """,
    ),
    _circle(
        "Reading: What we read and what we thought",
        "the reading room of the library",
        "reading lamp: Pagelight, Clipper, Nightowl, Bedside Two, Bookmark Beam, Quietlamp",
        """
        reading in bed | tired eyes | a dark corner | train journeys
        How do you find time for long novels? | Which translated crime novels are worth it? | Do you finish books that you do not like?
        A classic every month | Reading aloud to my father | A year without new books | Poems on the way to work
        A crime novel | A family saga | A book of poems | A journey in letters
        Leave the phone in another room. | Twenty pages a day are a long novel in a month. | Ask at the library, they order almost everything. | Try another translation before you give up. | Start with the short novels of an author. | Write one sentence about every book. | Audio books count, too. | Give it fifty pages.
        """,
    ),
    _circle(
        "Amateur Radio: Antennas, bands and distant voices",
        "the water tower",
        "transceiver: Hamlet 20, Wavecrest, Kilowatch, Skipzone, Longwire 5, Bandmaster",
        """
        portable operation | a first licence | Morse code | a flat without a balcony
        How do I reduce noise from my neighbours' devices? | Which antenna fits into a small garden? | How do you learn Morse code?
        A station in a lunch box | Contacts from every summit | Building a receiver from a kit | A wire antenna in the attic
        A contest weekend | An evening of soldering | A visit to the coast station | A fox hunt in the woods
        A better antenna is worth more than a louder radio. | Listen for a week before you call. | Short calls at a steady speed are best. | Put a filter on the power supply first. | Keep the feed line short. | The bands open at dawn, be early. | Charge the battery pack the evening before. | Ask for a signal report and write it down.
        """,
    ),
    _circle(
        "Running: Slow miles and fast evenings",
        "the track behind the swimming pool",
        "running watch: Stridemate, Pulse 4, Lapline, Tempo Go, Milestone S, Cadence Pro",
        """
        interval training | trail runs | swimmers who also run | beginners
        How do you start again after knee pain? | How many kilometres a week for a half marathon? | What do you wear at five degrees below zero?
        Training for my first marathon | Running to work | Ten minutes every day | Preparing for the hill race
        A relay through the town | A pacing group for the half marathon | A winter run with tea | An evening about shoes
        Run slower, especially on the easy days. | Add no more than a tenth each week. | Change your shoes after eight hundred kilometres. | Sleep is training, too. | Eat nothing new on race day. | Warm up for ten minutes. | Strength exercises twice a week keep the knees quiet. | Find somebody to run with on dark mornings.
        """,
    ),
    _circle(
        "Retro Computing: Old machines and how to keep them alive",
        "the basement of the technical college",
        "floppy emulator: Disketta, Sector Zero, Trackfaker, Floppiless, Index Hole, Readwrite",
        """
        a machine from 1986 | saving old files | music software | people who cannot solder
        How do I remove yellowing from a case? | How do you find a leaking capacitor? | How do I read tapes after thirty years?
        Repairing a keyboard key by key | Writing a text adventure | Connecting an old monitor to a new machine | Saving the disks of the school
        A weekend of pixel art | A repair evening | A museum for one day | A contest of small programs
        Check the power supply before you switch it on. | Take the battery out first, they all leak one day. | Photograph every cable. | Clean the contacts with alcohol and patience. | Copy the disks before you play with them. | Low heat and a good tip when you solder. | Look for the service manual, somebody has scanned it. | Never bleach a case in full sun for a whole day.
        """,
    ),
    _circle(
        "Neighbourhood: Everything that happens here and has no other place",
        "the town hall, second floor",
        "shopping trolley: Rollwell, Market Mule, Cartlet, Easy Steps, Townie, Two Bags",
        """
        cobbled streets | steep stairs | the weekly market | the bus
        Whom do I call about a broken street lamp? | Where can I leave a cat that I have found? | How do you keep the bins quiet in the wind?
        Collecting litter on the way to work | A year of market days | Getting a crossing for our street | A bench for the bus stop
        A street party | A clean-up morning | A flea market in the park | A lantern walk
        Write to the town hall, they answer within a week. | Talk to your neighbours first. | The library has all the forms. | Ask the man at the fruit stall, he knows everybody. | Send a photograph with your letter. | The council meets on the first Tuesday and everybody may speak. | Offer to help and others will join. | Be friendly on the phone, it works wonders.
        """,
    ),
)
