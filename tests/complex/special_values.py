"""Complex ops on grids of special values: by their rules, compiled and by the reference; what may be compared of results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import hlojit
import numpy as np
from hlojit.ir.scalar.complex_functions import FUNCTIONS
from hlojit.ir.scalar.numpy_builder import NumpyBuilder

Array = np.ndarray[Any, Any]

DTYPES: Final = {"f32": np.dtype(np.complex64), "f64": np.dtype(np.complex128)}

OF_ONE: Final = {
    "abs": "stablehlo.abs",
    "acos": "chlo.acos",
    "acosh": "chlo.acosh",
    "asin": "chlo.asin",
    "asinh": "chlo.asinh",
    "atan": "chlo.atan",
    "atanh": "chlo.atanh",
    "cbrt": "stablehlo.cbrt",
    "conj": "chlo.conj",
    "cos": "stablehlo.cosine",
    "cosh": "chlo.cosh",
    "exp": "stablehlo.exponential",
    "expm1": "stablehlo.exponential_minus_one",
    "asin_acos_kernel": "chlo._asin_acos_kernel",
    "log": "stablehlo.log",
    "log1p": "stablehlo.log_plus_one",
    "logistic": "stablehlo.logistic",
    "negate": "stablehlo.negate",
    "rsqrt": "stablehlo.rsqrt",
    "sign": "stablehlo.sign",
    "sin": "stablehlo.sine",
    "sinh": "chlo.sinh",
    "sqrt": "stablehlo.sqrt",
    "square": "chlo.square",
    "tan": "stablehlo.tan",
    "tan (chlo)": "chlo.tan",
    "tanh": "stablehlo.tanh",
}
OF_TWO: Final = {name: f"stablehlo.{name}" for name in ("add", "subtract", "multiply", "divide", "power", "atan2")}


def grid(element: str, *, large: bool = False, extremes: bool = True) -> Array:
    """All pairs of parts: zeros, ones, infinities, NaN of both signs; with ``extremes`` the least and the largest number."""
    limits = np.finfo(DTYPES[element].type(0).real.dtype)
    parts = [0.0, 1.0, math.inf, *([float(limits.smallest_subnormal), float(limits.max)] if extremes else [])]
    if large:
        parts += [0.5, 2.0, 3.0, 100.0, float(limits.tiny) * 3.3, math.pi]
    parts = [sign * part for part in (*parts, math.nan) for sign in (1, -1)]
    pairs = np.array(list(itertools.product(parts, parts)))
    result: Array = np.empty(len(pairs), DTYPES[element])
    result.real, result.imag = pairs[:, 0], pairs[:, 1]
    return result


def pairs_of(numbers: Array) -> tuple[Array, Array]:
    """All pairs of numbers, as two arrays."""
    return np.repeat(numbers, numbers.size), np.tile(numbers, numbers.size)


RULES: Final = tuple(name for name in (*OF_ONE, *OF_TWO) if name in FUNCTIONS)
"""Ops whose rule on scalars can be looked at without compiling it."""


def results(element: str, way: str, names: Sequence[str], *operands: Array) -> list[Array]:
    """Each op's results: by its rule on arrays (``rules``), or in one program by a back end."""
    if way != "rules":
        return _run(element, way, [{**OF_ONE, **OF_TWO}[name] for name in names], operands)
    b = NumpyBuilder()
    found = []
    with np.errstate(all="ignore"):
        for name in names:
            parts = [b.value(element, part) for each in operands for part in (each.real, each.imag)]
            result = np.empty(operands[0].shape, DTYPES[element])
            made: Any = FUNCTIONS[name](b, *parts)
            result.real, result.imag = (part.array for part in made)
            found.append(result.real if name == "abs" else result)
    return found


def _run(element: str, backend: str, ops: Sequence[str], operands: Sequence[Array]) -> list[Array]:
    kind = f"tensor<{operands[0].size}xcomplex<{element}>>"
    names = ", ".join(f"%x{number}" for number in range(len(operands)))
    kinds = ", ".join([kind] * len(operands))
    found = [kind.replace(f"complex<{element}>", element) if name == "stablehlo.abs" else kind for name in ops]
    lines = [f'%{n} = "{name}"({names}) : ({kinds}) -> {type}' for n, (name, type) in enumerate(zip(ops, found))]
    arguments = ", ".join(f"%x{number}: {kind}" for number in range(len(operands)))
    returned = ", ".join(f"%{number}" for number in range(len(ops)))
    types = ", ".join(found)
    body = "\n".join(lines)
    text = f"func.func @main({arguments}) -> ({types}) {{\n{body}\nreturn {returned} : {types}\n}}"
    made = hlojit.compile(text, backend=backend)(*operands)
    return [np.asarray(each) for each in (made if len(ops) > 1 else [made])]


def parts_of(numbers: Array) -> Array:
    """Real and imaginary parts, along a new last dimension."""
    return np.stack([numbers.real, numbers.imag], axis=-1)


def unlike(found: Array, wanted: Array, units: float = 8.0) -> Array:
    """Where numbers differ in what is special (infinity, NaN, the sign of each part), or by units of the larger part."""
    found, wanted = parts_of(found), parts_of(wanted)
    with np.errstate(all="ignore"):
        larger = np.maximum(np.abs(found), np.abs(wanted)).max(axis=-1, keepdims=True)
        unit = np.spacing(np.where(np.isfinite(larger), larger, np.abs(wanted)).astype(found.dtype))
        near = (found == wanted) | (np.abs(found - wanted) <= units * unit)
    signs = np.signbit(found) == np.signbit(wanted)
    unknown = np.isnan(found) & np.isnan(wanted)
    result: Array = ~(unknown | (near & signs)).all(axis=-1)
    return result


def report(where: Array, operands: Sequence[Array], *found: Array, most: int = 5) -> list[Any]:
    """The first of the operands and results where something holds."""
    places = np.flatnonzero(where)[:most]
    return [tuple(each[place].item() for each in (*operands, *found)) for place in places]
