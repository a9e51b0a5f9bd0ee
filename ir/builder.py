"""Builds instructions: ``create`` infers result types, and every op of the table is a method.

    module = Module()
    with build_function(module, "main", [tensor((2, 3), "f32")]) as builder:
        (x,) = builder.arguments
        y = builder.add(x, x)
        zero = builder.constant(0.0, tensor((), "f32"))
        total = builder.reduce([y], [zero], builder.combiner("add", "f32"), dimensions=(0, 1))
        builder.return_(total)

Ops of other dialects, plugins' too, are methods of the dialect: ``builder.nova.silu(x, alpha=0.5)``.

A method takes the operands (a list where the op takes any number), regions, and then attributes: by position in the
order of the record, or by name.  It returns the result, or a tuple where there are none or several.  Where the record
infers no types, ``type=`` or ``result_types=`` gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from keyword import iskeyword
from operator import index
from typing import Any, final

import numpy as np
from hlojit.ir.attributes import Attribute, Dense, DotDimensionNumbers
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.environment import OPS, scope_for, tables
from hlojit.ir.errors import HlojitError, PluginError, TypeInferenceError, short_repr
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.formats import ElementType, FloatFormat, element_type_of
from hlojit.ir.graph import Block, Function, Instruction, Module, Value, clone_instruction
from hlojit.ir.location import UNKNOWN, Location
from hlojit.ir.near_names import did_you_mean
from hlojit.ir.ops.block_inference import infer_blocks
from hlojit.ir.ops.definition import InferenceRequest, OpDefinition, Pointwise, find_op, op
from hlojit.ir.ops.foreign_rules import infer_failure, is_foreign, wrong_types
from hlojit.ir.ops.region_lifting import lifted_region
from hlojit.ir.types import TensorType, Type, tensor


class Builder:
    """Appends instructions to a block, or inserts them in front of an instruction whose location they inherit."""

    def __init__(self, block: Block, before: Instruction | None = None, location: Location = UNKNOWN):
        self.block = block
        self.before = before
        self.location = before.location if before is not None and location is UNKNOWN else location

    @classmethod
    def in_front_of(cls, instruction: Instruction) -> Builder:
        """A builder that inserts in front of ``instruction``."""
        assert instruction.block is not None, "the instruction is in no block"
        return cls(instruction.block, instruction)

    @property
    def arguments(self) -> list[Value]:
        """The block's arguments."""
        return self.block.arguments

    def create(
        self,
        op_name: str,
        operands: Sequence[Value] = (),
        *,
        attributes: Mapping[str, Any] | None = None,
        regions: Sequence[Block] = (),
        result_types: Sequence[Type] | None = None,
        discardable: Mapping[str, Attribute] | None = None,
        location: Location | None = None,
    ) -> Instruction:
        """Make an instruction; ``add`` is short for ``stablehlo.add``.

        Raises ``TypeInferenceError`` where operands, attributes or regions do not fit the op's record.
        """
        record = op(op_name)
        attributes = {} if attributes is None else attributes
        complaint = signature_complaint(record, len(operands), attributes, len(regions))
        if complaint:
            raise TypeInferenceError(f"{short_name(record.name)}: {complaint}")
        if result_types is None:
            result_types = infer_types(record, tuple(value.type for value in operands), attributes, regions)
        instruction = Instruction(
            record,
            operands,
            result_types,
            attributes,
            regions,
            discardable,
            self.location if location is None else location,
        )
        return self.insert(instruction)

    def insert(self, instruction: Instruction) -> Instruction:
        """Put an instruction that is in no block at the builder's place."""
        if self.before is not None:
            return self.block.insert_before(self.before, instruction)
        return self.block.append(instruction)

    def __dir__(self) -> list[str]:
        """Methods of ops, too; those whose names Python reserves have a ``_`` behind."""
        known = [name.partition(".") for name in tables().ops]
        mnemonics = {name for dialect, _, name in known if dialect in ("stablehlo", "chlo") and name.isidentifier()}
        dialects = {dialect for dialect, _, name in known if dialect.isidentifier()}
        return sorted({*super().__dir__(), *dialects, *map(_as_method, mnemonics)})

    def __getattr__(self, name: str) -> Any:
        mnemonic = name.removesuffix("_")
        record = find_op(f"stablehlo.{mnemonic}") or find_op(f"chlo.{mnemonic}")
        if record is not None and not name.startswith("__"):
            return self._method(record)
        known = tables().ops
        if not name.startswith("_") and any(each.startswith(f"{name}.") for each in known):
            return DialectBuilder(self, name)
        mnemonics = {each.partition(".")[2] for each in known if each.startswith(("stablehlo.", "chlo."))}
        near = did_you_mean(mnemonic, mnemonics)
        raise AttributeError(f"there is no op {mnemonic!r}, and no dialect of that name{near}")

    def _method(self, record: OpDefinition) -> Callable[..., Any]:
        return lambda *arguments, **named: self._call(record, arguments, named)

    def _call(self, record: OpDefinition, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        types = named.pop("result_types", None)
        single = named.pop("type", None)
        regions = list(named.pop("regions", ()))
        operands: list[Value] = []
        attributes: dict[str, Any] = {}
        remaining = [spec.name for spec in record.attributes]
        for argument in arguments:
            if isinstance(argument, Value):
                operands.append(argument)
            elif isinstance(argument, Block):
                regions.append(argument)
            elif isinstance(argument, (list, tuple)) and argument and isinstance(argument[0], Value):
                operands.extend(argument)
            elif remaining:
                attributes[remaining.pop(0)] = _attribute_value(argument)
            else:
                raise TypeInferenceError(
                    f"{short_name(record.name)}: unexpected argument {short_repr(argument)}; operands are values"
                    + _constant_for(argument)
                )
        for name, value in named.items():
            if isinstance(value, Block):
                regions.append(value)
            elif value is not None:
                attributes[name] = _attribute_value(value)
        result_types = [single] if single is not None else types
        instruction = self.create(
            record.name, operands, attributes=attributes, regions=regions, result_types=result_types
        )
        return instruction.results[0] if len(instruction.results) == 1 else instruction.results

    # what has a form of its own

    def constant(self, value: Any, type: TensorType | ElementType | str | None = None) -> Value:
        """A constant: an array, or one number for every element of ``type``.

        ``type`` may be left out for a NumPy array, and be an element type for the array's own shape.
        """
        dense = dense_constant(value, type)
        return self.create("stablehlo.constant", attributes={"value": dense}, result_types=[dense.type]).result

    def broadcast_in_dim(
        self, operand: Value, shape: Sequence[int] | TensorType, broadcast_dimensions: Sequence[int] = ()
    ) -> Value:
        """``operand`` in a larger shape; its dimension i becomes dimension ``broadcast_dimensions[i]``."""
        type = shape if isinstance(shape, TensorType) else operand.tensor_type.with_shape(shape)
        return self.create(
            "stablehlo.broadcast_in_dim",
            [operand],
            attributes={"broadcast_dimensions": tuple(broadcast_dimensions)},
            result_types=[type],
        ).result

    def dot_general(
        self,
        lhs: Value,
        rhs: Value,
        *attributes: Any,
        contracting_dims: tuple[Sequence[int], Sequence[int]] | None = None,
        batching_dims: tuple[Sequence[int], Sequence[int]] = ((), ()),
        **named: Any,
    ) -> Value:
        """A product; dimensions of both sides as in the text, ``contracting_dims=([1], [0])``, or as ``DotDimensionNumbers``."""
        if contracting_dims is not None:
            pairs = (_pair("batching_dims", batching_dims), _pair("contracting_dims", contracting_dims))
            named["dot_dimension_numbers"] = DotDimensionNumbers(*pairs[0], *pairs[1])
        product: Value = self._call(op("stablehlo.dot_general"), (lhs, rhs, *attributes), named)
        return product

    def reshape(self, operand: Value, shape: Sequence[int] | TensorType) -> Value:
        """The same elements, in order, in another shape."""
        type = shape if isinstance(shape, TensorType) else operand.tensor_type.with_shape(shape)
        return self.create("stablehlo.reshape", [operand], result_types=[type]).result

    def convert(self, operand: Value, element: ElementType | str) -> Value:
        """The same numbers in another element type."""
        type = operand.tensor_type.with_element_type(element)
        return self.create("stablehlo.convert", [operand], result_types=[type]).result

    def bitcast_convert(self, operand: Value, type: TensorType) -> Value:
        """The same bits as another type."""
        return self.create("stablehlo.bitcast_convert", [operand], result_types=[type]).result

    def iota(self, type: TensorType, dimension: int) -> Value:
        """Each element is its index in ``dimension``."""
        return self.create("stablehlo.iota", attributes={"iota_dimension": dimension}, result_types=[type]).result

    def compare(self, lhs: Value, rhs: Value, direction: str, compare_type: str | None = None) -> Value:
        """``direction`` is one of EQ NE LT LE GT GE."""
        attributes: dict[str, Any] = {"comparison_direction": direction}
        if compare_type is not None:
            attributes["compare_type"] = compare_type
        return self.create("stablehlo.compare", [lhs, rhs], attributes=attributes).result

    def token(self) -> Value:
        """A token that comes after nothing."""
        return self.create("stablehlo.create_token").result

    def call(self, callee: Function, *operands: Value) -> tuple[Value, ...]:
        """Call a function of the module."""
        created = self.create(
            "func.call", operands, attributes={"callee": callee.name}, result_types=callee.result_types
        )
        return created.results

    def return_(self, *values: Value) -> Instruction:
        """End the block: of a function with ``func.return``, of a region with ``stablehlo.return``."""
        name = "func.return" if isinstance(self.block.parent, Function) else "stablehlo.return"
        return self.create(name, values)

    def region(self, argument_types: Sequence[Type], body: Callable[..., Any]) -> Block:
        """Build a region: ``body(builder, *arguments)`` returns what the region returns."""
        block = Block(argument_types)
        inner = Builder(block, location=self.location)
        returned = body(inner, *block.arguments)
        inner.return_(*(returned if isinstance(returned, (tuple, list)) else (returned,)))
        return block

    def combiner(self, name: str, element: ElementType | str) -> Block:
        """The region ``(a, b) -> op(a, b)`` on scalars; numbers in blocks are f32."""
        scalar = tensor((), "f32" if isinstance(element, BlockFormat) else element)
        return self.region([scalar, scalar], lambda inner, a, b: inner.create(name, [a, b]).result)

    def while_(
        self, operands: Sequence[Value], condition: Callable[..., Value], body: Callable[..., Any]
    ) -> tuple[Value, ...]:
        """A loop; ``condition`` and ``body`` take a builder and the loop's values."""
        types = [value.type for value in operands]
        regions = [self.region(types, condition), self.region(types, body)]
        return self.create("stablehlo.while", operands, regions=regions).results

    def if_(self, predicate: Value, then: Callable[..., Any], otherwise: Callable[..., Any]) -> tuple[Value, ...]:
        """A conditional; the branches take a builder."""
        return self.create(
            "stablehlo.if", [predicate], regions=[self.region((), then), self.region((), otherwise)]
        ).results

    def case(self, index: Value, branches: Sequence[Callable[..., Any]]) -> tuple[Value, ...]:
        """A choice among branches, which take a builder."""
        return self.create("stablehlo.case", [index], regions=[self.region((), branch) for branch in branches]).results

    def inline(self, region: Block, operands: Sequence[Value]) -> list[Value]:
        """Copy a region's instructions to the builder's place, ``operands`` for its arguments; what it returns there."""
        mapping = dict(zip(region.arguments, operands))
        for instruction in region:
            if not instruction.op.is_terminator:
                self.insert(clone_instruction(instruction, mapping))
        return [mapping.get(value, value) for value in region.returned]

    def lift_region(self, region: Block, operands: Sequence[Value], shape: Sequence[int]) -> list[Value] | None:
        """Apply a region of scalars to tensors of ``shape``; None if it holds more than ``region_lifting`` takes.

        What it reads from outside may be scalars.
        """
        return lifted_region(self, region, operands, shape)


@final
class DialectBuilder:
    """The ops of one dialect as methods, as those of ``Builder``: ``builder.nova.silu(x, alpha=0.5)``."""

    def __init__(self, builder: Builder, dialect: str):
        self._builder = builder
        self._dialect = dialect

    def __dir__(self) -> list[str]:
        """Methods of ops; those whose names Python reserves have a ``_`` behind."""
        prefix = f"{self._dialect}."
        return sorted(_as_method(name.removeprefix(prefix)) for name in tables().ops if name.startswith(prefix))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        record = find_op(f"{self._dialect}.{name}") or find_op(f"{self._dialect}.{name.removesuffix('_')}")
        if record is None or name.startswith("__"):
            raise AttributeError(f"there is no op {f'{self._dialect}.{name}'!r}{did_you_mean(name, dir(self))}")
        return self._builder._method(record)


def _pair(name: str, given: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dimensions of the left and of the right side of a product."""
    try:
        left, right = (tuple(index(each) for each in side) for side in given)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise TypeInferenceError(
            f"dot_general: {name} is {short_repr(given)}; it is a list of dimensions for each side: ([1], [0])"
        ) from None
    return left, right


def _as_method(mnemonic: str) -> str:
    return f"{mnemonic}_" if iskeyword(mnemonic) else mnemonic


@contextmanager
def build_function(
    module: Module,
    name: str,
    argument_types: Sequence[Type],
    *,
    visibility: str = "public",
    location: Location = UNKNOWN,
) -> Iterator[Builder]:
    """Add a function to ``module`` and build its body; its result types are those of the values returned."""
    function = module.add_function(Function(name, argument_types, (), visibility=visibility, location=location))
    with scope_for(module.environment).activate():
        yield Builder(function.body, location=location)
    last = function.body.last
    if last is None or not last.op.is_terminator:
        raise HlojitError(f"the body of @{name} does not end in a return; call builder.return_(...)")
    function.result_types = [value.type for value in last.operands]
    function.result_attributes = [{} for _ in function.result_types]


def dense_constant(value: Any, type: TensorType | ElementType | str | None = None) -> Dense:
    """The elements of a constant; a number is stored once, whatever the shape."""
    if type is None:
        array = np.asarray(value)
        type = tensor(array.shape, element_type_of(array.dtype))
    elif not isinstance(type, TensorType):
        type = tensor(np.shape(value), type)
    array = encode_elements(value, type.element_type)
    if array.shape != type.shape:
        if array.size != 1:
            raise HlojitError(f"a constant of type {type} cannot have elements of shape {array.shape}")
        array = np.broadcast_to(array.reshape(()), type.shape)
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return Dense(type, array)


def encode_elements(value: Any, element: ElementType) -> np.ndarray[Any, Any]:
    """Numbers as an array of the element type's storage dtype."""
    array = np.asarray(value)
    if array.dtype == element.storage:
        return array
    if isinstance(element, FloatFormat) and element.in_integers and array.dtype not in (np.float32, np.float64):
        with fork_gate.inside:
            from hlojit.ir.scalar.exact_numbers import encode_numbers

        return encode_numbers(array.ravel().tolist(), element).reshape(array.shape)
    if isinstance(element, FloatFormat) and not element.is_native:
        with fork_gate.inside:
            from hlojit.ir.scalar.arrays import encode_array

        return encode_array(np.asarray(array, np.float64), element)
    with np.errstate(all="ignore"):
        return array.astype(element.storage)


def signature_complaint(record: OpDefinition, operands: int, attributes: Mapping[str, Any], regions: int) -> str | None:
    """Say what is wrong with the number of operands and regions, or which attributes are missing or unknown."""
    required = sum(not (operand.variadic or operand.optional) for operand in record.operands)
    variadic = any(operand.variadic for operand in record.operands)
    if operands < required or (not variadic and operands > len(record.operands)):
        expected = f"{required} or more" if variadic else str(required)
        names = ", ".join(operand.name for operand in record.operands)
        return f"takes {expected} operand{'' if expected == '1' else 's'} ({names}), found {operands}"
    specs = record.attributes
    if record.registered and len(attributes) and not attributes.keys() <= {spec.name for spec in specs}:
        unknown = sorted(attributes.keys() - {spec.name for spec in specs})
        known = ", ".join(spec.name for spec in specs) or "none"
        near = did_you_mean(unknown[0], [spec.name for spec in specs])
        return f"has no attribute {unknown[0]}; its attributes: {known}{near}"
    for spec in specs:
        if not spec.optional and spec.name not in attributes:
            return f"attribute {spec.name} is missing; it is {spec.kind.expected}{_fields(spec.kind)}"
    names_of_regions = record.regions
    any_number = bool(names_of_regions) and names_of_regions[-1].endswith("*")
    least = len(names_of_regions) - any_number
    if regions < least or (not any_number and regions > least):
        return f"takes {least}{' or more' if any_number else ''} regions, found {regions}"
    return None


def _fields(kind: object) -> str:
    """Of a kind of attributes that are records: what they are made of."""
    record = getattr(kind, "record", None)
    return f" of {', '.join(each.name for each in fields(record))}" if is_dataclass(record) else ""


def infer_types(
    record: OpDefinition, operand_types: tuple[Type, ...], attributes: Mapping[str, Any], regions: Sequence[Block]
) -> Sequence[Type]:
    """Result types by the op's record; errors name the op."""
    name = short_name(record.name)
    if record.infer is None:
        rule = f", or its record{tables().source_of(OPS, record.name)} a rule infer" if is_foreign(record) else ""
        raise TypeInferenceError(f"{name}: result types do not follow from the operands; give result_types{rule}")
    key = None
    known = tables().inferred_types
    if isinstance(record.lowering, Pointwise):
        key = (record.infer, operand_types, *attributes.items())
        found = known.get(key)
        if found is not None:
            return found
    try:
        request = InferenceRequest(operand_types, attributes, regions)
        inferred = infer_blocks(record, request) or record.infer(request)
        if is_foreign(record) and (wrong := wrong_types(inferred)):
            raise PluginError(f"op {record.name!r}: infer {wrong}")
        return inferred if key is None else known.keep(key, inferred)
    except TypeInferenceError as error:
        error.args = (f"{name} {error}" if error.label else f"{name}: {error}",)
        raise
    except (HlojitError, MemoryError):
        raise
    except Exception as error:
        if named := infer_failure(record, error):
            raise named from error
        raise


def short_name(name: str) -> str:
    """The name of an op as messages have it: StableHLO's own without the dialect."""
    return name.removeprefix("stablehlo.")


def _constant_for(argument: Any) -> str:
    """What to write where a number or an array is given for an operand."""
    if isinstance(argument, np.ndarray):
        return "; builder.constant(array) makes one"
    number = isinstance(argument, (bool, int, float, complex, np.generic))
    return f"; builder.constant({short_repr(argument)}, x.type) makes one, where x is another operand" if number else ""


def _attribute_value(value: Any) -> Any:
    """Lists become tuples, so that attribute values are immutable."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_attribute_value, value))
    return value.item() if isinstance(value, np.generic) else value
