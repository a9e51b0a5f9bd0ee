"""Programs written by hand in LLVM IR, for testing the runtime without the compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hlojit.cpu import codegen
from hlojit.executable import Executable, ExecutableSpec
from hlojit.ir.types import TensorType
from hlojit.runtime.native import GENERATED_CODE_SYMBOLS, native

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
    """y = x + 1 over f32, shared among threads in ranges of ``grain`` elements."""
    return f"""{ADD_ONE_KERNEL}
define i32 @main(ptr %context, ptr %slots) {{
  call void @hlojit_parallel_for(ptr %context, ptr @add_one, ptr %slots, i64 {tasks}, i64 {grain})
  ret i32 0
}}
"""


Build = Callable[..., Executable]


@pytest.fixture(scope="session")
def build() -> Build:
    """``build(ir, inputs, outputs, **spec fields)``: compile ``i32 @main(ptr, ptr)`` and make an executable of it."""

    def make(ir: str, inputs: Sequence[TensorType], outputs: Sequence[TensorType], **fields: Any) -> Executable:
        declarations = "\n".join(line for line in DECLARATIONS.splitlines() if line and line not in ir)
        target = codegen.host_target()
        image = codegen.compile_to_object(declarations + ir, target, pipeline="vectorize")
        symbols = {name: address for name, address in native().symbols().items() if name in GENERATED_CODE_SYMBOLS}
        code = codegen.load_objects([image], ["main"], symbols)
        fields.setdefault("name", "program")
        return Executable(
            ExecutableSpec(
                entry=code.address("main"), inputs=tuple(inputs), outputs=tuple(outputs), keepalive=(code,), **fields
            )
        )

    return make
