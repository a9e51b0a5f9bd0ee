"""``@hlojit.jit``: plain NumPy functions, traced once per signature and compiled."""

from hlojit.tracing.associative import associative_scan
from hlojit.tracing.calls.descriptions import ShapeDtypeStruct
from hlojit.tracing.calls.pytrees import register_dataclass, register_pytree
from hlojit.tracing.control_flow import cond, fori_loop, map, scan, switch, while_loop
from hlojit.tracing.decorator import jit
from hlojit.tracing.errors import TracingError
from hlojit.tracing.functions import clear_caches, eval_shape
from hlojit.tracing.numba_functions import numba_call
from hlojit.tracing.plugin_ops import custom_call, op
from hlojit.tracing.rewriting.substitution import as_is
from hlojit.tracing.tracer import Tracer

__all__ = [
    "ShapeDtypeStruct",
    "Tracer",
    "TracingError",
    "as_is",
    "associative_scan",
    "clear_caches",
    "cond",
    "custom_call",
    "eval_shape",
    "fori_loop",
    "jit",
    "map",
    "numba_call",
    "op",
    "register_dataclass",
    "register_pytree",
    "scan",
    "switch",
    "while_loop",
]
