"""The kernels of machines with threads: one table from what an instruction is to the emitter of its code.

    code = emit_kernel(instruction, target, dialect, "symbol")

The table holds emitters by fusion kind, ``emit(body, target, dialect, symbol)``, and by the name of a ``Kernel`` lowering,
``emit(instruction, target, dialect, symbol)``; each is imported when it is first needed.  What is not in it, every back
end of such machines refuses, with ``reason_against``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import Expand, Indexed, Kernel, OpDefinition, Pointwise, Reduction, Structural, Trait
from hlojit.ir.ops.foreign import ForeignCallView, plain
from hlojit.ir.ops.internal import anchor_of, is_anchored
from hlojit.lowering.anchored_body import AnchoredBody
from hlojit.lowering.body import Body
from hlojit.lowering.candidates import Candidate
from hlojit.lowering.fusion_kind import FusionKind
from hlojit.lowering.kernel import HostWork, KernelCode, Phase
from hlojit.lowering.library_product import LibraryProduct
from hlojit.lowering.schedule import HOST_ROLES
from hlojit.lowering.storage import Storage
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame

_FUSIONS: Final = {
    FusionKind.EMPTY: "hlojit.simt.kernels:emit_empty",
    FusionKind.ELEMENTWISE: "hlojit.simt.elementwise:emit_elementwise",
    FusionKind.REDUCTION: "hlojit.simt.reductions:emit_reduction",
    FusionKind.ROW: "hlojit.simt.rows:emit_row_kernel",
    FusionKind.SUMMED_ROW: "hlojit.simt.summed_rows:emit_summed_rows",
    FusionKind.SELECTION: "hlojit.simt.selection:emit_selection",
}
_KERNELS: Final[dict[str, str]] = {
    "butterflies": "hlojit.simt.fourier:emit_butterflies",
    "cholesky": "hlojit.simt.factorizations:emit_cholesky",
    "convolution": "hlojit.simt.dot:emit_convolution",
    "dot_general": "hlojit.simt.dot:emit_dot_general",
    "reduce_window": "hlojit.simt.windows:emit_reduce_window",
    "dynamic_update_slice": "hlojit.simt.update:emit_dynamic_update_slice",
    "scatter": "hlojit.simt.scatter:emit_scatter",
    "sort": "hlojit.simt.sort:emit_sort",
    "triangular_solve": "hlojit.simt.factorizations:emit_triangular_solve",
}
_CANDIDATES: Final[dict[str, str]] = {
    "convolution": "hlojit.simt.product_choice:convolution_candidates",
    "dot_general": "hlojit.simt.product_choice:dot_candidates",
}
"""Of the kernels that can be made in several ways: these are listed by ``list(instruction, target)``."""
_MATRIX_TYPES: Final[dict[str, str]] = {
    "convolution": "hlojit.simt.product_choice:convolution_matrix_type",
    "dot_general": "hlojit.simt.product_choice:dot_matrix_type",
}
"""What matrix instructions multiply for an instruction: ``type(instruction, target)``."""
_LIBRARY_CALLS: Final[dict[str, str]] = {
    "convolution": "hlojit.simt.product_choice:convolution_library_call",
    "dot_general": "hlojit.simt.product_choice:dot_library_call",
}
"""What a vendor's library may compute instead: ``call(instruction, target)``."""
_LIMITS: Final[dict[str, str]] = {
    "cholesky": "hlojit.simt.factorizations:size_reason",
    "triangular_solve": "hlojit.simt.factorizations:size_reason",
}
"""Of the kernels that are not for every instruction: ``reason(instruction)`` says why, or nothing."""
_GROUPS: Final[dict[str, str]] = {
    "convolution": "hlojit.simt.dot:emit_convolution_group",
    "dot_general": "hlojit.simt.dot:emit_dot_group",
}
"""Of the kernels that compute what follows them as well (``FusionLimits.anchors``): ``emit(group, target, dialect, symbol)``."""
ANCHORS: Final = frozenset(_GROUPS)
_FUSION: Final = "fusion"
"""The lowering of ``hlojit.fusion``."""


