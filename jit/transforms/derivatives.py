"""``grad`` and its kin: functions of derivatives of functions, with the signatures and meanings of JAX's."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.ir.formats import ComplexType, FloatFormat
from hlojit.ir.graph import Value
from hlojit.ir.ops.batching.kinds import Lane
from hlojit.ir.ops.derivatives.kinds import is_differentiable, zeros
from hlojit.ir.transforms.differentiation import pull_block, push_block
from hlojit.ir.transforms.vectorization import Vectorizing, vectorize_block
from hlojit.ir.types import TensorType
from hlojit.tracing.calls.containers import described, flatten, paths, unflatten
from hlojit.tracing.operations import Operations
from hlojit.tracing.reports import reported
from hlojit.tracing.state import is_number_or_array
from hlojit.tracing.tracer import Tracer
from hlojit.transforms.calls import TransformedFunction, call
from hlojit.transforms.regions import (
    Place,
    Region,
    argument_error,
    argument_value,
    as_type,
    called,
    fresh,
    result,
    transforming,
)


def _numbers(name: str, argnums: int | Sequence[int]) -> tuple[int, ...]:
    given: Any = argnums
    try:
        return tuple(map(operator.index, given)) if isinstance(given, (tuple, list)) else (operator.index(given),)
    except TypeError:
        raise argument_error(name, f"argnums={argnums!r} is no number of an argument, nor a tuple of such") from None


class _Varied:
    """A call of a function, some of whose arguments vary: their leaves and values."""

    def __init__(
        self, name: str, operations: Operations, arguments: Sequence[Any], numbers: Sequence[int], holomorphic: bool
    ):
        count = len(arguments)
        if any(not -count <= number < count for number in numbers):
            raise argument_error(
                name, f"argnums={tuple(numbers)}, but the function was called with {count} positional arguments"
            )
        self.numbers = tuple(number % count for number in numbers)
        if len(set(self.numbers)) < len(self.numbers):
            raise argument_error(name, f"argnums={tuple(numbers)} names an argument twice")
        chosen = [arguments[number] for number in self.numbers]
        self.leaves, self.structure = flatten(tuple(chosen))
        named = [path for path, _ in paths(tuple(chosen))]
        self.values = [argument_value(name, operations, path, leaf) for path, leaf in zip(named, self.leaves)]
        for path, value in zip(named, self.values):
            _check_input(name, path, value, holomorphic)
        self._operations = operations
        self._arguments = [None if k in self.numbers else each for k, each in enumerate(arguments)]

    def call(self, function: Callable[..., Any], named: dict[str, Any]) -> Callable[..., Any]:
        """The function of the tracers of the leaves that vary."""

        def run(tracers: Sequence[Any]) -> Any:
            leaves, structure = flatten(self._arguments)
            arguments = unflatten(structure, [fresh(self._operations, leaf) for leaf in leaves])
            for number, argument in zip(self.numbers, unflatten(self.structure, tracers)):
                arguments[number] = argument
            return function(*arguments, **named)

        return run


def _check_input(name: str, path: str, value: Value, holomorphic: bool) -> None:
    type = value.tensor_type
    if not is_differentiable(type):
        raise argument_error(
            name,
            f"argument{path} has elements of type {type.element_type}, and derivatives are of functions of floats or "
            "complex numbers; convert it, or choose other arguments by argnums",
        )
    if holomorphic and not isinstance(type.element_type, ComplexType):
        raise argument_error(name, f"holomorphic=True takes complex arguments, argument{path} is {type.element_type}")


def _check_scalar(name: str, type: Any, holomorphic: bool) -> None:
    if type.shape:
        raise argument_error(
            name, f"the function must return a number, and returned an array of shape {type.shape}; jacrev takes it"
        )
    if isinstance(type.element_type, FloatFormat) and not holomorphic:
        return
    if isinstance(type.element_type, ComplexType) and holomorphic:
        return
    advice = "; of a holomorphic function, say holomorphic=True" if isinstance(type.element_type, ComplexType) else ""
    raise argument_error(name, f"the function must return a real number, and returned {type.element_type}{advice}")


def _wrapped(operations: Operations, structure: Any, values: Sequence[Value]) -> Any:
    return unflatten(structure, [result(operations, value) for value in values])


def _with_aux(name: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise argument_error(name, "with has_aux=True the function returns a pair (result, auxiliary values)")
    for path, leaf in paths(result[1]):
        if not isinstance(leaf, Tracer) and not is_number_or_array(leaf):
            raise argument_error(name, f"auxiliary values are arrays and numbers, and aux{path} is {leaf!r}")
    return result


def _split(region: Region, has_aux: bool) -> tuple[int, Any, Any]:
    """How many leaves belong to the result proper, and the structures of that and of what is beside it."""
    if not has_aux:
        return len(region.types), region.structure, None
    of_result, of_aux = region.structure[2]
    return _leaf_count(of_result), of_result, of_aux


def _leaf_count(structure: Any) -> int:
    return 1 if structure == "leaf" else sum(map(_leaf_count, structure[2]))


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> TransformedFunction:
    """A function that returns ``fun``'s result and its gradient: ``(value, gradient)``, or ``((value, aux), gradient)``.

    ``fun`` returns a number.  The gradient has the structure and shapes of argument ``argnums``; of several, it is a tuple.  With
    ``has_aux`` the function returns a pair, of which the second part is passed on.  Of complex arguments the gradient is JAX's:
    for a real result its conjugate points uphill.
    """

    def body(operations: Operations, /, *arguments: Any, **named: Any) -> Any:
        name = "grad"
        varied = _Varied(name, operations, arguments, _numbers(name, argnums), holomorphic)
        with transforming(operations) as place:
            function = varied.call(
                lambda *a, **k: _with_aux(name, called(fun, *a, **k), has_aux) if has_aux else called(fun, *a, **k),
                named,
            )
            region = place.trace(function, varied.leaves, [value.type for value in varied.values])
            count, of_result, of_aux = _split(region, has_aux)
            if of_result != "leaf":
                raise argument_error(name, f"the function must return one number, and returned {described(of_result)}")
            _check_scalar(name, region.types[0], holomorphic)
            values, gradients = _pulled(operations, region, varied.values, _ones)
            found = place.done([*values, *gradients])
        value = result(operations, found[0])
        gradient = _wrapped(operations, varied.structure, found[len(values) :])
        gradient = gradient[0] if isinstance(argnums, int) else gradient
        if has_aux:
            return (value, _wrapped(operations, of_aux, found[count : len(values)])), gradient
        return value, gradient

    return TransformedFunction(body, fun, (value_and_grad, argnums, has_aux, holomorphic))


def _ones(operations: Operations, results: Sequence[Value]) -> list[Value | None]:
    first = results[0]
    return [operations.builder.constant(1.0, first.tensor_type), *[None] * (len(results) - 1)]


def _pulled(
    operations: Operations, region: Region, values: Sequence[Value], cotangents: Any
) -> tuple[list[Value], list[Value]]:
    b = operations.builder
    count = len(region.types)
    every, found = pull_block(
        b, region.block, values, [True] * len(values), lambda every: cotangents(operations, every[:count])
    )
    results = region.without_check(operations, every)
    return results, [zeros(b, value.type) if t is None else t for t, value in zip(found, values)]


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> TransformedFunction:
    """The gradient of a function that returns a number; with ``has_aux`` a pair ``(gradient, aux)``.  See ``value_and_grad``."""
    both = value_and_grad(fun, argnums, has_aux, holomorphic)

    def body(operations: Operations, /, *arguments: Any, **named: Any) -> Any:
        value, gradient = both(*arguments, **named)
        return (gradient, value[1]) if has_aux else gradient

    return TransformedFunction(body, fun, (grad, argnums, has_aux, holomorphic))


# tangents and cotangents as arguments


def _matching(
    name: str, operations: Operations, what: str, tree: Any, structure: Any, values: Sequence[Value]
) -> list[Value]:
    leaves, own = flatten(tree)
    if own != structure:
        raise argument_error(
            name, f"{what} have another structure than the values: {described(own)}, not {described(structure)}"
        )
    found = [as_type(operations, leaf, value.type) for leaf, value in zip(leaves, values)]
    for made, value in zip(found, values):
        if made.type is not value.type:
            raise argument_error(name, f"{what} must have the types of the values: {made.type} for {value.type}")
    return found


@reported
def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """``(result, tangent)`` of ``fun(*primals)`` in the direction ``tangents``; with ``has_aux`` the auxiliary values, too."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise argument_error(
            "jvp", "primals and tangents are tuples or lists, an entry for each argument of the function"
        )
    return call(_jvp, fun, (has_aux,), tuple(primals), tuple(tangents))


