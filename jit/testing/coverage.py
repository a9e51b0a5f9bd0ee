"""What a report shows nothing of: a check that compared nothing has not held, and says why.

for missing in report.missing:
    print(missing)          # nothing compared on nova (refused: the device has no f64)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlojit.testing.findings import Result, Status, grouped


@dataclass(frozen=True, slots=True)
class Missing:
    """``what`` nothing was compared of, and the ``reason`` that most checks gave.

    ``is_essential``: without it nothing is shown, as when a back end that was asked for refuses everything.  ``is_most``: most
    of what was asked for, of which a small part was compared.
    """

    what: str
    reason: str
    is_essential: bool
    is_most: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


LEAST_COVERAGE: Final = 0.25
"""The share of the checks that must have compared something before anything is said to conform."""
LEAST_CHANGED: Final = 4
"""Programs that a pass must have changed, where they are less than that share of all, before it is said to conform."""
FULL_COVERAGE: Final = 0.9
"""The share above which what is refused is not worth a word."""


def missing_of(results: Sequence[Result]) -> Iterator[Missing]:
    """What nothing was compared of, the whole first."""
    subjects = {result.subject: None for result in results} or {"": None}
    compared = any(result.status.compared for result in results)
    if not compared:
        yield Missing("everything", _reason(results), True)
        return
    for subject in subjects:
        yield from _missing_of_subject(subject, [result for result in results if result.subject == subject])


def _missing_of_subject(subject: str, results: Sequence[Result]) -> Iterator[Missing]:
    in_front = f"{subject} " if subject else ""
    if not any(result.status.compared for result in results):
        # What is not for here - a kernel for a back end that this machine has not - is said, and is nobody's fault.
        is_for_here = any(result.status is not Status.SKIPPED for result in results)
        yield Missing(subject, _reason(results), is_for_here)
        return
    backends: dict[str, list[Result]] = {}
    for result in results:
        backends.setdefault(result.backend, []).append(result)
    alone = {name for name, own in backends.items() if name and not _is_shown(own)}
    for name in sorted(alone):
        yield Missing(f"{in_front}on {name}", _reason(backends[name]), True)
    groups = {group: [each for each in own if each.backend not in alone] for group, own in grouped(results).items()}
    absent = [group for group, rest in groups.items() if rest and not _is_shown(rest)]
    for group in absent:
        yield Missing(group, _reason(groups[group]), False)
    said = [each for each in results if each.backend in alone or each.group in absent]
    yield from _missing_of_many(subject, results, said)


def _missing_of_many(subject: str, results: Sequence[Result], said: Sequence[Result]) -> Iterator[Missing]:
    """What is refused here and there, beside what has been ``said``; and that it is most of all."""
    if any(each.status is Status.UNCHANGED for each in results):
        yield from _missing_of_pass(subject, results)
    # What a pass or a kernel is not for counts neither way.
    nothing = (Status.SKIPPED, Status.UNREACHED, Status.UNCHANGED)
    wanted = [each for each in results if each.status not in nothing]
    silent = [each for each in wanted if not each.status.compared]
    compared = len(wanted) - len(silent)
    is_most = compared < LEAST_COVERAGE * len(wanted)
    rest = silent if is_most else [each for each in silent if each not in said]
    if is_most or compared < FULL_COVERAGE * (compared + len(rest)):
        what = f"{len(rest)} of {len(wanted)} checks{f' of {subject}' if subject else ''}"
        yield Missing(what, _reason(rest), False, is_most)


def _missing_of_pass(subject: str, results: Sequence[Result]) -> Iterator[Missing]:
    """That a pass changed few of the programs that it was given: each is tried as it is written and as it is in its phase."""
    every = {each.name for each in results}
    changed = {each.name for each in results if each.status.compared}
    if len(changed) < LEAST_COVERAGE * len(every):
        what = f"{len(every) - len(changed)} of {len(every)} programs{f' of {subject}' if subject else ''}"
        reason = f"the pass changed {len(changed)}, whose results were compared; give programs= that it is for"
        yield Missing(what, reason, False, len(changed) < LEAST_CHANGED)


def _is_shown(results: Sequence[Result]) -> bool:
    """Whether something was compared, or nothing was for what is checked."""
    return any(each.status.compared for each in results) or all(each.status is Status.SKIPPED for each in results)


def _reason(results: Sequence[Result]) -> str:
    """The commonest reason, with how many others there are."""
    if not results:
        return "no check was made"
    reasons = Counter(f"{each.status.value}: {each.detail}".partition("\n")[0] for each in results)
    (first, _), *others = reasons.most_common()
    return f"{first} (and {len(others)} other reasons)" if others else first
