"""Tables of what passed, per suite and per op, and the list of what did not."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tools.conformance.programs import Outcome, Program
from tools.conformance.reasons import explained

Outcomes = Mapping[str, Sequence[Outcome]]
"""By suite."""


def kinds_of_failures(outcomes: Sequence[Outcome]) -> str:
    """How many programs failed in which way, and how many have a reason."""
    kinds = Counter(
        outcome.kind if outcome.is_failure else "with a reason" for outcome in outcomes if not outcome.passed
    )
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def summary(suite: str, outcomes: Sequence[Outcome]) -> str:
    """One line: passed of all, and what kinds of failures there are."""
    passed = sum(outcome.passed for outcome in outcomes)
    rest = kinds_of_failures(outcomes)
    return f"{suite}: {passed}/{len(outcomes)}" + (f" ({rest})" if rest else "")


def keep(folder: Path, suite: str, outcomes: Sequence[Outcome], every: int = 1) -> None:
    """Keep a suite's outcomes in the folder, so that tables have them when other suites are run later.

    ``every`` says of how many programs one was taken.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(each.program.name, each.kind, each.reason, each.seconds, each.ops) for each in outcomes]
    (folder / f"outcomes-{suite}.json").write_text(json.dumps({"every": every, "outcomes": rows}))


def kept(folder: Path, backend: str, suites: Iterable[str]) -> dict[str, list[Outcome]]:
    """The outcomes of the suites of which there are any in the folder, with the reasons that hold now."""
    return {suite: outcomes for suite, (_every, outcomes) in kept_samples(folder, backend, suites).items()}


def kept_samples(folder: Path, backend: str, suites: Iterable[str]) -> dict[str, tuple[int, list[Outcome]]]:
    """By suite, of how many programs one was taken, and what became of it."""
    found = {}
    for suite in suites:
        path = folder / f"outcomes-{suite}.json"
        if not path.exists():
            continue
        try:
            data = json.loads(path.read_text())
            outcomes = [
                Outcome(Program(suite, name, ""), reason, kind, seconds, tuple(ops))
                for name, kind, reason, seconds, ops in data["outcomes"]
            ]
            found[suite] = (int(data["every"]), [explained(outcome, backend) for outcome in outcomes])
        except (ValueError, TypeError, KeyError):
            continue  # of another version of this tool, or cut short: the suite is to be run again
    return found


def write(folder: Path, backend: str, found: Outcomes) -> None:
    """``summary.md``, ``ops.md`` and a list of failures for every suite, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"# Conformance of `{backend}`", "", "| suite | passed | all | failures |", "|---|---|---|---|"]
    for suite, outcomes in found.items():
        passed = sum(outcome.passed for outcome in outcomes)
        lines.append(f"| {suite} | {passed} | {len(outcomes)} | {kinds_of_failures(outcomes)} |")
        (folder / f"failures-{suite}.txt").write_text("".join(f"{line}\n" for line in failures(outcomes)))
    (folder / "summary.md").write_text("\n".join([*lines, ""]))
    (folder / "ops.md").write_text(ops_table(found))


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for every program that failed: name, kind and reason."""
    failed = sorted((outcome for outcome in outcomes if not outcome.passed), key=lambda outcome: outcome.program.name)
    return [
        f"{outcome.program.name}: {outcome.kind}: {outcome.reason}"
        + (f" [cannot pass: {outcome.cannot_pass}]" if outcome.cannot_pass else "")
        for outcome in failed
    ]


def ops_table(found: Outcomes) -> str:
    """For every op and suite: programs with the op that passed, of all that have it."""
    counts: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for suite, outcomes in found.items():
        for outcome in outcomes:
            for op in outcome.ops:
                counts[op][suite][0] += outcome.passed
                counts[op][suite][1] += 1
    suites = list(found)
    lines = [f"| op | {' | '.join(suites)} |", f"|---|{'---|' * len(suites)}"]
    for op in sorted(counts):
        cells = [f"{counts[op][suite][0]}/{counts[op][suite][1]}" if suite in counts[op] else "" for suite in suites]
        lines.append(f"| `{op}` | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
