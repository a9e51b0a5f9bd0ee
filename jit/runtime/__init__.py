"""The runtime: threads, memory, interruption and the call path, native and compiled at first use.

    import hlojit.runtime as runtime
    runtime.set_threads(4)
    runtime.statistics().allocations

Modules: ``layout`` (records that native code and Python share), ``native`` (compiles and loads the ``.ll`` texts), ``quota``
(what the container allows), ``objects`` (offsets in Python's and NumPy's objects).
"""

from __future__ import annotations

from hlojit.runtime.process import Statistics, get_threads, native_symbols, set_threads, statistics, trim

__all__ = ["Statistics", "get_threads", "native_symbols", "set_threads", "statistics", "trim"]
