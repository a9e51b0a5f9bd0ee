"""``@numba.cuda.jit`` functions of plugins as kernels that are launched with addresses.

numba's own kernels take each array as seven numbers and more, which a launch has to prepare.  Here the function is compiled as
a device function, by numba.cuda, into an entry that takes the addresses and knows the shapes::

    @cuda.jit
    def entry(addresses):           # (x, y): what our runtime launches
        function(*arrays(addresses))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from hlojit.cuda.assemblers.numba_cuda import NumbaAssembler, capability_of
from hlojit.cuda.numba_import import numba_cuda
from hlojit.extensions.functions.checked_copies import copied_with
from hlojit.gpu.device_functions import function_code, geometry, types_of
from hlojit.ir.errors import PluginError, UnsupportedError
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import DeviceFunction
from hlojit.ir.types import TensorType
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target

_ENTRY: Final = re.compile(r"^\.visible \.entry ([\w$]+)\(", re.MULTILINE)


def numba_function_code(instruction: Instruction, function: DeviceFunction, target: Target, symbol: str) -> KernelCode:
    """The kernel of a call, as PTX."""
    if reason := NumbaAssembler().unavailable():
        raise UnsupportedError(function.user, "", f"it is compiled by numba.cuda, and {reason}", instruction.location)
    operands, results = types_of(instruction)
    _, threads, _ = geometry(instruction, function, target)
    try:
        text = _ptx(function.function, (*operands, *results), target, threads)
    except Exception as error:
        raise PluginError(f"{function.user}: numba.cuda cannot compile its kernel: {error}") from error
    (mangled,) = _ENTRY.findall(text)
    return function_code(instruction, function, target, symbol, text.replace(mangled, symbol))


def _ptx(function: Callable[..., Any], types: Sequence[TensorType], target: Target, threads: int) -> str:
    from numba import types as kinds

    cuda = numba_cuda()
    capability = capability_of(target)
    python: Any = getattr(function, "py_func", function)
    inner = _for(capability)(copied_with(python, _for(capability)))
    arrays = _arrays([(_numba_type(kind), kind.shape) for kind in types])

    def entry(addresses: Any) -> None:
        inner(*arrays(addresses))

    signature = (kinds.UniTuple(kinds.uint64, len(types)),)
    ptx, _ = cuda.compile(entry, signature, device=False, abi="numba", cc=capability, launch_bounds=threads)
    return str(ptx)


def _for(capability: tuple[int, int, str]) -> Callable[[Any], Any]:
    """numba.cuda's ``jit(device=True)`` for a GPU that need not be here.

    numba asks the driver which GPU a function is for, and knows one compilation of a function for all of them.
    """
    from numba.cuda.compiler import compile_cuda
    from numba.cuda.dispatcher import CUDADispatcher

    class Dispatcher(CUDADispatcher):  # type: ignore[misc]
        def compile_device(self, args: Any, return_type: Any = None) -> Any:
            found = self.overloads.get(args)
            if found is None:
                with self._compiling_counter:
                    found = compile_cuda(
                        self.py_func, return_type, args, nvvm_options={"opt": 3, "fastmath": False}, cc=capability
                    )
                self.overloads[args] = found
                found.target_context.insert_user_function(found.entry_point, found.fndesc, [found.library])
            return found

    return lambda function: Dispatcher(function, targetoptions={"device": True, "opt": True})


def _numba_type(kind: TensorType) -> Any:
    """numba's array type; elements without a NumPy type of their own are seen as their codes."""
    from numba import from_dtype
    from numba import types as kinds

    return kinds.Array(from_dtype(kind.element_type.storage), len(kind.shape), "C")


def _arrays(described: Sequence[tuple[Any, tuple[int, ...]]]) -> Callable[[Any], Any]:
    """An intrinsic: from addresses to a tuple of arrays of known types and shapes."""
    from llvmlite import ir
    from numba import types as kinds
    from numba.core.cgutils import pack_array
    from numba.cuda.extending import intrinsic

    made = kinds.Tuple([kind for kind, _ in described])

    @intrinsic  # type: ignore[untyped-decorator]
    def arrays(typing_context: Any, addresses: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = context.get_value_type(kinds.intp)

            def packed(numbers: Sequence[int]) -> Any:
                return pack_array(builder, [word(number) for number in numbers], ty=word)

            values = []
            for number, (kind, shape) in enumerate(described):
                array = context.make_array(kind)(context, builder)
                itemsize = context.get_abi_sizeof(context.get_data_type(kind.dtype))
                strides = [itemsize]
                for extent in reversed(shape[1:]):
                    strides.insert(0, strides[0] * extent)
                address = builder.extract_value(arguments[0], number)
                size = 1
                for extent in shape:
                    size *= extent
                array.data = builder.inttoptr(address, array.data.type)
                array.shape, array.strides = packed(shape), packed(strides[: len(shape)])
                array.nitems, array.itemsize = word(size), word(itemsize)
                array.meminfo = ir.Constant(array.meminfo.type, None)
                array.parent = ir.Constant(array.parent.type, None)
                values.append(array._getvalue())
            return context.make_tuple(builder, made, values)

        return made(addresses), generate

    return arrays  # type: ignore[no-any-return]
