"""The corpus in the element types that a back end takes: a device of f16 alone is tried with softmax in f16.

taken = elements_taken(backend)                # ("f16", "i32", "i1"), by what capability says of sums and constants
retyped(module, taken, number)                 # the program in these types; as it is if it fits already
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from hlojit.extensions import Backend, Support, can_decompose
from hlojit.ir.attributes import Dense
from hlojit.ir.builder import build_function
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import BUILT_IN, BooleanType, ElementType, FloatFormat, IntegerType, element_type
from hlojit.ir.graph import Module
from hlojit.ir.passes.dead_code_elimination import DeadCodeElimination
from hlojit.ir.scalar.arrays import to_compute, to_storage
from hlojit.ir.types import TensorType, Type, tensor
from hlojit.ir.verifier import collect_faults
from hlojit.testing.comparison import EXACT, Tolerance

_FLOATS: Final = ("f32", "bf16", "f16", "f64")
"""Those that programs are written in first; then whatever else is taken."""
_INTEGERS: Final = ("i32", "i64", "i16", "i8", "ui32", "ui8")
_NARROW_UNITS: Final = 32.0
"""Units in the last place of a narrow format by which programs of many steps may differ, of the largest number of a result:
each step is rounded, wherever a back end rounds it."""
_F32_MANTISSA: Final = 23


ASKED: Final[Mapping[str, ElementType]] = {
    name: each for name, each in BUILT_IN.items() if isinstance(each, (BooleanType, IntegerType, FloatFormat))
}
"""The element types that a back end is asked about, by name."""


def elements_taken(backend: Backend) -> frozenset[str]:
    """The element types of whose sums, and of whose constants, a back end says that it takes them."""
    return frozenset(name for name, each in ASKED.items() if _takes(backend, each))


def _takes(backend: Backend, element: ElementType) -> bool:
    module = Module()
    kind = tensor((5, 7), element)
    with build_function(module, "main", [kind]) as builder:
        (x,) = builder.arguments
        combine = builder.or_ if isinstance(element, BooleanType) else builder.add
        builder.return_(combine(x, builder.constant(1, kind)))
    answers = [(each, backend.capability(each)) for each in module.main.body if not each.op.is_terminator]
    return all(
        getattr(answer, "support", None) is Support.YES
        or (getattr(answer, "support", None) is Support.DECOMPOSE and can_decompose(each))
        for each, answer in answers
    )


def retyped(module: Module, taken: frozenset[str], number: int) -> Module | None:
    """A program whose numbers are of element types that are taken, by ``number`` in turn; None if it cannot be written so."""
    if taken.issuperset(_elements(module)):
        return module
    made = _without_results(module, taken)
    chosen: dict[str, ElementType] = {}
    for name, element in _elements(made).items():
        if name not in taken:
            options = _options(element, taken)
            if not options:
                return None
            chosen[name] = element_type(options[number % len(options)])
    try:
        _change(made, chosen)
        return None if collect_faults(made) else made
    except (HlojitError, OverflowError, ValueError, TypeError):
        return None


def narrowed(tolerance: Tolerance, module: Module) -> Tolerance:
    """What an inexact program may differ by whose numbers are narrow."""
    bits = [each.mantissa_bits for each in map(_element_of, _types(module)) if isinstance(each, FloatFormat)]
    least = min(bits, default=_F32_MANTISSA)
    if tolerance == EXACT or least >= _F32_MANTISSA:
        return tolerance
    return replace(tolerance, relative=max(tolerance.relative, _NARROW_UNITS * 2.0**-least))


def elements_in(module: Module) -> str:
    """The element types of a program's arguments and results, for its name."""
    main = module.main
    kinds = [each.element_type.name for each in (*main.type.inputs, *main.result_types) if isinstance(each, TensorType)]
    return ", ".join(dict.fromkeys(kinds))


def _elements(module: Module) -> dict[str, ElementType]:
    return {each.name: each for each in map(_element_of, _types(module)) if each is not None}


def _without_results(module: Module, taken: frozenset[str]) -> Module:
    """A copy without results of types in whose place nothing is taken, and what makes them, if others are left."""
    made = module.clone()
    main = made.main
    returned = main.body.returned
    elements = [each.tensor_type.element_type for each in returned]
    kept = [value for value, each in zip(returned, elements) if each.name in taken or _options(each, taken)]
    if kept and len(kept) < len(returned):
        main.body.terminator.operands = tuple(kept)
        main.result_types = [each.type for each in kept]
        main.result_attributes = [{} for _ in kept]
        DeadCodeElimination().run(made)
    return made


def _options(element: ElementType, taken: frozenset[str]) -> Sequence[str]:
    """Types in the place of one that is not taken."""
    if isinstance(element, BooleanType):
        return ()
    if isinstance(element, IntegerType):
        alike = [name for name in _INTEGERS if name in taken and _integer(name).signed == element.signed]
        return alike[:1] or [name for name in _INTEGERS if name in taken][:1]
    if not isinstance(element, FloatFormat):
        return ()
    others = sorted(name for name in taken if name not in _FLOATS and isinstance(element_type(name), FloatFormat))
    return [name for name in _FLOATS if name in taken] or others


def _integer(name: str) -> IntegerType:
    found = element_type(name)
    assert isinstance(found, IntegerType)
    return found


def _types(module: Module) -> list[Type]:
    found: dict[Type, None] = dict.fromkeys(argument.type for argument in module.main.body.arguments)
    for instruction in module.walk():
        found.update(dict.fromkeys(result.type for result in instruction.results))
        for region in instruction.regions:
            found.update(dict.fromkeys(argument.type for argument in region.arguments))
    return list(found)


def _element_of(kind: Type) -> ElementType | None:
    return kind.element_type if isinstance(kind, TensorType) else None


def _change(module: Module, chosen: Mapping[str, ElementType]) -> None:
    """Have all values and constants of a program lie in other types."""

    def changed(kind: Type) -> Type:
        element = _element_of(kind)
        found = chosen.get(element.name) if element is not None else None
        return kind.with_element_type(found) if isinstance(kind, TensorType) and found is not None else kind

    for function in module.functions.values():
        for argument in function.body.arguments:
            argument.type = changed(argument.type)
        function.result_types = [changed(kind) for kind in function.result_types]
    for instruction in module.walk():
        for value in (*instruction.results, *(each for region in instruction.regions for each in region.arguments)):
            value.type = changed(value.type)
        dense = instruction.attributes.get("value")
        if isinstance(dense, Dense):
            instruction.attributes["value"] = _converted(dense, changed)


def _converted(dense: Dense, changed: Callable[[Type], Type]) -> Dense:
    kind = changed(dense.type)
    assert isinstance(kind, TensorType)
    if kind is dense.type:
        return dense
    source = dense.splat_element if dense.is_splat else dense.array
    numbers = to_compute(np.ascontiguousarray(source), dense.type.element_type)
    element = kind.element_type
    if isinstance(element, IntegerType):
        # As numbers of so many bits: a hash is one in 8 bits, too.
        wrapped = np.asarray(numbers).astype(object) % (1 << element.bits)
        wrapped = np.where(wrapped > element.maximum, wrapped - (1 << element.bits), wrapped)
        numbers = wrapped.astype(element.storage)
    with np.errstate(all="ignore"):
        stored = np.asarray(to_storage(np.asarray(numbers), element))
    return Dense(
        kind, np.broadcast_to(stored.reshape(()), kind.shape) if dense.is_splat else stored.reshape(kind.shape)
    )
