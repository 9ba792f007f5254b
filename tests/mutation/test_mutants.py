"""The table of defects fits the present code, so that `mutants.py` can apply all of them."""

import pathlib

from tests.mutation.defects import MUTANTS


def test_the_code_of_every_defect_occurs_once():
    root = pathlib.Path(__file__).parents[2]
    files = [path for folder in ("agentgym_jax", "envs") for path in (root / folder).rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    assert not [m.before for m in MUTANTS if sum(text.count(m.before) for text in texts) != 1]
    assert all((root / m.tests).exists() for m in MUTANTS)
