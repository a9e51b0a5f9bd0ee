"""Programs written by hand in LLVM IR, for testing the runtime without the compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hlojit.cpu.processor import host_target
from hlojit.executable import Executable, ExecutableSpec
from hlojit.ir.types import TensorType
from hlojit.lowering.abi import CONTEXT
from hlojit.machine_code import loading
from hlojit.runtime import native_symbols
from hlojit.runtime.layout import CALL

DECLARATIONS = """
declare void @hlojit_parallel_for(ptr, ptr, ptr, i64, i64)
declare i32 @hlojit_poll(ptr)
declare void @hlojit_fail(ptr, i32, i64, i64)
declare ptr @hlojit_allocate(i64)
declare void @hlojit_release(ptr)
"""

ADD_ONE_KERNEL = """
define void @add_one(ptr %context, ptr %buffers, i64 %begin, i64 %end) {
entry:
  %x = load ptr, ptr %buffers
  %y_at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y_at
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i1, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %out
body:
  %from = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %from, align 4
  %sum = fadd float %value, 1.0
  %to = getelementptr float, ptr %y, i64 %i
  store float %sum, ptr %to, align 4
  %i1 = add i64 %i, 1
  br label %check
out:
  ret void
}
"""


def add_one_program(tasks: int, grain: int) -> str:
    """Give x + 1 over f32, shared among threads in ranges of ``grain`` elements."""
    return f"""{ADD_ONE_KERNEL}
define i32 @main(ptr %context, ptr %slots) {{
  call void @hlojit_parallel_for(ptr %context, ptr @add_one, ptr %slots, i64 {tasks}, i64 {grain})
  ret i32 0
}}
"""


Build = Callable[..., Executable]


def make_executable(ir: str, inputs: Sequence[TensorType], outputs: Sequence[TensorType], **fields: Any) -> Executable:
    """Compile ``i32 @main(ptr context, ptr slots)`` to an executable; ``fields`` are those of its specification."""
    declarations = "\n".join(line for line in DECLARATIONS.splitlines() if line and line not in ir)
    image = loading.compile_to_object(declarations + ir, host_target(), pipeline="vectorize")
    code = loading.load_objects([image], ["main"], native_symbols())
    fields.setdefault("name", "program")
    keepalive = (code, *fields.pop("keepalive", ()))
    return Executable(
        ExecutableSpec(
            entry=code.address("main"), inputs=tuple(inputs), outputs=tuple(outputs), keepalive=keepalive, **fields
        )
    )


def copy_program(size: int) -> str:
    """Copy ``size`` bytes from the first slot to the last output, of a program with one output."""
    return f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @main(ptr %context, ptr %slots) {{
  %record_at = getelementptr i8, ptr %context, i64 {CONTEXT["record"].offset}
  %record = load ptr, ptr %record_at
  %inputs_at = getelementptr i8, ptr %record, i64 {CALL["inputs"].offset}
  %inputs = load i64, ptr %inputs_at
  %x = load ptr, ptr %slots
  %y_at = getelementptr ptr, ptr %slots, i64 %inputs
  %y = load ptr, ptr %y_at
  call void @llvm.memcpy.p0.p0.i64(ptr %y, ptr %x, i64 {size}, i1 false)
  ret i32 0
}}
"""


def moving_program(moves: Iterable[tuple[int, int]], size: int) -> str:
    """Copy ``size`` bytes from slot to slot."""
    lines = []
    for number, (source, target) in enumerate(moves):
        for name, slot in (("from", source), ("to", target)):
            lines.append(f"  %{name}_at{number} = getelementptr ptr, ptr %slots, i64 {slot}")
            lines.append(f"  %{name}{number} = load ptr, ptr %{name}_at{number}")
        lines.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr %to{number}, ptr %from{number}, i64 {size}, i1 false)")
    return "\n".join(
        [
            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
            "define i32 @main(ptr %context, ptr %slots) {",
            *lines,
            "  ret i32 0",
            "}",
        ]
    )
