"""Ops and custom calls by name, in jitted functions and outside of them::

    silu = hlojit.op("nova.silu")

    @hlojit.jit
    def f(x):
        return silu(x, alpha=0.5) + hlojit.custom_call("nova.scale", x, result=x, factor=2.0)

Operands are arrays, traced or not, and numbers, which take the element type of the first array; they are not broadcast.  Names
are looked up when a call is made, in its environment.  Outside of a jitted function a call is a program of one op, compiled for
each signature.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import numpy as np
from hlojit.arrays import Array
from hlojit.extensions import registry
from hlojit.extensions.calls.elementwise_calls import ElementwiseCall
from hlojit.ir.attribute_values import attribute_of
from hlojit.ir.attributes import Attribute, BoolAttr, DenseArrayAttr, FloatAttr, IntegerAttr, StringAttr
from hlojit.ir.builder import short_name
from hlojit.ir.environment import OPS, tables
from hlojit.ir.errors import HlojitError, PluginError
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.formats import ElementType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.location import Location
from hlojit.ir.near_names import did_you_mean
from hlojit.ir.ops.attribute_kinds import GENERIC
from hlojit.ir.ops.definition import OpDefinition, find_op
from hlojit.ir.plugin_names import with_sources
from hlojit.ir.types import Type, tensor
from hlojit.tracing.arrays.kinds import as_kind, element_of, kind_of
from hlojit.tracing.checks import said_at
from hlojit.tracing.decorator import jit
from hlojit.tracing.errors import TracingError
from hlojit.tracing.jitted_functions import JittedFunction
from hlojit.tracing.operations import Operations, user_location
from hlojit.tracing.reports import reported
from hlojit.tracing.tracer import Kind, Tracer

_KEPT: Final = 256
"""Programs of one op that are kept."""
_TYPED: Final = 4
"""The API version of calls whose configuration is a dictionary."""

Build = Callable[[Operations, list[Value], "Sequence[Type] | None"], Instruction]
"""Builds the instruction for operands, and for result types where they were given."""


@final
class Op:
    """An op as a function: ``op(*operands, result=None, **attributes)`` gives its result, or a tuple of several."""

    def __init__(self, name: str):
        if not isinstance(name, str) or not name:
            raise HlojitError(f"an op is named by a text such as 'nova.silu', not {name!r}")
        self.name = name
        self.__name__ = self.__qualname__ = name

    @reported
    def __call__(self, *operands: Any, result: Any = None, **attributes: Any) -> Any:
        """One instruction of the op.

        Attributes are given by name; ``result`` - a type, an array, anything with a shape and a dtype, or a list of them - where
        the op infers no types.  Raises ``TracingError`` naming the op, near names and the line.
        """

        def build(context: Operations, values: list[Value], types: Sequence[Type] | None) -> Instruction:
            record = _record(self.name)
            plain = {name: _value_of(record, name, value) for name, value in attributes.items() if value is not None}
            return context.builder.create(record.name, values, attributes=plain, result_types=types)

        return _run(f"op {self.name!r}", operands, build, result, ("op", self.name, attributes))

    def __repr__(self) -> str:
        return f"<hlojit.op {self.name!r}>"


def op(name: str) -> Op:
    """An op of any dialect - a plugin's, or one of hlojit's - as a function of arrays: ``op("nova.silu")(x, alpha=0.5)``."""
    return Op(name)


@reported
def custom_call(
    target: str, *operands: Any, result: Any = None, has_side_effect: bool = False, **attributes: Any
) -> Any:
    """A call of a custom call target: its result, or a tuple of several.

    ``attributes`` are the call's configuration, a dictionary of typed attributes: Python's numbers are i64, f64 and booleans.
    ``result`` is a type, an array, anything with a shape and a dtype, or a list of them; it may be left out where the target has
    a rule for it, and of elementwise targets, whose result is like the first operand.
    """

    def build(context: Operations, values: list[Value], types: Sequence[Type] | None) -> Instruction:
        config = attribute_of(attributes)
        if types is None:
            types = _ruled(target, values, attributes)
        plain: dict[str, Any] = {"call_target_name": target, "api_version": _TYPED}
        if has_side_effect:
            plain["has_side_effect"] = True
        if attributes:
            plain["backend_config"] = config
        return context.builder.create("stablehlo.custom_call", values, attributes=plain, result_types=types)

    if not isinstance(target, str) or not target:
        raise HlojitError(f"a custom call target is a text such as 'nova.scale', not {target!r}")
    return _run(
        f"custom call target {target!r}",
        operands,
        build,
        result,
        ("call", target, attributes, has_side_effect),
        has_effects=has_side_effect or _has_effects(target),
    )


def _has_effects(target: str) -> bool:
    call = registry().load().custom_call(target)
    return call is not None and call.effects


# ---------------------------------------------------------------------------------------------------- building calls


def _run(
    what: str, operands: Sequence[Any], build: Build, result: Any, key: tuple[Any, ...], *, has_effects: bool = False
) -> Any:
    place = user_location()
    with _naming(what, place):
        types = None if result is None else _types(result)
    context: Operations | None = next((each.context for each in operands if isinstance(each, Tracer)), None)
    if context is None and (has_effects or not operands):
        # Made once for each call of the program, not once when it is traced.
        context = Operations.in_work.get()
    if context is not None:
        return _traced(what, context, operands, build, types, place)
    return _eager(what, operands, build, types, key, place)


@contextmanager
def _naming(what: str, place: Location) -> Iterator[None]:
    """Errors name what is called, and the line."""
    try:
        yield
    except (HlojitError, TypeError) as error:
        said, name = str(error), what.partition("'")[2].removesuffix("'")
        # Whoever finds a mistake mostly names the op or target as well.
        for again in (with_sources(what, tables()), what, name, short_name(name)):
            said = said.removeprefix(f"{again}: ")
        said = f"{what}: {said}"
        said = with_sources(said, tables()) if isinstance(error, PluginError) else said
        raise TracingError(said_at(place, said)) from error


def _traced(
    what: str,
    context: Operations,
    operands: Sequence[Any],
    build: Build,
    types: Sequence[Type] | None,
    place: Location,
) -> Any:
    context.mark()
    context.builder.location = place
    with _naming(what, place):
        instruction = build(context, _values(context, operands), types)
    results = tuple(map(context.wrap, instruction.results))
    return results[0] if len(results) == 1 else results


def _values(context: Operations, operands: Sequence[Any]) -> list[Value]:
    strong = [each for each in operands if not _is_weak(each)]
    kind: Kind | None = kind_of(strong[0]) if strong else None
    return [context.value(each, kind if kind is not None and _is_weak(each) else None) for each in operands]


def _is_weak(operand: Any) -> bool:
    """Whether it is a Python number, which takes the type of what it meets."""
    return type(operand) in (bool, int, float, complex) or (isinstance(operand, Tracer) and operand.weak is not None)


_eager_programs: Final[OrderedDict[str, _Program]] = OrderedDict()


@final
class _Program:
    """A call outside of jitted functions, as one."""

    def __init__(self, what: str, build: Build, types: Sequence[Type] | None, count: int):
        self.place: Location | None = None
        self.what = what
        self.build = build
        self.types = types
        names = ", ".join(f"x{number}" for number in range(count))
        scope: dict[str, Any] = {"traced": self._traced, "__name__": __name__}
        exec(f"def program({names}): return traced({names})", scope)
        self.function: JittedFunction = jit(scope["program"])

    def _traced(self, *tracers: Tracer) -> Any:
        assert self.place is not None
        return _traced(self.what, tracers[0].context, tracers, self.build, self.types, self.place)


def _eager(
    what: str,
    operands: Sequence[Any],
    build: Build,
    types: Sequence[Type] | None,
    key: tuple[Any, ...],
    place: Location,
) -> Any:
    if not operands:
        raise TracingError(said_at(place, f"{what}: outside of a jitted function a call has operands"))
    said = None if types is None else list(map(str, types))
    try:
        # Types belong to the environment in which they were looked up.
        name = fingerprint((key, len(operands), said, tables().identity))
    except NotKeyable:
        found = _Program(what, build, types, len(operands))
    else:
        found = _eager_programs.get(name) or _Program(what, build, types, len(operands))
        found = _eager_programs.setdefault(name, found)
        while len(_eager_programs) > _KEPT:
            _eager_programs.popitem(last=False)
    found.place = place
    return found.function(*operands)


# ------------------------------------------------------------------------------------------- names, attributes, types


def _record(name: str) -> OpDefinition:
    registry().load()
    record = find_op(name) or find_op(f"stablehlo.{name}")
    if record is None:
        raise TracingError(f"there is no op {name!r}{_meant(name)}{tables().who_brings(OPS, name)}")
    return record


def _meant(name: str) -> str:
    known = list(tables().ops)
    same = [each for each in known if each.partition(".")[2] == name]
    if same:
        return f"; did you mean {' or '.join(map(repr, same))}?"
    return did_you_mean(name, [*known, *(each.removeprefix("stablehlo.") for each in known)])


def _value_of(record: OpDefinition, name: str, value: Any) -> Any:
    """An attribute as the record has it."""
    spec = record.attribute(name)
    if spec is None:
        known = [each.name for each in record.attributes]
        near = did_you_mean(name, known)
        raise TracingError(f"has no attribute {name!r}; its attributes: {', '.join(known) or 'none'}{near}")
    if spec.kind is GENERIC:
        return attribute_of(value)
    if isinstance(value, np.generic):
        value = value.item()
    plain = tuple(value) if isinstance(value, list) else value
    try:
        generic = spec.kind.to_generic(plain)
        if not _is_sound(generic):
            raise TypeError(f"{plain!r} is of another type")
        return plain if generic is None else spec.kind.from_generic(generic)
    except Exception as error:
        raise TracingError(f"attribute {name} is {value!r}; expected {spec.kind.expected}") from error


def _is_sound(generic: Attribute | None) -> bool:
    """Whether an attribute holds what it is made for: kinds take what they are given."""
    match generic:
        case FloatAttr():
            return type(generic.value) in (int, float)
        case IntegerAttr():
            return type(generic.value) is int
        case BoolAttr():
            return type(generic.value) is bool
        case StringAttr():
            return type(generic.value) is str
        case DenseArrayAttr():
            return all(type(each) in (int, float, bool) for each in generic.values)
    return True


def _types(result: Any) -> list[Type]:
    if isinstance(result, (list, tuple)) and not _is_pair(result):
        return [_type(each) for each in result]
    return [_type(result)]


def _is_pair(result: Sequence[Any]) -> bool:
    """Whether it is a shape and a dtype."""
    return (
        len(result) == 2
        and isinstance(result[0], (tuple, list))
        and isinstance(result[1], (str, np.dtype, type, ElementType))
    )


def _type(result: Any) -> Type:
    if isinstance(result, Type):
        return result
    if isinstance(result, (Tracer, Array)):
        return result.type
    if isinstance(result, (list, tuple)) and _is_pair(result):
        shape, dtype = result
    else:
        shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
    if shape is None or dtype is None:
        raise TracingError(
            f"result={result!r} is no type; give a type of hlojit.ir.tensor, an array, something with a shape and a dtype, or a "
            "pair of them: ((4, 8), 'f32')"
        )
    return tensor(tuple(int(extent) for extent in shape), element_of(as_kind(dtype)))


def _ruled(target: str, values: Sequence[Value], attributes: Mapping[str, Any]) -> Sequence[Type]:
    """The types of a call of which nothing is said."""
    call = registry().custom_call(target)
    if call is None:
        raise TracingError(f"its result's type is not known; {registry().unknown_target(target)}, or say result=")
    types = call.ruled_types([value.type for value in values], dict(attributes) or None)
    if types is not None:
        return types
    if isinstance(call, ElementwiseCall) and values:
        return [values[0].type]
    raise TracingError("its result's type is not known: say result=, or give the target a rule (result_types=)")
