"""The reference interpreter: a module's meaning, by the NumPy semantics in the op records.

    (result,) = evaluate(module, x, y)

Values are kept in *compute form*: an array of a float format other than f32 and f64 is held in its compute type
(float32 as a rule), rounded into the format after every op, as generated code does.  i1 is NumPy's bool, integers are
their storage type, complex numbers NumPy's, a token is None and a tuple is a Python tuple.  A tensor in blocks is a tuple of
its parts for callers (elements, scales and, of two levels, the tensor's scale), a ``BlockArray`` inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from hlojit.ir.environment import scope_for
from hlojit.ir.errors import ArgumentError, ExecutionError, HlojitError, PluginError, short_repr
from hlojit.ir.graph import Block, Instruction, Module, Value
from hlojit.ir.ops.block_arithmetic import block_format, part_types
from hlojit.ir.ops.block_parts import BlockArray, evaluate_blocks, has_blocks
from hlojit.ir.ops.definition import Pointwise, Trait
from hlojit.ir.ops.foreign_rules import is_foreign
from hlojit.ir.ops.integer_parts import left_over
from hlojit.ir.ops.quantized_arrays import computes_with_numbers, dequantize, quantize, quantized_element_of
from hlojit.ir.plugin_names import plugins_named
from hlojit.ir.quantized import is_quantized
from hlojit.ir.resolution import resolved
from hlojit.ir.scalar.arrays import round_array, to_compute, to_storage
from hlojit.ir.types import DYNAMIC, TensorType, TokenType, TupleType, Type
from hlojit.ir.vendor_places import told

NDArray = np.ndarray[Any, Any]


class Process(Protocol):
    """One of several processes that run a program together; see ``hlojit.extensions.devices.rendezvous``."""

    @property
    def process(self) -> int:
        """Its number."""

    def exchange(self, members: tuple[int, ...], what: str, value: Any) -> Mapping[int, Any]:
        """What each of ``members`` brought to ``what``."""


def evaluate(module: Module, *arguments: Any, process: Process | None = None) -> tuple[Any, ...]:
    """Run the module's entry function on arrays and return its results; ``process`` is the one of several that does.

    A tensor in blocks comes as a tuple of its parts, or as an ``hlojit.Array``, and leaves as a tuple.  Raises
    ``ArgumentError`` where number, shapes or dtypes of the arguments do not match, ``ExecutionError`` where an op has no
    reference semantics.
    """
    scope = scope_for(module.environment).snapshot()
    with scope.activate(), plugins_named(), np.errstate(all="ignore"):
        return _evaluate(resolved(module, scope), arguments, process)


def _evaluate(module: Module, arguments: Sequence[Any], process: Process | None) -> tuple[Any, ...]:
    function = module.main
    types = function.type.inputs
    if len(arguments) != len(types):
        raise ArgumentError(f"@{function.name} takes {len(types)} arguments, found {len(arguments)}")
    values = [
        _enter(type, f"argument {position} of @{function.name}", argument)
        for position, (type, argument) in enumerate(zip(types, arguments))
    ]
    interpreter = Interpreter(module, process)
    results = interpreter.call(function.name, values)
    return tuple(_leave(value, type) for value, type in zip(results, function.result_types))


def evaluate_instruction(
    instruction: Instruction, operands: Sequence[Any], *, captured: Mapping[Value, Any] | None = None
) -> tuple[NDArray, ...]:
    """Compute one instruction - an op, a fusion, a loop with all that is in it - from arrays, as ``evaluate`` does.

    ``operands`` are arrays of the operands' dtype or storage dtype, one for each; ``captured`` those of values that the
    instruction's regions read from outside.  Returns one array of the storage dtype for each result, in memory of its own.
    Raises ``ArgumentError`` where an array does not fit, ``ExecutionError`` where an op has no reference semantics.
    """
    where = f"{instruction.name} at {instruction.location}"
    if len(operands) != len(instruction.operands):
        raise ArgumentError(f"{where} has {len(instruction.operands)} operands, found {len(operands)}")
    function = instruction.function
    module = function.module if function is not None and function.module is not None else Module()
    with scope_for(module.environment).activate(), np.errstate(all="ignore"):
        values = [
            _enter(type, f"operand {number} of {where}", operand)
            for number, (type, operand) in enumerate(zip(instruction.operand_types, operands))
        ]
        outside = {
            value: _enter(value.type, f"a captured value of {where}", array)
            for value, array in (captured or {}).items()
        }
        results = Interpreter(module).evaluate(instruction, values, dict(zip(instruction.operands, values)) | outside)
        return tuple(_stored(value, type) for value, type in zip(results, instruction.result_types))


class Interpreter:
    """Evaluates functions of one module on values in compute form."""

    def __init__(self, module: Module, process: Process | None = None):
        self.module = module
        self.process = process

    def call(self, name: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """Evaluate a function."""
        function = self.module.functions.get(name)
        if function is None or function.is_declaration:
            raise ExecutionError(f"there is no function @{name} with a body in the module")
        return self.run(function.body, values, {})

    def run(self, block: Block, values: Sequence[Any], environment: dict[Value, Any]) -> tuple[Any, ...]:
        """Evaluate a block; ``environment`` holds the values that it may read from outside."""
        environment.update(zip(block.arguments, values))
        for instruction in block:
            operands = [environment[operand] for operand in instruction.operands]
            if instruction.op.is_terminator:
                return tuple(operands)
            is_open = _is_open(instruction)
            if is_open:
                _check_sizes(instruction, instruction.operand_types, operands)
            results = self.evaluate(instruction, operands, environment)
            if is_open:
                _check_sizes(instruction, instruction.result_types, results)
            environment.update(zip(instruction.results, results))
        raise ExecutionError("a block ends without a return")

    def evaluate(self, instruction: Instruction, operands: list[Any], environment: dict[Value, Any]) -> list[Any]:
        """Evaluate one instruction."""
        if has_blocks(instruction):
            return evaluate_blocks(instruction, operands, lambda at, values: self._evaluate(at, values, environment))
        return self._evaluate(instruction, operands, environment)

    def _evaluate(self, instruction: Any, operands: Sequence[Any], environment: dict[Value, Any]) -> list[Any]:
        record = instruction.op
        if reason := left_over(instruction):
            raise ExecutionError(
                f"{record.name} at {instruction.location}: {reason}; the pass type-legalizer puts integers in"
            )
        if record.reference is None:
            raise ExecutionError(f"{record.name} at {instruction.location} has no reference semantics")
        quantized = computes_with_numbers(instruction)
        if quantized:
            operands = [_dequantize(value, operand.type) for value, operand in zip(operands, instruction.operands)]
        try:
            outcome = record.reference(_Call(self, instruction, environment), *operands)
        except RecursionError:
            raise ExecutionError(f"{record.name} at {instruction.location}: regions or calls nest too deep") from None
        except (HlojitError, MemoryError):
            raise
        except Exception as error:
            if not is_foreign(record):
                raise
            text = f"op {record.name!r}: reference raised {told(error, record.reference)}\n  at {instruction.location}"
            raise PluginError(text) from error
        results = outcome if isinstance(outcome, tuple) else (outcome,)
        if len(results) != len(instruction.results):
            found = f"reference returned {len(results)} results, expected {len(instruction.results)}"
            raise PluginError(f"op {record.name!r}: {found}\n  at {instruction.location}")
        if is_foreign(record):
            _check_reference(instruction, operands, results)
        if quantized:
            results = tuple(_quantize(value, result.type) for value, result in zip(results, instruction.results))
        constant = Trait.CONSTANT in record.traits
        return [_settle(value, result.type, constant) for value, result in zip(results, instruction.results)]


def _check_reference(instruction: Any, operands: Sequence[Any], results: Sequence[Any]) -> None:
    """Arrays of a plugin's reference have the shapes of the results, unless a region is evaluated for many elements at once."""
    types = instruction.operand_types
    if not all(isinstance(t, TensorType) and np.ndim(value) == t.rank for t, value in zip(types, operands)):
        return
    for result, value in zip(instruction.results, results):
        if not isinstance(result.type, TensorType) or isinstance(value, BlockArray):
            continue
        shape, dtype = np.shape(value), np.asarray(value).dtype
        fits = len(shape) == result.type.rank and result.type.refined(shape).shape == shape
        if not fits or dtype.kind == "O":
            raise PluginError(
                f"op {instruction.op.name!r}: reference returned {short_repr(value, 60)} of shape {shape}, "
                f"expected {result.type}\n  at {instruction.location}"
            )


