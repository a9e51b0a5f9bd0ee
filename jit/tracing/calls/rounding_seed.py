"""The parameter of a jitted function that seeds its stochastic roundings.

    @hlojit.jit(rounding_seed="step")
    def update(weights, gradient, step): ...

In the traced program it is an argument marked ``hlojit.rounding_seed`` (``hlojit.ir.passes.stochastic_rounding``), so that
another seed is another number and no new compilation.
"""

from __future__ import annotations

import inspect
from typing import Any, Final, final

from hlojit.ir.attributes import UnitAttr
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Function
from hlojit.ir.passes.stochastic_rounding import SEED_ARGUMENT
from hlojit.tracing.calls.containers import flatten
from hlojit.tracing.errors import TracingError

_ONE_VALUE: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@final
class SeedParameter:
    """One parameter of a function, by name."""

    def __init__(self, name: str, of: str, signature: inspect.Signature, static: frozenset[str]):
        parameter = signature.parameters.get(name) if isinstance(name, str) else None
        if parameter is None or parameter.kind not in _ONE_VALUE:
            names = [each.name for each in signature.parameters.values() if each.kind in _ONE_VALUE]
            raise HlojitError(
                f"rounding_seed={name!r}, but {of} has the parameters {', '.join(names)}; a seed that is the same in all "
                'calls is an option: options={"pass_options": {"stochastic-rounding": {"seed": 7}}}'
            )
        if name in static:
            raise HlojitError(f"{name} of {of}: a static argument is no seed; take it out of static_argnames")
        self.name = name
        self._default = parameter.default
        self._number = list(signature.parameters).index(name)

    def given(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The named arguments of a call, with the seed if it is left to its default."""
        if self.name in named or len(arguments) > self._number or self._default is inspect.Parameter.empty:
            return named
        return {**named, self.name: self._default}

    def mark(self, function: Function, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Say in the program which argument is the seed; ``TracingError`` if it is no integer."""
        places = [self._number == number for number in range(len(positional))] + [name == self.name for name in named]
        count = 0
        for is_seed, value in zip(places, (*positional, *named.values()), strict=True):
            leaves = flatten(value)[0]
            if is_seed:
                type = function.body.arguments[count].tensor_type if len(leaves) == 1 else None
                if type is None or type.shape or not isinstance(type.element_type, IntegerType):
                    raise TracingError(f"the seed {self.name}={value!r} is no integer")
                attributes = function.argument_attributes[count]
                function.argument_attributes[count] = {**attributes, SEED_ARGUMENT: UnitAttr()}
            count += len(leaves)
