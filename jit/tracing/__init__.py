"""``@hlojit.jit``: plain NumPy functions, traced once per signature and compiled."""

from hlojit.tracing.calls.pytrees import register_dataclass, register_pytree
from hlojit.tracing.control_flow import cond, fori_loop, map, scan, switch, while_loop
from hlojit.tracing.decorator import jit
from hlojit.tracing.errors import TracingError
from hlojit.tracing.plugin_ops import custom_call, op
from hlojit.tracing.rewriting.substitution import as_is
from hlojit.tracing.tracer import Tracer

__all__ = [
    "Tracer", "TracingError", "as_is", "cond", "custom_call", "fori_loop", "jit", "map", "op",
    "register_dataclass", "register_pytree", "scan", "switch", "while_loop",
]  # fmt: skip
