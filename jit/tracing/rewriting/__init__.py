"""Python's control flow, handed to a runtime: functions of rewritten source.

    with running(runtime):
        rewritten(f).function(x)

See ``protocol.py`` for what a runtime is asked, and docs/decisions/source-rewriting.md for why.
"""

from hlojit.tracing.rewriting.execution import running
from hlojit.tracing.rewriting.protocol import (
    RETURN_VALUE,
    RETURNED,
    UNDEFINED,
    VALUE,
    FunctionInfo,
    Kind,
    RewritingError,
    RunBody,
    RunTest,
    Runtime,
    Site,
    State,
)
from hlojit.tracing.rewriting.python_runtime import PythonRuntime
from hlojit.tracing.rewriting.rewrite import Rewritten, rewritten
from hlojit.tracing.rewriting.substitution import as_is, is_library, substitute
from hlojit.tracing.rewriting.tracebacks import without_hooks

__all__ = [
    "RETURNED",
    "RETURN_VALUE",
    "UNDEFINED",
    "VALUE",
    "FunctionInfo",
    "Kind",
    "PythonRuntime",
    "RewritingError",
    "Rewritten",
    "RunBody",
    "RunTest",
    "Runtime",
    "Site",
    "State",
    "as_is",
    "is_library",
    "rewritten",
    "running",
    "substitute",
    "without_hooks",
]
