"""Factorizations, triangular systems and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.formats import ComplexType, FloatFormat, element_type
from hlojit.ir.ops.attribute_kinds import BOOL, I64_ARRAY, EnumKind
from hlojit.ir.ops.batching import movement as batching
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    InferenceRequest,
    Kernel,
    OpDefinition,
    Operand,
    ReferenceCall,
    Trait,
    define,
)
from hlojit.ir.ops.derivatives import linear_algebra as derivatives
from hlojit.ir.ops.factorizations import declined, expand_cholesky, expand_triangular_solve
from hlojit.ir.ops.fourier import expand_fft
from hlojit.ir.ops.pointwise import COMPLEX, FLOAT, QUANTIZED, takes
from hlojit.ir.ops.rules import (
    OpCall,
    checked,
    compatible_extents,
    compatible_shapes,
    inferred,
    operand_tensor,
    same_baselines,
    show,
)
from hlojit.ir.types import DYNAMIC, TensorType, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

# cholesky


def _matrix_rank(call: OpCall) -> str | None:
    type = operand_tensor(call, 0)
    return None if type.rank >= 2 else f"a has type {type}, expected rank 2 or more"


def _square(call: OpCall) -> str | None:
    type = operand_tensor(call, 0)
    return None if compatible_extents(*type.shape[-2:]) else f"a has type {type}, expected square matrices"


def _cholesky_reference(call: ReferenceCall, a: Array) -> Array:
    """Lower or upper factor; NaN where a matrix is not positive definite."""
    matrices = a.reshape(-1, *a.shape[-2:])
    lower = call.attributes.get("lower", False)
    factors = [_factor(matrix if lower else matrix.conj().T) for matrix in matrices]
    factors = [factor if lower else factor.conj().T for factor in factors]
    return np.array(factors, a.dtype).reshape(a.shape)


def _factor(matrix: Array) -> Array:
    lower = np.tril(matrix)
    try:
        full = lower + np.tril(matrix, -1).conj().T
        factor: Array = np.linalg.cholesky(full)
    except np.linalg.LinAlgError:
        return np.where(np.tri(*matrix.shape) != 0, np.nan, 0).astype(matrix.dtype)
    return factor


_FACTORED = (FLOAT, COMPLEX, QUANTIZED)

CHOLESKY_RULES = (takes("I1", 0, "a", _FACTORED), Constraint("C2", _matrix_rank), Constraint("C3", _square))

CHOLESKY = define(
    OpDefinition(
        "stablehlo.cholesky",
        operands=(Operand("a"),),
        attributes=(AttributeSpec("lower", BOOL, optional=True, default=False),),
        infer=checked(CHOLESKY_RULES, lambda request: request.operand_types),
        constraints=(*CHOLESKY_RULES, inferred("C1")),
        reference=_cholesky_reference,
        syntax="cholesky",
        traits=frozenset({Trait.DEQUANTIZES}),
        lowering=Kernel("cholesky", expansion=expand_cholesky, declines=declined, takes_pairs=True),
        derivative=derivatives.CHOLESKY,
        batching=batching.native,
        summary="the Cholesky factors of matrices",
    )
)

# triangular_solve


def _same_rank(call: OpCall) -> str | None:
    a, b = operand_tensor(call, 0), operand_tensor(call, 1)
    return None if a.rank == b.rank >= 2 else f"a and b must have one rank, 2 or more: found {a} and {b}"


def _system_shape(call: OpCall) -> str | None:
    a, b = operand_tensor(call, 0).shape, operand_tensor(call, 1).shape
    size = b[-2 if call.attributes["left_side"] else -1]
    square = compatible_extents(a[-1], a[-2]) and compatible_extents(a[-1], size)
    if compatible_shapes(a[:-2], b[:-2]) and square:
        return None
    return f"a of shape {show(a)} does not fit b of shape {show(b)}"


def _solve_reference(call: ReferenceCall, a: Array, b: Array) -> Array:
    import scipy.linalg

    attributes = call.attributes
    transpose = {"NO_TRANSPOSE": 0, "TRANSPOSE": 1, "ADJOINT": 2}[attributes["transpose_a"]]
    left = attributes["left_side"]
    matrices, sides = a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:])
    solutions = []
    for matrix, side in zip(matrices, sides):
        # x op(a) = b is op(a)^T x^T = b^T.
        system, right = matrix, side
        if not left:
            right = side.T
        op = transpose if left else {0: 1, 1: 0, 2: 0}[transpose]
        if not left and transpose == 2:
            system = matrix.conj()
        if attributes["unit_diagonal"]:
            system = system.copy()
            np.fill_diagonal(system, 1)
        solved = _solve_triangular(scipy.linalg, system, right, attributes["lower"], op)
        solutions.append(solved if left else solved.T)
    return np.array(solutions, b.dtype).reshape(b.shape)


def _solve_triangular(linalg: Any, a: Array, b: Array, lower: bool, op: int) -> Array:
    if not a.size or not b.size:
        return np.zeros_like(b)
    try:
        solved: Array = linalg.solve_triangular(a, b, trans=op, lower=lower, check_finite=False)
    except np.linalg.LinAlgError:
        # A zero on the diagonal: divide by it, as every other implementation does.
        return _substitute(np.asarray([a, a.T, a.conj().T][op]), b, bool(lower) != bool(op))
    return solved


def _substitute(a: Array, b: Array, lower: bool) -> Array:
    x = np.zeros_like(b)
    rows = range(len(a)) if lower else range(len(a) - 1, -1, -1)
    for row in rows:
        known = slice(0, row) if lower else slice(row + 1, None)
        x[row] = (b[row] - a[row, known] @ x[known]) / a[row, row]
    return x


TRIANGULAR_SOLVE_RULES = (
    takes("I1", 0, "a", _FACTORED),
    takes("I2", 1, "b", _FACTORED),
    Constraint("C1", lambda c: same_baselines("a and b", [operand_tensor(c, 0), operand_tensor(c, 1)])),
    Constraint("C2", _same_rank),
    Constraint("C3", _system_shape),
)

TRIANGULAR_SOLVE = define(
    OpDefinition(
        "stablehlo.triangular_solve",
        operands=(Operand("a"), Operand("b")),
        attributes=(
            AttributeSpec("left_side", BOOL),
            AttributeSpec("lower", BOOL),
            AttributeSpec("unit_diagonal", BOOL),
            AttributeSpec("transpose_a", EnumKind("transpose", ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"))),
        ),
        infer=checked(TRIANGULAR_SOLVE_RULES, lambda request: (request.operand_types[1],)),
        constraints=(*TRIANGULAR_SOLVE_RULES, inferred("C4")),
        reference=_solve_reference,
        traits=frozenset({Trait.DEQUANTIZES}),
        lowering=Kernel("triangular_solve", expansion=expand_triangular_solve, declines=declined, takes_pairs=True),
        derivative=derivatives.TRIANGULAR_SOLVE,
        batching=batching.native,
        summary="solutions of triangular systems",
    )
)

# fft


def _fft_length(call: OpCall) -> tuple[int, ...]:
    return tuple(call.attributes["fft_length"])


def _length_count(call: OpCall) -> str | None:
    return (
        None if 1 <= len(_fft_length(call)) <= 3 else f"fft_length {show(_fft_length(call))} must have 1 to 3 elements"
    )


def _length_rank(call: OpCall) -> str | None:
    rank = operand_tensor(call, 0).rank
    if len(_fft_length(call)) <= rank:
        return None
    return f"fft_length {show(_fft_length(call))} has more elements than the rank {rank} of the operand"


def _fft_operand(call: OpCall) -> str | None:
    type, kind = operand_tensor(call, 0), call.attributes["fft_type"]
    real = kind == "RFFT"
    wanted = FloatFormat if real else ComplexType
    if isinstance(type.element_type, wanted) and type.element_type.name in (
        "f32",
        "f64",
        "complex<f32>",
        "complex<f64>",
    ):
        return None
    return f"the operand of {kind} must be {'f32 or f64' if real else 'complex'}, found {type}"


def _real_lengths(call: OpCall) -> str | None:
    """The real side has the sizes of ``fft_length``; of IRFFT's operand the last one is checked by C5."""
    type, kind, length = operand_tensor(call, 0), call.attributes["fft_type"], _fft_length(call)
    sizes = type.shape[-len(length) :]
    if kind == "IRFFT":
        sizes, length = sizes[:-1], length[:-1]
    elif kind != "RFFT":
        return (
            None if compatible_shapes(sizes, length) else f"fft_length {show(length)} differs from the sizes of {type}"
        )
    return None if compatible_shapes(sizes, length) else f"fft_length {show(length)} differs from the sizes of {type}"


