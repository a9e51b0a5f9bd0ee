"""Entries of the native dispatcher: a call that Python has answered, written down so that native code answers the next such one.

    entry = entry_of(Seen(call, compiled, ...))      # None of calls that operations do not describe: Python answers these

An entry holds on to everything that a compiled form was found by: types, shapes and layouts of the arrays, containers around
them, values of static arguments, names that the function reads, plugins and the back end.  What it does not know it leaves
to Python, where a call's meaning is defined (``hlojit.tracing.decorator``).
"""

from __future__ import annotations

from hlojit.runtime.dispatcher import Entry, entry
from hlojit.tracing.calls.giving import Giving
from hlojit.tracing.calls.matching import Matching
from hlojit.tracing.calls.seen import Seen, Unknown


def entry_of(seen: Seen) -> Entry | None:
    """The entry for calls like this one; None if operations cannot describe it."""
    try:
        matching = Matching(seen)
        matching.write()
        giving = Giving(seen)
        giving.write()
    except Unknown:
        return None
    numbers = {
        "positional": len(seen.arguments),
        "named": len(seen.named),
        "values": matching.count + 1,
        "leaves": len(seen.leaves) + 1,
        "stack": giving.room + 1,
        "results": giving.results,
    }
    return entry(matching.words, giving.words, seen.call, seen.finish, numbers)
