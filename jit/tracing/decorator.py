"""The decorator: traces a function once per signature, compiles it, and calls the compiled form from then on.

    @hlojit.jit
    def normalize(x, axis=-1):
        return (x - x.mean(axis)) / x.std(axis)

Arguments may be arrays, Python numbers, and nested tuples, lists, dictionaries, named tuples and dataclasses of them.
Python numbers are traced as arrays without dimensions (int64, float64, bool).  Arguments that decide shapes or branches
are named in ``static_argnames``: the function is compiled for each of their values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from hlojit.extensions import CompileOptions
from hlojit.tracing.calls.settings import Settings
from hlojit.tracing.jitted_functions import JittedFunction
from hlojit.tracing.reports import report


@overload
def jit(
    function: Callable[..., Any],
    /,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    backend: str | Sequence[str] | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    plugins: Sequence[Any] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    rounding_seed: str | None = None,
    check_indices: bool = True,
) -> JittedFunction: ...
@overload
def jit(
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    backend: str | Sequence[str] | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    plugins: Sequence[Any] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    rounding_seed: str | None = None,
    check_indices: bool = True,
) -> Callable[[Callable[..., Any]], JittedFunction]: ...
def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    backend: str | Sequence[str] | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    plugins: Sequence[Any] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    rounding_seed: str | None = None,
    check_indices: bool = True,
) -> Any:
    """Compile a NumPy-style function; a decorator with or without arguments.

    ``static_argnames``, ``static_argnums``: parameters that are Python values rather than arrays (compiled once per value), by
    name or by number, negative ones from the end; both may be given, and calls may give either by position or keyword.
    ``backend`` and ``options`` as for ``hlojit.compile``.  ``plugins``: plugins that take part in compiling this function
    only, on top of those of the environment in which it is called.
    ``donate_argnums``, ``donate_argnames``: parameters whose arrays the caller gives up: the program may make its results in
    their memory, and they are read-only with undefined contents afterwards (docs/donation.md).
    ``rounding_seed``: the parameter, an integer, that seeds stochastic roundings; another seed is no new compilation
    (docs/formats.md#rounding).  A jitted function called from another rounds by that one's seed.
    ``check_indices``: whether an index that is out of bounds when the function runs raises ``IndexError``, as in NumPy; if not,
    elements are read at the nearest position, and what would be written there is left out or written there.

    Raises ``TracingError`` where the function does what a compiled one cannot, naming what to use instead.
    """
    settings = Settings.of(
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        backend=backend,
        options=options,
        plugins=plugins,
        donate_argnums=donate_argnums,
        donate_argnames=donate_argnames,
        rounding_seed=rounding_seed,
        check_indices=check_indices,
    )

    def decorate(function: Callable[..., Any]) -> JittedFunction:
        try:
            return JittedFunction(function, settings)
        except Exception as error:
            report(error)
            raise

    return decorate if function is None else decorate(function)