def emit_kernel(
    instruction: Instruction,
    target: Target,
    dialect: Dialect,
    symbol: str,
    storages: Sequence[Storage] = (),
    *,
    candidate: str = "",
) -> KernelCode:
    """The kernel of a fusion, of a single pointwise, indexed or reduction instruction, or of a library routine.

    ``storages`` says how operands, then results, lie in memory (default: all plain).  ``candidate`` is the name of one of
    ``kernel_candidates`` (default: the first).  Raises ``UnsupportedError`` where the table has no emitter.
    """
    lowering = instruction.op.lowering
    if Trait.TALKS in instruction.op.traits:
        return KernelCode("", (Phase(symbol, 1, 0.0),), host=_host_work(instruction))
    name = lowering.name if isinstance(lowering, Kernel) else _FUSION
    named = {"candidate": candidate} if candidate else {}
    if is_anchored(instruction):
        group = AnchoredBody.of(instruction)
        code: KernelCode = _imported(_group_path(group))(group, target, dialect, symbol, **named)
        return replace(code, candidate=candidate)
    if name != _FUSION:
        path = _KERNELS.get(name)
        if path is None:
            reason = lowering_reason(instruction.op)
            raise UnsupportedError(instruction.op.name, "", reason, instruction.location)
        code = _imported(path)(instruction, target, dialect, symbol, **named)
        return replace(code, candidate=candidate) if candidate else code
    body = Body.of(instruction, storages)
    kind = FusionKind.of(body)
    if kind not in _FUSIONS:
        raise UnsupportedError(instruction.op.name, "", f"no GPU kernel for {kind.value} yet", instruction.location)
    fused: KernelCode = _imported(_FUSIONS[kind])(body, target, dialect, symbol)
    return fused


def _group_path(group: AnchoredBody) -> str:
    lowering = group.anchor.op.lowering
    path = _GROUPS.get(lowering.name) if isinstance(lowering, Kernel) else None
    if path is None:
        reason = f"no GPU kernel for groups around {group.anchor.op.name} yet"
        raise UnsupportedError("hlojit.fusion", "", reason, group.anchor.location)
    return path


def _host_work(instruction: Instruction) -> HostWork:
    given = {name: str(plain(attribute)) for name, attribute in ForeignCallView.of(instruction).attributes}
    operands, results = (
        tuple((value.tensor_type.element_type.name, value.tensor_type.shape) for value in values)
        for values in (instruction.operands, instruction.results)
    )
    return HostWork(given["channel"], given["direction"], operands, results)


def kernel_candidates(instruction: Instruction, target: Target) -> tuple[Candidate, ...]:
    """The ways in which the kernel of an instruction can be made, the default first; none where there is one way."""
    instruction = _with_kernel(instruction)
    lowering = instruction.op.lowering
    path = _CANDIDATES.get(lowering.name) if isinstance(lowering, Kernel) else None
    listed: tuple[Candidate, ...] = _imported(path)(instruction, target) if path is not None else ()
    return listed


def matrix_type(instruction: Instruction, target: Target) -> str:
    """What matrix instructions multiply for an instruction, or an empty string where they have no part in it."""
    instruction = _with_kernel(instruction)
    lowering = instruction.op.lowering
    path = _MATRIX_TYPES.get(lowering.name, "") if isinstance(lowering, Kernel) else ""
    return str(_imported(path)(instruction, target)) if path else ""


def library_call(instruction: Instruction, target: Target) -> LibraryProduct | None:
    """The call of a library that may compute an instruction, or the anchor of a fusion, if there is one."""
    instruction = _with_kernel(instruction)
    lowering = instruction.op.lowering
    path = _LIBRARY_CALLS.get(lowering.name, "") if isinstance(lowering, Kernel) else ""
    found: LibraryProduct | None = _imported(path)(instruction, target) if path else None
    return found


def _with_kernel(instruction: Instruction) -> Instruction:
    """The instruction that has a kernel: of an anchored fusion its anchor."""
    return anchor_of(instruction) if is_anchored(instruction) else instruction


def has_kernel(name: str) -> bool:
    """Whether there is a kernel for ops whose lowering is ``Kernel(name)``."""
    return name == _FUSION or name in _KERNELS


def has_fusion(kind: FusionKind) -> bool:
    """Whether there is a kernel for fusions of a kind."""
    return kind in _FUSIONS


def lowering_reason(record: OpDefinition) -> str:
    """Why there is no kernel for ops of a record, whatever their types, or an empty string."""
    lowering = record.lowering
    if isinstance(lowering, (Pointwise, Indexed, Expand)) or Trait.TALKS in record.traits:
        return ""
    if isinstance(lowering, Reduction):
        return "" if has_fusion(FusionKind.REDUCTION) else "no GPU kernel for reductions yet"
    if isinstance(lowering, Kernel):
        return "" if has_kernel(lowering.name) else lowering.without or f"no GPU kernel {lowering.name!r} yet"
    if isinstance(lowering, Structural) and lowering.role in HOST_ROLES:
        return ""
    return "the op has no lowering yet"


def limit_reason(instruction: Instruction) -> str:
    """Why the kernel of an instruction's name is not for it, or an empty string."""
    lowering = instruction.op.lowering
    path = _LIMITS.get(lowering.name) if isinstance(lowering, Kernel) else None
    return str(_imported(path)(instruction)) if path is not None else ""


def emit_empty(body: Body, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """The kernel of results without elements: no block runs."""
    frame = GridFrame(target, body, dialect)
    with frame.kernel(symbol, dialect.warp):
        pass
    return frame.code((Phase(symbol, 0, 0.0, dialect.warp),))


@cache
def _imported(path: str) -> Callable[..., Any]:
    module, _, function = path.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
