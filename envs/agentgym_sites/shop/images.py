"""Pictures of products, which are drawn when the shop is prepared. Uploads are refused."""

import pathlib

from django.core.exceptions import SuspiciousFileOperation
from django.core.files.storage import FileSystemStorage
from oscar.core.thumbnails import AbstractThumbnailer

from agentgym_sites.shop.tables import Product, slug

_COLOURS = {
    "Blue": "#3b6ea8", "Green": "#4b8b5a", "Red": "#b4483f", "White": "#e9e4d8",
    "Black": "#34383d", "Yellow": "#d9b13b", "Grey": "#8b9096", "Orange": "#d07a34",
    "Steel": "#a9b2ba", "Copper": "#b87348", "Terracotta": "#b8694a", "Slate": "#5d6a73",
    "Sand": "#cdb88f", "Ivory": "#e8dfc6",
}  # fmt: skip
_PLAIN = "#7d8f69"  # colour of products whose variants are not colours
_SHAPES = {
    "Mugs": '<rect x="45" y="50" width="60" height="70" rx="8"/>'
    '<path d="M105 65 h14 a14 14 0 0 1 0 38 h-14" fill="none" stroke-width="9"/>',
    "Kettles": '<path d="M50 125 l8 -62 h46 l8 62 z"/><path d="M60 60 q21 -38 42 0" fill="none"'
    ' stroke-width="7"/><path d="M110 80 l22 -14" stroke-width="10"/>',
    "Frying Pans": '<circle cx="70" cy="85" r="38"/><path d="M105 85 h45" stroke-width="11"/>',
    "Desk Lamps": '<path d="M55 130 h45 M78 128 l-14 -46 l36 -30" fill="none" stroke-width="7"/>'
    '<path d="M88 38 l34 22 l-26 16 z"/>',
    "Blankets": '<path d="M38 60 h84 v66 h-84 z"/><path d="M38 78 h84 M38 96 h84" stroke="#fff"'
    ' stroke-width="4"/>',
    "Storage Baskets": '<path d="M42 65 h76 l-9 60 h-58 z"/><path d="M55 65 q25 -34 50 0" fill="none"'
    ' stroke-width="6"/>',
    "Watering Cans": '<rect x="60" y="65" width="52" height="58" rx="5"/>'
    '<path d="M62 105 l-32 -44 M70 65 q17 -34 36 0" fill="none" stroke-width="8"/>',
    "Pruning Tools": '<path d="M55 130 l30 -50 l-8 -42 l20 36 l28 56" fill="none" stroke-width="10"/>',
    "Planters": '<path d="M45 85 h70 l-10 45 h-50 z"/><path d="M80 85 q-6 -40 -28 -44 M80 85 q4 -50'
    ' 26 -52" fill="none" stroke="#4b8b5a" stroke-width="8"/>',
    "Notebooks": '<rect x="48" y="40" width="66" height="90" rx="4"/>'
    '<path d="M60 40 v90" stroke="#fff" stroke-width="4"/>',
    "Fountain Pens": '<path d="M45 125 l62 -76 l16 13 l-62 76 z"/><path d="M45 125 l-6 18 l18 -6 z"/>',
    "Headphones": '<path d="M45 105 v-18 a35 35 0 0 1 70 0 v18" fill="none" stroke-width="8"/>'
    '<rect x="38" y="92" width="18" height="36" rx="7"/>'
    '<rect x="104" y="92" width="18" height="36" rx="7"/>',
    "Power Banks": '<rect x="55" y="40" width="52" height="92" rx="9"/>'
    '<path d="M84 62 l-14 26 h12 l-4 22 l16 -28 h-12 z" fill="#fff" stroke="none"/>',
    "Yoga Mats": '<rect x="30" y="92" width="100" height="32" rx="16"/>'
    '<circle cx="46" cy="108" r="7" fill="#fff" stroke="none"/>',
    "Water Bottles": '<rect x="60" y="55" width="40" height="78" rx="9"/>'
    '<rect x="69" y="36" width="22" height="17" rx="3"/>',
    "Jigsaw Puzzles": '<path d="M45 60 h26 a11 11 0 1 1 20 0 h26 v26 a11 11 0 1 0 0 20 v24 h-72 z"/>',
}  # fmt: skip


class WholeImage(AbstractThumbnailer):
    """Thumbnailer that returns the drawing itself, because pages scale drawings to any size."""

    def generate_thumbnail(self, source, **opts):
        """Returns the image unchanged."""
        return source

    def delete_thumbnails(self, source):
        """Does nothing, because there are no thumbnails."""


class ReadOnlyImages(FileSystemStorage):
    """Pictures of the prepared shop. An upload would remain after its episode, so it is refused."""

    def _save(self, name, content):
        raise SuspiciousFileOperation("this shop keeps no uploaded files")

    def delete(self, name):
        """Does nothing, because other episodes show the picture, too."""


def image_name(product: Product) -> str:
    """Returns the file name of a product's picture."""
    return f"{slug(product.shelf.name)}-{slug(_colour_name(product))}.svg"


def draw(product: Product) -> str:
    """Returns a product's picture as SVG."""
    colour = _COLOURS.get(_colour_name(product), _PLAIN)
    return _picture(f'<g fill="{colour}" stroke="{colour}">{_SHAPES[product.shelf.name]}</g>')


def draw_all(folder: pathlib.Path, products: tuple[Product, ...]) -> None:
    """Writes the pictures of all products, and the picture for products without a picture."""
    folder.mkdir()
    for product in products:
        (folder / image_name(product)).write_text(draw(product), encoding="utf-8")
    nothing = '<circle cx="80" cy="80" r="40" fill="none" stroke="#999" stroke-width="6"/>'
    (folder / "none.svg").write_text(_picture(nothing), encoding="utf-8")


def _colour_name(product: Product) -> str:
    variant = product.attributes[1][1]
    return variant if variant in _COLOURS else "plain"


def _picture(content: str) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="155" height="155" viewBox="0 0 160 160">'
        f'<rect width="160" height="160" fill="#f5f2ec"/>{content}</svg>\n'
    )
