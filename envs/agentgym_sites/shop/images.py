"""Pictures of products, which are drawn when the shop is prepared. Uploads are refused."""

import pathlib

from django.core.exceptions import SuspiciousFileOperation
from django.core.files.storage import FileSystemStorage
from oscar.core.thumbnails import AbstractThumbnailer

from agentgym_envs import data_files
from agentgym_sites.shop.tables import Product, slug

_DRAWINGS = data_files.beside(__file__)
_PLAIN = "#7d8f69"  # colour of products whose variants are not colours


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
    colour = _DRAWINGS["colours"].get(_colour_name(product), _PLAIN)
    shape = "".join(_DRAWINGS["shapes"][product.shelf.name])
    return _picture(f'<g fill="{colour}" stroke="{colour}">{shape}</g>')


def draw_all(folder: pathlib.Path, products: tuple[Product, ...]) -> None:
    """Writes the pictures of all products, and the picture for products without a picture."""
    folder.mkdir()
    for product in products:
        (folder / image_name(product)).write_text(draw(product), encoding="utf-8")
    nothing = '<circle cx="80" cy="80" r="40" fill="none" stroke="#999" stroke-width="6"/>'
    (folder / "none.svg").write_text(_picture(nothing), encoding="utf-8")


def _colour_name(product: Product) -> str:
    variant = product.attributes[1][1]
    return variant if variant in _DRAWINGS["colours"] else "plain"


def _picture(content: str) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="155" height="155" viewBox="0 0 160 160">'
        f'<rect width="160" height="160" fill="#f5f2ec"/>{content}</svg>\n'
    )
