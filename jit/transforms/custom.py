"""Functions with derivatives of their own, ``custom_jvp`` and ``custom_vjp``; ``checkpoint``, whose values are computed again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, final

from hlojit.ir.builder import Builder
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Block, Value
from hlojit.ir.ops.batching.kinds import Lane
from hlojit.ir.ops.custom_derivatives import Rule, with_rule
from hlojit.ir.ops.derivatives.kinds import (
    Derivative,
    Flow,
    Pull,
    Pushed,
    Tangents,
    instantiated,
    is_differentiable,
    own_values,
    zeros,
)
from hlojit.ir.transforms.errors import no_derivative
from hlojit.ir.transforms.vectorization import Vectorizing, vectorize_block
from hlojit.ir.types import Type
from hlojit.tracing.calls.callables import name_of
from hlojit.tracing.calls.containers import Structure, flatten, unflatten
from hlojit.tracing.operations import Operations
from hlojit.tracing.references import Referenced
from hlojit.tracing.tracer import Tracer
from hlojit.tracing.transformed import is_transformed
from hlojit.transforms.calls import TransformedFunction
from hlojit.transforms.regions import Region, argument_error, as_type, called, result, trace


def _vectorized(block: Block, size: int) -> Block:
    """The block for a batch of all of its arguments."""
    made = Block([value.tensor_type.with_shape((size, *value.tensor_type.shape)) for value in block.arguments])
    builder = Builder(made)
    lanes = vectorize_block(builder, block, [Lane(value, True) for value in made.arguments], size)
    work = Vectorizing(builder, size)
    builder.return_(*[work.spread(lane) for lane in lanes])
    block.drop_all_references()
    return made


def _inlined(b: Any, block: Block, operands: Sequence[Value]) -> list[Value]:
    made: list[Value] = b.inline(block, operands)
    block.drop_all_references()
    return made


@final
class _JvpRule(Rule):
    """``tangents()`` makes a block of operands and their tangents that returns tangents of the results."""

    def __init__(self, tangents: Callable[[], Block]):
        self._tangents = tangents

    @property
    def derivative(self) -> Derivative:
        def push(b: Any, i: Any, tangents: Tangents) -> Tangents:
            moving = [instantiated(b, t, value.type) for t, value in zip(tangents, i.operands)]
            return _inlined(b, self._tangents(), [*i.operands, *moving])

        return Pushed(push)

    def for_batch(self, size: int) -> Rule:
        return _JvpRule(lambda: _vectorized(self._tangents(), size))


@final
class _VjpRule(Rule):
    """``forward()`` makes a block that returns results and what the reverse pass needs, ``backward()`` one for the pass itself.

    ``backward`` is called behind ``forward``.
    """

    def __init__(
        self,
        name: str,
        results: Callable[[], Sequence[Type]],
        forward: Callable[[], Block],
        backward: Callable[[], Block],
    ):
        self._name = name
        self._results = results
        self._forward = forward
        self._backward = backward

    @property
    def derivative(self) -> Derivative:
        def push(work: Any, i: Any) -> Any:
            raise no_derivative(i, f"{self._name} has a rule by custom_vjp, and forward mode needs custom_jvp")

        def record(work: Any, i: Any) -> tuple[Sequence[Value], Pull]:
            found = _inlined(work.builder, self._forward(), i.operands)
            # A check's number, if there is one, is the function's own.
            count = len(self._results())
            results = [*own_values(work.builder, found[:count]), *i.results[count:]]
            kept = found[count:]

            def pull(b: Any, cotangents: Tangents) -> Sequence[tuple[Value, Value]]:
                given = [instantiated(b, t, value.type) for t, value in zip(cotangents, results[:count])]
                made = _inlined(b, self._backward(), [*kept, *given])
                return [(v, t) for v, t in zip(i.operands, made) if is_differentiable(v.type)]

            return results, pull

        return Flow(push, record)

    def for_batch(self, size: int) -> Rule:
        return _VjpRule(
            self._name,
            self._results,
            lambda: _vectorized(self._forward(), size),
            lambda: _vectorized(self._backward(), size),
        )


@final
class _Again(Rule):
    """The reverse pass computes the function again, instead of keeping what it computed."""

    @property
    def derivative(self) -> Derivative:
        def push(work: Any, i: Any) -> Any:
            tangents = [work.tangent(value) for value in i.operands]
            return work.region(work.builder, i.regions[0], i.operands, tangents)

        return Flow(push, _record_again)

    def for_batch(self, size: int) -> Rule:
        return self


def _record_again(work: Any, i: Any) -> tuple[Sequence[Value], Pull]:
    captured = work.captured(i)
    wanted = [work.is_active(value) for value in i.operands]
    results = own_values(work.builder, work.builder.inline(i.regions[0], i.operands))

    def pull(b: Any, cotangents: Tangents) -> Sequence[tuple[Value, Value]]:
        # Behind the cotangents, and apart from what the forward pass computed of the same values.
        given = [t for t in cotangents if t is not None]
        hidden = list(b.create("optimization_barrier", [*i.operands, *captured, *given]).results)
        count = len(i.operands)
        own, outside, rest = (
            hidden[:count],
            hidden[count : count + len(captured)],
            iter(hidden[count + len(captured) :]),
        )
        region = i.regions[0].clone(dict(zip(captured, outside)))
        moved = [None if t is None else next(rest) for t in cotangents]
        found = work.region_cotangents(b, region, own, wanted, outside, moved)
        region.drop_all_references()
        values = [*(value for value, w in zip(i.operands, wanted) if w), *captured]
        return [(value, t) for value, t in zip(values, found) if t is not None]

    return results, pull


@final
class _Call:
    """One call of a function with a derivative of its own, while it is traced."""

    def __init__(self, operations: Operations, arguments: Sequence[Any], named: dict[str, Any], fixed: Sequence[int]):
        self.operations = operations
        count = len(arguments)
        numbers = {number % count for number in fixed} if count else set()
        self.fixed = [each for k, each in enumerate(arguments) if k in numbers]
        self._arguments = arguments
        self._numbers = numbers
        moving = tuple(each for k, each in enumerate(arguments) if k not in numbers)
        self.leaves, self.structure = flatten((moving, named))
        self.values = [operations.value(leaf) for leaf in self.leaves]
        self.types: list[Type] = [value.type for value in self.values]
        self.results: Structure = None
        self.result_types: list[Type] = []

    def arguments(self, tracers: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Those of the function, those that are fixed in their places."""
        moving, named = unflatten(self.structure, tracers)
        rest = iter(moving)
        return tuple(each if k in self._numbers else next(rest) for k, each in enumerate(self._arguments)), named

    def moving(self, tracers: Sequence[Any]) -> tuple[Any, ...]:
        """Those of the function that are not fixed."""
        moving, named = unflatten(self.structure, tracers)
        return (*moving, *named.values())

    def made(self, function: Callable[..., Any], rule: Rule) -> Any:
        """The call as an instruction; what it returns."""

        def run(tracers: Sequence[Any]) -> Any:
            own, named = self.arguments(tracers)
            return called(function, *own, **named)

        region = trace(self.operations, run, self.leaves, self.types)
        self.results, self.result_types = region.structure, region.types
        results = with_rule(self.operations.builder, self.values, region.block, rule)
        results = region.without_check(self.operations, results)
        return unflatten(region.structure, [result(self.operations, value) for value in results])

    def typed(self, kind: str, what: str, leaves: Sequence[Any], types: Sequence[Type]) -> list[Tracer]:
        """Leaves of what a rule returns; raises ``ArgumentError`` for one that is not of its type."""
        found = [as_type(self.operations, leaf, type) for leaf, type in zip(leaves, types, strict=True)]
        for value, type in zip(found, types):
            if value.type is not type:
                raise argument_error(kind, f"{what} is of type {value.type}, and must be of {type}")
        return [result(self.operations, value) for value in found]

    def block(self, function: Callable[[Sequence[Any]], Any], leaves: Sequence[Any], types: Sequence[Type]) -> Block:
        """A function of tracers as a block."""
        return _without_checks(trace(self.operations, function, leaves, types))


