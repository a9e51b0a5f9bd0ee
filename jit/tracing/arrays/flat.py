"""``a.flat`` of a traced array: its elements in C order, by positions that are known when the function is traced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, final

import numpy as np
from hlojit.tracing.errors import TracingError

if TYPE_CHECKING:
    from hlojit.tracing.tracer import Tracer


@final
class Flat:
    """As ``numpy.flatiter``: reads give copies, writes go to the array."""

    def __init__(self, array: Tracer):
        self.base = array

    def __len__(self) -> int:
        return self.base.size

    def __iter__(self) -> Iterator[Any]:
        return iter(self.base.flatten())

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return self.base.flatten().__array__(dtype, copy)

    def __getitem__(self, key: Any) -> Any:
        return self.base.flatten()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        positions = self._positions(key)
        if not hasattr(value, "dtype") and not any(hasattr(each, "dtype") for each in np.array(value, object).flat):
            value = np.array(value, self.base.dtype)  # NumPy's errors for numbers that the dtype does not hold
        count = int(np.size(value))
        if count not in (1, positions.size):
            raise TracingError(
                f"a.flat[...] = values repeats {count} values over {positions.size} elements; give as many as elements, or one"
            )
        if positions.size:
            flat = np.reshape(value, -1) if count > 1 else np.reshape(value, ())
            self.base[np.unravel_index(positions, self.base.shape)] = flat

    def _positions(self, key: Any) -> np.ndarray[Any, Any]:
        """The positions that a key names: NumPy's own answer for an array of them."""
        if type(key) is type(self.base):
            known = self.base.context.known(key)
            key = key if known is None else known
        if type(key) is type(self.base):
            raise TracingError(
                "a.flat[i] = v needs positions that are known when the function is traced; write a.reshape(-1)[i] = v"
            )
        return np.atleast_1d(np.arange(self.base.size)[key])
