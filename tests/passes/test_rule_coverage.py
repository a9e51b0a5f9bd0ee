"""Every rewrite rule fires in a golden case, has a name of its own and says what it does."""

from __future__ import annotations

from hlojit.ir.passes.rewriting import Rule
from hlojit.ir.passes.rules import ALL_RULES

from .golden import all_cases


def test_every_rule_fires() -> None:
    fired: set[Rule] = set()
    for _, case in all_cases():
        fired.update(case.transform()[1])
    missing = [rule.name for rule in ALL_RULES if rule not in fired]
    assert not missing, f"no golden case makes these rules fire: {missing}"


def test_rules_have_names_of_their_own_and_summaries() -> None:
    names = [rule.name for rule in ALL_RULES]
    assert len(set(names)) == len(names)
    assert all(rule.summary.endswith((".", ":")) or rule.summary for rule in ALL_RULES)


def test_case_names_are_unique_in_a_file() -> None:
    seen = set()
    for path, case in all_cases():
        assert (path, case.name) not in seen
        seen.add((path, case.name))
