"""hlojit: HLO graphs, optimized and compiled to native code in Python, open to vendors' plugins.

    import hlojit, numpy as np

    @hlojit.jit
    def f(x):
        return np.tanh(x @ x.T).sum(axis=0)

    exe = hlojit.compile(stablehlo_text)
    y = exe(array)

Names are imported when they are first used: importing hlojit loads neither numba nor LLVM.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hlojit.arrays import Array
    from hlojit.compiler import compile, load, parse, verify
    from hlojit.executable import Executable
    from hlojit.extensions import CompileOptions
    from hlojit.extensions.devices.channels import channel
    from hlojit.extensions.devices.profiles import profile
    from hlojit.ir.errors import (
        ArgumentError,
        ExecutionError,
        HlojitError,
        HlojitWarning,
        ParseError,
        PluginError,
        PluginWarning,
        RetracingWarning,
        UnsupportedError,
        VerificationError,
    )
    from hlojit.ir.graph import Module
    from hlojit.kernel_report import kernel_report
    from hlojit.lowered import lower
    from hlojit.placement import devices, get, put
    from hlojit.runtime import set_threads
    from hlojit.tracing import (
        as_is,
        associative_scan,
        cond,
        custom_call,
        fori_loop,
        jit,
        map,
        numba_call,
        op,
        register_dataclass,
        register_pytree,
        scan,
        switch,
        while_loop,
    )
    from hlojit.transforms import (
        checkpoint,
        custom_jvp,
        custom_vjp,
        grad,
        hessian,
        jacfwd,
        jacrev,
        jvp,
        value_and_grad,
        vjp,
        vmap,
    )

__version__ = "0.1.0"

IMPORTED = time.time_ns()
"""When this process began to import hlojit; ``hlojit.ir.versions`` compares the times of its files with it."""

_HOME = (
    {
        "Array": "hlojit.arrays",
        "compile": "hlojit.compiler",
        "load": "hlojit.compiler",
        "lower": "hlojit.lowered",
        "parse": "hlojit.compiler",
        "verify": "hlojit.compiler",
        "Executable": "hlojit.executable",
        "CompileOptions": "hlojit.extensions",
        "channel": "hlojit.extensions.devices.channels",
        "profile": "hlojit.extensions.devices.profiles",
        "Module": "hlojit.ir.graph",
        "kernel_report": "hlojit.kernel_report",
        "devices": "hlojit.placement",
        "get": "hlojit.placement",
        "put": "hlojit.placement",
        "ShapeDtypeStruct": "hlojit.tracing",
        "as_is": "hlojit.tracing",
        "associative_scan": "hlojit.tracing",
        "clear_caches": "hlojit.tracing",
        "cond": "hlojit.tracing",
        "custom_call": "hlojit.tracing",
        "eval_shape": "hlojit.tracing",
        "fori_loop": "hlojit.tracing",
        "jit": "hlojit.tracing",
        "map": "hlojit.tracing",
        "numba_call": "hlojit.tracing",
        "op": "hlojit.tracing",
        "register_dataclass": "hlojit.tracing",
        "register_pytree": "hlojit.tracing",
        "scan": "hlojit.tracing",
        "switch": "hlojit.tracing",
        "while_loop": "hlojit.tracing",
        "set_threads": "hlojit.runtime",
    }
    | dict.fromkeys(
        (
            "checkpoint",
            "custom_jvp",
            "custom_vjp",
            "grad",
            "hessian",
            "jacfwd",
            "jacrev",
            "jvp",
            "value_and_grad",
            "vjp",
            "vmap",
        ),
        "hlojit.transforms",
    )
    | dict.fromkeys(
        (
            "ArgumentError",
            "ExecutionError",
            "HlojitError",
            "HlojitWarning",
            "ParseError",
            "PluginError",
            "PluginWarning",
            "RetracingWarning",
            "UnsupportedError",
            "VerificationError",
        ),
        "hlojit.ir.errors",
    )
)

_PACKAGES: Final = ("cuda", "extensions", "ir", "numpy", "random", "testing")
"""Imported when they are first named: ``hlojit.ir.tensor`` after ``import hlojit`` alone."""

__all__ = [
    "ArgumentError",
    "Array",
    "CompileOptions",
    "Executable",
    "ExecutionError",
    "HlojitError",
    "HlojitWarning",
    "Module",
    "ParseError",
    "PluginError",
    "PluginWarning",
    "RetracingWarning",
    "ShapeDtypeStruct",
    "UnsupportedError",
    "VerificationError",
    "as_is",
    "associative_scan",
    "channel",
    "checkpoint",
    "clear_caches",
    "compile",
    "cond",
    "custom_call",
    "custom_jvp",
    "custom_vjp",
    "devices",
    "eval_shape",
    "fori_loop",
    "get",
    "grad",
    "hessian",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "kernel_report",
    "load",
    "lower",
    "map",
    "numba_call",
    "op",
    "parse",
    "profile",
    "put",
    "register_dataclass",
    "register_pytree",
    "scan",
    "set_threads",
    "switch",
    "value_and_grad",
    "verify",
    "vjp",
    "vmap",
    "while_loop",
]


_first = threading.RLock()
"""Held while the fork gate itself is imported, and by whoever forks."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_first.acquire, after_in_parent=_first.release, after_in_child=_first.release)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None and name not in _PACKAGES:
        raise AttributeError(f"module 'hlojit' has no attribute {name!r}")
    with _first:
        from hlojit.ir.fork_gate import fork_gate
    with fork_gate.inside:
        if home is None:
            return importlib.import_module(f"hlojit.{name}")
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
