"""What rewritten functions ask of a runtime while they run, and what they tell it.

A rewritten function is the user's function with hooks in it: the same statements in the same frame, so that whatever depends on
Python values alone runs as before.  Where the runtime takes a construct over (``Runtime.takes``), it is given a generator that
the construct talks to: the generator yields the state in which a part of the source is to run, and receives the state behind it.

    def if_(self, site, condition, before):            # x = traced condition: both branches run, one after the other
        then = yield before                            # the body has run, and this is its state
        otherwise = yield before
        return tuple(self.select(condition, a, b) for a, b in zip(then, otherwise))

A **state** is a tuple of the values of ``site.names``, ``UNDEFINED`` for what is not bound.  What a generator yields or returns
is bound to the names again; ``UNDEFINED`` unbinds one, so that its use is Python's own UnboundLocalError.

An exception that leaves the part of the source which a ``yield`` stands for is answered by the runtime (``answers``), or thrown
into the generator there, and goes on whether the generator takes notice of it or not; raising another one there replaces it.  A
jump that could not be rewritten (out of a ``try``, inside a part that was taken over) closes the generator and is a
``RewritingError``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, final

from hlojit.ir.errors import HlojitError
from hlojit.tracing.places import Place


class RewritingError(HlojitError, TypeError):
    """Control flow on a traced value that cannot be followed, with place and reason."""


@final
class Undefined:
    """The type of ``UNDEFINED``; whatever is done with it raises."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __bool__(self) -> bool:
        raise UnboundLocalError("a variable that is not bound on this path has no truth value")

    def __getattr__(self, name: str) -> Any:
        raise UnboundLocalError(f"a variable that is not bound on this path has no attribute {name!r}")


UNDEFINED: Final = Undefined()
"""Stands in states for variables that are not bound."""

State: TypeAlias = tuple[Any, ...]

Part: TypeAlias = str | tuple[Any, str, Any]
"""Of an f-string: a text, or a value with its conversion (``s``, ``r``, ``a`` or none) and specification."""

RETURN_VALUE: Final = "_hlojit_return"
"""The variable that holds what a function returns early; meaningful only where ``RETURNED`` is true."""
VALUE: Final = "_hlojit_value"
"""How runtimes call the value of an expression in labels."""
RETURNED: Final = "_hlojit_returned"
"""The variable that says whether the function has returned."""


class Kind(enum.Enum):
    """What a site is in the source."""

    IF = "if"
    WHILE = "while"
    FOR = "for"
    TERNARY = "conditional expression"
    AND = "and"
    OR = "or"
    NOT = "not"
    IN = "in"
    COMPARE = "chained comparison"
    TRUTH = "condition"
    RAISE = "raise"
    ASSERT = "assert"
    CALL = "call"
    TARGET = "assignment to a part"
    AUGMENTED = "augmented assignment"
    ITERABLE = "iterable of a comprehension"
    TEXT = "formatted text"
    TRY = "try"


@final
@dataclass(frozen=True)
class Site:
    """One place of the source at which the runtime is asked."""

    kind: Kind
    function: str
    """Qualified name of the function that it is in."""
    file: str
    line: int
    column: int
    text: str
    """The line of the source, for messages."""
    names: tuple[str, ...] = ()
    """Variables that the construct assigns or deletes, in the order of its states."""
    live_after: frozenset[str] = frozenset()
    """Those of ``names`` that may be read behind it; of the others any value will do in the final state, ``UNDEFINED`` too."""
    carried: frozenset[str] = frozenset()
    """Of loops: those of ``names`` that an iteration may read of the one before, or that pass through it."""
    by_calls: frozenset[str] = frozenset()
    """Of loops: those of ``names`` that only functions inside assign, so that a call may change them, and mostly none does."""
    by_updates: frozenset[str] = frozenset()
    """Of loops: those of ``names`` that no other statement binds than ``x += 1`` and its kin, which leave an array what it is."""
    appended: frozenset[str] = frozenset()
    """Of loops: variables of which the body knows nothing but ``x.append(v)``, and no function inside knows more."""
    exit_flag: str = ""
    """Of loops: the one of ``names`` that is true when the loop has been left by ``break`` or ``return``."""
    inside: str = ""
    """What it is in that nothing traced can be followed in ("a try statement (line 12)"), or empty."""

    def __str__(self) -> str:
        return str(Place(self.file, self.line, self.text))

    def label(self, name: str) -> str:
        """How messages call one of ``names``."""
        if name == RETURN_VALUE:
            return "the returned value"
        if not name.isidentifier():
            # What a list, a dictionary or an object holds.
            return name
        if not name.startswith("_hlojit_"):
            return f"the variable {name!r}"
        return "the value" if name == VALUE else f"whether {self.function} has returned"


@final
@dataclass(frozen=True)
class FunctionInfo:
    """One function of the rewritten source."""

    name: str
    file: str
    line: int
    outer_names: frozenset[str] = field(default=frozenset())
    """Variables of other scopes that it assigns: what it declares ``global`` or ``nonlocal``."""


@final
@dataclass(frozen=True)
class RunTest:
    """Asked of a ``while``: evaluate the test in this state."""

    state: State


@final
@dataclass(frozen=True)
class RunBody:
    """Asked of a loop: run the body in this state; of a ``for`` with this item, of a ``while`` and the test behind it."""

    state: State
    item: Any = None


