"""Parameters as options of ``jit`` name them: by number or by name.

    argument_numbers("static_argnums", -1)              # (-1,)
    positions("static_argnums", (-1,), "f", signature)  # {1} where f takes two arguments

Numbers count the parameters that take positional arguments, as in JAX; those of ``*rest`` follow behind.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.ir.errors import HlojitError

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def argument_numbers(option: str, value: Any) -> tuple[int, ...]:
    """The numbers of ``static_argnums`` or ``donate_argnums`` as a tuple: one whole number or several."""
    checked = _several(value)
    for number in checked:
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
            raise HlojitError(
                f"{option}={value!r}: numbers of parameters are expected, 0 or (0, 2) for example; "
                f"names go into {option.replace('nums', 'names')}"
            )
    return tuple(map(int, checked))


def argument_names(option: str, value: Any) -> tuple[str, ...]:
    """The names of ``static_argnames`` or ``donate_argnames`` as a tuple: one name or several."""
    checked = _several(value)
    if not all(isinstance(name, str) for name in checked):
        raise HlojitError(
            f"{option}={value!r}: names of parameters are expected, 'state' or ('state', 'cache') for example; "
            f"numbers go into {option.replace('names', 'nums')}"
        )
    return checked


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else (value,)


def positional(signature: inspect.Signature) -> list[str]:
    """The names of the parameters that have a number."""
    return [each.name for each in signature.parameters.values() if each.kind in _POSITIONAL]


def rest_of(signature: inspect.Signature) -> str | None:
    """The name of ``*rest``."""
    several = (each.name for each in signature.parameters.values() if each.kind is inspect.Parameter.VAR_POSITIONAL)
    return next(several, None)


def positions(option: str, numbers: Sequence[int], name: str, signature: inspect.Signature) -> set[int]:
    """The numbers, from the front; raises ``HlojitError`` where the function has no such parameter."""
    names, rest = positional(signature), rest_of(signature)
    count = len(names)
    for number in numbers:
        if number < 0 and rest is not None:
            raise HlojitError(
                f"{option} holds {number}, but {name} takes *{rest}, whose end each call sets: count from the front, or name "
                f"the parameter in {option.replace('nums', 'names')}"
            )
        if number < -count or (rest is None and number >= count):
            raise HlojitError(_outside(option, number, name, signature, names))
    return {number + count if number < 0 else number for number in numbers}


def _outside(option: str, number: int, name: str, signature: inspect.Signature, names: Sequence[str]) -> str:
    listed = ", ".join(names)
    has = (
        f"has the parameters {listed} ({-len(names)} to {len(names) - 1})" if names else "takes no positional arguments"
    )
    others = [each for each in signature.parameters if each not in names]
    by_name = f"; {', '.join(others)}: by name, in {option.replace('nums', 'names')}" if others else ""
    return f"{option} holds {number}, but {name} {has}{by_name}"


def static_names(
    argnums: Sequence[int], argnames: Sequence[str], name: str, signature: inspect.Signature
) -> frozenset[str]:
    """The parameters that are static, by their names."""
    unknown = set(argnames) - set(signature.parameters)
    if unknown:
        raise HlojitError(
            f"static_argnames names {', '.join(sorted(unknown))}, but {name} has the parameters "
            f"{', '.join(signature.parameters)}"
        )
    names = positional(signature)
    numbers = positions("static_argnums", argnums, name, signature)
    beyond = [number for number in sorted(numbers) if number >= len(names)]
    if beyond:
        rest = rest_of(signature)
        raise HlojitError(
            f"static_argnums holds {beyond[0]}, which is one of *{rest} of {name}: give it a parameter of its own, or make all "
            f"of them static, static_argnames={rest!r}"
        )
    return frozenset(argnames) | {names[number] for number in numbers}
