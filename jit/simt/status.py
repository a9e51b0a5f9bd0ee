"""What plugins' functions report from a kernel of threads, and how they are told to stop.

A kernel that calls functions which can fail, or which have loops, takes one address more, behind those of its buffers: that
of its *status*, words of 32 bits which the runtime sets to 0 before the program runs and reads when it has run::

    word 0          not 0: loops of functions end; the host writes it
    word 1 + n      not 0: the failure number n of ``Phase.reports`` has happened; any thread writes it

So a failure has one meaning on all machines, and costs a kernel without one nothing but a test in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.scalar.calls import ScalarFunction
from hlojit.llvm.foreign_calls import ForeignCalls
from hlojit.llvm.text import Val
from hlojit.simt.c_library import without_c_library

if TYPE_CHECKING:
    from hlojit.simt.builder import SimtBuilder

WORD: Final = 4
"""Bytes of a word of the status."""


def status_bytes(reports: Sequence[str]) -> int:
    """Bytes of the status of a kernel with these failures."""
    return WORD * (1 + len(reports))


@final
class ThreadCalls(ForeignCalls):
    """Calls in kernels of threads: failures are words of the status."""

    builder: SimtBuilder

    def __init__(self, builder: SimtBuilder):
        super().__init__(builder)
        self._status = ""
        self._reports: list[str] = []

    @property
    def has_status(self) -> bool:
        """Whether the kernel that was emitted last takes a status."""
        return bool(self._status)

    @property
    def reports(self) -> tuple[str, ...]:
        """The failures of the kernel that was emitted last."""
        return tuple(self._reports)

    def begin_kernel(self) -> None:
        """A kernel begins, which has no status so far."""
        self._status = ""
        self._reports = []

    def context(self) -> str:
        if not self._status:
            self._status = self.builder.status().text
        return self._status

    def call(self, function: ScalarFunction, result_kind: str, arguments: Sequence[Val]) -> Val:
        if function.imports:
            raise UnsupportedError(
                "a C function", "", "it runs on the host; a function that numba compiles runs here, too"
            )
        text, missing = without_c_library(function.llvm_ir)
        assert not missing, f"{function.symbol} calls {missing}"
        return super().call(replace(function, llvm_ir=self.builder.dialect.linked(text)), result_kind, arguments)

    def report(self, message: str) -> None:
        b = self.builder
        if message not in self._reports:
            self._reports.append(message)
        offset = WORD * (1 + self._reports.index(message))
        place = b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {self._status}, i64 {offset}")
        b.line(f"store i32 1, ptr {place.text}, align {WORD}")
