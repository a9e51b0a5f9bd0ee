"""Which runtime answers now, and which constructs it has taken over and not yet finished."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, final

from hlojit.tracing.rewriting.protocol import Kind, RewritingError, Runtime, Site
from hlojit.tracing.rewriting.python_runtime import PythonRuntime


@final
class Taken:
    """A construct that the runtime has taken over: its generator, and what the generator asks for."""

    __slots__ = ("execution", "finished", "generator", "request", "result", "site")

    def __init__(self, execution: Execution, site: Site, generator: Generator[Any, Any, Any]):
        self.execution = execution
        self.site = site
        self.generator = generator
        self.finished = False
        self.request: Any = None
        self.result: Any = None
        execution.open.append(self)
        self.send(None)

    def send(self, answer: Any) -> None:
        """Tell the generator what it asked for; ``request`` or ``result`` is what it says then."""
        if self.finished or self.execution.open[-1] is not self:
            raise self.execution.left_open(self)
        try:
            self.request = self.generator.send(answer)
        except StopIteration as stop:
            self.finished, self.result = True, stop.value
            self._close()
        except BaseException:
            self.finished = True
            self._close()
            raise

    def take_request(self) -> Any:
        """What the generator asks for, which is not kept."""
        request, self.request = self.request, None
        return request

    def take_result(self) -> Any:
        """What the generator has returned, which is not kept."""
        result, self.result = self.result, None
        return result

    def expect(self, *, finished: bool) -> None:
        """Complain about a runtime that asks for too much or too little."""
        if self.finished is not finished:
            ended = "ended too early" if self.finished else "asked for more than there is"
            raise AssertionError(f"{self.site} the runtime's generator for {self.site.kind.value!r} {ended}")

    def _close(self) -> None:
        if self in self.execution.open:
            del self.execution.open[self.execution.open.index(self) :]

    def thrown(self, error: BaseException) -> BaseException | None:
        """Tell the generator that the source has raised; gives the exception that it raises in its place, if it does."""
        self.finished = True
        traceback = error.__traceback__
        try:
            self.generator.throw(error)
        except BaseException as raised:
            if raised is not error and not isinstance(raised, StopIteration):
                return raised
        else:
            self.generator.close()
        finally:
            # The frames of the generator are none of the way that the exception has gone.
            error.__traceback__ = traceback
        return None


@final
class Execution:
    """A runtime, and the constructs that it has taken over, outermost first."""

    __slots__ = ("open", "refused", "runtime")

    def __init__(self, runtime: Runtime):
        self.runtime = runtime
        self.open: list[Taken] = []
        self.refused: RewritingError | None = None

    def taken(self, site: Site, value: Any) -> bool:
        """Whether the runtime takes a construct over; raises where it would have to and that is impossible."""
        if not self.runtime.takes(site, value):
            return False
        if site.inside or site.kind is Kind.TRUTH:
            self.refused = RewritingError(
                f"{site} this depends on a traced value inside of {site.inside or 'what stays Python'}, "
                "where nothing traced can be followed; move it out, or compute it with np.where"
            )
            raise self.refused
        return True

    def answered(self, taken: Taken, error: Exception) -> bool:
        """Whether the runtime takes over an exception that leaves a part of a construct."""
        if self.refused is not None or taken not in self.open:
            return False
        self.unwind(self.open.index(taken) + 1, error)
        return self.runtime.answers(taken.site, error)

    def insist(self, error: BaseException | None) -> None:
        """Raise what was refused, if the source has caught it."""
        if self.refused is not None and error is None:
            raise self.refused

    def left_open(self, expected: Taken | None) -> RewritingError:
        """The error for a jump out of a construct that was taken over; closes what is above ``expected``."""
        site = expected.site if expected is not None else None
        while self.open and self.open[-1] is not expected:
            taken = self.open.pop()
            taken.finished, site = True, taken.site
            taken.generator.close()
        if expected is not None:
            expected.finished = True
        return RewritingError(
            f"{site} break, continue or return inside of a try statement leaves this {site.kind.value if site else ''}, "
            "which depends on a traced value; set a variable there, and leave behind the try statement"
        )

    def unwind(self, depth: int, error: BaseException | None) -> None:
        """End what a function has left open: with the exception that ends it, or raise for a jump."""
        if len(self.open) > depth and error is None:
            raise self.left_open(self.open[depth - 1] if depth else None)
        while len(self.open) > depth:
            other = self.open.pop().thrown(error) if error is not None else None
            if other is not None:
                self.unwind(depth, other)
                raise other


_PYTHON: Final = Execution(PythonRuntime())
_current: ContextVar[Execution] = ContextVar("hlojit_rewritten_execution", default=_PYTHON)


def current() -> Execution:
    """What answers in this context; Python where nothing else was set."""
    return _current.get()


@contextmanager
def running(runtime: Runtime) -> Iterator[Runtime]:
    """Have rewritten functions ask this runtime.

    with running(runtime):
        rewritten(function).function(x)
    """
    token = _current.set(Execution(runtime))
    try:
        yield runtime
    finally:
        _current.reset(token)