def _half_length(call: OpCall) -> str | None:
    type, length = operand_tensor(call, 0), _fft_length(call)
    if call.attributes["fft_type"] != "IRFFT":
        return None
    expected = length[-1] // 2 + 1 if length[-1] else 0
    if compatible_extents(type.shape[-1], expected):
        return None
    return f"the last dimension of {type} must be {expected}, half of fft_length {show(length)} and 1"


FFT_RULES = (
    Constraint("C1", _length_rank),
    Constraint("C3", _length_count),
    Constraint("C2", _fft_operand),
    Constraint("C4", _real_lengths),
    Constraint("C5", _half_length),
)


def _infer_fft(request: InferenceRequest) -> Sequence[Type]:
    type, kind, length = operand_tensor(request, 0), request.attributes["fft_type"], _fft_length(request)
    if kind == "RFFT":
        last = type.shape[-1]
        half = DYNAMIC if last == DYNAMIC else (last // 2 + 1 if last else 0)
        return [tensor((*type.shape[:-1], half), element_type(f"complex<{type.element_type.name}>"))]
    if kind == "IRFFT":
        assert isinstance(type.element_type, ComplexType)
        return [tensor((*type.shape[: -len(length)], *length), type.element_type.component)]
    return [type]


def _fft_element(instruction: Instruction) -> str | None:
    (expected,), found = _infer_fft(_request(instruction)), instruction.results[0].tensor_type
    assert isinstance(expected, TensorType)
    if found.element_type == expected.element_type:
        return None
    return f"result has type {found}, expected elements of type {expected.element_type}"


def _request(instruction: Instruction) -> InferenceRequest:
    return InferenceRequest(instruction.operand_types, instruction.attributes, instruction.regions)


def _fft_reference(call: ReferenceCall, operand: Array) -> Array:
    import scipy.fft

    length = call.attributes["fft_length"]
    axes = tuple(range(operand.ndim - len(length), operand.ndim))
    result_type = call.instruction.result.tensor_type
    if 0 in operand.shape or 0 in length:
        return np.zeros(result_type.shape, result_type.element_type.storage)
    transforms = {"FFT": scipy.fft.fftn, "IFFT": scipy.fft.ifftn, "RFFT": scipy.fft.rfftn, "IRFFT": scipy.fft.irfftn}
    return np.asarray(transforms[call.attributes["fft_type"]](operand, s=length, axes=axes))


FFT = define(
    OpDefinition(
        "stablehlo.fft",
        operands=(Operand("operand"),),
        attributes=(
            AttributeSpec("fft_type", EnumKind("fft_type", ("FFT", "IFFT", "RFFT", "IRFFT"))),
            AttributeSpec("fft_length", I64_ARRAY),
        ),
        infer=checked(FFT_RULES, _infer_fft),
        constraints=(*FFT_RULES, Constraint("C2", _fft_element), inferred("C5")),
        reference=_fft_reference,
        syntax="fft",
        lowering=Expand(expand_fft),
        derivative=derivatives.FFT,
        batching=batching.native,
        summary="Fourier transforms over the last one to three dimensions",
    )
)