def _jvp(operations: Operations, fun: Any, options: Any, primals: Any, tangents: Any) -> Any:
    (has_aux,) = options
    varied = _Varied("jvp", operations, primals, range(len(primals)), holomorphic=False)
    moving = _matching("jvp", operations, "tangents", tangents, varied.structure, varied.values)
    with transforming(operations) as place:
        function = varied.call(
            lambda *a: _with_aux("jvp", called(fun, *a), has_aux) if has_aux else called(fun, *a), {}
        )
        region = place.trace(function, varied.leaves, [value.type for value in varied.values])
        count, of_result, of_aux = _split(region, has_aux)
        b = operations.builder
        every, found = push_block(b, region.block, varied.values, moving)
        values = region.without_check(operations, every)
        pushed = [zeros(b, v.type) if t is None else t for v, t in zip(values[:count], found)]
        made = place.done([*values, *pushed])
    out = _wrapped(operations, of_result, made[:count])
    tangent = _wrapped(operations, of_result, made[len(values) :])
    return (out, tangent, _wrapped(operations, of_aux, made[count : len(values)])) if has_aux else (out, tangent)


@reported
def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """``(result, pull)``, of which ``pull(cotangent)`` returns the arguments' cotangents; with ``has_aux``, those values.

    ``pull`` computes what it needs of the function again; in a jitted function that is done once for both.
    """

    def pull(cotangents: Any) -> Any:
        return call(_vjp, fun, (has_aux,), primals, cotangents)

    found = call(_results, fun, (has_aux,), primals)
    return (found[0], pull, found[1]) if has_aux else (found, pull)


