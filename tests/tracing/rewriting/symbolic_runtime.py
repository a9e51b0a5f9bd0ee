"""A runtime that traces whole-number programs into an expression graph, to show that the protocol is enough for that.

Branches and bodies of loops run once, on symbols; only then the graph is evaluated for concrete numbers.  An error is a number in the
state, as in compiled programs: the first one that happens ends all loops.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from hlojit.tracing.rewriting import (
    RETURN_VALUE,
    UNDEFINED,
    Kind,
    PythonRuntime,
    RunBody,
    RunTest,
    Site,
    substitute,
)

Environment = dict["Symbol", Any]


class Symbol:
    """A number that is known when the graph is evaluated."""

    def __init__(self, compute: Callable[[Evaluation], Any] | None = None):
        self.compute = compute

    def __bool__(self) -> bool:
        raise AssertionError("a symbol was asked for its truth")

    def __index__(self) -> int:
        raise AssertionError("a symbol was taken for an index")

    __hash__ = object.__hash__


class Evaluation:
    """The values of symbols, in an iteration of a loop or outside."""

    def __init__(self, known: Environment):
        self.known = dict(known)

    def __call__(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(self, value))
        if not isinstance(value, Symbol):
            return value
        if value not in self.known:
            assert value.compute is not None, "a symbol of a loop is used outside of it"
            self.known[value] = value.compute(self)
        found = self.known[value]
        # In a loop, a variable that was not bound before.
        return self(found) if isinstance(found, Symbol) else found


def apply(function: Callable[..., Any], *operands: Any) -> Symbol:
    return Symbol(lambda evaluate: function(*map(evaluate, operands)))


def _define(name: str, function: Callable[..., Any]) -> None:
    setattr(Symbol, f"__{name}__", lambda self, other: apply(function, self, other))
    if name not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Symbol, f"__r{name}__", lambda self, other: apply(function, other, self))


for _name in ("add", "sub", "mul", "mod", "floordiv", "lt", "le", "gt", "ge", "eq", "ne"):
    _define(_name, getattr(operator, _name))


def select(condition: Any, then: Any, otherwise: Any) -> Any:
    if then is otherwise:
        return then
    return Symbol(lambda evaluate: evaluate(then) if evaluate(condition) else evaluate(otherwise))


def unbound(name: str) -> Symbol:
    def fail(evaluate: Evaluation) -> Any:
        raise UnboundLocalError(name)

    return Symbol(fail)


class SymbolicRange:
    def __init__(self, stop: Any):
        self.stop = stop

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("a range of symbols was iterated over by Python")


class SymbolicRuntime(PythonRuntime):
    """``tests_apart``: loops evaluate their tests by ``RunTest``, apart from the bodies."""

    def __init__(self, tests_apart: bool = False):
        self.tests_apart = tests_apart
        self.error: Any = 0
        self.ended = False
        """The branch has come to a ``raise``."""
        self.errors: list[tuple[Any, Site]] = []
        self.depth = 0
        self.taken: set[Kind] = set()

    # ----------------------------------------------------------------- running

    def result(self, value: Any) -> Any:
        """What the program returns, or raises."""
        evaluate = Evaluation({})
        number = evaluate(self.error)
        if number:
            exception, site = self.errors[number - 1]
            exception = exception() if isinstance(exception, type) else exception
            exception.line = site.line
            raise exception
        return evaluate(value)

    def takes(self, site: Site, value: Any) -> bool:
        found = isinstance(value, SymbolicRange if site.kind is Kind.FOR else Symbol)
        if found:
            self.taken.add(site.kind)
        return found

    def callee(self, site: Site, function: Any) -> Any:
        if function is range:
            return lambda stop: SymbolicRange(stop) if isinstance(stop, Symbol) else range(stop)
        return substitute(function)

    # -------------------------------------------------------------- constructs

    def _run(self, error: Any) -> None:
        self.error, self.ended = error, False
        self.depth += 1

    def _ran(self) -> tuple[Any, bool]:
        self.depth -= 1
        return self.error, self.ended

    def if_(self, site: Site, condition: Any, before: Any) -> Any:
        error = self.error
        self._run(error)
        then = yield before
        first, then_ended = self._ran()
        self._run(error)
        otherwise = yield before
        second, otherwise_ended = self._ran()
        self.error, self.ended = select(condition, first, second), then_ended and otherwise_ended
        if then_ended or otherwise_ended:
            return otherwise if then_ended else then
        return tuple(map(self._merged, [site] * len(then), site.names, [condition] * len(then), then, otherwise))

    def _merged(self, site: Site, name: str, condition: Any, then: Any, otherwise: Any) -> Any:
        if (then is UNDEFINED and otherwise is UNDEFINED) or name not in site.live_after:
            return UNDEFINED
        if name == RETURN_VALUE and (then is UNDEFINED or otherwise is UNDEFINED):
            return otherwise if then is UNDEFINED else then
        then, otherwise = (unbound(name) if each is UNDEFINED else each for each in (then, otherwise))
        return select(condition, then, otherwise)

    def ternary(self, site: Site, condition: Any) -> Any:
        error = self.error
        then = yield True
        first, self.error = self.error, error
        otherwise = yield False
        self.error = select(condition, first, self.error)
        return select(condition, then, otherwise)

    def and_(self, site: Site, first: Any) -> Any:
        error = self.error
        rest = yield True
        self.error = select(first, self.error, error)
        return select(first, rest, first)

    def or_(self, site: Site, first: Any) -> Any:
        error = self.error
        rest = yield True
        self.error = select(first, error, self.error)
        return select(first, first, rest)

    def not_(self, site: Site, value: Any) -> Any:
        return apply(operator.not_, value) if isinstance(value, Symbol) else not value

    def while_(self, site: Site, condition: Any, state: Any) -> Any:
        loop = _Loop(site, state, [condition, self.error])
        going, error = loop.own
        self._run(error)
        if self.tests_apart:
            tested, behind = yield RunTest(loop.state_with_flag)
            assert all(a is b for a, b in zip(behind, loop.state_with_flag)), "the test changes variables"
            assert self.error is error
            _, after = yield RunBody(loop.state)
            condition_in_loop, going = select(error == 0, tested, False), True
        else:
            going_on, after = yield RunBody(loop.state)
            condition_in_loop = select(error == 0, going, False)
            going = going_on
        raised, ended = self._ran()
        self.ended = False
        results = loop.run(condition_in_loop, [False if ended else going, raised], loop.state if ended else after)
        self.error = results.own[1]
        return results.state

    def for_(self, site: Site, iterable: Any, state: Any) -> Any:
        loop = _Loop(site, state, [0, False, self.error])
        number, left, error = loop.own
        self._run(error)
        after = yield RunBody(loop.state, number)
        raised, ended = self._ran()
        self.ended = False
        flag = after[site.names.index(site.exit_flag)] if site.exit_flag and not ended else False
        going = apply(lambda i, n, out, error: i < n and not out and not error, number, iterable.stop, left, error)
        results = loop.run(going, [number + 1, flag, raised], loop.state if ended else after)
        self.error = results.own[2]
        return results.state

    def raises(self, site: Site) -> bool:
        # Behind an error that may have happened even this one is one that may happen.
        return not self.depth and not self.errors

    def raise_(self, site: Site, exception: Any, cause: Any) -> None:
        self.errors.append((exception, site))
        self.error, self.ended = select(self.error == 0, len(self.errors), self.error), True

    def no_value(self) -> Any:
        return 0


class _Results:
    def __init__(self, own: list[Any], state: tuple[Any, ...]):
        self.own = own
        self.state = state


class _Loop:
    """Symbols for what changes from one iteration to the next; ``own`` are those of the runtime."""

    def __init__(self, site: Site, before: tuple[Any, ...], own: list[Any]):
        self.site = site
        self.before = [*own, *before]
        self.own = [Symbol() for _ in own]
        self.state = tuple(map(self._parameter, site.names, before))
        self.state_with_flag = tuple(
            Symbol() if name == site.exit_flag else each for name, each in zip(site.names, self.state)
        )
        self.parameters = [*self.own, *self.state_with_flag]

    def _parameter(self, name: str, value: Any) -> Any:
        if name == self.site.exit_flag:
            return False
        return Symbol() if name in self.site.carried and (value is not UNDEFINED or name == RETURN_VALUE) else UNDEFINED

    def run(self, going: Any, own: list[Any], after: tuple[Any, ...]) -> _Results:
        behind = [*own, *after]

        def compute(evaluate: Evaluation) -> list[Any]:
            values = [unbound("?") if each is UNDEFINED else each for each in self.before]
            values = [_value_or_unbound(evaluate, each) for each in values]
            while True:
                inside = Evaluation(evaluate.known | _bound(self.parameters, values))
                if not inside(going):
                    return values
                values = [_value_or_unbound(inside, each) for each in behind]

        whole = Symbol(compute)

        def output(position: int) -> Symbol:
            return Symbol(lambda evaluate: evaluate(evaluate(whole)[position]))

        outputs = [output(position) for position in range(len(self.before))]
        first = len(self.own)
        state = tuple(
            outputs[first + position] if name in self.site.live_after else UNDEFINED
            for position, name in enumerate(self.site.names)
        )
        return _Results(outputs[:first], state)


def _bound(parameters: list[Any], values: list[Any]) -> Environment:
    return {each: value for each, value in zip(parameters, values) if isinstance(each, Symbol)}


def _value_or_unbound(evaluate: Evaluation, value: Any) -> Any:
    if value is UNDEFINED:
        return unbound("?")
    try:
        return evaluate(value)
    except UnboundLocalError:
        return unbound("?")
