"""Categories of the forum, each with the words for one subject."""

import dataclasses
from collections.abc import Sequence

from agentgym_envs import data_files


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
    uses: Sequence[str]
    products: Sequence[str]
    place: str
    questions: Sequence[str]
    projects: Sequence[str]
    plans: Sequence[str]
    tips: Sequence[str]


CIRCLES: tuple[Circle, ...] = tuple(Circle(**row) for row in data_files.beside(__file__)["circles"])
