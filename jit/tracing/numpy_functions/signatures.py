"""What a call of one of NumPy's functions says, by NumPy's own signature: no argument is ignored.

A rule gets the arguments that it declares, under NumPy's names.  An argument that it does not declare must have its default,
or the call is refused with the argument's name; ``out=`` is done here for all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.tracer import Tracer

_WITHOUT_MEANING: Final = frozenset({"subok"})
"""Arguments that change nothing for arrays of no subclass."""


def name_of(function: Callable[..., Any]) -> str:
    """How messages call a function of NumPy's."""
    package = (getattr(function, "__module__", None) or "numpy").replace("numpy", "np", 1)
    return f"{package}.{getattr(function, '__name__', function)}"


@cache
def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature; None of functions in C of NumPy before 2.4, which tell none."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


@cache
def _declared(rule: Callable[..., Any]) -> tuple[frozenset[str], bool]:
    """The names that a rule takes, and whether it takes any other."""
    parameters = inspect.signature(rule).parameters.values()
    return frozenset(each.name for each in parameters), any(each.kind is each.VAR_KEYWORD for each in parameters)


def arguments_for(
    function: Callable[..., Any], rule: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any], Any]:
    """Positional and named arguments for a rule, and what ``out=`` was given; raises for what would be ignored."""
    signature = signature_of(function)
    if signature is None:
        rest = dict(options)
        return list(arguments), rest, rest.pop("out", None)
    try:
        given = signature.bind(*arguments, **options).arguments
    except TypeError as error:
        raise TypeError(f"{name_of(function)}: {error}") from None
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, value in given.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            positional += value
        elif kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    out = named.pop("out", None)
    return positional, _understood(function, rule, signature, named), out


def _understood(
    function: Callable[..., Any], rule: Callable[..., Any], signature: inspect.Signature, named: Mapping[str, Any]
) -> dict[str, Any]:
    declared, takes_all = _declared(rule)
    kept: dict[str, Any] = {}
    for name, value in named.items():
        if name in declared:
            kept[name] = value
        elif name == "device":
            if value not in (None, "cpu"):
                raise ValueError(f'Device not understood. Only "cpu" is allowed, but received: {value}')
        elif takes_all:
            kept[name] = value
        elif name not in _WITHOUT_MEANING and not _is_default(signature, name, value):
            raise TracingError(f"{name_of(function)}: {name}={value!r} cannot be compiled yet")
    return kept


def _is_default(signature: inspect.Signature, name: str, value: Any) -> bool:
    parameter = signature.parameters.get(name)
    default = None if parameter is None else parameter.default
    if value is default or value is np._NoValue or value is None:
        return True
    return type(value) is type(default) and not isinstance(value, Tracer) and bool(value == default)


# ------------------------------------------------------------------------------------------------------------- out=

_REDUCTIONS: Final[frozenset[Any]] = frozenset(
    {np.sum, np.prod, np.max, np.amax, np.min, np.amin, np.cumsum, np.cumprod, np.trace}
)
"""Those that compute in the common dtype of array and ``out`` unless ``dtype`` says otherwise."""

_ANY_KIND: Final[frozenset[Any]] = _REDUCTIONS | {
    np.any,
    np.all,
    np.mean,
    np.var,
    np.choose,
    np.nanmedian,
    np.nanquantile,
    np.nanpercentile,
}
"""Those whose result is cast into any dtype."""

_WITHOUT_OUT: Final[frozenset[Any]] = frozenset({np.nanmedian, np.nanquantile, np.nanpercentile})
"""Those that cast and broadcast into their ``out`` as no other function does."""

_BUFFERED: Final[frozenset[Any]] = frozenset({np.argmax, np.argmin, np.take, np.compress})
"""Those that want an ``out`` which can be cast to the result, and cast back without a question."""

_ELEMENTWISE: Final[Mapping[Any, np.ufunc]] = {
    np.clip: np._core.umath.clip,  # type: ignore[attr-defined]
    np.round: np.rint, np.around: np.rint, np.outer: np.multiply, np.ptp: np.subtract, np.std: np.sqrt,
}  # fmt: skip
"""Those that end in a ufunc, whose error is raised for an ``out`` of another kind."""


def prepared_for_out(function: Callable[..., Any], positional: list[Any], named: dict[str, Any], out: Any) -> None:
    """Change arguments to what NumPy computes because of ``out``."""
    if function in _WITHOUT_OUT:
        raise TracingError(f"{name_of(function)}: out= cannot be compiled yet; write a[...] = {name_of(function)}(...)")
    operand = named.get("a", positional[0] if positional else None)
    if function not in _REDUCTIONS or not isinstance(out, Tracer) or not isinstance(operand, Tracer):
        return
    kind = np.promote_types(operand.dtype, out.dtype)
    if "dtype" not in (signature_of(function) or inspect.Signature()).parameters:
        named["a"] = operand.astype(kind)
    elif named.get("dtype") is None:
        named["dtype"] = kind


def require_out(function: Callable[..., Any], result: Any, out: Any, casting: str | None) -> None:
    """Raise what NumPy does for an ``out`` that does not fit."""
    name = name_of(function)
    if not isinstance(out, Tracer) or out.is_scalar:
        if isinstance(out, np.ndarray) and not isinstance(out, Tracer):
            raise TracingError(
                f"{name}: out= is an array that was made outside of what is traced; make it from a traced one "
                "(np.zeros_like), or write `target = ...` instead of in place"
            )
        raise TypeError("return arrays must be of ArrayType")
    if not isinstance(result, Tracer):
        raise TracingError(f"{name}: out= cannot be compiled yet")
    if function is np.dot and (result.shape, result.dtype) != (out.shape, out.dtype):
        raise ValueError(
            f"output array is not acceptable (must have the right datatype, number of dimensions, and be a C-Array): {name}"
        )
    spreads = function in _ELEMENTWISE and function not in (np.ptp, np.std)
    if function is np.choose and result.shape != out.shape:
        raise TypeError("choose: invalid shape for output array.")
    if result.shape != out.shape and not (spreads and np.broadcast_shapes(result.shape, out.shape) == out.shape):
        raise ValueError(f"{name}: the result has shape {result.shape}, and out= {out.shape}")
    if function in _BUFFERED:
        allowed, rule, kinds = np.can_cast(out.dtype, result.dtype, "safe"), "safe", (out.dtype, result.dtype)
    else:
        rule = casting or ("unsafe" if function in _ANY_KIND else "safe" if function is np.einsum else "same_kind")
        allowed, kinds = np.can_cast(result.dtype, out.dtype, rule), (result.dtype, out.dtype)  # type: ignore[arg-type]
    if not allowed and function in _ELEMENTWISE:
        error = np._core._exceptions._UFuncOutputCastingError  # type: ignore[attr-defined]
        raise error(_ELEMENTWISE[function], rule, *kinds, 0)
    if not allowed:
        raise TypeError(
            f"Cannot cast array data from {kinds[0]!r} to {kinds[1]!r} according to the rule {rule!r}: {name}"
        )
