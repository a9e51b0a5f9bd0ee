"""What is done with jitted functions from outside: shapes of results, and forgetting what is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hlojit.tracing.decorator import jit
from hlojit.tracing.jitted_functions import JittedFunction


def eval_shape(fun: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """The shapes and element types of ``fun``'s results, as ``ShapeDtypeStruct``: it is traced, and nothing is computed.

    Arguments are arrays and numbers, or anything with ``shape`` and ``dtype``.
    """
    function = fun if isinstance(fun, JittedFunction) else jit(fun)
    return function.eval_shape(*arguments, **named)


def clear_caches() -> None:
    """Forget what every jitted function has compiled, as ``f.clear_cache()`` does of one; calls in progress end as they would.

    Programs on disk stay (``HLOJIT_CACHE``).
    """
    for function in JittedFunction.all():
        function.clear_cache()
