"""Scalar functions applied to whole arrays on the host, compiled by numba as they are for kernels.

    decode = applied(row.decode, ("u16",), "f64")
    decode(np.arange(1 << 16, dtype="u2"))         # what the compiled function gives for each code

A function that raises for an element raises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hlojit.extensions.functions.numba_bridge import compiled_by_numba
from hlojit.ir.fork_gate import fork_gate

Array = np.ndarray[Any, Any]

SECONDS: Final = 20.0
"""How long a function may take for all of its codes."""
_RESULTS: Final = {"f32": np.float32, "f64": np.float64, "i64": np.int64}


def applied(function: Callable[..., Any], kinds: tuple[str, ...], result: str) -> Callable[[Array], Array]:
    """The function of one argument, for arrays; raises what numba does if it cannot compile it."""
    with fork_gate.inside:
        import numba

        scalar, overload = compiled_by_numba(function, kinds, result, "a format")
        if result == "i64" and not isinstance(overload.signature.return_type, numba.types.Integer):
            raise TypeError("the function returns no integer")

        def loop(source: Array, target: Array) -> None:
            for place in range(source.size):
                target[place] = scalar(source[place])

        compiled = numba.njit(nogil=True)(loop)

    def run(source: Array) -> Array:
        target = np.empty(source.shape, _RESULTS[result])
        failed: list[BaseException] = []

        def work() -> None:
            try:
                compiled(np.ascontiguousarray(source), target)
            except BaseException as error:
                failed.append(error)

        # Nothing ends a compiled loop: one that does not end by itself is left behind.
        thread = threading.Thread(target=work, name="hlojit-format-functions", daemon=True)
        thread.start()
        thread.join(SECONDS)
        if thread.is_alive():
            raise TimeoutError("the function does not end")
        for error in failed:
            raise error
        return target

    return run
