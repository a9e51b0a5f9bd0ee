"""The runtime that takes nothing over: rewritten functions run as the source says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from hlojit.tracing.rewriting.protocol import (
    UNDEFINED,
    Branches,
    Choice,
    ForLoop,
    FunctionInfo,
    Part,
    RewritingError,
    Site,
    State,
    WhileLoop,
)


class PythonRuntime:
    """Everything as in Python; the base of runtimes that take over what is traced."""

    def enter(self, function: FunctionInfo) -> None:
        """Nothing to do."""

    def leave(self, function: FunctionInfo, error: BaseException | None) -> None:
        """Nothing to do."""

    def begin(self, site: Site) -> None:
        """Nothing to do."""

    def takes(self, site: Site, value: Any) -> bool:
        """Nothing is taken over."""
        return False

    def if_(self, site: Site, condition: Any, before: State) -> Branches:
        """Never asked."""
        raise _not_taken(site)

    def while_(self, site: Site, condition: Any, state: State) -> WhileLoop:
        """Never asked."""
        raise _not_taken(site)

    def for_(self, site: Site, iterable: Any, state: State) -> ForLoop:
        """Never asked."""
        raise _not_taken(site)

    def ternary(self, site: Site, condition: Any) -> Choice:
        """Never asked."""
        raise _not_taken(site)

    def and_(self, site: Site, first: Any) -> Choice:
        """Never asked."""
        raise _not_taken(site)

    def or_(self, site: Site, first: Any) -> Choice:
        """Never asked."""
        raise _not_taken(site)

    def not_(self, site: Site, value: Any) -> Any:
        """``not value``."""
        return not value

    def contains(self, site: Site, item: Any, container: Any) -> Any:
        """``item in container``."""
        return item in container

    def iterable(self, site: Site, value: Any) -> Iterable[Any]:
        """The value itself."""
        return value

    def callee(self, site: Site, function: Any) -> Callable[..., Any]:
        """The function itself: where nothing is traced, nothing needs to be rewritten (``substitute`` does it)."""
        return function

    def target(self, site: Site, value: Any) -> Any:
        """The value itself."""
        return value

    def enter_try(self, site: Site, handled: Callable[[], Sequence[Any]]) -> None:
        """Nothing to do."""

    def leave_try(self) -> None:
        """Nothing to do."""

    def text(self, site: Site, parts: Sequence[Part]) -> Any:
        """As Python formats it."""
        return "".join(each if isinstance(each, str) else _field(*each) for each in parts)

    def modulo(self, site: Site, template: str, values: Any) -> Any:
        """What Python's operator gives."""
        return template % values

    def aug_assign(self, site: Site, operator: Callable[[Any, Any], Any], value: Any, operand: Any) -> Any:
        """What Python's operator gives."""
        return operator(value, operand)

    def deleted(self, value: Any) -> None:
        """It is, or Python would have raised."""

    def raises(self, site: Site) -> bool:
        """Always."""
        return True

    def raise_(self, site: Site, exception: Any, cause: Any) -> None:
        """Never asked."""
        raise _not_taken(site)

    def answers(self, site: Site, error: Exception) -> bool:
        """Never."""
        return False

    def no_value(self) -> Any:
        """Nothing that can be used."""
        return UNDEFINED


def _field(value: Any, conversion: str, specification: str) -> str:
    if conversion:
        value = _CONVERSIONS[conversion](value)
    return format(value, specification)


_CONVERSIONS: Final[dict[str, Callable[[Any], str]]] = {"s": str, "r": repr, "a": ascii}


def _not_taken(site: Site) -> RewritingError:
    return RewritingError(f"{site} this runtime follows no {site.kind.value} on a traced value")