def _without_checks(region: Region) -> Block:
    """The block of a rule: what its function checks has been checked by the function that it is of."""
    if region.is_checked:
        end = region.block.terminator
        end.operands = end.operands[:-1]
    return region.block


class _Custom(Referenced):
    """What both kinds have in common."""

    _kind = ""

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()):
        self._fun = fun
        self._fixed = tuple(nondiff_argnums)
        self._transformed = TransformedFunction(self._body, fun, (type(self), self._fixed))
        functools.update_wrapper(self, fun, updated=())

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        return self._transformed(*arguments, **named)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _made_by(self) -> tuple[Any, ...]:
        rules = {name: vars(self)[name] for name in ("_jvp", "_rules") if name in vars(self)}
        return type(self), (self._fun, self._fixed), rules

    def _body(self, operations: Operations, /, *arguments: Any, **named: Any) -> Any:
        if not is_transformed():
            return called(self._fun, *arguments, **named)
        call = _Call(operations, arguments, named, self._fixed)
        return call.made(self._fun, self._rule(call))

    def _rule(self, call: _Call) -> Rule:
        raise NotImplementedError

    def _missing(self, method: str) -> HlojitError:
        return HlojitError(f"{name_of(self._fun)} has no derivative yet: call {method} of what {self._kind} returned")


