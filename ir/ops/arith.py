"""Arithmetic of MLIR's own dialect ``arith``, which exports mix in to compute shapes: on tensors, and on single numbers.

On tensors these are StableHLO's ops under other names, and become those.  Booleans are not: ``i1`` is an integer of one bit
here, true is -1 to an op that knows a sign, and sums wrap round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from hlojit.ir.attributes import Attribute, BoolAttr, Dense, FloatAttr, IntegerAttr
from hlojit.ir.errors import HlojitError, TypeInferenceError
from hlojit.ir.formats import INDEX, BooleanType, ElementType, FloatFormat, IntegerType, find_element_type
from hlojit.ir.ops.attribute_kinds import AttributeKind
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    InferenceRequest,
    OpDefinition,
    Operand,
    ReferenceCall,
    Structural,
    Trait,
    define,
)
from hlojit.ir.ops.rules import OpCall, checked, compatible, inferred, spell
from hlojit.ir.types import ScalarType, TensorType, Type, scalar

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

Kinds = tuple[type[ElementType], ...]
_INTEGERS: Final[Kinds] = (IntegerType, BooleanType)
_FLOATS: Final[Kinds] = (FloatFormat,)


def element_of(type: Type) -> ElementType | None:
    """The element type of a tensor, or the type of a single number; None of anything else."""
    return type.element_type if isinstance(type, (TensorType, ScalarType)) else None


def with_element(type: Type, element: ElementType) -> Type:
    """The same tensor type, or that of a single number, of other elements."""
    return type.with_element_type(element) if isinstance(type, TensorType) else scalar(element)


def numbers(kinds: Kinds) -> Constraint:
    """The constraint that operands are tensors of these kinds of elements, or such numbers."""

    def check(call: OpCall) -> str | None:
        for type in call.operand_types:
            if not isinstance(element_of(type), kinds):
                words = " or ".join(kind.__name__.removesuffix("Type").removesuffix("Format").lower() for kind in kinds)
                return f"operands must be {words} numbers or tensors of them, found {type}"
        return None

    return Constraint("operands", check)


def _same_types(call: OpCall) -> str | None:
    if all(compatible(type, call.operand_types[0]) or type is call.operand_types[0] for type in call.operand_types):
        return None
    return f"operands have different types: {spell(call.operand_types)}"


def _first_type(request: InferenceRequest) -> Sequence[Type]:
    return (request.operand_types[0],)


def _on_tensors(op: str, **attributes: Any) -> Expand:
    """Into StableHLO's op of this name; single numbers have none."""

    def rule(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
        if not all(isinstance(type, TensorType) for type in (*instruction.operand_types, *instruction.result_types)):
            return None
        made = builder.create(op, instruction.operands, attributes=attributes, result_types=instruction.result_types)
        return list(made.results)

    return Expand(rule)


# constants


class TypedValueKind(AttributeKind):
    """The value of an ``arith.constant``: elements, or one number with its type."""

    @property
    def expected(self) -> str:
        return "dense elements or a number with its type"

    def from_generic(self, attribute: Attribute) -> Attribute:
        if isinstance(attribute, (Dense, BoolAttr, IntegerAttr, FloatAttr)):
            return attribute
        raise self.refuse(attribute)

    def to_generic(self, value: Attribute) -> Attribute:
        return value


def constant_type(value: Attribute) -> Type:
    """The type of the constant that an attribute gives."""
    if isinstance(value, Dense):
        return value.type
    name = "i1" if isinstance(value, BoolAttr) else value.type if isinstance(value, (IntegerAttr, FloatAttr)) else ""
    element = INDEX if name == INDEX.name else find_element_type(name)
    if element is None:
        raise TypeInferenceError(f"the value has type {name!r}, which is no element type")
    return scalar(element)


def _constant_reference(call: ReferenceCall) -> Any:
    value = call.attributes["value"]
    return value.array if isinstance(value, Dense) else np.asarray(value.value)


CONSTANT = define(
    OpDefinition(
        "arith.constant",
        attributes=(AttributeSpec("value", TypedValueKind()),),
        infer=lambda request: (constant_type(request.attributes["value"]),),
        constraints=(inferred("result"),),
        reference=_constant_reference,
        syntax="arith.constant",
        traits=frozenset({Trait.CONSTANT}),
        lowering=Structural("constant"),
        summary="a constant",
    )
)

# arithmetic


Bits = Callable[[Any, "Value", "Value"], "Value"]
"""An op on two tensors of single bits, given a builder."""


def _binary(
    name: str,
    plain: str,
    kinds: Kinds,
    reference: Callable[[Array, Array], Any],
    *traits: Trait,
    unsigned: bool = False,
    bits: Bits | None = None,
) -> OpDefinition:
    """An op that is StableHLO's ``plain``; ``bits`` is what it does to integers of one bit, where that is something else."""
    rules = (numbers(kinds), Constraint("types", _same_types))
    expand = _unsigned(plain) if unsigned else _on_tensors(plain)
    return define(
        OpDefinition(
            f"arith.{name}",
            operands=(Operand("lhs"), Operand("rhs")),
            infer=checked(rules, _first_type),
            constraints=(*rules, inferred("result")),
            reference=lambda call, lhs, rhs: _wrapped(lhs, reference, lhs, rhs, unsigned=unsigned),
            syntax="pretty-same-type",
            traits=frozenset(traits),
            lowering=expand if bits is None else _bitwise(bits, expand),
            summary=f"{plain.partition('.')[2]}{' of the bits as numbers without a sign' if unsigned else ''}",
        )
    )


def _integers(value: Any, *, unsigned: bool) -> Array:
    """Elements as numbers with or without a sign; of single bits, 1 has the value -1 if there is a sign."""
    array = np.asarray(value)
    if array.dtype == bool:
        return array.astype(np.uint8) if unsigned else -array.astype(np.int8)
    return array.view(f"u{array.dtype.itemsize}") if unsigned and array.dtype.kind == "i" else array


def _low_bits(array: Array, dtype: Any) -> Array:
    """What fits of integers."""
    return (array & 1).astype(bool) if np.dtype(dtype).kind == "b" else array.astype(dtype)


def _wrapped(like: Array, function: Callable[..., Any], *values: Array, unsigned: bool) -> Array:
    with np.errstate(all="ignore"):
        result = np.asarray(function(*(_integers(value, unsigned=unsigned) for value in values)))
    return _low_bits(result, np.asarray(like).dtype)


def _bitwise(bits: Bits, otherwise: Expand) -> Expand:
    """By another rule for integers of one bit."""

    def rule(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
        type = instruction.result_types[0]
        if isinstance(type, TensorType) and isinstance(type.element_type, BooleanType):
            return [bits(builder, *instruction.operands)]
        return otherwise.rule(builder, instruction)

    return Expand(rule)


def _plain_bits(op: str) -> Bits:
    return lambda builder, lhs, rhs: builder.create(op, [lhs, rhs]).result


def _with_complement(op: str) -> Bits:
    """Of the first bit and of what the second one is not."""
    return lambda builder, lhs, rhs: builder.create(op, [lhs, builder.create("stablehlo.not", [rhs]).result]).result


def _unsigned(plain: str) -> Expand:
    """Into StableHLO's op on unsigned integers of the same bits."""

    def rule(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
        type = instruction.result_types[0]
        if not isinstance(type, TensorType) or not isinstance(type.element_type, IntegerType):
            return None
        bits = type.with_element_type(f"ui{type.element_type.bits}")
        operands = [_bits(builder, operand, bits) for operand in instruction.operands]
        return [_bits(builder, builder.create(plain, operands).result, type)]

    return Expand(rule)


def _bits(builder: Any, value: Value, type: TensorType) -> Value:
    made: Value = builder.create("stablehlo.bitcast_convert", [value], result_types=[type]).result
    return made


def _quotient(lhs: Array, rhs: Array) -> Array:
    safe = np.where(rhs == 0, 1, rhs)
    quotient = np.abs(lhs) // np.abs(safe) * np.sign(lhs) * np.sign(safe) if lhs.dtype.kind == "i" else lhs // safe
    return np.where(rhs == 0, -1, quotient)


def _remainder(lhs: Array, rhs: Array) -> Array:
    return np.where(rhs == 0, lhs, np.fmod(lhs, np.where(rhs == 0, 1, rhs)))


_XOR, _AND, _OR = (_plain_bits(f"stablehlo.{name}") for name in ("xor", "and", "or"))
_ANY_ORDER: Final = (Trait.COMMUTATIVE, Trait.ASSOCIATIVE)
ADDI = _binary("addi", "stablehlo.add", _INTEGERS, np.add, *_ANY_ORDER, bits=_XOR)
SUBI = _binary("subi", "stablehlo.subtract", _INTEGERS, np.subtract, bits=_XOR)
MULI = _binary("muli", "stablehlo.multiply", _INTEGERS, np.multiply, *_ANY_ORDER, bits=_AND)
DIVSI = _binary("divsi", "stablehlo.divide", _INTEGERS, _quotient, bits=_with_complement("stablehlo.or"))
REMSI = _binary("remsi", "stablehlo.remainder", _INTEGERS, _remainder, bits=_with_complement("stablehlo.and"))
DIVUI = _binary("divui", "stablehlo.divide", _INTEGERS, _quotient, unsigned=True, bits=_with_complement("stablehlo.or"))
REMUI = _binary(
    "remui", "stablehlo.remainder", _INTEGERS, _remainder, unsigned=True, bits=_with_complement("stablehlo.and")
)
ANDI = _binary("andi", "stablehlo.and", _INTEGERS, np.bitwise_and, *_ANY_ORDER)
ORI = _binary("ori", "stablehlo.or", _INTEGERS, np.bitwise_or, *_ANY_ORDER)
XORI = _binary("xori", "stablehlo.xor", _INTEGERS, np.bitwise_xor, *_ANY_ORDER)
MAXSI = _binary("maxsi", "stablehlo.maximum", _INTEGERS, np.maximum, *_ANY_ORDER, bits=_AND)
MINSI = _binary("minsi", "stablehlo.minimum", _INTEGERS, np.minimum, *_ANY_ORDER, bits=_OR)
MAXUI = _binary("maxui", "stablehlo.maximum", _INTEGERS, np.maximum, *_ANY_ORDER, unsigned=True, bits=_OR)
MINUI = _binary("minui", "stablehlo.minimum", _INTEGERS, np.minimum, *_ANY_ORDER, unsigned=True, bits=_AND)
ADDF = _binary("addf", "stablehlo.add", _FLOATS, np.add, Trait.COMMUTATIVE)
SUBF = _binary("subf", "stablehlo.subtract", _FLOATS, np.subtract)
MULF = _binary("mulf", "stablehlo.multiply", _FLOATS, np.multiply, Trait.COMMUTATIVE)
DIVF = _binary("divf", "stablehlo.divide", _FLOATS, np.divide)
MAXIMUMF = _binary("maximumf", "stablehlo.maximum", _FLOATS, np.maximum, *_ANY_ORDER)
MINIMUMF = _binary("minimumf", "stablehlo.minimum", _FLOATS, np.minimum, *_ANY_ORDER)

# comparison: the predicate is a number in the generic form, a word in the pretty one

PREDICATES: Final = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


class PredicateKind(AttributeKind):
    """How two integers are compared: the word, whose place in the list is the number that text holds."""

    @property
    def expected(self) -> str:
        return f"a number below {len(PREDICATES)}: {', '.join(PREDICATES)}"

    def from_generic(self, attribute: Attribute) -> str:
        if isinstance(attribute, IntegerAttr) and 0 <= attribute.value < len(PREDICATES):
            return PREDICATES[attribute.value]
        raise self.refuse(attribute)

    def to_generic(self, value: str) -> Attribute:
        if value not in PREDICATES:
            raise HlojitError(f"expected {self.expected}, found {value!r}")
        return IntegerAttr(PREDICATES.index(value), "i64")


def _booleans(request: InferenceRequest) -> Sequence[Type]:
    return (with_element(request.operand_types[0], BooleanType()),)


def _compare_reference(call: ReferenceCall, lhs: Array, rhs: Array) -> Array:
    word = call.attributes["predicate"]
    arrays = [_integers(each, unsigned=word[0] == "u") for each in (lhs, rhs)]
    return np.asarray(_COMPARISONS[word if word in _COMPARISONS else word[1:]](*arrays))


def _expand_compare(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    type = instruction.operand_types[0]
    if not isinstance(type, TensorType):
        return None
    word, operands = instruction.attributes["predicate"], list(instruction.operands)
    if word[0] == "u" and isinstance(type.element_type, IntegerType):
        bits = type.with_element_type(f"ui{type.element_type.bits}")
        operands = [_bits(builder, operand, bits) for operand in operands]
    if word[0] == "s" and isinstance(type.element_type, BooleanType):
        operands.reverse()  # true is -1, the lesser of the two
    direction = (word if word in _COMPARISONS else word[1:]).upper()
    return [builder.create("stablehlo.compare", operands, attributes={"comparison_direction": direction}).result]


_COMPARE_RULES = (numbers(_INTEGERS), Constraint("types", _same_types))

CMPI = define(
    OpDefinition(
        "arith.cmpi",
        operands=(Operand("lhs"), Operand("rhs")),
        attributes=(AttributeSpec("predicate", PredicateKind()),),
        infer=checked(_COMPARE_RULES, _booleans),
        constraints=(*_COMPARE_RULES, inferred("result")),
        reference=_compare_reference,
        syntax="arith.cmpi",
        lowering=Expand(_expand_compare),
        summary="compares integers",
    )
)


def _choice(call: OpCall) -> str | None:
    condition, first, second = call.operand_types
    if not isinstance(element_of(condition), BooleanType):
        return f"condition must be an i1 or a tensor of them, found {condition}"
    if not (compatible(first, second) or first is second):
        return f"values have different types: {first} and {second}"
    return None


_SELECT_RULES = (Constraint("operands", _choice),)


def _expand_select(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    if not all(isinstance(type, TensorType) for type in instruction.operand_types):
        return None
    return [builder.create("stablehlo.select", instruction.operands).result]


SELECT = define(
    OpDefinition(
        "arith.select",
        operands=(Operand("condition"), Operand("true_value"), Operand("false_value")),
        infer=checked(_SELECT_RULES, lambda request: (request.operand_types[1],)),
        constraints=(*_SELECT_RULES, inferred("result")),
        reference=lambda call, condition, first, second: np.where(condition, first, second),
        syntax="arith.select",
        lowering=Expand(_expand_select),
        summary="one of two values",
    )
)

# conversions


def _converts(sources: Kinds, targets: Kinds) -> Constraint:
    def check(instruction: Instruction) -> str | None:
        source, target = instruction.operand_types[0], instruction.result_types[0]
        element = element_of(target)
        if element is None or not isinstance(element, targets):
            return f"result has type {target}, which this does not give"
        same = with_element(source, element)
        return None if compatible(same, target) or same is target else f"result has type {target}, expected {same}"

    return Constraint("result", check)


def _conversion(name: str, sources: Kinds, targets: Kinds, summary: str) -> OpDefinition:
    unsigned = name.endswith("ui")

    def reference(call: ReferenceCall, value: Array) -> Array:
        element = element_of(call.instruction.result_types[0])
        assert element is not None
        array = _integers(value, unsigned=unsigned)
        if isinstance(element, FloatFormat):
            return array
        return _low_bits(array.astype(np.int64) if array.dtype.kind == "f" else array, element.storage)

    def expand(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
        value, target = instruction.operands[0], instruction.result_types[0]
        if not isinstance(value.type, TensorType) or not isinstance(target, TensorType):
            return None
        if isinstance(target.element_type, BooleanType) and not value.type.is_static:
            return None  # the 1 that takes the lowest bit has the operand's shape
        return [_converted(builder, value, target, unsigned=unsigned)]

    return define(
        OpDefinition(
            f"arith.{name}",
            operands=(Operand("in"),),
            constraints=(numbers(sources), _converts(sources, targets)),
            reference=reference,
            syntax="pretty-to-type",
            lowering=Expand(expand),
            summary=summary,
        )
    )


def _converted(builder: Any, value: Value, target: TensorType, *, unsigned: bool) -> Value:
    """StableHLO's conversion, of which no boolean is -1 and none the lowest bit."""
    source = value.tensor_type.element_type
    if isinstance(source, BooleanType) and not unsigned:
        value = builder.negate(builder.convert(value, "i8"))
    elif isinstance(source, IntegerType) and unsigned and source.signed:
        value = _bits(builder, value, value.tensor_type.with_element_type(f"ui{source.bits}"))
    if isinstance(target.element_type, BooleanType) and not isinstance(source, BooleanType):
        value = builder.convert(value, "i32") if isinstance(source, FloatFormat) else value
        value = builder.create("stablehlo.and", [value, builder.constant(1, value.tensor_type)]).result
    made: Value = builder.create("stablehlo.convert", [value], result_types=[target]).result
    return made


INDEX_CAST = _conversion("index_cast", _INTEGERS, _INTEGERS, "from and to index, with the sign")
INDEX_CASTUI = _conversion("index_castui", _INTEGERS, _INTEGERS, "from and to index, without a sign")
EXTSI = _conversion("extsi", _INTEGERS, _INTEGERS, "to more bits, with the sign")
EXTUI = _conversion("extui", _INTEGERS, _INTEGERS, "to more bits, without a sign")
TRUNCI = _conversion("trunci", _INTEGERS, _INTEGERS, "to fewer bits")
SITOFP = _conversion("sitofp", _INTEGERS, _FLOATS, "an integer as a float")
FPTOSI = _conversion("fptosi", _FLOATS, _INTEGERS, "a float as an integer, towards zero")
