"""What the tests of donated arguments share: a sum into the memory of its first argument."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np

Array = np.ndarray[Any, Any]
T = "tensor<1000xf32>"
ADD = f"""func.func public @main(%x: {T} {{tf.aliasing_output = 0 : i32}}, %y: {T}) -> {T} {{
  %r = stablehlo.add %x, %y : {T}
  return %r : {T} }}"""


def address(array: Array) -> int:
    return int(array.ctypes.data)


def numbers(count: int = 1000, dtype: Any = "f4") -> Array:
    return np.arange(count).astype(dtype)


ONES = np.ones(1000, "f4")
X, Y = numbers() / 100, numbers()[::-1].copy() / 50


def compiled(function: Any, *arguments: Any, donate: tuple[int, ...]) -> Any:
    """A JAX function with JAX's own donation attributes."""
    import jax  # the fixtures of all tests of this folder read this file, those of a cold start among them

    lowered = jax.jit(function, donate_argnums=donate, keep_unused=True).lower(*arguments)
    return hlojit.compile(lowered.as_text())
