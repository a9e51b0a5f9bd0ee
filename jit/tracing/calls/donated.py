"""Which arrays of a call are donated: those inside the parameters that ``donate_argnums`` and ``donate_argnames`` name."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.tracing.calls.containers import flatten


def argument_numbers(value: Any) -> tuple[int, ...]:
    """``donate_argnums`` as a tuple: one whole number or several."""
    numbers = value if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else (value,)
    checked = tuple(numbers)
    for number in checked:
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
            raise HlojitError(
                f"donate_argnums={value!r}: numbers of parameters are expected, 0 or (0, 2) for example; "
                "names go into donate_argnames"
            )
    return tuple(map(int, checked))


def argument_names(value: Any) -> tuple[str, ...]:
    """``donate_argnames`` as a tuple: one name or several."""
    names = value if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else (value,)
    checked = tuple(names)
    if not all(isinstance(name, str) for name in checked):
        raise HlojitError(
            f"donate_argnames={value!r}: names of parameters are expected, 'state' or ('state', 'cache') for example; "
            "numbers go into donate_argnums"
        )
    return checked


@final
class DonatedParameters:
    """The parameters of one function that are donated.  Numbers may be negative; names may be those of ``**named``."""

    def __init__(
        self,
        name: str,
        signature: inspect.Signature,
        argnums: Sequence[int],
        argnames: Sequence[str],
        static: frozenset[str],
    ):
        parameters = list(signature.parameters.values())
        kinds = [parameter.kind for parameter in parameters]
        self._names = [parameter.name for parameter in parameters]
        self._rest = (
            kinds.index(inspect.Parameter.VAR_POSITIONAL) if inspect.Parameter.VAR_POSITIONAL in kinds else None
        )
        self._numbers = {number + len(parameters) if number < 0 else number for number in argnums}
        self._chosen = set(argnames)
        for given in argnums:
            number = given + len(parameters) if given < 0 else given
            if number < 0 or (self._rest is None and number >= len(parameters)):
                raise HlojitError(
                    f"donate_argnums holds {given}, but {name} has the parameters {', '.join(self._names)} "
                    f"({-len(parameters)} to {len(parameters) - 1})"
                )
        self._chosen.update(
            self._names[number] for number in self._numbers if self._rest is None or number < self._rest
        )
        unknown = self._chosen - set(self._names)
        if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise HlojitError(
                f"donate_argnames names {', '.join(sorted(unknown))}, but {name} has the parameters {', '.join(self._names)}"
            )
        if self._chosen & static:
            raise HlojitError(
                f"{', '.join(sorted(self._chosen & static))} of {name}: static arguments cannot be donated"
            )

    def leaves(self, dynamic: tuple[tuple[Any, ...], dict[str, Any]]) -> list[int]:
        """Numbers of the donated arrays among the leaves of (positional, named) arguments."""
        if not self._numbers and not self._chosen:
            return []
        found: list[int] = []
        count = 0
        for is_donated, value in self._arguments(*dynamic):
            size = len(flatten(value)[0])
            if is_donated:
                found.extend(range(count, count + size))
            count += size
        return found

    def _arguments(self, positional: tuple[Any, ...], named: dict[str, Any]) -> Iterator[tuple[bool, Any]]:
        """Every argument in the order of the leaves, and whether it is donated."""
        for number, value in enumerate(positional):
            yield self._is_donated(number), value
        for name, value in named.items():
            if self._rest is not None and name == self._names[self._rest] and isinstance(value, tuple):
                # Bound to its parameter: *rest is one tuple.
                for number, each in enumerate(value, self._rest):
                    yield self._is_donated(number), each
            else:
                yield name in self._chosen, value

    def _is_donated(self, number: int) -> bool:
        if self._rest is not None and number >= self._rest:
            return number in self._numbers or self._names[self._rest] in self._chosen
        return self._names[number] in self._chosen