Choice: TypeAlias = Generator[bool, Any, Any]
Branches: TypeAlias = Generator[State, State, State]
WhileLoop: TypeAlias = Generator[RunTest | RunBody, tuple[Any, State], State]
ForLoop: TypeAlias = Generator[RunBody, State, State]


class Runtime(Protocol):
    """What runs rewritten functions.  ``PythonRuntime`` is a base: it takes nothing over."""

    def enter(self, function: FunctionInfo) -> None:
        """A rewritten function begins."""

    def leave(self, function: FunctionInfo, error: BaseException | None) -> None:
        """It ends, with this exception or with none."""

    def begin(self, site: Site) -> None:
        """A ``while`` begins."""

    def takes(self, site: Site, value: Any) -> bool:
        """Whether the construct is taken over: ``value`` is a traced one.

        ``value`` is the condition (if, while, conditional expression, the negated one of assert), the first operand
        (and, or; of a chained comparison the result so far), or the iterable (for).  A ``while`` asks before each iteration until
        the answer is yes, so earlier iterations have run as Python; ``names`` of such a loop hold what they left.

        Of sites that stay Python (``Kind.TRUTH``, and whatever is ``inside`` something) yes means an error, which ``Execution``
        raises; it holds even if the source catches it.
        """

    def if_(self, site: Site, condition: Any, before: State) -> Branches:
        """Yield the state for the branch ``if``, then that for ``else`` (perhaps empty in the source); return the final one.

        An ``assert`` is ``if not condition: raise AssertionError(message)``.
        """

    def while_(self, site: Site, condition: Any, state: State) -> WhileLoop:
        """A loop whose test has just been evaluated to ``condition``; ``state`` is that behind the test.

        ``RunTest(state)`` is answered by the test's value and the state behind it; ``RunBody(state)`` by the value of the test
        that follows the body, and the state behind that.  Both may be asked for any number of times, in any order.  The test
        holds ``not exit_flag and ...`` already: where a body begins the flag is false, and may be Python's; where a test is run
        apart it is a variable as any other.  Returns the state behind the loop.
        """

    def for_(self, site: Site, iterable: Any, state: State) -> ForLoop:
        """``RunBody(state, item)`` is answered by the state behind the body; what the target binds is in ``names``.

        No further iteration may run when ``exit_flag`` (if there is one) is true behind a body; it is false where a body begins.
        """

    def ternary(self, site: Site, condition: Any) -> Choice:
        """Yield True and receive the value of the first branch, yield False and receive that of ``else``; return the result."""

    def and_(self, site: Site, first: Any) -> Choice:
        """``first`` is not decided: yield True once, receive the value of the rest; return the result."""

    def or_(self, site: Site, first: Any) -> Choice:
        """The same for ``or``."""

    def not_(self, site: Site, value: Any) -> Any:
        """``not value``."""

    def contains(self, site: Site, item: Any, container: Any) -> Any:
        """``item in container``; ``not in`` asks ``not_`` of the answer."""

    def iterable(self, site: Site, value: Any) -> Iterable[Any]:
        """What a comprehension, or a ``for`` that stays Python, iterates over."""

    def callee(self, site: Site, function: Any) -> Callable[..., Any]:
        """What is called in the place of ``function``.

        Asked before the arguments are evaluated; what it gives is called from the user's own frame.
        """

    def target(self, site: Site, value: Any) -> Any:
        """The object whose item or attribute is assigned or deleted, or what takes the assignment in its place."""

    def enter_try(self, site: Site, handled: Callable[[], Sequence[Any]]) -> None:
        """The body of a ``try`` begins; ``handled`` gives what its ``except`` clauses name."""

    def leave_try(self) -> None:
        """It ends."""

    def text(self, site: Site, parts: Sequence[Part]) -> Any:
        """What an f-string is."""

    def modulo(self, site: Site, template: str, values: Any) -> Any:
        """``"%d" % values``."""

    def aug_assign(self, site: Site, operator: Callable[[Any, Any], Any], value: Any, operand: Any) -> Any:
        """``x += v``: what the variable is bound to.  ``operator`` is that of the module ``operator``, such as ``iadd``."""

    def deleted(self, value: Any) -> None:
        """A variable is about to be deleted, whose value this is: it has to be bound."""

    def raises(self, site: Site) -> bool:
        """Whether ``raise`` (and a failing ``assert``) raises here and now; if not, ``raise_`` is called instead.

        It does where nothing is taken over and no exception has been noted before.  ``site.inside`` names a ``try`` or a ``with``
        around, which may swallow the exception.
        """

    def raise_(self, site: Site, exception: Any, cause: Any) -> None:
        """Note the exception, class or object: it happens if the conditions around hold.

        Nothing follows in the branch that it ends, and the state of that branch has no meaning.  ``cause`` is what ``from``
        names, ``UNDEFINED`` without.
        """

    def answers(self, site: Site, error: Exception) -> bool:
        """Whether an exception that leaves a part of a construct which is taken over ends that part only.

        The generator is then answered by a state that has no meaning, as behind ``raise_``.  Conditional expressions, ``and`` and
        ``or`` do not ask.
        """

    def no_value(self) -> Any:
        """What a function returns that ended by ``raise_`` on every path: its caller goes on with that, to no effect."""
