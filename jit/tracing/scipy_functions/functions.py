"""Functions of SciPy that are plain Python and know nothing of tracers: what to call in their place.

NumPy's functions and SciPy's ufuncs find tracers by NumPy's protocols.  ``scipy.linalg.solve`` and its kin do not: whoever calls
functions for traced code asks here first::

    found = replacement_for(scipy.linalg.solve)
    result = found(a, b)                          # the function itself where no argument is traced

SciPy is not imported for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Final

from hlojit.tracing.operations import Operations
from hlojit.tracing.scipy_functions import fourier, linear_algebra, signals, special
from hlojit.tracing.tracer import Tracer

FUNCTIONS: Final[Mapping[str, Mapping[str, Callable[..., Any]]]] = {
    "scipy.fft": fourier.RULES,
    "scipy.linalg": linear_algebra.RULES,
    "scipy.signal": signals.RULES,
    "scipy.special": special.RULES,
}
"""By module and name: ``rule(operations, *arguments, **options)`` with the function's own parameters."""


def replacement_for(function: Any) -> Callable[..., Any] | None:
    """What to call in the place of a function of SciPy in traced code, or None for any other function."""
    name = str(getattr(function, "__name__", ""))
    for module, rules in FUNCTIONS.items():
        # By the object: a user's function may be called ``solve``, too.
        if name in rules and getattr(sys.modules.get(module), name, None) is function:
            return _replacement(function, rules[name])
    return None


def _replacement(function: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function, assigned=("__name__", "__doc__"), updated=())
    def call(*arguments: Any, **options: Any) -> Any:
        ops = Operations.in_work.get()
        if ops is None or not _holds_tracer([*arguments, *options.values()]):
            return function(*arguments, **options)
        ops.mark()
        return rule(ops, *ops.numbers(arguments), **{key: ops.numbers(value) for key, value in options.items()})

    return call


def _holds_tracer(arguments: Iterable[Any]) -> bool:
    return any(
        isinstance(each, Tracer) or (isinstance(each, (tuple, list)) and _holds_tracer(each)) for each in arguments
    )
