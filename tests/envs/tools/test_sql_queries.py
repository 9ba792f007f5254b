"""Queries of the SQL environment: they only read, and only a little."""

import pytest

from agentgym_envs.tools.database import MAX_ROWS, QueryError, query
from tests.envs.tools.tool_play import first_of, start


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("selec", 'near "selec": syntax error'),
        ("select 1; select 2", "You can only execute one statement at a time."),
        ("drop table customer", "attempt to write a readonly database"),
        ("insert into customer values (1, 'a', 'b', 'c')", "attempt to write a readonly database"),
        ("create temp table t (a)", "attempt to write a readonly database"),
        ("attach 'x.db' as x", "not authorized"),
        ("vacuum into 'x.db'", "authorization denied"),
        ("pragma writable_schema = 1", "not authorized"),
        ("select random()", "not authorized to use function: random"),
        ("select printf('%.*c', 1000000000, 'x')", "not authorized to use function: printf"),
        ("select load_extension('x')", "not authorized to use function: load_extension"),
        (
            "with recursive c(x) as (select 1 union all select x + 1 from c) select sum(x) from c",
            "interrupted",
        ),
        ("select zeroblob(2000)", "not authorized to use function: zeroblob"),
        (
            "select replace(replace('aaaaaaaaaa', 'a', 'bbbbbbbbbb'), 'b', 'cccccccccccc')",
            "string or blob too big",
        ),
        ("select '\x00'", "the query contains a null character"),
    ],
)
def test_a_query_can_only_read_and_only_a_little(statement, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryError) as caught:
        query("shop", statement)
    assert str(caught.value) == problem
    assert not list(tmp_path.iterdir())
    assert query("shop", "SELECT COUNT(*) FROM customer") == [(40,)]


def test_a_query_returns_few_rows_and_shows_few_characters():
    assert len(query("shop", "SELECT a.id FROM customer a, customer b")) == MAX_ROWS + 1
    environment = start("sqlgym")
    result = environment.step("SELECT name FROM customer")
    assert len(result.observation) == 103 and result.observation.endswith("...")
    assert (result.score, result.done) == (0, True)


def test_rows_are_compared_as_sets_and_the_statement_may_be_in_a_block():
    data_idx = first_of("sqlgym", "bought_by")
    gold = start("sqlgym", data_idx).episode.task.expected
    assert len(query("shop", gold)) > 1
    turned = [f"SELECT * FROM ({gold}) ORDER BY 1 {order}" for order in ("ASC", "DESC")]
    for text in (f"{gold};", f"Thought: t\nAction: ```sql\n{gold}\n```", *turned):
        assert start("sqlgym", data_idx).step(text).score == 1
    assert start("sqlgym", data_idx).step(f"SELECT *, 1 FROM ({gold})").score == 0