class _Call:
    """What a reference sees of the interpreter: the ``ReferenceCall`` protocol."""

    __slots__ = ("environment", "instruction", "interpreter")

    def __init__(self, interpreter: Interpreter, instruction: Instruction, environment: dict[Value, Any]):
        self.interpreter = interpreter
        self.instruction = instruction
        self.environment = environment

    @property
    def attributes(self) -> Mapping[str, Any]:
        return self.instruction.attributes

    @property
    def process(self) -> int:
        return 0 if self.interpreter.process is None else self.interpreter.process.process

    def exchange(self, members: tuple[int, ...], value: Any) -> Mapping[int, Any]:
        if members == (self.process,):
            return {self.process: value}
        at = self.instruction
        if self.interpreter.process is None:
            raise ExecutionError(f"{at.name} at {at.location} needs {len(members)} processes; the reference has one")
        return self.interpreter.process.exchange(members, f"{at.name} at {at.location}", value)

    def run(self, region: int, *arguments: Any) -> tuple[Any, ...]:
        return self.interpreter.run(self.instruction.regions[region], arguments, self.environment)

    def call(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        return self.interpreter.call(function, arguments)


# sizes that types leave open


def _is_open(instruction: Instruction) -> bool:
    """Whether a type of an operand or a result does not say how large it is."""
    types = (*instruction.operand_types, *instruction.result_types)
    return any(isinstance(type, TensorType) and not type.is_static for type in types)


def _check_sizes(instruction: Instruction, types: Sequence[Type], values: Sequence[Any]) -> None:
    """Refuse sizes of operands or results that the verifier would have refused, had it known them."""
    where = f"{instruction.op.name} at {instruction.location}"
    shapes: set[tuple[int, ...]] = set()
    for type, value in zip(types, values):
        if not isinstance(type, TensorType):
            continue
        shape = np.shape(value)
        bounds = type.bounds or (DYNAMIC,) * type.rank
        for found, extent, bound in zip(shape, type.shape, bounds):
            if extent not in (DYNAMIC, found) or (extent == DYNAMIC and bound != DYNAMIC and found > bound):
                raise ExecutionError(f"{where}: a value of the shape {shape} does not fit its type {type}")
        if shape:
            shapes.add(shape)
    if isinstance(instruction.op.lowering, Pointwise) and len(shapes) > 1:
        raise ExecutionError(f"{where}: the shapes {' and '.join(map(str, sorted(shapes)))} must be equal")


# compute form


def _settle(value: Any, type: Type, constant: bool) -> Any:
    """Bring a result of a reference into compute form; a constant comes as it is stored."""
    if not isinstance(type, TensorType) or isinstance(value, BlockArray):
        return value
    array = np.asarray(value)
    if constant and array.dtype == type.element_type.storage:
        return to_compute(array, type.element_type)
    return round_array(array, type.element_type)


# quantized numbers: most ops work on what they stand for, and quantize the result


def _dequantize(value: Any, type: Type) -> Any:
    return dequantize(value, type) if isinstance(type, TensorType) and is_quantized(type) else value


def _quantize(value: Any, type: Type) -> Any:
    if not isinstance(type, TensorType) or not is_quantized(type):
        return value
    # The op is one of the expressed type's: its result is rounded before it is quantized.
    return quantize(round_array(np.asarray(value), quantized_element_of(type).expressed_element), type)


# arguments and results


def _enter(type: Type, what: str, argument: Any) -> Any:
    """Check an argument and bring it into compute form."""
    if isinstance(type, TokenType):
        return None
    if isinstance(type, TupleType):
        if not isinstance(argument, (tuple, list)) or len(argument) != len(type.elements):
            raise ArgumentError(f"{what} is no tuple of {len(type.elements)} for {type}")
        parts = enumerate(zip(type.elements, argument))
        return tuple(_enter(element, f"element {number} of {what}", part) for number, (element, part) in parts)
    if not isinstance(type, TensorType):
        raise ArgumentError(f"{what} has type {type}, which cannot be passed from outside")
    if (format := block_format(type)) is not None:
        return BlockArray(_entered_parts(type, what, argument), format)
    array = np.asarray(argument)
    element = type.element_type
    native = array.dtype.newbyteorder("=")
    if native not in (element.storage, element.dtype):
        raise ArgumentError(f"{what} has dtype {array.dtype}, expected {element.dtype or element.storage} for {type}")
    if array.ndim != type.rank or any(extent not in (DYNAMIC, found) for extent, found in zip(type.shape, array.shape)):
        raise ArgumentError(f"{what} has shape {array.shape}, expected {type.shape} for {type}")
    return to_compute(array.astype(element.storage, copy=False), element)


def _entered_parts(type: TensorType, what: str, argument: Any) -> list[Any]:
    """The parts of a tensor in blocks, which an array of its own or a tuple holds."""
    types, parts = part_types(type), getattr(argument, "parts", argument)
    if not isinstance(parts, (tuple, list)) or len(parts) != len(types):
        listed = ", ".join(map(str, types))
        raise ArgumentError(f"{what} is {type}: expected a tuple of its parts ({listed}), found {short_repr(argument)}")
    # An array of a format that NumPy does not have gives its codes.
    codes = [getattr(part, "storage", part) for part in parts]
    return [_enter(each, f"part {number} of {what}", part) for number, (each, part) in enumerate(zip(types, codes))]


def _stored(value: Any, type: Type) -> Any:
    """A result as devices keep it: an array of the element type's storage dtype; of a tensor in blocks a tuple of them."""
    if isinstance(value, BlockArray) and isinstance(type, TensorType):
        return tuple(map(_stored, value.parts, part_types(type)))
    return np.array(to_storage(np.asarray(value), type.element_type)) if isinstance(type, TensorType) else value


def _leave(value: Any, type: Type) -> Any:
    """A result as the caller sees it: an array of NumPy's or ml_dtypes' dtype of the element type."""
    if isinstance(type, TupleType):
        return tuple(_leave(part, inner) for part, inner in zip(value, type.elements))
    if not isinstance(type, TensorType):
        return value
    if isinstance(value, BlockArray):
        return tuple(map(_leave, value.parts, part_types(type)))
    array = to_storage(np.asarray(value), type.element_type)
    dtype = type.element_type.dtype or type.element_type.storage
    return np.array(array if array.dtype == dtype else array.astype(dtype))