def _results(operations: Operations, fun: Any, options: Any, primals: Any) -> Any:
    return called(fun, *primals)


def _vjp(operations: Operations, fun: Any, options: Any, primals: Any, cotangents: Any) -> Any:
    (has_aux,) = options
    varied = _Varied("vjp", operations, primals, range(len(primals)), holomorphic=False)
    with transforming(operations) as place:
        function = varied.call(lambda *a: _with_aux("vjp", called(fun, *a), has_aux)[0], {})
        region = place.trace(function, varied.leaves, [value.type for value in varied.values])

        def given(operations: Operations, results: Sequence[Value]) -> list[Value]:
            return _matching("vjp", operations, "cotangents", cotangents, region.structure, results)

        _, found = _pulled(operations, region, varied.values, given)
        made = place.done(found)
    return _wrapped(operations, varied.structure, made)


# Jacobians


def _basis(operations: Operations, type: Any) -> Value:
    """All unit tangents of a type."""
    size = type.size
    array = np.eye(size).reshape(size, *type.shape)
    made: Value = operations.builder.constant(array, type.with_shape(array.shape))
    return made


def _columns(operations: Operations, place: Place, region: Region, values: Sequence[Value], number: int) -> list[Value]:
    """Tangents of all results for all unit tangents of one argument, which number dimension 0."""
    type = values[number].tensor_type
    builder = place.block([type])
    tangents = [builder.arguments[0] if each == number else None for each in range(len(values))]
    _, found = push_block(builder, region.block, values, tangents)
    made = [zeros(builder, t) if v is None else v for v, t in zip(found, region.types)]
    builder.return_(*made)
    return _vectorized(operations, builder, type)


