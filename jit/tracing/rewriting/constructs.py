"""The objects between one construct of a rewritten function and the runtime: what the source's own statements ask.

``hooks.py`` makes them; ``statements.py`` and ``expressions.py`` say by which statements they are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

from hlojit.tracing.rewriting.execution import Execution, Taken
from hlojit.tracing.rewriting.protocol import UNDEFINED, RunBody, RunTest, Site, State

Variables = Mapping[str, Any]


def state_of(names: tuple[str, ...], variables: Variables) -> State:
    """The values of variables, ``UNDEFINED`` where there is none."""
    state = tuple([variables.get(name, UNDEFINED) for name in names])
    if type(variables) is dict:
        # Before Python 3.13 it stays with the frame, and would keep alive what is bound again.
        variables.clear()
    return state


class _Construct:
    """``traced`` says whether the runtime has taken it over; ``state`` is then what the names are to be bound to."""

    __slots__ = ("_names", "_site", "_state", "_taken", "raised", "traced")

    def __init__(self, site: Site, names: tuple[str, ...]):
        self._site = site
        self._names = names
        """Those of the site as Python has them (in classes, ``__x`` is another name)."""
        self._taken: Taken | None = None
        self.traced = False
        self.raised = False
        """Whether the part that ran last has ended by an exception that is the runtime's from now on."""
        self._state: State = ()

    def __enter__(self) -> None:
        """A part of the source begins."""

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        """It ends; an exception that the runtime takes over ends it, too."""
        taken = self._taken
        self.raised = taken is not None and isinstance(error, Exception) and taken.execution.answered(taken, error)
        return self.raised

    def _left(self, variables: Variables) -> State:
        """What a part leaves."""
        state = state_of(self._names, variables)
        if not self.raised:
            return state
        self.raised = False
        return (UNDEFINED,) * len(state)

    @property
    def state(self) -> State:
        """What the names are to be bound to; asked once: what they are bound to later is not kept alive."""
        state, self._state = self._state, ()
        return state

    def _set(self, state: State) -> None:
        if len(state) != len(self._names):
            raise AssertionError(f"{self._site} the runtime's state has {len(state)} values, not {len(self._names)}")
        self._state = tuple(state)


@final
class Branching(_Construct):
    """An ``if``."""

    __slots__ = ("then",)

    def __init__(self, execution: Execution, site: Site, names: tuple[str, ...], condition: Any, variables: Variables):
        super().__init__(site, names)
        runtime = execution.runtime
        self.traced = execution.taken(site, condition)
        if self.traced:
            self._taken = Taken(execution, site, runtime.if_(site, condition, state_of(names, variables)))
            self._taken.expect(finished=False)
            self._set(self._taken.take_request())
        self.then = self.traced or bool(condition)

    def otherwise(self, variables: Variables) -> bool:
        """Whether ``else`` is to run."""
        if self._taken is None:
            return not self.then
        self._taken.send(self._left(variables))
        self._taken.expect(finished=False)
        self._set(self._taken.take_request())
        return True

    def end(self, variables: Variables) -> None:
        """Both branches have run."""
        assert self._taken is not None
        self._taken.send(self._left(variables))
        self._taken.expect(finished=True)
        self._set(self._taken.take_result())


@final
class Looping(_Construct):
    """A ``while``: ``head`` is asked with the value of the test."""

    __slots__ = ("_execution", "again")

    def __init__(self, execution: Execution, site: Site, names: tuple[str, ...]):
        super().__init__(site, names)
        self._execution = execution
        execution.runtime.begin(site)
        self.again = False
        """The test is to be evaluated once more, without the body."""

    def head(self, condition: Any, variables: Variables) -> bool:
        """Whether the body, or the test, is to run again."""
        if self._taken is None:
            runtime = self._execution.runtime
            if not self._execution.taken(self._site, condition):
                return bool(condition)
            self.traced = True
            loop = runtime.while_(self._site, condition, state_of(self._names, variables))
            self._taken = Taken(self._execution, self._site, loop)
        else:
            self._taken.send((condition, self._left(variables)))
        if self._taken.finished:
            self._set(self._taken.take_result())
            return False
        request: RunTest | RunBody = self._taken.take_request()
        self._set(request.state)
        self.again = isinstance(request, RunTest)
        return True


@final
class Iterating(_Construct):
    """A ``for``: an iterator that is asked for items, and told at the end of each body."""

    __slots__ = ("_in_body", "_iterator")

    def __init__(self, execution: Execution, site: Site, names: tuple[str, ...], iterable: Any, variables: Variables):
        super().__init__(site, names)
        self._in_body = False
        self._iterator: Iterator[Any] = iter(())
        self.traced = execution.taken(site, iterable)
        if self.traced:
            self._taken = Taken(execution, site, execution.runtime.for_(site, iterable, state_of(names, variables)))
        else:
            self._iterator = iter(iterable)

    def __iter__(self) -> Iterator[Any]:
        return self if self.traced else self._iterator

    def __next__(self) -> Any:
        taken = self._taken
        assert taken is not None
        if self._in_body:
            raise taken.execution.left_open(None)
        if taken.finished:
            self._set(taken.take_result())
            raise StopIteration
        request: RunBody = taken.take_request()
        self._set(request.state)
        self._in_body = True
        return request.item

    def leave(self, left: Any, variables: Variables) -> bool:
        """The body has ended; ``left`` is the loop's flag of breaks.  Whether the loop is to be left now."""
        if self._taken is None:
            return left is True
        self._in_body = False
        self._taken.send(self._left(variables))
        return False


@final
class Choosing:
    """A conditional expression."""

    __slots__ = ("_taken", "_values", "otherwise", "then")

    def __init__(self, execution: Execution, site: Site, condition: Any):
        self._taken: Taken | None = None
        if execution.taken(site, condition):
            self._taken = Taken(execution, site, execution.runtime.ternary(site, condition))
            self._taken.expect(finished=False)
            self.then = self.otherwise = True
        else:
            self.then = bool(condition)
            self.otherwise = not self.then

    def first(self, value: Any) -> Any:
        """The first branch has this value."""
        if self._taken is not None:
            self._taken.send(value)
            self._taken.expect(finished=False)
        return value

    def end(self, first: Any, second: Any) -> Any:
        """The value of the expression."""
        if self._taken is None:
            return first if self.then else second
        self._taken.send(second)
        self._taken.expect(finished=True)
        return self._taken.result


@final
class ShortCircuit:
    """``and`` and ``or``."""

    __slots__ = ("_taken", "first", "on")

    def __init__(self, execution: Execution, site: Site, first: Any, conjunction: bool):
        self._taken: Taken | None = None
        self.first = first
        runtime = execution.runtime
        if execution.taken(site, first):
            generator = runtime.and_(site, first) if conjunction else runtime.or_(site, first)
            self._taken = Taken(execution, site, generator)
            self._taken.expect(finished=False)
            self.on = True
        else:
            self.on = bool(first) is conjunction

    def end(self, rest: Any) -> Any:
        """The value of the expression, once the rest is evaluated."""
        if self._taken is None:
            return rest
        self._taken.send(rest)
        self._taken.expect(finished=True)
        return self._taken.result
