"""Calls of plugins' scalar functions in a kernel, and what becomes of their failures.

A function that can fail or that has loops gets the address of its *state*, sixteen bytes on the stack of the function under
construction: the context, a word into which failures are or-ed, a count of iterations.  After inlining LLVM keeps all of
it in registers.  A failure is reported once, when the kernel's function ends::

    %failed = load i32, ptr %state.failed
    br i1 (%failed & 1), report, done           ; report: hlojit_fail(context, FUNCTION_FAILED, message, length)

Helper functions of a kernel get the context as one more parameter when something in the kernel needs it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from hlojit.ir.scalar.calls import FAILED_OFFSET, STATE_BYTES, TICKS_OFFSET, ScalarFunction
from hlojit.lowering.abi import Status

if TYPE_CHECKING:
    from hlojit.llvm.builder import LlvmBuilder, Val

UNBOUNDED_NANOSECONDS: Final = 50_000.0
"""What a task is taken to last at least whose functions have loops: long enough to let other Python threads run."""


class ForeignCalls(ABC):
    """The functions that a builder's code calls, and their states in the function under construction."""

    def __init__(self, builder: LlvmBuilder):
        self.builder = builder
        self.linked: dict[str, str] = {}
        """LLVM modules (text) to link in, by the symbol that is called."""
        self.imports: dict[str, str] = {}
        """Symbols that these leave open, with the names by which they are found."""
        self.has_loops = False
        self.unkeyable = ""
        """Why the code of one of them has no identity, see ``KernelCode``."""
        self._states: dict[tuple[str, str], str] = {}
        self._helpers: list[str] = []
        self._needs_context = False

    @abstractmethod
    def context(self) -> str:
        """The address that states hold, which polls get."""

    @abstractmethod
    def report(self, message: str) -> None:
        """Emit the report of a failure."""

    def begin(self, symbol: str, *, is_helper: bool) -> None:
        """A function begins."""
        self._states = {}
        if is_helper:
            self._helpers.append(symbol)

    def call(self, function: ScalarFunction, result_kind: str, arguments: Sequence[Val]) -> Val:
        """Emit one call on scalars."""
        b = self.builder
        self.linked[function.symbol] = function.llvm_ir
        self.imports |= dict(function.imports)
        self.has_loops |= function.has_loops
        self.unkeyable = self.unkeyable or function.unkeyable
        types = [b.type(argument.kind) for argument in arguments]
        passed = [f"{kind} {argument.text}" for kind, argument in zip(types, arguments)]
        if function.takes_state:
            types.append("ptr")
            passed.append(f"ptr {self._state(function)}")
        result = b.type(result_kind)
        b.declare(function.symbol, f"declare {result} @{function.symbol}({', '.join(types)})")
        return b.emit(result_kind, 1, f"call {result} @{function.symbol}({', '.join(passed)})")

    def _state(self, function: ScalarFunction) -> str:
        key = function.symbol, function.failure
        if key not in self._states:
            self._needs_context = True
            address, failed, ticks = (self.builder.name() for _ in range(3))
            self._states[key] = address
            self.builder.at_entry(
                f"{address} = alloca [{STATE_BYTES} x i8], align 8",
                f"store ptr {self.context()}, ptr {address}, align 8",
                f"{failed} = getelementptr inbounds i8, ptr {address}, i64 {FAILED_OFFSET}",
                f"store i32 0, ptr {failed}, align 4",
                f"{ticks} = getelementptr inbounds i8, ptr {address}, i64 {TICKS_OFFSET}",
                f"store i32 0, ptr {ticks}, align 4",
            )
        return self._states[key]

    def end(self) -> None:
        """The function ends: report what failed in it."""
        b = self.builder
        for (_, failure), address in self._states.items():
            if not failure:
                continue
            place = b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {address}, i64 {FAILED_OFFSET}")
            failed = b.trunc(b.load("i32", place), "i1")
            report, done = b.fresh_label("failed"), b.fresh_label("checked")
            b.branch_if(failed, report, done)
            b.begin_block(report)
            self.report(failure)
            b.branch(done)
            b.begin_block(done)

    def with_context(self, text: str) -> str:
        """The module's text, its helper functions taking the context first if anything needs it."""
        if not self._needs_context:
            return text
        for helper in self._helpers:
            text = re.sub(rf"@{re.escape(helper)}\(", f"@{helper}(ptr noundef %context, ", text)
        return text


@final
class HostCalls(ForeignCalls):
    """Calls in kernels that get the context: failures go into its error slot."""

    def context(self) -> str:
        return "%context"

    def report(self, message: str) -> None:
        b = self.builder
        text = message.encode()
        address = b.constant_bytes(text)
        b.declare("hlojit_fail", "declare void @hlojit_fail(ptr, i32, i64, i64)")
        number = b.emit("i64", 1, f"ptrtoint ptr {address.text} to i64")
        b.line(
            f"call void @hlojit_fail(ptr %context, i32 {int(Status.FUNCTION_FAILED)}, i64 {number.text}, "
            f"i64 {len(text)})"
        )
