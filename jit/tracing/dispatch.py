"""NumPy's protocols of a tracer: which rule builds what a ufunc, a function or an index means.

Ufuncs follow NumPy 2's promotion and broadcasting here, and are in ``hlojit.tracing.ufuncs``; NumPy's functions are in
``hlojit.tracing.functions`` (a table of the same kind), indexing is in ``hlojit.tracing.indexing``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hlojit.ir.formats import ElementType, FloatFormat
from hlojit.tracing import indexing
from hlojit.tracing.functions import FUNCTIONS
from hlojit.tracing.kinds import as_dtype, common_kind, kind_of, rounds_itself, stand_in
from hlojit.tracing.operations import Operations, is_in_blocks
from hlojit.tracing.other_ufuncs import rule_of
from hlojit.tracing.products import matmul
from hlojit.tracing.reductions import ufunc_method
from hlojit.tracing.rules import weak_kind
from hlojit.tracing.tracer import Kind, Tracer, TracingError
from hlojit.tracing.ufuncs import UFUNCS, Rule


class Dispatch(Operations):
    """What tracers hand their operations to; every one notes the user's line."""

    # ---------------------------------------------------------------- ufuncs

    def ufunc(self, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """``__array_ufunc__``."""
        self.mark()
        inputs = self.numbers(inputs)
        options = {
            key: value for key, value in options.items() if key == "axis" or (value is not None and key != "casting")
        }
        out = options.pop("out", None)
        if method == "__call__":
            result = self._call_ufunc(ufunc, inputs, options)
        elif method in ("reduce", "accumulate", "outer"):
            result = ufunc_method(self, ufunc, method, inputs, options)
        else:
            raise TracingError(f"np.{ufunc.__name__}.{method} cannot be compiled; use functions on whole arrays")
        if out is None:
            return result
        (target,) = out
        if not isinstance(target, Tracer):
            raise TracingError(f"np.{ufunc.__name__}: out= must be an array that is traced too")
        converted = self.converted(self.broadcast(result.value, target.shape), target.kind)
        target.value = converted
        return target

    def _call_ufunc(self, ufunc: np.ufunc, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
        if ufunc is np.matmul:
            return matmul(self, *inputs)
        if (other := rule_of(ufunc)) is not None:
            return other(self, ufunc, inputs, options)
        if ufunc is np.divmod:
            return np.floor_divide(*inputs), np.remainder(*inputs)
        rule = UFUNCS.get(ufunc.__name__) if getattr(np, ufunc.__name__, None) is ufunc else None
        if rule is None:
            raise TracingError(f"the ufunc {ufunc.__name__!r} cannot be compiled yet")
        where = options.pop("where", True)
        dtype = options.pop("dtype", None)
        if where is not True or options:
            raise TracingError(
                f"np.{ufunc.__name__}: where= and {', '.join(options) or 'other options'} cannot be compiled; "
                "use np.where"
            )
        kinds = [kind_of(operand) for operand in inputs]
        if any(isinstance(kind, ElementType) for kind in kinds):
            if dtype is not None:
                raise TracingError(f"np.{ufunc.__name__}: dtype= cannot be combined with formats that have no dtype")
            return self._ufunc_in_format(ufunc, rule, inputs, kinds)
        loop = self._loop_dtypes(ufunc, inputs, dtype)
        values = [self.value(operand, loop[position]) for position, operand in enumerate(inputs)]
        shape = np.broadcast_shapes(*(value.tensor_type.shape for value in values))
        return self.wrap(self.converted(rule(self, [self.broadcast(value, shape) for value in values]), loop[-1]))

    def _ufunc_in_format(self, ufunc: np.ufunc, rule: Rule, inputs: Sequence[Any], kinds: Sequence[Kind]) -> Tracer:
        """Computed in the compute type, or in the format where that would round twice; the result is one of the format."""
        weak = [weak_kind(operand) is not None for operand in inputs]
        kind = common_kind([each for each, is_weak in zip(kinds, weak) if not is_weak], f"np.{ufunc.__name__}")
        computed = stand_in(kind)
        loop: list[Any] = list(ufunc.resolve_dtypes((computed,) * len(inputs) + (None,) * ufunc.nout))
        if isinstance(kind, FloatFormat) and rounds_itself(kind, ufunc.__name__):
            loop = [kind if each == computed else each for each in loop]
        # A Python number becomes one of the format first, as it would one of a dtype.
        values = [
            self.converted(self.converted(self.value(operand, kind if is_weak else None), kind), loop[position])
            for position, (operand, is_weak) in enumerate(zip(inputs, weak))
        ]
        shape = np.broadcast_shapes(*(value.tensor_type.shape for value in values))
        result = self.converted(rule(self, [self.broadcast(value, shape) for value in values]), loop[-1])
        return self.wrap(self.converted(result, kind) if loop[-1] in (computed, kind) else result)

    @staticmethod
    def _loop_dtypes(ufunc: np.ufunc, inputs: Sequence[Any], dtype: Any) -> tuple[np.dtype[Any], ...]:
        """Dtypes of inputs and output, by NumPy's own resolution (Python numbers are weak)."""
        kinds: list[Any] = []
        for operand in inputs:
            if type(operand) in (int, float, complex):
                kinds.append(type(operand))
            else:
                kinds.append(
                    (operand.weak or operand.dtype) if isinstance(operand, Tracer) else np.asarray(operand).dtype
                )
        if all(isinstance(kind, type) for kind in kinds):
            kinds = [operand.dtype if isinstance(operand, Tracer) else np.asarray(operand).dtype for operand in inputs]
        options: Any = {} if dtype is None else {"signature": (None,) * len(inputs) + (as_dtype(dtype),)}
        loop = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout), **options)
        return tuple(np.dtype(each) for each in loop)

    # -------------------------------------------------------------- functions

    def function(self, function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """``__array_function__``."""
        self.mark()
        rule = FUNCTIONS.get(function)
        if rule is None:
            package = getattr(function, "__module__", None) or "numpy"
            raise TracingError(
                f"{package.replace('numpy', 'np', 1)}.{getattr(function, '__name__', function)} cannot be compiled yet; "
                "compute it outside, or express it through other NumPy functions"
            )
        return rule(self, *self.numbers(arguments), **{name: self.numbers(value) for name, value in options.items()})

    def get_item(self, operand: Tracer, key: Any) -> Tracer:
        """``operand[key]``."""
        self.mark()
        return indexing.get_item(self, self.numbers(operand), key)

    def set_item(self, operand: Tracer, key: Any, value: Any) -> Tracer:
        """The array after ``operand[key] = value``."""
        self.mark()
        if is_in_blocks(operand):
            raise TracingError(
                f"elements of an array of {operand.element_type} cannot be assigned: each shares a scale with its block; "
                "update .astype(np.float32) and convert back"
            )
        return indexing.set_item(self, operand, key, self.numbers(value))