@final
class custom_jvp(_Custom):
    """A function whose derivative is given as a rule of forward mode, which serves both modes.

    ``@f.defjvp`` takes ``rule(primals, tangents)``, which returns the result and its tangent; arguments of ``nondiff_argnums``
    come in front of these.  As ``jax.custom_jvp``.
    """

    _kind = "custom_jvp"
    _jvp: Callable[..., Any] | None = None

    def defjvp(self, jvp: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; returns it."""
        self._jvp = jvp
        return jvp

    def _rule(self, call: _Call) -> Rule:
        if self._jvp is None:
            raise self._missing("defjvp")
        jvp = self._jvp
        count = len(call.types)

        def run(tracers: Sequence[Any]) -> Any:
            primals, tangents = call.moving(tracers[:count]), call.moving(tracers[count:])
            found = called(jvp, *call.fixed, primals, tangents)
            if not isinstance(found, (tuple, list)) or len(found) != 2:
                raise argument_error("custom_jvp", "the rule returns a pair: the result and its tangent")
            leaves, structure = flatten(found[1])
            if structure != call.results:
                raise argument_error(
                    "custom_jvp", "the tangent that the rule returns has another structure than the result"
                )
            return call.typed("custom_jvp", "the tangent that the rule returns", leaves, call.result_types)

        return _JvpRule(lambda: call.block(run, call.leaves * 2, call.types * 2))


@final
class custom_vjp(_Custom):
    """A function whose derivative is given as a rule of reverse mode.

    ``f.defvjp(forward, backward)``: ``forward`` takes the function's arguments and returns the result and what the second needs;
    ``backward(needed, cotangent)`` returns a tuple of the arguments' cotangents (None for zero); arguments of ``nondiff_argnums``
    come in front.  As ``jax.custom_vjp``.
    """

    _kind = "custom_vjp"
    _rules: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set both functions of the rule."""
        self._rules = fwd, bwd

    def _rule(self, call: _Call) -> Rule:
        if self._rules is None:
            raise self._missing("defvjp")
        fwd, bwd = self._rules
        kept: dict[str, Any] = {}

        def forward(tracers: Sequence[Any]) -> Any:
            own, named = call.arguments(tracers)
            pair = called(fwd, *own, **named)
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise argument_error(
                    "custom_vjp", "the first function returns a pair: the result and what the second needs"
                )
            found_result, needed = pair
            _, kept["structure"] = flatten(needed)
            found, _ = flatten(needed)
            values = [call.operations.value(leaf) for leaf in found]
            kept["types"] = [value.type for value in values]
            results, structure = flatten(found_result)
            if structure != call.results:
                raise argument_error(
                    "custom_vjp", "the first function's result has another structure than that of the function itself"
                )
            own_results = call.typed("custom_vjp", "the result of the first function", results, call.result_types)
            return own_results, [result(call.operations, value) for value in values]

        def backward(tracers: Sequence[Any]) -> Any:
            count = len(kept["types"])
            needed = unflatten(kept["structure"], tracers[:count])
            found = called(bwd, *call.fixed, needed, unflatten(call.results, tracers[count:]))
            return _in_full(call, found)

        def second() -> Block:
            types = [*kept["types"], *call.result_types]
            return call.block(backward, [None] * len(types), types)

        return _VjpRule(
            name_of(self._fun), lambda: call.result_types, lambda: call.block(forward, call.leaves, call.types), second
        )


def _in_full(call: _Call, found: Any) -> list[Any]:
    """The cotangents of all leaves of the arguments, zeros for None."""
    moving, named = unflatten(call.structure, list(range(len(call.leaves))))
    expected = (*moving, *named.values())
    if not isinstance(found, (tuple, list)) or len(found) != len(expected):
        raise argument_error(
            "custom_vjp", f"the second function returns a tuple of {len(expected)} cotangents, and returned {found!r}"
        )
    made: list[Any] = []
    for mine, given in zip(expected, found):
        numbers, structure = flatten(mine)
        leaves, own = flatten(given)
        if given is None:
            leaves = [None] * len(numbers)
        elif own != structure:
            raise argument_error(
                "custom_vjp", "a cotangent that the second function returns has another structure than its argument"
            )
        made.extend(leaves)
    b = call.operations.builder
    # Of integers there is no cotangent, whatever the function says.
    given = [zeros(b, t) if leaf is None or not is_differentiable(t) else leaf for leaf, t in zip(made, call.types)]
    leaves = [result(call.operations, each) if isinstance(each, Value) else each for each in given]
    return list(call.typed("custom_vjp", "a cotangent that the second function returns", leaves, call.types))


def checkpoint(fun: Callable[..., Any]) -> TransformedFunction:
    """``fun`` with less memory in reverse mode: its intermediate values are computed again there, instead of kept."""

    def body(operations: Operations, /, *arguments: Any, **named: Any) -> Any:
        if not is_transformed():
            return called(fun, *arguments, **named)
        return _Call(operations, arguments, named, ()).made(fun, _Again())

    return TransformedFunction(body, fun, (checkpoint,))
