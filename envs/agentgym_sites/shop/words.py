"""Words for the shop's catalogue, customers and reviews. All of them are invented."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shelf:
    """A category with products.

    Attributes:
      department: Name of the parent category, which is also the product type.
      noun: Noun for one product.
      variants: Variants of a product line; a product's title ends with its variant.
      variant_name: Name of the attribute whose value is the variant.
      size: Name of the size attribute, and its possible values.
      cents: Lowest and highest price in cents.
      use: Sentence about the purpose of the product.
    """

    name: str
    department: str
    noun: str
    variants: tuple[str, ...]
    variant_name: str
    materials: tuple[str, ...]
    size: tuple[str, tuple[str, ...]]
    cents: tuple[int, int]
    use: str


COLOURS = ("Blue", "Green", "Red", "White", "Black", "Yellow", "Grey", "Orange")
SHELVES = (
    Shelf("Mugs", "Kitchen", "Mug", COLOURS, "Colour", ("stoneware", "porcelain", "enamel"),
          ("Capacity", ("250 ml", "300 ml", "350 ml", "420 ml")), (650, 2800),
          "The handle stays cool, and the glaze takes the dishwasher well."),
    Shelf("Kettles", "Kitchen", "Kettle", ("Steel", "Copper", "Black", "White"), "Finish",
          ("stainless steel", "enamelled steel", "copper"),
          ("Capacity", ("0.8 l", "1.2 l", "1.5 l", "1.7 l")), (2400, 11900),
          "It boils evenly and pours in a thin, steady stream."),
    Shelf("Frying Pans", "Kitchen", "Frying Pan", ("20 cm", "24 cm", "28 cm", "32 cm"), "Diameter",
          ("cast iron", "carbon steel", "aluminium"),
          ("Weight", ("0.9 kg", "1.3 kg", "1.8 kg", "2.6 kg")), (1900, 9900),
          "It suits gas, induction and the oven."),
    Shelf("Desk Lamps", "Home", "Desk Lamp", COLOURS, "Colour", ("steel", "aluminium", "oak"),
          ("Power", ("5 W", "7 W", "9 W", "12 W")), (2200, 14900),
          "The arm turns in every direction and stays where it is put."),
    Shelf("Blankets", "Home", "Blanket", COLOURS, "Colour", ("wool", "cotton", "linen", "fleece"),
          ("Size", ("130 x 170 cm", "140 x 200 cm", "150 x 200 cm", "220 x 240 cm")), (2500, 15900),
          "It is warm without being heavy, on the sofa as well as outdoors."),
    Shelf("Storage Baskets", "Home", "Storage Basket", ("Small", "Medium", "Large", "Extra Large"),
          "Format", ("seagrass", "felt", "willow", "recycled plastic"),
          ("Volume", ("8 l", "15 l", "24 l", "40 l")), (900, 6500),
          "It keeps its shape when it is empty and fits common shelves."),
    Shelf("Watering Cans", "Garden", "Watering Can", COLOURS, "Colour",
          ("galvanised steel", "recycled plastic", "copper"),
          ("Volume", ("1.5 l", "3 l", "5 l", "9 l")), (1100, 6900),
          "The long spout reaches pots at the back."),
    Shelf("Pruning Tools", "Garden", "Pruning Shears", ("Left-handed", "Right-handed"), "Grip",
          ("carbon steel", "stainless steel", "titanium-coated steel"),
          ("Blade", ("40 mm", "50 mm", "60 mm", "75 mm")), (1400, 7900),
          "It cuts fresh and dry wood cleanly."),
    Shelf("Planters", "Garden", "Planter", ("Terracotta", "Slate", "Sand", "Ivory"), "Shade",
          ("clay", "fibre cement", "glazed ceramic", "zinc"),
          ("Diameter", ("14 cm", "22 cm", "30 cm", "45 cm")), (800, 8900),
          "Frost does not harm it, and a saucer belongs to it."),
    Shelf("Notebooks", "Office", "Notebook", ("Lined", "Dotted", "Squared", "Blank"), "Ruling",
          ("recycled paper", "cotton paper", "stone paper"),
          ("Pages", ("96", "120", "160", "240")), (500, 2900),
          "The binding lies flat, and ink does not come through."),
    Shelf("Fountain Pens", "Office", "Fountain Pen", ("Extra Fine", "Fine", "Medium", "Broad"),
          "Nib", ("brass", "resin", "aluminium", "walnut wood"),
          ("Weight", ("17 g", "21 g", "26 g", "34 g")), (1800, 16900),
          "It writes at once, also after a week in the drawer."),
    Shelf("Headphones", "Electronics", "Headphones", ("Black", "White", "Blue", "Grey"), "Colour",
          ("aluminium", "recycled plastic", "steel and leather"),
          ("Battery life", ("18 hours", "24 hours", "30 hours", "45 hours")), (3900, 27900),
          "They fold flat and come with a bag."),
    Shelf("Power Banks", "Electronics", "Power Bank", ("Black", "White", "Red", "Green"), "Colour",
          ("aluminium", "recycled plastic"),
          ("Charge", ("5000 mAh", "10000 mAh", "15000 mAh", "20000 mAh")), (1900, 8900),
          "It charges two devices at a time."),
    Shelf("Yoga Mats", "Sport", "Yoga Mat", COLOURS, "Colour",
          ("natural rubber", "cork", "jute", "foam"),
          ("Thickness", ("3 mm", "4 mm", "5 mm", "6 mm")), (1900, 9900),
          "It does not slip on wood or stone."),
    Shelf("Water Bottles", "Sport", "Water Bottle", COLOURS, "Colour",
          ("stainless steel", "glass", "tritan"),
          ("Capacity", ("350 ml", "500 ml", "750 ml", "1000 ml")), (900, 4500),
          "It is tight in any position and has no taste of its own."),
    Shelf("Jigsaw Puzzles", "Toys", "Jigsaw Puzzle",
          ("300 pieces", "500 pieces", "1000 pieces", "2000 pieces"), "Pieces",
          ("cardboard", "birch wood"), ("Players", ("1", "1 to 2", "1 to 4", "2 to 6")), (900, 5900),
          "The pieces are thick and have a linen finish."),
)  # fmt: skip
DEPARTMENT_TEXTS = {
    "Kitchen": "For cooking, brewing and serving.",
    "Home": "Light, warmth and order for every room.",
    "Garden": "For balconies, beds and borders.",
    "Office": "Writing and thinking on paper.",
    "Electronics": "Sound and power for the road.",
    "Sport": "For the gym, the park and the way there.",
    "Toys": "Evenings without a screen.",
}
BRANDS = (
    "Aldgate", "Birchwood", "Calder", "Dunmore", "Elmet", "Fennick", "Garrow", "Holmby",
    "Inverlee", "Juniper & Sons", "Kestrel", "Lowther", "Marram", "Norvell",
)  # fmt: skip
LINES = (
    "Harbour", "Meadow", "Lantern", "Foundry", "Orchard", "Granite", "Willow", "Beacon", "Cobalt",
    "Thistle", "Saddler", "Ember", "Fjord", "Juno", "Mistral", "Pilot", "Quarry", "Ridge",
    "Sparrow", "Tundra", "Umber", "Vesper", "Wharf", "Yarrow", "Zephyr", "Atlas", "Brook",
    "Citadel", "Delta", "Everglade", "Falcon", "Grove", "Heron", "Indigo", "Jasper", "Keel",
)  # fmt: skip
COUNTRIES = ("Portugal", "Denmark", "Japan", "Italy", "Poland", "Canada", "Slovenia", "Wales")
OPENINGS = (
    "A {noun} from the {line} line by {brand}, made of {material}.",
    "{brand} makes this {noun} of {material} for its {line} line.",
    "Part of the {line} line: a {noun} of {material}, designed by {brand}.",
)
FIRST_NAMES = (
    "Nora", "Owen", "Priya", "Marcus", "Elif", "Tomas", "Grace", "Hiro", "Ines", "Jonah",
    "Katya", "Leon", "Maya", "Niall", "Oona", "Pavel", "Rosa", "Samir", "Tessa", "Uri",
    "Vera", "Wendell", "Ximena", "Yusuf", "Zelda", "Anders", "Bianca", "Cedric", "Dalia", "Emil",
    "Farah", "Gideon", "Helga", "Ivo", "Junia", "Kofi",
)  # fmt: skip
LAST_NAMES = (
    "Whitfield", "Okonkwo", "Lindqvist", "Marchetti", "Haddad", "Novakova", "Brennan", "Tanaka",
    "Ferreira", "Goldberg", "Ivanova", "Castellan", "Demir", "Ellwood", "Fontaine", "Grunwald",
    "Hallam", "Ibarra", "Jansen", "Kowalczyk", "Laurent", "Moreau", "Nyberg",
)  # fmt: skip
CITIES = (
    ("Portland", "OR", "97205"), ("Madison", "WI", "53703"), ("Savannah", "GA", "31401"),
    ("Boulder", "CO", "80302"), ("Ithaca", "NY", "14850"), ("Santa Fe", "NM", "87501"),
    ("Duluth", "MN", "55802"), ("Asheville", "NC", "28801"), ("Bellingham", "WA", "98225"),
    ("Burlington", "VT", "05401"), ("Galveston", "TX", "77550"), ("Lincoln", "NE", "68508"),
)  # fmt: skip
STREETS = (
    "Alder Street", "Bridge Road", "Chapel Lane", "Dover Avenue", "Elm Court", "Ferry Road",
    "Garden Terrace", "Hill Street", "Ivy Lane", "Juniper Way", "Kings Road", "Lake Drive",
)  # fmt: skip
REVIEW_TITLES = {
    5: ("Exactly what I hoped for", "Could not be happier", "Worth every cent", "A joy every day",
        "The best one I have owned", "Bought a second one"),
    4: ("Very good, one small wish", "Solid and well made", "Nearly perfect", "Good value",
        "Does what it should"),
    3: ("Decent for the price", "Neither good nor bad", "Fine, nothing more",
        "I expected a bit more"),
    2: ("Looks better than it works", "Disappointed after a month", "Not as described"),
    1: ("Sent it back", "Broke in the first week", "Please keep away from this"),
}  # fmt: skip
REVIEW_SENTENCES = {
    5: ("The {noun} arrived a day early and looks better than in the picture.",
        "After three months of daily use it is as good as new.",
        "My sister asked where I got it and ordered the same.",
        "You can feel that somebody thought about every detail."),
    4: ("The {noun} is well made and does its work.",
        "The packaging could be simpler.", "The colour is a little darker than I thought.",
        "I would buy it again, perhaps a size larger."),
    3: ("The {noun} is all right.", "For this price I had hoped for a better finish.",
        "It took two weeks to arrive.", "It works, but the edges are rough."),
    2: ("The {noun} looked worn after a few weeks.", "The measurements are not quite right.",
        "Support answered quickly but could not help."),
    1: ("The {noun} was damaged on arrival.", "It failed on the third day.",
        "I am still waiting for my money."),
}  # fmt: skip
