"""A function compiled for one signature, and what its results become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from hlojit.tracing.calls.containers import LEAF, Structure, unflatten
from hlojit.tracing.calls.guards import Guards
from hlojit.tracing.calls.outcomes import Outcome


@final
@dataclass(frozen=True, slots=True, eq=False)
class CompiledForm:
    """A function for one signature."""

    call: Callable[..., Any]
    structure: Structure
    """Of the results."""
    executable: Any
    outcome: Outcome | None
    """What is done with what the program returns; None where that are the results."""
    guards: Guards | None = None
    """Of what static arguments hold; None where they hold nothing that can change."""

    @classmethod
    def of(cls, executable: Any, structure: Structure, outcome: Outcome, guards: Guards | None = None) -> CompiledForm:
        """The form of a program that was traced."""
        # Without the executable's own indirection: this is called again and again.
        call = getattr(executable, "call", executable)
        return cls(call, structure, executable, None if outcome.is_plain else outcome, guards)

    def results(self, made: Any, leaves: Sequence[Any]) -> Any:
        """The results in the containers in which the function returned them."""
        if self.outcome is not None:
            made = self.outcome.results(made, leaves)
        elif self.structure is LEAF:
            return made
        return unflatten(self.structure, made if isinstance(made, tuple) else (made,))
