"""A page of what passed: every suite on every back end that was run, what cannot pass and why, and the table of ops.

It is made of what the command keeps in its output folder: whole suites where there are any, otherwise samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.conformance import report
from tools.conformance.programs import Outcome

_BACKENDS: Final = {"cpu": "CPU", "reference": "reference", "cuda": "`cuda`, simulated"}
_HEAD: Final = """# Conformance: results

Written by `python -m tools.conformance ... --page docs/conformance-results.md`; [conformance.md](conformance.md) says what
the suites are.
"""


def page(output: Path, suites: Iterable[str]) -> str:
    """The page for all that an output folder has."""
    order = list(suites)
    found = {backend: _of_backend(output, backend, order) for backend in _BACKENDS}
    found = {backend: rows for backend, rows in found.items() if rows}
    names = [suite for suite in order if any(suite in rows for rows in found.values())]
    head = [_BACKENDS[backend] for backend in found]
    lines = [_HEAD, f"| suite | {' | '.join(head)} |", f"|---|{'---|' * len(head)}"]
    lines += [f"| {suite} | {' | '.join(_cell(rows.get(suite)) for rows in found.values())} |" for suite in names]
    lines += ["", *_exceptions(found), "## Ops", ""]
    whole = {
        suite: outcomes
        for suite, (every, outcomes) in next(iter(found.values()), {}).items()
        if every == 1 and suite != "jax"
    }
    lines += [f"Programs with the op that passed, of all that have it ({head[0] if head else 'nothing was run'}).", ""]
    return "\n".join([*lines, report.ops_table(whole)])


def _of_backend(output: Path, backend: str, suites: Sequence[str]) -> dict[str, tuple[int, list[Outcome]]]:
    """By suite, of how many programs one was taken and what became of it."""
    return {
        **report.kept_samples(output / "partial" / backend, backend, suites),
        **report.kept_samples(output / backend, backend, suites),
    }


def _cell(found: tuple[int, list[Outcome]] | None) -> str:
    if found is None:
        return ""
    every, outcomes = found
    sample = f" (one of {every})" if every > 1 else ""
    return f"{sum(outcome.passed for outcome in outcomes)}/{len(outcomes)}{sample}"


def _exceptions(found: Mapping[str, Mapping[str, tuple[int, list[Outcome]]]]) -> list[str]:
    """What did not pass, with the reason, and where."""
    where: dict[tuple[str, str, str], list[str]] = {}
    for backend, rows in found.items():
        for suite, (_every, outcomes) in rows.items():
            for outcome in outcomes:
                if not outcome.passed:
                    why = outcome.cannot_pass or f"**a defect**: {outcome.kind}: {outcome.reason}"
                    where.setdefault((suite, outcome.program.name, why), []).append(_BACKENDS[backend])
    if not where:
        return []
    lines = ["## What does not pass", "", "| program | on | why |", "|---|---|---|"]
    cells = ((name, backends, why.replace("|", "\\|")) for (_suite, name, why), backends in where.items())
    return [*lines, *(f"| `stablehlo/{name}` | {', '.join(backends)} | {why} |" for name, backends, why in cells), ""]
