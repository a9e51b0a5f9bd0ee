"""The part of numba's code that calls a jitted function's program by itself (``runtime/direct.ll``).

    direct = direct_call(calls, kinds, kind)
    answered, found = direct((x, y))        # in code of numba's; where it is not answered, Python is to be asked

Results are arrays of numba's own memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, final

import numpy as np
from hlojit.runtime import layout
from hlojit.runtime.native import native
from hlojit.tracing.calls.direct_calls import DirectCalls, Nesting, Parameter


def parameters_of(kinds: Any) -> list[Parameter] | None:
    """The leaves of arguments of numba's types; None where there are some that native code does not pass on."""
    from numba import types
    from numba.np.numpy_support import as_dtype

    found = []
    for kind in _leaves_of(kinds):
        if isinstance(kind, types.Array):
            if not kind.aligned:
                return None
            found.append(Parameter(as_dtype(kind.dtype), kind.ndim, not kind.mutable))
        else:
            found.append(Parameter(as_dtype(kind), 0, True))
    return found


def nesting_of(kind: Any) -> Nesting:
    """How results of a type of numba's are nested."""
    from numba import types
    from numba.np.numpy_support import as_dtype

    if isinstance(kind, types.BaseTuple):
        return Nesting(tuple(map(nesting_of, kind)), is_tuple=True)
    if kind is types.none:
        return Nesting(None)
    is_array = isinstance(kind, types.Array)
    return Nesting((np.dtype(as_dtype(kind.dtype if is_array else kind)), kind.ndim if is_array else 0))


def _leaves_of(kinds: Any) -> Iterator[Any]:
    from numba import types

    for kind in kinds:
        if isinstance(kind, types.BaseTuple):
            yield from _leaves_of(kind)
        else:
            yield kind


def direct_call(calls: DirectCalls, kind: Any) -> Any:
    """What numba's code calls with a tuple of the arguments: whether it was answered, and the result."""
    from numba import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def direct(typing: Any, arguments: Any) -> Any:
        del typing
        returned = types.Tuple((types.boolean, kind))

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return _Emitter(context, builder, calls).call(signature.args[0], values[0], returned)

        return returned(arguments), generate

    return direct


