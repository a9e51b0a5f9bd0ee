"""Calls of LAPACK's routines: what each takes and gives.

A *signature* says what a routine takes and gives, in the routine's own terms (letters are dimensions, ``T`` is its element type
and ``R`` the real one of that); every operand and result may have more dimensions in front, the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hlojit.ir.attributes import Attribute, BoolAttr, DictAttr, IntegerAttr, StringAttr
from hlojit.ir.formats import ElementType, element_type
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.layouts import column_major, from_physical, logical, physical, to_physical
from hlojit.ir.types import TensorType, Type, tensor

LETTERS: Final = {"s": "f32", "d": "f64", "c": "complex<f32>", "z": "complex<f64>"}
"""Of routines' names, with their element types."""
_REALS: Final = {"s": "f32", "d": "f64", "c": "f32", "z": "f64"}
_COMPLEX_NAMES: Final = {"heevd": "syevd", "hetrd": "sytrd", "ungqr": "orgqr", "unmqr": "ormqr"}
"""What real routines are called whose complex ones have names of their own."""
LARGEST_DIMENSION: Final = (1 << 31) - 1
"""LAPACK's integers have 32 bits."""

Dimensions = dict[str, int]
Options = Mapping[str, str | int | bool]


def _nothing(dimensions: Dimensions, options: Options) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Routine:
    """One routine for all element types.

    ``options`` name the attributes of a call, each with the letters that it may be, or the type that it has.  ``check``
    says what is wrong with dimensions that fit the signature, or nothing.  Results of ``complex_results`` instead of
    ``results`` are those of complex routines; ``in_place`` pairs operands with the results that begin as copies of them.
    """

    operands: tuple[str, ...]
    results: tuple[str, ...]
    options: Mapping[str, str | type] = field(default_factory=dict)
    complex_results: tuple[str, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ((0, 0),)
    check: Callable[[Dimensions, Options], str] = _nothing


def _at_most(small: str, large: str) -> Callable[[Dimensions, Options], str]:
    return lambda d, _: "" if d[small] <= d[large] else f"{small} = {d[small]} is more than {large} = {d[large]}"


def _svd_sizes(d: Dimensions, options: Options) -> str:
    wanted = {"A": (d["m"], d["n"]), "S": (d["k"], d["k"])}.get(str(options["mode"]), (d["u"], d["v"]))
    if (d["u"], d["v"]) == wanted and d["k"] == min(d["m"], d["n"]):
        return ""
    return f"{d['u']} left and {d['v']} right singular vectors of {d['k']} values do not fit mode {options['mode']}"


def _side_size(d: Dimensions, options: Options) -> str:
    left = options["side"] == "L" if "side" in options else options["left"]
    size = d["m"] if left else d["n"]
    order = d["r"]
    if order == size and d.get("k", 0) <= order:
        return ""
    return f"a matrix of {order} rows does not fit one of shape {d['m']}x{d['n']} on this side"


def _smaller(d: Dimensions, options: Options) -> str:
    return "" if d["k"] == min(d["m"], d["n"]) else f"{d['k']} factors of a matrix of shape {d['m']}x{d['n']}"


def _one_less(d: Dimensions, options: Options) -> str:
    return "" if d["e"] == max(0, d["n"] - 1) else f"{d['e']} reflectors of a matrix of order {d['n']}"


_SVD = Routine(("T m n",), ("T m n", "R k", "T m u", "T v n", "i"), {"mode": "ASN"}, check=_svd_sizes)

ROUTINES: Final[Mapping[str, Routine]] = {
    "potrf": Routine(("T n n",), ("T n n", "i"), {"uplo": "LU"}),
    "getrf": Routine(("T m n",), ("T m n", "i k", "i"), check=_smaller),
    "geqrf": Routine(("T m n",), ("T m n", "T k"), check=_smaller),
    "geqp3": Routine(("T m n", "i n"), ("T m n", "i n", "T k"), in_place=((0, 0), (1, 1)), check=_smaller),
    "orgqr": Routine(
        ("T m n", "T k"), ("T m n",), check=lambda d, o: _at_most("k", "n")(d, o) or _at_most("n", "m")(d, o)
    ),
    "ormqr": Routine(
        ("T r k", "T k", "T m n"), ("T m n",), {"left": bool, "transpose": bool}, in_place=((2, 0),), check=_side_size
    ),
    "gesdd": _SVD,
    "gesvd": _SVD,
    "syevd": Routine(("T n n",), ("T n n", "R n", "i"), {"mode": "VN", "uplo": "LU"}),
    "geev": Routine(
        ("T n n",),
        ("R n", "R n", "C n n", "C n n", "i"),
        {"compute_left": "VN", "compute_right": "VN"},
        ("T n", "T n n", "T n n", "i"),
        (),
    ),
    "gees": Routine(
        ("T n n",),
        ("T n n", "T n n", "R n", "R n", "i", "i"),
        {"mode": "VN", "sort": "N"},
        ("T n n", "T n n", "T n", "i", "i"),
    ),
    "gehrd": Routine(("T n n",), ("T n n", "T e", "i"), {"low": int, "high": int}, check=_one_less),
    "sytrd": Routine(("T n n",), ("T n n", "R n", "R e", "T e", "i"), {"uplo": "LU"}, check=_one_less),
    "gesv": Routine(("T n n", "T n m"), ("T n n", "i n", "T n m", "i"), in_place=((0, 0), (1, 2))),
    "gtsv": Routine(
        ("T n", "T n", "T n", "T n m"),
        ("T n", "T n", "T n", "T n m", "i"),
        in_place=((0, 0), (1, 1), (2, 2), (3, 3)),
    ),
    "trsm": Routine(
        ("T r r", "T m n"),
        ("T m n",),
        {"side": "LR", "uplo": "LU", "trans_x": "NTC", "diag": "NU"},
        in_place=((1, 0),),
        check=_side_size,
    ),
}
"""By the names that their real forms have; all but ``gesv``, which solves a system at once, are targets of JAX's programs.
``gtsv`` takes diagonals of one length: the first element of the lower one and the last of the upper one are not looked at."""


@dataclass(frozen=True, slots=True)
class LapackCall:
    """One call: which routine for which element type, with which options, of what sizes; all is known to be sound."""

    letter: str
    name: str
    routine: Routine
    options: Options
    dimensions: Dimensions
    batch: int

    @property
    def is_complex(self) -> bool:
        """Whether the routine is one of complex numbers."""
        return self.letter in "cz"

    @property
    def function(self) -> str:
        """LAPACK's name of it."""
        names = {real: complex_ for complex_, real in _COMPLEX_NAMES.items()} if self.is_complex else {}
        return self.letter + names.get(self.name, self.name)

    @classmethod
    def of(cls, instruction: Instruction) -> LapackCall:
        """Of an instruction of ``hlojit.lapack``; raises ``SignatureError``."""
        name, given = instruction.attributes["routine"], instruction.attributes["options"]
        if not isinstance(given, DictAttr):
            raise SignatureError(f"{name}: the options are {given}, not a dictionary")
        options = {key: _plain(value) for key, value in given.items}
        kinds = [*instruction.operand_types, *instruction.result_types]
        shapes = [
            logical(kind, column_major(kind.rank)) if is_matrix(spec) else kind for kind, spec in paired(name, kinds)
        ]
        return signature(name, options, shapes[: len(instruction.operands)], shapes[len(instruction.operands) :])


class SignatureError(ValueError):
    """A call that does not fit the routine's signature."""


def _plain(attribute: Attribute) -> str | int | bool:
    if not isinstance(attribute, (StringAttr, IntegerAttr, BoolAttr)):
        raise SignatureError(f"an option is {attribute}")
    return attribute.value


def routine_of(name: str) -> tuple[str, str, Routine]:
    """Letter, real name and record of a routine such as ``zungqr``; raises ``SignatureError`` where there is none."""
    letter, rest = name[:1], name[1:]
    real = _COMPLEX_NAMES.get(rest, rest) if letter in "cz" else rest
    if letter not in LETTERS or real not in ROUTINES or (letter in "cz" and rest in _COMPLEX_NAMES.values()):
        raise SignatureError(f"there is no routine {name!r}")
    return letter, real, ROUTINES[real]


def _specs(name: str) -> tuple[str, ...]:
    letter, _, routine = routine_of(name)
    results = routine.complex_results if letter in "cz" and routine.complex_results else routine.results
    return (*routine.operands, *results)


def operand_specs(instruction: Instruction) -> tuple[str, ...]:
    """The parts of the signature for the operands of an instruction."""
    return routine_of(str(instruction.attributes["routine"]))[2].operands


def result_specs(instruction: Instruction) -> tuple[str, ...]:
    """The parts of the signature for the results of an instruction."""
    return _specs(str(instruction.attributes["routine"]))[len(instruction.operands) :]


def is_matrix(spec: str) -> bool:
    """Whether a part of a signature, such as ``T m n``, has two dimensions."""
    return len(spec.split()) == 3


def paired(name: str, kinds: Sequence[Type]) -> list[tuple[TensorType, str]]:
    """Types of operands and results, each with its part of the routine's signature; raises ``SignatureError``."""
    specs = _specs(name)
    if len(specs) != len(kinds):
        raise SignatureError(f"{name} has {len(specs)} operands and results, not {len(kinds)}")
    for kind in kinds:
        if not isinstance(kind, TensorType) or not kind.is_static:
            raise SignatureError(f"{name} takes and gives tensors of known shapes, not {kind}")
    return [(kind, spec) for kind, spec in zip(kinds, specs) if isinstance(kind, TensorType)]


def signature(name: str, options: Options, operands: Sequence[Type], results: Sequence[Type]) -> LapackCall:
    """What a call of a routine with these types is; raises ``SignatureError`` where they are not the routine's."""
    letter, real, routine = routine_of(name)
    pairs = paired(name, [*operands, *results])
    dimensions: Dimensions = {}
    batches: set[tuple[int, ...]] = set()
    for kind, spec in pairs:
        element, *letters = spec.split()
        if kind.element_type != _element(element, letter) or kind.rank < len(letters):
            raise SignatureError(
                f"{name}: {kind} stands where {_element(element, letter)} of {len(letters)} dimensions does"
            )
        split = kind.rank - len(letters)
        batches.add(kind.shape[:split])
        for dimension, extent in zip(letters, kind.shape[split:]):
            if dimensions.setdefault(dimension, extent) != extent:
                raise SignatureError(
                    f"{name}: dimension {dimension} is {dimensions[dimension]} and, in {kind}, {extent}"
                )
    if len(batches) != 1:
        raise SignatureError(f"{name}: the dimensions in front differ")
    complaint = _option_complaint(routine, options) or routine.check(dimensions, options)
    if max(dimensions.values()) > LARGEST_DIMENSION:
        complaint = "LAPACK's integers have 32 bits"
    if complaint:
        raise SignatureError(f"{name}: {complaint}")
    return LapackCall(letter, real, routine, options, dimensions, math.prod(next(iter(batches))))


def _element(symbol: str, letter: str) -> ElementType:
    if symbol == "i":
        return element_type("i32")
    real = _REALS[letter]
    return element_type({"T": LETTERS[letter], "R": real, "C": f"complex<{real}>"}[symbol])


def _option_complaint(routine: Routine, options: Options) -> str:
    if set(options) != set(routine.options):
        return f"the attributes are {sorted(options)}, not {sorted(routine.options)}"
    for name, allowed in routine.options.items():
        value = options[name]
        if isinstance(allowed, type):
            if type(value) is not allowed:
                return f"{name} is {value!r}, not of type {allowed.__name__}"
        elif not isinstance(value, str) or len(value) != 1 or value not in allowed:
            return f"{name} is {value!r}, none of {', '.join(allowed)}"
    return ""


def routine_call(
    builder: Any, name: str, operands: Sequence[Value], dimensions: Dimensions, options: Options
) -> list[Value]:
    """Results of a routine for matrices by rows, as tensors have them, in the sizes that ``dimensions`` says.

    Raises ``SignatureError`` where operands do not fit the routine.
    """
    letter, _, routine = routine_of(name)
    batch = operands[0].tensor_type.shape[: operands[0].tensor_type.rank - len(routine.operands[0].split()) + 1]
    specs = _specs(name)[len(operands) :]
    results = []
    for spec in specs:
        element, *letters = spec.split()
        results.append(tensor((*batch, *(dimensions[each] for each in letters)), _element(element, letter)))
    signature(name, options, [operand.type for operand in operands], results)
    orders = [
        column_major(kind.rank) if is_matrix(spec) else tuple(range(kind.rank)) for kind, spec in zip(results, specs)
    ]
    made = builder.create(
        "hlojit.lapack",
        [
            to_physical(builder, value, column_major(value.tensor_type.rank)) if is_matrix(spec) else value
            for value, spec in zip(operands, routine.operands)
        ],
        attributes={"routine": name, "options": options_attribute(options)},
        result_types=[physical(kind, order) for kind, order in zip(results, orders)],
    )
    return [from_physical(builder, value, order) for value, order in zip(made.results, orders)]


def options_attribute(options: Options) -> DictAttr:
    """The options of a call as an instruction has them."""
    return DictAttr(tuple((key, _attribute(options[key])) for key in sorted(options)))


def _attribute(value: str | int | bool) -> Attribute:
    if isinstance(value, bool):
        return BoolAttr(value)
    return IntegerAttr(value, "i32") if isinstance(value, int) else StringAttr(value)
