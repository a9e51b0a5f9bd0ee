"""``Hooks``: the one object that a rewritten function sees beside its own variables; its methods are what the source calls.

It asks the runtime of the present context at each call, so one rewritten function serves all runtimes, and a nested function that
outlives a trace is Python again.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

from hlojit.tracing.rewriting.constructs import Branching, Choosing, Iterating, Looping, ShortCircuit, Variables
from hlojit.tracing.rewriting.execution import current
from hlojit.tracing.rewriting.protocol import RETURN_VALUE, UNDEFINED, FunctionInfo, Part, Site

_IN_PLACE: Final = {
    "Add": operator.iadd,
    "Sub": operator.isub,
    "Mult": operator.imul,
    "Div": operator.itruediv,
    "FloorDiv": operator.ifloordiv,
    "Mod": operator.imod,
    "Pow": operator.ipow,
    "LShift": operator.ilshift,
    "RShift": operator.irshift,
    "BitOr": operator.ior,
    "BitXor": operator.ixor,
    "BitAnd": operator.iand,
    "MatMult": operator.imatmul,
}
"""Python's operators of augmented assignments, by the names that ``ast`` has for them."""


@final
class Hooks:
    """Of one function: its sites by number, and its global variables."""

    locals = staticmethod(builtins.locals)
    """Not in a method of ours: it is about the frame that calls it."""
    undefined: Final = UNDEFINED
    AssertionError: Final = builtins.AssertionError
    BaseException: Final = builtins.BaseException

    def __init__(
        self,
        sites: tuple[Site, ...],
        names: tuple[tuple[str, ...], ...],
        functions: tuple[FunctionInfo, ...],
        variables: Mapping[str, Any],
    ):
        self._sites = sites
        self._names = names
        """Of each site the names as Python has them."""
        self._functions = functions
        self._globals = variables

    # -------------------------------------------------------------- statements

    def enter(self, number: int) -> _Activation:
        """A function begins: ``with`` around its body."""
        return _Activation(self._functions[number])

    def globals(self, *names: str) -> Variables:
        """The variables of this frame's module that a construct assigns."""
        return {name: self._globals[name] for name in names if name in self._globals}

    def if_(self, number: int, condition: Any, variables: Variables) -> Branching:
        """An ``if``, with its test evaluated."""
        return Branching(current(), self._sites[number], self._names[number], condition, variables)

    def while_(self, number: int) -> Looping:
        """A ``while``, before its first test."""
        return Looping(current(), self._sites[number], self._names[number])

    def for_(self, number: int, iterable: Any, variables: Variables) -> Iterating:
        """A ``for``, with its iterable evaluated."""
        return Iterating(current(), self._sites[number], self._names[number], iterable, variables)

    @contextmanager
    def trying(self, number: int, handled: Callable[[], Sequence[Any]]) -> Iterator[None]:
        """The body of a ``try`` with ``except`` clauses."""
        runtime = current().runtime
        runtime.enter_try(self._sites[number], handled)
        try:
            yield
        finally:
            runtime.leave_try()

    def raises(self, number: int) -> bool:
        """Whether a ``raise`` is Python's."""
        return current().runtime.raises(self._sites[number])

    def raise_(self, number: int, exception: Any, cause: Any = UNDEFINED) -> None:
        """A ``raise`` in a part that was taken over."""
        current().runtime.raise_(self._sites[number], exception, cause)

    def aug_assign(self, number: int, name: str, value: Any, operand: Any) -> Any:
        """``x += v``."""
        return current().runtime.aug_assign(self._sites[number], _IN_PLACE[name], value, operand)

    def deleted(self, value: Any) -> None:
        """A variable is about to be deleted, whose value this is."""
        current().runtime.deleted(value)

    def returned(self, variables: Variables) -> Any:
        """What a function returns early, if it has not ended otherwise in a part that was taken over."""
        return variables[RETURN_VALUE] if RETURN_VALUE in variables else current().runtime.no_value()

    # ------------------------------------------------------------- expressions

    def ternary(self, number: int, condition: Any) -> Choosing:
        """A conditional expression."""
        return Choosing(current(), self._sites[number], condition)

    def and_(self, number: int, first: Any) -> ShortCircuit:
        """``first and ...``."""
        return ShortCircuit(current(), self._sites[number], first, True)

    def or_(self, number: int, first: Any) -> ShortCircuit:
        """``first or ...``."""
        return ShortCircuit(current(), self._sites[number], first, False)

    def not_(self, number: int, value: Any) -> Any:
        """``not value``."""
        return current().runtime.not_(self._sites[number], value)

    def contains(self, number: int, item: Any, container: Any) -> Any:
        """``item in container``."""
        return current().runtime.contains(self._sites[number], item, container)

    def python(self, number: int, value: Any) -> Any:
        """A condition that Python decides."""
        current().taken(self._sites[number], value)
        return value

    def iterable(self, number: int, value: Any) -> Any:
        """What Python iterates over."""
        return current().runtime.iterable(self._sites[number], value)

    def callee(self, number: int, function: Any) -> Callable[..., Any]:
        """What is called in the place of a function."""
        return current().runtime.callee(self._sites[number], function)

    def text(self, number: int, *parts: Part) -> Any:
        """An f-string, with its values evaluated."""
        return current().runtime.text(self._sites[number], parts)

    def modulo(self, number: int, template: str, values: Any) -> Any:
        """``"%d" % values``."""
        return current().runtime.modulo(self._sites[number], template, values)

    def target(self, number: int, value: Any) -> Any:
        """What takes an assignment to an item or attribute."""
        return current().runtime.target(self._sites[number], value)

    def scope(self, number: int, body: Callable[[], Any]) -> Any:
        """The body of a lambda expression in which something may be taken over."""
        with self.enter(number):
            return body()


@final
class _Activation:
    """One call of a rewritten function."""

    __slots__ = ("_depth", "_execution", "_function")

    def __init__(self, function: FunctionInfo):
        self._function = function
        self._execution = current()
        self._depth = 0

    def __enter__(self) -> None:
        self._depth = len(self._execution.open)
        self._execution.runtime.enter(self._function)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        ended = error
        try:
            self._execution.unwind(self._depth, error)
            self._execution.insist(error)
        except BaseException as other:
            ended = other
            raise
        finally:
            self._execution.runtime.leave(self._function, ended)
