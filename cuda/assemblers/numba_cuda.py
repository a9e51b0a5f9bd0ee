"""numba.cuda as an assembler: a one-line ``cuda.jit`` kernel whose body is one intrinsic, the kernel's own text.

The intrinsic adds the function that ``legacy.py`` wrote to numba's module and calls it, and libNVVM inlines it: what becomes
PTX is our text between numba's entry and ``ret``.  numba-cuda and libNVVM are needed, a GPU or a driver is not.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, final

from hlojit.cuda.assemblers.assembler import Assembler
from hlojit.cuda.assemblers.legacy import LegacyKernel, legacy_kernel
from hlojit.cuda.assemblers.libraries import LLVM_TO_PTX, identity
from hlojit.cuda.assemblers.llvm_nvptx import LlvmAssembler
from hlojit.cuda.numba_import import numba_cuda
from hlojit.ir.errors import HlojitError
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target

_CAPABILITY: Final = re.compile(r"sm_(?P<major>\d+)(?P<minor>\d)(?P<suffix>[af]?)$")
_ENTRY: Final = re.compile(r"^\.visible \.entry ([\w$]+)\(", re.MULTILINE)
_HEADER: Final = re.compile(r"^(?://.*|\.version .*|\.target .*|\.address_size .*)\n", re.MULTILINE)
_NUMBAS_OWN: Final = re.compile(r"^\.common \.global .*NumbaEnv.*\n", re.MULTILINE)
_SHARED: Final = re.compile(r"^\.extern \.shared .*\n", re.MULTILINE)
_MODULE: Final = (
    'target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-'
    'v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"\ntarget triple = "nvptx64-nvidia-cuda"\n'
)
"""What libNVVM wants at the head of a module."""
_current = threading.local()
"""The kernel that the intrinsic's body is to be, of the thread that assembles."""


@final
class NumbaAssembler(Assembler):
    """numba.cuda and libNVVM."""

    name = "numba"

    def unavailable(self) -> str:
        return _unavailable()

    def _assembled(self, code: KernelCode, target: Target) -> str:
        if code.linked or any(f"@{each}(" in code.ir for each in self.dialect.externs):
            # What plugins bring is LLVM IR of today, to be linked and inlined: there is no older form of that.  What the
            # driver defines, numba's module would have to declare.
            return LlvmAssembler().ptx(code, target)
        return _joined([_entry(legacy_kernel(code.ir, phase.symbol), phase.symbol, target) for phase in code.phases])


@cache
def _unavailable() -> str:
    if find_spec("numba_cuda") is None:
        return "numba-cuda is not installed (pip install 'hlojit[cuda]')"
    for library in (LLVM_TO_PTX, "nvrtc"):
        if not identity(library):
            return f"lib{library} is not found (pip install 'hlojit[cuda]', or a CUDA toolkit)"
    try:
        numba_cuda()
    except Exception as error:  # whatever another version of numba, NumPy or the driver makes of the import
        return f"numba.cuda cannot be imported ({type(error).__name__}: {error})"
    return ""


def capability_of(target: Target) -> tuple[int, int, str]:
    """A GPU's compute capability as numba.cuda wants it: 9, 0, "a" of sm_90a."""
    found = _CAPABILITY.match(target.cpu)
    assert found is not None, target.cpu
    return int(found["major"]), int(found["minor"]), found["suffix"]


def _entry(kernel: LegacyKernel, symbol: str, target: Target) -> str:
    from numba import types

    cuda = numba_cuda()
    capability = capability_of(target)
    signature = (types.UniTuple(types.uint64, kernel.parameters),)
    _current.kernel = kernel
    try:
        bounds = kernel.threads, kernel.at_once
        ptx, _ = cuda.compile(_shell(), signature, device=False, abi="numba", cc=capability, launch_bounds=bounds)
    except Exception as error:
        raise HlojitError(f"internal error: numba.cuda refuses kernel {symbol}: {_reason(kernel, error)}") from error
    finally:
        del _current.kernel
    (mangled,) = _ENTRY.findall(ptx)
    return str(ptx).replace(mangled, symbol)


def _reason(kernel: LegacyKernel, error: Exception) -> str:
    """What libNVVM says of the kernel's text, which numba-cuda does not tell."""
    from cuda.bindings import nvvm

    program = nvvm.create_program()
    try:
        version = ", ".join(f"i32 {number}" for number in nvvm.ir_version())
        text = f"{_MODULE}{kernel.text}\n!nvvmir.version = !{{!0}}\n!0 = !{{{version}}}\n".encode()
        nvvm.add_module_to_program(program, text, len(text), kernel.symbol)
        nvvm.verify_program(program, 0, [])
    except nvvm.nvvmError:
        log = bytearray(nvvm.get_program_log_size(program))
        nvvm.get_program_log(program, log)
        return log.rstrip(b"\0").decode(errors="replace").strip() or str(error)
    finally:
        nvvm.destroy_program(program)
    return str(error)


@cache
def _shell() -> Callable[[Any], None]:
    from llvmlite import ir
    from numba import types
    from numba.cuda.extending import intrinsic

    class Definition(ir.Function):  # type: ignore[misc]
        """A function of numba's module that is there as text."""

        text = ""

        def __str__(self) -> str:
            return self.text

    @intrinsic  # type: ignore[untyped-decorator]
    def body(typing_context: Any, addresses: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kernel: LegacyKernel = _current.kernel
            words = [ir.IntType(64)] * kernel.parameters
            function = Definition(builder.module, ir.FunctionType(ir.VoidType(), words), kernel.symbol)
            function.text = kernel.text
            builder.call(function, [builder.extract_value(arguments[0], number) for number in range(kernel.parameters)])
            return context.get_dummy_value()

        return types.void(addresses), generate

    def kernel(addresses: Any) -> None:
        body(addresses)

    return kernel


def _joined(texts: list[str]) -> str:
    """One module of several: kernels of one ``KernelCode`` share the block's memory by name."""
    known: set[str] = set()

    def once(found: re.Match[str]) -> str:
        text = "" if found[0] in known else found[0]
        known.add(found[0])
        return text

    bodies = [_SHARED.sub(once, _NUMBAS_OWN.sub("", text)) for text in texts]
    return "\n".join([bodies[0], *(_HEADER.sub("", body) for body in bodies[1:])])
