"""``@hlojit.jit``: plain NumPy functions, traced once per signature and compiled."""

from hlojit.tracing.decorator import jit
from hlojit.tracing.errors import TracingError
from hlojit.tracing.plugin_ops import custom_call, op
from hlojit.tracing.tracer import Tracer

__all__ = ["Tracer", "TracingError", "custom_call", "jit", "op"]
