"""The conformance kit: what a vendor brings is tried, and what does not hold is shown by a small program.

    from hlojit import testing

    print(testing.check_plugin("acme"))                               # all that a plugin brings; check_format, check_op ...
    small = testing.reduce(module, lambda module: crashes(module))    # the smallest program that still shows it
    print(testing.bisect(text, backend="acme"))                       # the pass, rule, kernel or plugin that is guilty

Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlojit.testing.backends import check_backend
    from hlojit.testing.bisection import Bisection, bisect
    from hlojit.testing.block_formats import check_block_format
    from hlojit.testing.calls import check_custom_call
    from hlojit.testing.cases import Case
    from hlojit.testing.comparison import EXACT, INEXACT, Tolerance
    from hlojit.testing.corpus import CorpusProgram, corpus
    from hlojit.testing.coverage import Missing
    from hlojit.testing.findings import Finding, Result, Status, Timing
    from hlojit.testing.formats import check_format
    from hlojit.testing.kernels import check_kernel
    from hlojit.testing.memory import unwritten_memory
    from hlojit.testing.ops import check_op
    from hlojit.testing.passes import check_pass
    from hlojit.testing.plugins import check_plugin, write_report
    from hlojit.testing.random_programs import random_module
    from hlojit.testing.reduction import reduce, reduce_with_arguments
    from hlojit.testing.report import ConformanceError, Report, merged

_HOME = {
    "backends": ("check_backend",),
    "block_formats": ("check_block_format",),
    "calls": ("check_custom_call",),
    "cases": ("Case",),
    "corpus": ("CorpusProgram", "corpus"),
    "coverage": ("Missing",),
    "kernels": ("check_kernel",),
    "memory": ("unwritten_memory",),
    "ops": ("check_op",),
    "passes": ("check_pass",),
    "plugins": ("check_plugin", "write_report"),
    "random_programs": ("random_module",),
    "bisection": ("Bisection", "bisect"),
    "comparison": ("EXACT", "INEXACT", "Tolerance"),
    "reduction": ("reduce", "reduce_with_arguments"),
    "formats": ("check_format",),
    "findings": ("Finding", "Result", "Status", "Timing"),
    "report": ("ConformanceError", "Report", "merged"),
}

__all__ = [
    "EXACT",
    "INEXACT",
    "Bisection",
    "Case",
    "ConformanceError",
    "CorpusProgram",
    "Finding",
    "Missing",
    "Report",
    "Result",
    "Status",
    "Timing",
    "Tolerance",
    "bisect",
    "check_backend",
    "check_block_format",
    "check_custom_call",
    "check_format",
    "check_kernel",
    "check_op",
    "check_pass",
    "check_plugin",
    "corpus",
    "merged",
    "random_module",
    "reduce",
    "reduce_with_arguments",
    "unwritten_memory",
    "write_report",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            value = getattr(importlib.import_module(f"hlojit.testing.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'hlojit.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
