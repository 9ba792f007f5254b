"""Passages of the corpus during a build."""

import dataclasses
import json
from collections.abc import Iterator

from agentgym_facts.text import quoteless


@dataclasses.dataclass(frozen=True)
class Passage:
    """Passage of a few sentences on one topic.

    Attributes:
      id: `<kind>-<key in the source>`, the same in every build.
      title: Title without quotation marks.
      text: Text that names its topic, so that a search for the name finds the passage.
      source: Key of SOURCES.
    """

    id: str
    title: str
    text: str
    source: str

    def row(self) -> str:
        """Returns the passage as a line of passages.jsonl."""
        contents = f'"{self.title}"\n{self.text}'
        return json.dumps({"id": self.id, "contents": contents}, ensure_ascii=False)


class PassageBook:
    """All passages in the order in which they were added."""

    def __init__(self) -> None:
        self._passages: dict[str, Passage] = {}

    def add(self, passage_id: str, title: str, text: str, source: str) -> str:
        """Adds a passage and returns its id.

        Raises:
          ValueError: the book already has a passage with this id, or the text has several lines.
        """
        if passage_id in self._passages:
            raise ValueError(f"two passages have the id {passage_id}")
        if not text or "\n" in text or "\n" in title:
            raise ValueError(
                f"passage {passage_id}: title and text need one line each, and a text is not empty"
            )
        self._passages[passage_id] = Passage(passage_id, quoteless(title), text, source)
        return passage_id

    def __getitem__(self, passage_id: str) -> Passage:
        return self._passages[passage_id]

    def __len__(self) -> int:
        return len(self._passages)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self._passages.values())
