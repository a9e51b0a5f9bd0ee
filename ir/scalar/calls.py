"""Python functions of plugins inside generated code: what a rule asks for, and what a compiled function is.

    number = builder.call(row.decode, ("u8",), "f32", (code,), "the decode function of posit8")

Kinds are those of scalars, and ``u8`` ... ``u64`` for integers that the function is to see as unsigned (a format's bits,
elements of ``ui8``).  What the function returns becomes the result kind as ``stablehlo.convert`` would make it; ``i4``,
``u2`` are integers of fewer bits than their scalars have, and ``c5`` is a code of five bits: another one is an error.

A builder that evaluates runs the function; one that emits code asks ``compiled_function`` for its LLVM code, which
``hlojit.extensions`` gets from numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.scalar.ieee_functions import ieee_copy

FAILED_OFFSET = 8
TICKS_OFFSET = 12
STATE_BYTES = 16
"""A call's state, see ``ScalarFunction``: the context's address, an i32 of failures, an i32 of iterations."""


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """LLVM code of a function on scalars, to be linked in and inlined.

    ``llvm_ir`` defines ``symbol``, which takes the arguments and returns the result.  One that can fail, or that has
    loops, takes one argument more, the address of a *state* that the kernel keeps on its stack: the context's address,
    a word into which failures are or-ed, and a count of iterations, by which loops know when to look whether the call
    is cancelled.  ``failure`` is what the kernel reports at its end when something failed; empty: nothing can.
    ``unkeyable`` says why the function's content does not tell what its code does, or is empty.
    """

    symbol: str
    llvm_ir: str
    result: str
    """The kind that the function returns by itself; of codes the kind in which they are stored."""
    failure: str = ""
    has_loops: bool = False
    unkeyable: str = ""
    imports: tuple[tuple[str, str], ...] = ()
    """Symbols that the code leaves open, with the names by which whoever loads it finds them."""

    @property
    def takes_state(self) -> bool:
        """Whether the last parameter is the state."""
        return self.has_loops or bool(self.failure)


class FunctionCompiler(Protocol):
    """How a Python function becomes LLVM code."""

    def __call__(
        self, function: Callable[..., Any], kinds: tuple[str, ...], result: str, user: str
    ) -> ScalarFunction: ...


_compiler: list[FunctionCompiler] = []


def set_function_compiler(compiler: FunctionCompiler) -> None:
    """Say how functions are compiled; ``hlojit.extensions`` does so when it is loaded."""
    _compiler[:] = [compiler]


def compiled_function(function: Callable[..., Any], kinds: tuple[str, ...], result: str, user: str) -> ScalarFunction:
    """The code of a function for argument and result kinds; ``user`` says in errors what needs it."""
    if not _compiler:
        raise HlojitError("no way to compile Python functions was registered")
    return _compiler[0](function, kinds, result, user)


class FunctionEvaluator(Protocol):
    """How a Python function is applied to each element of an array, compiled as it is in kernels; raises if it does."""

    def __call__(
        self, function: Callable[..., Any], kinds: tuple[str, ...], result: str
    ) -> Callable[..., np.ndarray[Any, Any]]: ...


_evaluator: list[FunctionEvaluator] = []


def set_function_evaluator(evaluator: FunctionEvaluator) -> None:
    """Say how functions are applied to arrays; ``hlojit.extensions`` does so when it is loaded."""
    _evaluator[:] = [evaluator]


def evaluated(
    function: Callable[..., Any], kinds: tuple[str, ...], result: str
) -> Callable[..., np.ndarray[Any, Any]] | None:
    """A function of arrays that applies a Python function to each element; None if nothing says how."""
    return _evaluator[0](function, kinds, result) if _evaluator else None


def plain_kind(kind: str) -> str:
    """The kind of scalar: integers have no sign there, and eight bits at least."""
    if kind[0] == "f" or kind == "i1":
        return kind
    return f"i{max(8, 1 << (int(kind[1:]) - 1).bit_length())}"


def code_bits(kind: str) -> int:
    """The bits of a code, 0 for other kinds."""
    return int(kind[1:]) if kind[0] == "c" else 0


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """A plugin's scalar function, of Python numbers, as a kernel computes it: IEEE arithmetic where Python raises.

    Divisions by zero give 0 for integers, an infinity or NaN for floats; shifts by less than 0 give 0 or the sign; powers
    and the functions of ``math`` infinities and NaN.  What the function itself raises, it raises here.
    """
    copies: list[Callable[..., Any]] = []

    def again(values: Sequence[Any]) -> Any:
        if not copies:
            copies.append(ieee_copy(function) or function)
        with np.errstate(all="ignore"):
            return copies[0](*_numpy_numbers(values))

    def number(*values: Any) -> Any:
        try:
            found = function(*values)
        except (ZeroDivisionError, ValueError, OverflowError):
            return again(values)
        # Python's power of a negative number.
        return again(values) if type(found) is complex else found

    return number


def _numpy_numbers(values: Sequence[Any]) -> list[Any]:
    """One type for all integers: of a uint64 and an int64 NumPy makes floats."""
    integers = [value for value in values if type(value) is int]
    is_unsigned = max(integers, default=0) > np.iinfo(np.int64).max and min(integers) >= 0
    kind: Any = np.uint64 if is_unsigned else np.int64
    return [
        kind(value) if type(value) is int else np.float64(value) if type(value) is float else value for value in values
    ]


class FunctionTable:
    """Functions that one kernel uses, compiled (or found) once each."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[str, ...], str, str], tuple[object, ScalarFunction]] = {}

    def get(self, function: Callable[..., Any], kinds: tuple[str, ...], result: str, user: str) -> ScalarFunction:
        """See ``compiled_function``."""
        key = id(function), kinds, result, user
        known = self._known.get(key)
        if known is None:
            # The function is kept: an address names an object only as long as the object lives.
            known = self._known[key] = function, compiled_function(function, kinds, result, user)
        return known[1]