@final
class _Emitter:
    """Writes one call in numba's intermediate form."""

    def __init__(self, context: Any, builder: Any, calls: DirectCalls):
        from llvmlite import ir

        self._context, self._builder, self._calls = context, builder, calls
        self._word, self._pointer = ir.IntType(64), ir.IntType(8).as_pointer()
        self._sizes: list[Any] = []
        self._arrays: list[Any] = []
        """Addresses of the arguments' memory."""
        self._plain: list[Any] = []
        """Whether arrays are laid out by rows, where their types do not say so."""

    def call(self, kind: Any, arguments: Any, returned: Any) -> Any:
        """The pair that the call gives."""
        from numba.core import cgutils

        builder = self._builder
        self._take(kind, arguments)
        answer = cgutils.alloca_once_value(builder, self._constant_null(returned))
        record = self._found()
        is_found = cgutils.is_not_null(builder, record)
        for each in self._plain:
            is_found = builder.and_(is_found, each)
        with builder.if_then(is_found):
            self._run(record, returned, answer)
        return builder.load(answer)

    # ------------------------------------------------------------------------------------------------------ arguments

    def _take(self, kind: Any, value: Any) -> None:
        from numba import types
        from numba.core import cgutils

        builder = self._builder
        if isinstance(kind, types.BaseTuple):
            for number, inner in enumerate(kind):
                self._take(inner, builder.extract_value(value, number))
        elif isinstance(kind, types.Array):
            array = self._context.make_array(kind)(self._context, builder, value)
            sizes = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
            self._sizes += sizes
            self._arrays.append(builder.bitcast(array.data, self._pointer))
            if kind.layout != "C":
                strides = cgutils.unpack_tuple(builder, array.strides, kind.ndim)
                self._require_rows(array.itemsize, sizes, strides)
        else:
            place = cgutils.alloca_once(builder, self._context.get_data_type(kind))
            self._context.pack_value(builder, kind, value, place)
            self._arrays.append(builder.bitcast(place, self._pointer))

    def _require_rows(self, itemsize: Any, sizes: list[Any], strides: list[Any]) -> None:
        step = itemsize
        for size, stride in zip(reversed(sizes), reversed(strides)):
            self._plain.append(self._builder.icmp_signed("==", stride, step))
            step = self._builder.mul(step, size)

    # ------------------------------------------------------------------------------------------------------- the call

    def _found(self) -> Any:
        """The record for these sizes."""
        from llvmlite import ir

        place = ir.Constant(self._word, ctypes.addressof(self._calls.place)).inttoptr(self._pointer)
        kind = ir.FunctionType(self._pointer, [self._pointer, self._pointer])
        return self._native("hlojit_direct_find", kind, [place, self._words(self._sizes)])

    def _run(self, record: Any, returned: Any, answer: Any) -> None:
        from llvmlite import ir
        from numba.core import cgutils

        builder = self._builder
        results = self._results(record, returned.types[1])
        kind = ir.FunctionType(ir.IntType(32), [self._pointer, self._pointer])
        addresses = self._addresses([*self._arrays, *(each.address for each in results)])
        status = self._native("hlojit_direct_run", kind, [record, addresses])
        is_good = builder.icmp_unsigned("==", status, ir.Constant(ir.IntType(32), 0))
        with builder.if_else(is_good) as (good, bad):
            with good:
                value = self._assembled(returned.types[1], iter(results))
                builder.store(self._context.make_tuple(builder, returned, [cgutils.true_bit, value]), answer)
            with bad:
                for each in results:
                    each.drop()

    def _results(self, record: Any, kind: Any) -> list[_Place]:
        """Memory for the results, of the sizes that the record says."""
        from llvmlite import ir
        from numba import types
        from numba.core import cgutils
        from numba.np.arrayobj import _empty_nd_impl

        builder, made = self._builder, []
        offset = ir.Constant(self._word, layout.DIRECT["shapes"].offset)
        field = builder.bitcast(builder.gep(record, [offset]), self._word.as_pointer().as_pointer())
        shapes, number = builder.load(field), 0
        for each in _leaves_of([] if kind is types.none else [kind]):
            if isinstance(each, types.Array):
                at = [builder.gep(shapes, [ir.Constant(self._word, number + axis)]) for axis in range(each.ndim)]
                number += each.ndim
                array = _empty_nd_impl(self._context, builder, each, [builder.load(size) for size in at])
                made.append(_Place(self._context, builder, each, builder.bitcast(array.data, self._pointer), array))
            else:
                place = cgutils.alloca_once(builder, self._context.get_data_type(each))
                made.append(_Place(self._context, builder, each, builder.bitcast(place, self._pointer), place))
        return made

    def _assembled(self, kind: Any, results: Iterator[_Place]) -> Any:
        from numba import types

        if kind is types.none:
            return self._context.get_dummy_value()
        if isinstance(kind, types.BaseTuple):
            return self._context.make_tuple(self._builder, kind, [self._assembled(each, results) for each in kind])
        return next(results).value()

    # ---------------------------------------------------------------------------------------------------------- parts

    def _native(self, name: str, kind: Any, arguments: list[Any]) -> Any:
        from llvmlite import ir

        address = ir.Constant(self._word, native().addresses[name])
        return self._builder.call(self._builder.inttoptr(address, kind.as_pointer()), arguments)

    def _words(self, values: list[Any]) -> Any:
        return self._stored(values, self._word)

    def _addresses(self, values: list[Any]) -> Any:
        return self._stored(values, self._pointer)

    def _stored(self, values: list[Any], kind: Any) -> Any:
        """Values one behind the other on the stack."""
        from llvmlite import ir
        from numba.core import cgutils

        block = cgutils.alloca_once(self._builder, kind, size=max(1, len(values)))
        for number, value in enumerate(values):
            self._builder.store(value, self._builder.gep(block, [ir.Constant(self._word, number)]))
        return self._builder.bitcast(block, self._pointer)

    def _constant_null(self, kind: Any) -> Any:
        from llvmlite import ir

        return ir.Constant(self._context.get_value_type(kind), None)


@final
class _Place:
    """Memory of one result."""

    def __init__(self, context: Any, builder: Any, kind: Any, address: Any, of: Any):
        self._context, self._builder, self._kind, self._of = context, builder, kind, of
        self.address = address

    def value(self) -> Any:
        """The result as numba's code has it."""
        from numba import types

        if isinstance(self._kind, types.Array):
            return self._of._getvalue()
        return self._context.unpack_value(self._builder, self._kind, self._of)

    def drop(self) -> None:
        """Give an array's memory back."""
        from numba import types

        if isinstance(self._kind, types.Array):
            self._context.nrt.decref(self._builder, self._kind, self._of._getvalue())
