"""The processor's CPUID instruction, called from Python through a function that LLVM compiles (x86-64 only)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

Registers = tuple[int, int, int, int]
"""eax, ebx, ecx, edx."""

_TEXT = """
define void @hlojit_cpuid(i32 %leaf, i32 %part, ptr %out) {
  %r = call { i32, i32, i32, i32 } asm sideeffect "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"(i32 %leaf, i32 %part)
  store { i32, i32, i32, i32 } %r, ptr %out, align 4
  ret void
}
"""


def cpuid() -> Callable[[int, int], Registers]:
    """``function(leaf, part)``; costs a few milliseconds, for those who find nothing cheaper to ask."""
    import llvmlite.binding as llvm
    from hlojit.machine_code.undisturbed import undisturbed

    return undisturbed(_compiled, llvm)


def _compiled(llvm: Any) -> Callable[[int, int], Registers]:

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(triple).create_target_machine(reloc="pic", codemodel="small")
    module = llvm.parse_assembly(f'target triple = "{triple}"\ntarget datalayout = "{machine.target_data}"\n{_TEXT}')
    image = machine.emit_object(module)
    jit = llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)
    builder = llvm.JITLibraryBuilder().add_object_img(image).export_symbol("hlojit_cpuid")
    tracker: Any = builder.link(jit, "hlojit.cpuid")
    function = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(tracker["hlojit_cpuid"])

    return partial(_call, function, (jit, tracker))


def _call(function: Callable[..., None], code: object, leaf: int, part: int) -> Registers:
    """``code`` is what the function's address depends on: it lives as long as whoever may call it."""
    out = (ctypes.c_uint32 * 4)()
    function(leaf, part, ctypes.addressof(out))
    return out[0], out[1], out[2], out[3]
