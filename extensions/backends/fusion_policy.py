"""What a back end decides about fusions itself, as the fusion pass asks it: checked, and with the back end's name in errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from hlojit.extensions.backends.backend import Backend
from hlojit.extensions.origins import backend_text
from hlojit.ir.errors import PluginError, short_repr
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import Cost
from hlojit.ir.vendor_calls import call_named


def fusion_policy(backend: Backend) -> BackendPolicy | None:
    """That of a back end; None if it leaves everything to hlojit."""
    kind = type(backend)
    is_own = kind.fuses_into is not Backend.fuses_into or kind.element_cost is not Backend.element_cost
    return BackendPolicy(backend) if is_own else None


@final
@dataclass(frozen=True, slots=True)
class BackendPolicy:
    """The answers of one back end."""

    backend: Backend

    def fuses_into(self, producer: Instruction, group: Sequence[Instruction]) -> bool | None:
        """As ``Backend.fuses_into``."""
        answer = self._asked("fuses_into", producer, group)
        if answer is None or isinstance(answer, bool):
            return answer
        raise self._wrong("fuses_into", producer, f"returned {short_repr(answer)}; return True, False or None")

    def element_cost(self, instruction: Instruction) -> Cost | None:
        """As ``Backend.element_cost``."""
        answer = self._asked("element_cost", instruction)
        if answer is None or isinstance(answer, Cost):
            return answer
        raise self._wrong(
            "element_cost", instruction, f"returned {short_repr(answer)}; return Cost.CHEAP, Cost.EXPENSIVE or None"
        )

    def _asked(self, method: str, instruction: Instruction, *others: Any) -> Any:
        ask = getattr(self.backend, method)
        return call_named(lambda: self._where(method, instruction), lambda: ask(instruction, *others))

    def _wrong(self, method: str, instruction: Instruction, what: str) -> PluginError:
        return PluginError(f"{self._where(method, instruction)} {what}\n  at {instruction.location}")

    def _where(self, method: str, instruction: Instruction) -> str:
        return f"{backend_text(self.backend.name)}: {method} for {instruction.name}"
