"""Custom calls: functions that a plugin binds to the target name of ``stablehlo.custom_call``.

    softplus = ElementwiseCall("acme.softplus", lambda x: math.log1p(math.exp(x)))

An ``ElementwiseCall`` is a numba-compilable scalar function: its LLVM code is linked into the kernel and inlined into the
fused, vectorized loop around it.  An ``ExpansionCall`` builds the call out of other ops.  Both are *checked*: nothing
they do can crash the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlojit.ir.graph import Value


@dataclass(frozen=True, slots=True)
class CustomCall:
    """Base of the forms.  ``target`` is the ``call_target_name`` that programs use."""

    target: str

    @property
    def trust(self) -> str:
        """``checked``, or ``trusted native`` where a mistake in the plugin can crash the process."""
        return "checked"


@dataclass(frozen=True, slots=True)
class ElementwiseCall(CustomCall):
    """A scalar function of the elements at one index, numba-compilable, that cannot raise.

    All operands and the result have the same shape.  Scalars come in compute form: ``float`` for float formats, ``int``
    for integers, ``bool``.
    """

    function: Callable[..., Any] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ExpansionCall(CustomCall):
    """A function ``expand(builder, instruction)`` that builds the call out of other ops and returns the results."""

    expand: Callable[[Any, Any], Sequence[Value]] = field(kw_only=True)