def _vectorized(operations: Operations, builder: Any, type: TensorType) -> list[Value]:
    b = operations.builder
    lanes = vectorize_block(b, builder.block, [Lane(_basis(operations, type), True)], type.size)
    return [Vectorizing(b, type.size).spread(lane) for lane in lanes]


def _rows(operations: Operations, place: Place, region: Region, values: Sequence[Value], number: int) -> list[Value]:
    """Cotangents of all arguments for all unit cotangents of one result, which number dimension 0."""
    type: Any = region.types[number]
    builder = place.block([type])
    given = [builder.arguments[0] if each == number else None for each in range(len(region.types))]
    _, found = pull_block(builder, region.block, values, [True] * len(values), lambda results: given)
    made = [zeros(builder, v.type) if t is None else t for t, v in zip(found, values)]
    builder.return_(*made)
    return _vectorized(operations, builder, type)


def _jacobian(
    name: str, forward: bool, fun: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool, holomorphic: bool
) -> TransformedFunction:
    def body(operations: Operations, /, *arguments: Any, **named: Any) -> Any:
        varied = _Varied(name, operations, arguments, _numbers(name, argnums), holomorphic)
        with transforming(operations) as place:
            function = varied.call(lambda *a, **k: _with_aux(name, called(fun, *a, **k), has_aux)[0], named)
            region = place.trace(function, varied.leaves, [value.type for value in varied.values])
            for type in region.types:
                _check_result(name, type, holomorphic)
            if region.is_checked:
                region.without_check(operations, operations.builder.inline(region.block, varied.values))
            found = place.done(_entries(operations, place, region, varied.values, forward))
        width = len(varied.values)
        rows = []
        for number in range(len(found) // width):
            row = _wrapped(operations, varied.structure, found[number * width : (number + 1) * width])
            rows.append(row[0] if isinstance(argnums, int) else row)
        jacobian = unflatten(region.structure, rows)
        return (jacobian, _with_aux(name, called(fun, *arguments, **named), has_aux)[1]) if has_aux else jacobian

    transformation = jacfwd if forward else jacrev
    return TransformedFunction(body, fun, (transformation, argnums, has_aux, holomorphic))


def _check_result(name: str, type: Any, holomorphic: bool) -> None:
    if not is_differentiable(type):
        raise argument_error(name, f"the function must return floats, and returned {type}")
    if isinstance(type.element_type, ComplexType) and not holomorphic:
        raise argument_error(name, "the function returns complex numbers; of a holomorphic one, say holomorphic=True")


def _entries(
    operations: Operations, place: Place, region: Region, values: Sequence[Value], forward: bool
) -> list[Value]:
    """Jacobians of each result for each argument, results outer: shape of the result, then of the argument."""
    b = operations.builder
    results: list[Any] = region.types
    if not forward:
        found = [_rows(operations, place, region, values, number) for number in range(len(results))]
        return [
            b.reshape(entry, (*results[k].shape, *v.tensor_type.shape))
            for k, row in enumerate(found)
            for v, entry in zip(values, row)
        ]
    columns = [_columns(operations, place, region, values, number) for number in range(len(values))]
    made = []
    for k, type in enumerate(results):
        for value, column in zip(values, columns):
            last = Vectorizing(b, value.tensor_type.size).transposed(column[k], [*range(1, type.rank + 1), 0])
            made.append(b.reshape(last, (*type.shape, *value.tensor_type.shape)))
    return made


def jacfwd(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> TransformedFunction:
    """The Jacobian by forward mode, a column at a time, all at once: for functions of few numbers.

    Of a result of shape r for an argument of shape a it has the shape r + a; where there are several, results are outside.
    """
    return _jacobian("jacfwd", True, fun, argnums, has_aux, holomorphic)


def jacrev(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> TransformedFunction:
    """The Jacobian by reverse mode, a row at a time, all at once: for functions that return few numbers.  See ``jacfwd``."""
    return _jacobian("jacrev", False, fun, argnums, has_aux, holomorphic)


def hessian(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> TransformedFunction:
    """Second derivatives: ``jacfwd`` of ``jacrev``."""
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)
