"""Which arrays of a call are donated: those inside the parameters that ``donate_argnums`` and ``donate_argnames`` name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, final

from hlojit.ir.errors import HlojitError
from hlojit.tracing.calls.containers import flatten
from hlojit.tracing.calls.parameters import positions


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
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        self._names = list(signature.parameters)
        self._rest = (
            kinds.index(inspect.Parameter.VAR_POSITIONAL) if inspect.Parameter.VAR_POSITIONAL in kinds else None
        )
        self._numbers = positions("donate_argnums", argnums, name, signature)
        self._chosen = set(argnames)
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
