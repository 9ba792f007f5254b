"""File of verdicts."""

import json

import pytest

from agentgym_jax.judge.cache import Verdict, VerdictCache
from agentgym_jax.runs.atomic_files import RunFolderError

FIRST, SECOND = Verdict(7.0, "fine", 100, 10), Verdict(0.0, "näh", 90, 9)


def test_verdicts_are_on_disk_as_soon_as_they_are_added(tmp_path):
    cache = VerdictCache(tmp_path)
    assert not list(tmp_path.iterdir())  # a run that is refused leaves no file
    cache.add("a", FIRST)
    cache.add("b", SECOND)
    lines = (tmp_path / "judge_cache.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {
        "key": "a",
        "score": 7.0,
        "reason": "fine",
        "prompt_tokens": 100,
        "completion_tokens": 10,
    }
    again = VerdictCache(tmp_path)
    assert (again.find("a"), again.find("b"), again.find("c")) == (FIRST, SECOND, None)


@pytest.mark.parametrize("torn", ['{"key": "b", "sco', '{"key": "b"}', "[]", '{"score": 1}', "7"])
def test_an_incomplete_last_line_is_ignored_and_does_not_spoil_the_next(tmp_path, torn):
    VerdictCache(tmp_path).add("a", FIRST)
    with (tmp_path / "judge_cache.jsonl").open("a") as file:
        file.write(torn)
    cache = VerdictCache(tmp_path)
    assert (cache.find("a"), cache.find("b")) == (FIRST, None)
    cache.add("b", SECOND)
    again = VerdictCache(tmp_path)
    assert (again.find("a"), again.find("b")) == (FIRST, SECOND)


def test_each_process_writes_its_file_and_reads_all(tmp_path):
    VerdictCache(tmp_path, 0).add("a", FIRST)
    VerdictCache(tmp_path, 1).add("b", SECOND)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["judge_cache.1.jsonl", "judge_cache.jsonl"]
    assert VerdictCache(tmp_path, 0).find("b") == SECOND


def test_an_unwritable_file_is_an_error_with_a_remedy(tmp_path):
    with pytest.raises(RunFolderError, match="judge_cache.jsonl"):
        VerdictCache(tmp_path / "missing").add("a", FIRST)
