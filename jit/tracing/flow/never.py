"""What goes on where nothing does any more: behind a ``raise`` on a path that is recorded all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, final


class AlwaysRaises(BaseException):
    """Every path of the function has come to a ``raise``."""


@final
class Never:
    """A value of a path that has ended: whatever is done with it gives itself, and means nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "a value behind a raise"

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any, **named: Any) -> Never:
        return self

    def __getitem__(self, key: Any) -> Never:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __array_ufunc__(self, *arguments: Any, **named: Any) -> Never:
        return self

    def __array_function__(self, *arguments: Any, **named: Any) -> Never:
        return self


def _same(self: Never, *operands: Any) -> Never:
    return self


for _name in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
):
    setattr(Never, f"__{_name}__", _same)
    setattr(Never, f"__r{_name}__", _same)
for _name in ("lt", "le", "gt", "ge", "neg", "pos", "abs", "invert"):
    setattr(Never, f"__{_name}__", _same)

NEVER: Final = Never()
