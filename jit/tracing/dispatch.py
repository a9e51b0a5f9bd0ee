"""NumPy's protocols of a tracer: which rule builds what a ufunc, a function or an index means.

Ufuncs follow NumPy 2's promotion and broadcasting here, and are in ``hlojit.tracing.numpy_functions.ufuncs``; functions are in
``hlojit.tracing.numpy_functions.functions`` (a table of the same kind), indexing is in ``hlojit.tracing.arrays.indexing``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hlojit.ir.formats import ElementType, FloatFormat, IntegerType
from hlojit.ir.graph import Value
from hlojit.tracing.arrays import indexing
from hlojit.tracing.arrays.kinds import as_dtype, common_kind, kind_of, rounds_itself, stand_in
from hlojit.tracing.arrays.layouts import contiguous, is_contiguous
from hlojit.tracing.arrays.outside import dtype_of
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions import numpy_source, ufunc_methods
from hlojit.tracing.numpy_functions.functions import (
    ARRAYS_WITHOUT_DIMENSIONS,
    FUNCTIONS,
    LIKE_THEIR_OPERAND,
    PYTHON_BOOLEANS,
    REASONS,
    VIEWS,
)
from hlojit.tracing.numpy_functions.other_ufuncs import rule_of
from hlojit.tracing.numpy_functions.products import matmul
from hlojit.tracing.numpy_functions.reductions import ufunc_method
from hlojit.tracing.numpy_functions.rules import letter_of, weak_kind
from hlojit.tracing.numpy_functions.signatures import arguments_for, name_of, prepared_for_out, require_out
from hlojit.tracing.numpy_functions.ufuncs import COMPARISONS, UFUNCS, Rule
from hlojit.tracing.operations import Operations, holds_tracers, is_in_blocks
from hlojit.tracing.python_numbers import operate, python_kind
from hlojit.tracing.selection import functions as selection
from hlojit.tracing.selection import ufuncs as selected_ufuncs
from hlojit.tracing.selection.keys import selects
from hlojit.tracing.selection.reads import get_item as get_selected
from hlojit.tracing.selection.selected import Selected
from hlojit.tracing.selection.writes import as_selected
from hlojit.tracing.selection.writes import set_item as set_selected
from hlojit.tracing.tracer import Kind, Tracer, kind_of_element


def _leaves(operands: Sequence[Any]) -> list[Any]:
    """What operands hold, lists of arrays included."""
    return [leaf for each in operands for leaf in (_leaves(each) if isinstance(each, (list, tuple)) else (each,))]


def _refuse(ufunc: np.ufunc, options: Mapping[str, Any]) -> None:
    if options:
        raise TracingError(f"np.{ufunc.__name__}: {', '.join(options)} cannot be compiled")


class Dispatch(Operations):
    """What tracers hand their operations to; every one notes the user's line."""

    # ---------------------------------------------------------------- ufuncs

    def operator(self, name: str, ufunc: np.ufunc, *operands: Any) -> Any:
        """What a Python operator gives: of Python numbers Python's result, of everything else the ufunc's."""
        if all(python_kind(each) is not None for each in operands):
            self.mark()
            return operate(self, name, *operands)
        if name == "pow" and type(operands[1]) is int and operands[1] == 2 and kind_of(operands[0]) == np.bool_:
            # What NumPy has for squares by ** alone: int8 of booleans.
            return np.square(operands[0]) if not self.tracer(operands[0]).is_scalar else ufunc(*operands)
        return ufunc(*operands)

    def ufunc(self, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """``__array_ufunc__``."""
        self.mark()
        if any(isinstance(each, Selected) for each in _leaves([*inputs, *options.values()])):
            return self._selected_ufunc(ufunc, method, inputs, dict(options))
        inputs = self.numbers(inputs)
        rest = {key: value for key, value in options.items() if key == "axis" or (value is not None and key != "subok")}
        out = rest.pop("out", None)
        if method == "__call__":
            return self._call_ufunc(ufunc, inputs, rest, out)
        if method == "at":
            return ufunc_methods.at(self, ufunc, inputs, rest)
        if method == "reduceat":
            made = ufunc_methods.reduceat(self, ufunc, inputs, rest)
            return made if out is None else self._stored(ufunc, [made], out, {})
        if method not in ("reduce", "accumulate", "outer"):
            raise TracingError(f"np.{ufunc.__name__}.{method} cannot be compiled; use functions on whole arrays")
        result = self._numbers_of(ufunc_method(self, ufunc, method, inputs, rest))
        return result if out is None else self._stored(ufunc, [result], out, {})

    def as_arrays(self, result: Any) -> Any:
        """Results of a ufunc as arrays, also without dimensions."""
        if isinstance(result, tuple):
            return tuple(map(self.as_arrays, result))
        return self.wrap(result.value) if isinstance(result, Tracer) and result.is_scalar else result

    def _selected_ufunc(self, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
        """Of arrays whose length is known when the function runs."""
        out = options.pop("out", None)
        casting = {"casting": options["casting"]} if "casting" in options else {}
        if out is not None:
            options.pop("casting", None)
        if method == "__call__":
            made = selected_ufuncs.call(self, ufunc, inputs, options)
        else:
            made = selected_ufuncs.method(ufunc, method, inputs, options)
        if out is None:
            return made
        targets = out if isinstance(out, tuple) else (out,)
        if len(targets) > 1:
            raise TracingError(f"np.{ufunc.__name__}: several out= of arrays whose length depends on values")

        def store(elements: Any, target: Any) -> Any:
            return self._store(ufunc, elements, target, casting, True)

        return selected_ufuncs.into(targets[0], made, store)

    def _call_ufunc(self, ufunc: np.ufunc, inputs: Sequence[Any], options: dict[str, Any], out: Any) -> Any:
        where = options.pop("where", True)
        if where is not True and out is None:
            raise TracingError(
                f"np.{ufunc.__name__}: where= leaves the other elements undefined; give out= too, or use np.where"
            )
        casting = {"casting": options.pop("casting")} if "casting" in options else {}
        # Wider rules concern the results alone, which are converted when they are stored.
        strict = casting if casting.get("casting") in ("no", "equiv", "safe") else {}
        if ufunc is np.divmod:
            both: tuple[Any, ...] = (np.floor_divide, np.remainder)
            results: Any = [each(*inputs, **options, **casting) for each in both]
        elif ufunc is np.matmul:
            _refuse(ufunc, options)
            results = [self._numbers_of(matmul(self, *inputs))]
        elif (other := rule_of(ufunc)) is not None:
            made = self._numbers_of(other(self, ufunc, inputs, options | strict))
            results = made if isinstance(made, (list, tuple)) else [made]
        else:
            results = self._elementwise(ufunc, inputs, options, strict if out is not None else casting)
        if out is not None:
            return self._stored(ufunc, results, out, casting, where)
        return results[0] if len(results) == 1 else tuple(results)

    def _elementwise(
        self, ufunc: np.ufunc, inputs: Sequence[Any], options: dict[str, Any], casting: dict[str, Any]
    ) -> list[Tracer]:
        """The results of a ufunc: scalars where they have no dimensions, else new arrays, laid out as NumPy does."""
        rule = UFUNCS.get(ufunc.__name__) if getattr(np, ufunc.__name__, None) is ufunc else None
        if rule is None:
            raise TracingError(f"the ufunc {ufunc.__name__!r} cannot be compiled yet")
        dtype = options.pop("dtype", None)
        order = letter_of(options.pop("order", "K"))
        _refuse(ufunc, options)
        kinds = [kind_of(operand) for operand in inputs]
        if any(isinstance(kind, ElementType) for kind in kinds):
            if dtype is not None:
                raise TracingError(f"np.{ufunc.__name__}: dtype= cannot be combined with formats that have no dtype")
            return [self._new(self._ufunc_in_format(ufunc, rule, inputs, kinds), inputs, order)]
        loop = self._loop_dtypes(ufunc, inputs, dtype, casting)
        values = [self._operand(ufunc, operand, loop[position]) for position, operand in enumerate(inputs)]
        self._require_powers(ufunc, values, inputs)
        shape = _common_shape(values)
        made: Any = rule(self, [self.broadcast(value, shape) for value in values])
        results = made if isinstance(made, (list, tuple)) else [made]
        return [
            self._new(self.converted(value, kind), inputs, order) for value, kind in zip(results, loop[len(inputs) :])
        ]

    def _operand(self, ufunc: np.ufunc, operand: Any, kind: np.dtype[Any]) -> Value:
        """An operand in its loop's dtype; integers that are compared need not fit into it."""
        if ufunc.__name__ in COMPARISONS and kind.kind in "iu" and python_kind(operand) is int:
            if isinstance(operand, Tracer):
                return operand.value
            limits = np.iinfo(kind)
            if not limits.min <= operand <= limits.max:
                # Whatever is compared to it: the nearest number beyond all of this dtype that 64 bits hold.
                wide = np.dtype(np.uint64) if operand > 2**63 - 1 else np.dtype(np.int64)
                return self.full(min(max(operand, -(2**63)), 2**64 - 1), wide)
        return self.value(operand, kind)

    def _require_powers(self, ufunc: np.ufunc, values: Sequence[Value], inputs: Sequence[Any]) -> None:
        """Integers to negative powers raise, as in NumPy: now where the exponent is known, else when the function runs."""
        if ufunc is not np.power or not isinstance(values[1].tensor_type.element_type, IntegerType):
            return
        if not np.prod(_common_shape(values)):
            return
        message = "Integers to negative integer powers are not allowed."
        if not isinstance(inputs[1], Tracer):
            if np.any(np.asarray(inputs[1]) < 0):
                raise ValueError(message)
        elif values[1].tensor_type.element_type.signed:
            zero = self.full(0, kind_of_element(values[1].tensor_type.element_type), values[1].tensor_type.shape)
            self.check(self.builder.compare(values[1], zero, "LT"), ValueError, message)

    def _new(self, value: Value, inputs: Sequence[Any], order: str) -> Tracer:
        """A result of elementwise work: a scalar, or an array that NumPy lays out after its operands."""
        shape = value.tensor_type.shape
        if not shape:
            return self.scalar(value)
        if len(shape) == 1 or order == "C":
            return self.wrap(value)
        if order == "F":
            return self.wrap(value, contiguous(shape, "F"))
        return self.elementwise(value, [each for each in inputs if python_kind(each) is None])

    def _stored(
        self, ufunc: np.ufunc, results: Sequence[Any], out: Any, casting: dict[str, Any], where: Any = True
    ) -> Any:
        """Write results into the arrays of ``out=``, and return these."""
        targets = out if isinstance(out, tuple) else (out,)
        made = [self._store(ufunc, *pair, casting, where) for pair in zip(results, targets)]
        return made[0] if len(made) == 1 else tuple(made)

    def _store(self, ufunc: np.ufunc, result: Any, target: Any, casting: dict[str, Any], where: Any) -> Any:
        if target is None:
            return result
        if not isinstance(target, Tracer) or target.is_scalar:
            if isinstance(target, np.ndarray) and not isinstance(target, Tracer):
                raise TracingError(
                    f"np.{ufunc.__name__}: out= is an array that was made outside of what is traced; make it from a traced "
                    "one (np.zeros_like), or write `target = ...` instead of in place"
                )
            raise TypeError("return arrays must be of ArrayType")
        rule = casting.get("casting", "same_kind")
        source = self.tracer(result)
        kinds = (source.kind, target.kind)
        if all(isinstance(kind, np.dtype) for kind in kinds) and not np.can_cast(*kinds, rule):  # type: ignore[arg-type]
            raise np._core._exceptions._UFuncOutputCastingError(ufunc, rule, *kinds, 0)  # type: ignore[attr-defined]
        if np.broadcast_shapes(source.shape, target.shape) != target.shape:
            raise ValueError(f"non-broadcastable output operand with shape {target.shape} doesn't match {source.shape}")
        value = self.broadcast(self.converted(source.value, target.kind), target.shape)
        if where is not True:
            chosen = self.broadcast(self.value(where, np.dtype(bool)), target.shape)
            value = self.builder.select(chosen, value, target.value)
        target.window.write(self, value)
        return target

    def _ufunc_in_format(self, ufunc: np.ufunc, rule: Rule, inputs: Sequence[Any], kinds: Sequence[Kind]) -> Value:
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
        shape = _common_shape(values)
        result = self.converted(rule(self, [self.broadcast(value, shape) for value in values]), loop[-1])
        return self.converted(result, kind) if loop[-1] in (computed, kind) else result

    @staticmethod
    def _loop_dtypes(
        ufunc: np.ufunc, inputs: Sequence[Any], dtype: Any, casting: Mapping[str, Any]
    ) -> tuple[np.dtype[Any], ...]:
        """Dtypes of inputs and output, by NumPy's own resolution (Python numbers are weak)."""
        kinds: list[Any] = []
        for operand in inputs:
            if type(operand) in (int, float, complex):
                kinds.append(type(operand))
            else:
                kinds.append(
                    (weak_kind(operand) or operand.dtype) if isinstance(operand, Tracer) else _dtype_of(operand)
                )
        if all(isinstance(kind, type) for kind in kinds):
            kinds = [operand.dtype if isinstance(operand, Tracer) else _dtype_of(operand) for operand in inputs]
        options: Any = {} if dtype is None else {"signature": (None,) * len(inputs) + (as_dtype(dtype),)}
        loop = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout), **options, **casting)
        return tuple(np.dtype(each) for each in loop)

    # -------------------------------------------------------------- functions

    def function(self, function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """``__array_function__``."""
        self.mark()
        if selection.is_selecting(function, arguments, options) or any(
            isinstance(each, Selected) for each in _leaves([*arguments, *options.values()])
        ):
            return self._selected_function(function, arguments, options)
        rule = FUNCTIONS.get(function)
        if rule is None and (source := numpy_source.source_of(function)) is not None:
            return source(*arguments, **options)
        if rule is None and function in REASONS:
            raise TracingError(f"{name_of(function)} cannot be compiled: {REASONS[function]}")
        if rule is None:
            raise TracingError(
                f"{name_of(function)} cannot be compiled yet; compute it outside, or express it through other NumPy functions"
            )
        positional, named, out = arguments_for(function, rule, arguments, options)
        if out is not None:
            prepared_for_out(function, positional, named, out)
        result = rule(self, *self.numbers(positional), **{name: self.numbers(value) for name, value in named.items()})
        if out is not None:
            return self._into(function, result, out, options.get("casting"))
        if function not in VIEWS:
            result = self._separate(result, [*arguments, *options.values()])
        if function in PYTHON_BOOLEANS and isinstance(result, Tracer):
            return self.python_number(result)
        operand = next(iter([*positional, *named.values()]), None)
        if function in LIKE_THEIR_OPERAND and not (isinstance(operand, Tracer) and operand.is_scalar):
            return result
        return result if function in ARRAYS_WITHOUT_DIMENSIONS else self._numbers_of(result)

    def _selected_function(
        self, function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        """One of NumPy's functions of arrays whose length is known when the function runs, or that gives such arrays."""
        rule = selection.RULES.get(function)
        if rule is None:
            raise TracingError(
                f"{name_of(function)} of an array whose length depends on values (a mask's, np.nonzero's) cannot be compiled; "
                "keep the length: np.where(mask, x, 0), where=mask"
            )
        positional, named, out = arguments_for(function, rule, arguments, options)
        if out is not None:
            prepared_for_out(function, positional, named, out)
        result = rule(self, *positional, **named)
        if out is not None:
            return self._into(function, result, out, options.get("casting"))
        if function in PYTHON_BOOLEANS and isinstance(result, Tracer):
            return self.python_number(result)
        return self._numbers_of(result)

    def _into(self, function: Callable[..., Any], result: Any, out: Any, casting: Any) -> Tracer:
        """Write the result of a function into ``out=``."""
        require_out(function, result, out, casting)
        value = self.converted(result.value, out.kind)
        out.window.write(self, self.broadcast(value, out.shape))
        target: Tracer = out
        return target

    def _separate(self, result: Any, operands: Sequence[Any]) -> Any:
        """Results that are no views: new arrays, whatever a rule returned."""
        if isinstance(result, (list, tuple)):
            parts = [self._separate(each, operands) for each in result]
            return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
        if not isinstance(result, Tracer) or result.is_scalar:
            return result
        arrays = [each for each in _leaves(operands) if isinstance(each, Tracer)]
        if any(result.window.storage is each.window.storage for each in arrays):
            return self.copied(result)
        if result.window.strides is None and all(
            each.ndim < 2 or is_contiguous(each.shape, self.strides(each)) for each in arrays
        ):
            result.window.strides = contiguous(result.shape)
        return result

    def _numbers_of(self, result: Any) -> Any:
        """NumPy gives scalars where results have no dimensions."""
        if isinstance(result, (list, tuple)):
            parts = [self._numbers_of(each) for each in result]
            return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
        if isinstance(result, Tracer) and not result.shape and not result.is_scalar:
            return self.scalar(result.value)
        return result

    def get_item(self, operand: Tracer, key: Any) -> Any:
        """``operand[key]``."""
        self.mark()
        if selects(key):
            return get_selected(self, as_selected(self.numbers(operand)), self._known_key(key))
        return indexing.get_item(self, self.numbers(operand), self._known_key(key))

    def set_item(self, operand: Tracer, key: Any, value: Any) -> None:
        """``operand[key] = value``."""
        self.mark()
        if is_in_blocks(operand):
            raise TracingError(
                f"elements of an array of {operand.element_type} cannot be assigned: each shares a scale with its block; "
                "update .astype(np.float32) and convert back"
            )
        if selects(key) or isinstance(value, Selected):
            set_selected(self, as_selected(operand), self._known_key(key), value)
            return
        indexing.set_item(self, operand, self._known_key(key), self.numbers(value))

    def get_selected(self, operand: Selected, key: Any) -> Any:
        """``operand[key]`` of an array whose length is known when the function runs."""
        self.mark()
        return get_selected(self, operand, self._known_key(key))

    def set_selected(self, operand: Selected, key: Any, value: Any) -> None:
        """``operand[key] = value`` of such an array."""
        self.mark()
        set_selected(self, operand, self._known_key(key), value)

    def _known_key(self, key: Any) -> Any:
        """An index whose parts are numbers and arrays of NumPy's, where they are the same at every call."""
        if isinstance(key, tuple):
            # A sequence inside is an array, whatever its type.
            return tuple(self._known_key(list(each) if isinstance(each, tuple) else each) for each in key)
        if type(key) is list and holds_tracers(key):
            return self.tracer(key)
        if isinstance(key, slice):
            return slice(*(self._known_key(each) for each in (key.start, key.stop, key.step)))
        if type(key) is not Tracer or (known := self.known(key)) is None:
            return key
        found = known.astype(key.dtype, copy=False)
        return found.item() if key.weak is not None else found[()] if key.is_scalar else found


def _dtype_of(operand: Any) -> np.dtype[Any]:
    """The dtype of a number or array of outside.  NumPy itself says what it does not do with texts."""
    if isinstance(operand, (np.ndarray, np.generic)) and operand.dtype.kind not in "OM":
        return operand.dtype
    return np.asarray(operand).dtype if isinstance(operand, (str, bytes)) else dtype_of(operand)


def _common_shape(values: Sequence[Value]) -> tuple[int, ...]:
    shapes = [value.tensor_type.shape for value in values]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " ".join(map(str, shapes))
        raise ValueError(f"operands could not be broadcast together with shapes {listed}") from None
