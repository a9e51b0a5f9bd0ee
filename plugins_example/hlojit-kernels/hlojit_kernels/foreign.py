"""A handler of XLA's foreign function interface, in Python.

``kernels.smooth`` is exponential smoothing along the last dimension: y[t] = decay * y[t - 1] + (1 - decay) * x[t].  A handler
that is compiled with XLA's headers is registered in the same way, as a function of ctypes or the PyCapsule that JAX takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.extensions import ForeignCall, ForeignFrame, foreign_handler


def smoothed(x: np.ndarray[Any, Any], decay: float) -> np.ndarray[Any, Any]:
    """The function, of arrays; also what back ends without native calls run."""
    result, last = np.empty_like(x), np.zeros(x.shape[:-1], "f4")
    with np.errstate(invalid="ignore"):
        for step in range(x.shape[-1]):
            last = (np.float32(decay) * last + np.float32(1 - decay) * x[..., step]).astype("f4")
            result[..., step] = last
    return result


@foreign_handler
def smooth(frame: int) -> int | None:
    """Read the frame; an error that is returned, or raised, ends the call with the target's name."""
    call = ForeignFrame(frame)
    (x,), (result,) = call.operands, call.results
    decay = call.attributes.get("decay")
    if x.dtype != np.float32:
        return call.error("kernels.smooth is for f32")
    if not isinstance(decay, np.float64):
        return call.error("kernels.smooth needs an attribute decay" if decay is None else "decay is of type f64")
    result[...] = smoothed(x, float(decay))
    return None


SMOOTH = ForeignCall(
    "kernels.smooth",
    handler=smooth,
    substitute=smoothed,
    asks_version=False,
    result_types=lambda call: call.operands[0],
)
