"""The runtime's core knows nothing of Python: a compiled program links and runs with it alone."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cpu.processor import host_target
from hlojit.extensions import CompileOptions, registry
from hlojit.llvm.host import emit_host
from hlojit.llvm.math_library import with_own_math
from hlojit.lowering.abi import CONTEXT_BYTES
from hlojit.machine_code import loading
from hlojit.runtime.layout import CALL
from hlojit.runtime.native import CORE_SYMBOLS, core_source, python_source

SIZE = 192
PROGRAM = f"""
func.func @main(%x: tensor<{SIZE}x{SIZE}xf32>, %n: tensor<i32>) -> (tensor<{SIZE}x{SIZE}xf32>, tensor<4xf32>) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %table = stablehlo.constant dense<[1.0, 2.0, 4.0, 8.5]> : tensor<4xf32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<{SIZE}x{SIZE}xf32>
  cond {{
    %t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  }} do {{
    %j = stablehlo.add %i, %one : tensor<i32>
    %p = stablehlo.dot_general %a, %x, contracting_dims = [1] x [0]
      : (tensor<{SIZE}x{SIZE}xf32>, tensor<{SIZE}x{SIZE}xf32>) -> tensor<{SIZE}x{SIZE}xf32>
    %q = stablehlo.tanh %p : tensor<{SIZE}x{SIZE}xf32>
    stablehlo.return %j, %q : tensor<i32>, tensor<{SIZE}x{SIZE}xf32>
  }}
  %s = stablehlo.sine %table : tensor<4xf32>
  %u = stablehlo.add %s, %table : tensor<4xf32>
  return %r#1, %u : tensor<{SIZE}x{SIZE}xf32>, tensor<4xf32>
}}
"""
STEPS = 3
SYMBOL = "the_program"


class Compiled:
    """The objects of the program, without the Python part, and what a call record has to say."""

    def __init__(self) -> None:
        backend: Any = registry().backend("cpu")
        module = lower(hlojit.parse(PROGRAM), backend, CompileOptions(fold_limit=0)).freeze()
        self.program = backend.program(module)
        target = host_target()
        self.core = loading.compile_to_object(core_source(target.triple), target, pipeline="inline")
        kernels = dict.fromkeys(code for launch in self.program.launches() for code in launch.kernel.all_codes)
        self.objects = [loading.compile_to_object(emit_host(self.program, SYMBOL), target)]
        for kernel in kernels:
            linked = [with_own_math(text) for _, text in kernel.linked]
            self.objects.append(loading.compile_to_object(kernel.ir, target, pipeline=kernel.pipeline, linked=linked))

    @property
    def call_record(self) -> dict[str, int]:
        """The fields of the call record that are numbers; addresses are up to the one who calls."""
        return {
            "inputs": 2,
            "outputs": 2,
            "constants": len(self.program.constants),
            "arena_bytes": self.program.arena_bytes,
            "release_gil": 0,
            "threads": 2,
        }


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return Compiled()


def input_matrix() -> Any:
    numbers = np.arange(SIZE * SIZE, dtype=np.int64)
    return ((numbers * 7919 % 1000).astype("f4") / 8192 - np.float32(0.0625)).reshape(SIZE, SIZE)


def expected() -> tuple[Any, Any]:
    x = input_matrix().astype("f8")
    state = x
    for _ in range(STEPS):
        state = np.tanh(state @ x)
    table = np.array([1, 2, 4, 8.5])
    return state, np.sin(table) + table


def check(raw: bytes) -> None:
    state, table = expected()
    matrix = np.frombuffer(raw, "f4", SIZE * SIZE).reshape(SIZE, SIZE)
    np.testing.assert_allclose(matrix, state, rtol=2e-4, atol=1e-6)
    np.testing.assert_allclose(np.frombuffer(raw, "f4", 4, matrix.nbytes), table, rtol=1e-6)


def symbols(image: bytes) -> tuple[set[str], set[str]]:
    """Names that an ELF object leaves undefined, and global ones that it defines."""
    import llvmlite.binding as llvm

    sections = {}
    for section in llvm.ObjectFileRef.from_data(image).sections():
        name = section.name()
        sections[name.decode() if isinstance(name, bytes) else name] = section.data()
    undefined, defined = set(), set()
    # Elf64_Sym: name, info (binding in the upper half), other, section index, value, size
    for name, info, _, index, _, _ in struct.iter_unpack("<IBBHQQ", sections[".symtab"]):
        text = sections[".strtab"][name : sections[".strtab"].index(b"\0", name)].decode()
        if text and info >> 4:
            (defined if index else undefined).add(text)
    return undefined, defined


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads ELF objects")
C_LIBRARY = {
    "syscall", "pthread_create", "pthread_join", "pthread_sigmask", "prctl", "sched_yield", "mmap", "munmap", "madvise",
    "memcpy", "memset", "memmove",
}  # fmt: skip


@on_linux
def test_a_program_needs_the_core_and_the_core_the_c_library_only(compiled: Compiled) -> None:
    undefined, defined = symbols(compiled.core)
    assert undefined <= C_LIBRARY | {"_GLOBAL_OFFSET_TABLE_"}
    assert {*CORE_SYMBOLS, "hlojit_execute"} <= defined
    missing: set[str] = set()
    for image in compiled.objects:
        wanted, found = symbols(image)
        missing |= wanted
        defined |= found
    assert missing - defined <= C_LIBRARY | {"_GLOBAL_OFFSET_TABLE_"}
    assert "hlojit_parallel_for" in missing, "the program uses the core"


@on_linux
def test_python_is_in_the_python_part_only() -> None:
    target = host_target()
    undefined, _ = symbols(loading.compile_to_object(python_source(), target, pipeline="inline"))
    assert any(name.startswith("Py") for name in undefined)
    assert not re.search(r"@_?Py[A-Z]", core_source(target.triple))


def test_a_program_runs_in_a_process_that_never_loads_the_python_part(compiled: Compiled, tmp_path: Path) -> None:
    for number, image in enumerate([compiled.core, *compiled.objects]):
        (tmp_path / f"{number}.o").write_bytes(image)
    for number, constant in enumerate(compiled.program.constants):
        (tmp_path / f"{number}.constant").write_bytes(np.ascontiguousarray(constant).tobytes())
    np.save(tmp_path / "x.npy", input_matrix())
    script = f"""
import ctypes, pathlib, struct, sys
import numpy as np
from hlojit.cpu.processor import host_target
from hlojit.machine_code import loading
from hlojit.runtime import native
from hlojit.lowering.abi import CONTEXT_BYTES
from hlojit.runtime.layout import CALL

folder = pathlib.Path(sys.argv[1])
images = [path.read_bytes() for path in sorted(folder.glob("*.o"), key=lambda path: int(path.stem))]
exports = ["hlojit_execute", "hlojit_pool_set_threads", "hlojit_pool_started", "hlojit_pool_shutdown", {SYMBOL!r}]
code = loading.load_objects(images, exports, native.core_imports())
x, n = np.load(folder / "x.npy"), np.array({STEPS}, "i4")
outputs = np.zeros_like(x), np.zeros(4, "f4")
constants = [path.read_bytes() for path in sorted(folder.glob("*.constant"), key=lambda path: int(path.stem))]
table = (ctypes.c_void_p * max(1, len(constants)))(*(ctypes.cast(ctypes.c_char_p(each), ctypes.c_void_p).value for each in constants))
fields = dict.fromkeys(CALL, 0) | {compiled.call_record!r}
fields |= {{"entry": code.address({SYMBOL!r}), "constant_table": ctypes.addressof(table)}}
record = struct.pack(f"={{len(CALL)}}q", *(fields[name] for name in CALL))
slots = (ctypes.c_void_p * (5 + len(constants)))(*(array.ctypes.data for array in (x, n, *outputs)))
context = (ctypes.c_uint64 * (CONTEXT_BYTES // 8))()
ctypes.CFUNCTYPE(None, ctypes.c_int32)(code.address("hlojit_pool_set_threads"))(2)
execute = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(code.address("hlojit_execute"))
assert execute(ctypes.addressof(context), record, ctypes.addressof(slots)) == 0
assert ctypes.CFUNCTYPE(ctypes.c_int32)(code.address("hlojit_pool_started"))() == 1
ctypes.CFUNCTYPE(None)(code.address("hlojit_pool_shutdown"))()
assert native.native.made is None, "the runtime of Python was never made"
sys.stdout.buffer.write(b"".join(array.tobytes() for array in outputs))
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    check(done.stdout)


def llvm_bytes(raw: bytes) -> str:
    return f'[{len(raw)} x i8] c"{"".join(f"{chr(92)}{byte:02X}" for byte in raw)}"'


def main_program(compiled: Compiled) -> str:
    """``int main()`` in LLVM IR: fills the inputs, runs the program, writes the outputs to the standard output."""
    constants = [np.ascontiguousarray(each).tobytes() for each in compiled.program.constants]
    table = ", ".join(f"ptr @constant.{number}" for number in range(len(constants))) or "ptr null"
    fields = compiled.call_record
    words = []
    for name in CALL:
        address = {"entry": f"@{SYMBOL}", "constant_table": "@constants"}.get(name)
        words.append(f"ptr {address}" if address else f"i64 {fields.get(name, 0)}")
    kinds = ", ".join(word.split()[0] for word in words)
    count = SIZE * SIZE
    return "\n".join([
        *(f"@constant.{number} = private constant {llvm_bytes(raw)}, align 64" for number, raw in enumerate(constants)),
        f"@constants = private constant [{max(1, len(constants))} x ptr] [{table}]",
        f"@record = private constant {{ {kinds} }} {{ {', '.join(words)} }}",
        f"@x = internal global {llvm_bytes(input_matrix().tobytes())}, align 64",
        f"@n = internal global i32 {STEPS}, align 64",
        f"@state = internal global [{count} x float] zeroinitializer, align 64",
        "@table = internal global [4 x float] zeroinitializer, align 64",
        f"declare i32 @{SYMBOL}(ptr, ptr)",
        "declare i32 @hlojit_execute(ptr, ptr, ptr)",
        "declare void @hlojit_pool_set_threads(i32)",
        "declare i64 @write(i32, ptr, i64)",
        "define i32 @main() {",
        f"  %context = alloca [{CONTEXT_BYTES} x i8], align 64",
        f"  call void @llvm.memset.p0.i64(ptr align 64 %context, i8 0, i64 {CONTEXT_BYTES}, i1 false)",
        f"  %slots = alloca [{5 + len(constants)} x ptr], align 16",
        *(
            line
            for number, name in enumerate(("x", "n", "state", "table"))
            for line in (f"  %slot{number} = getelementptr ptr, ptr %slots, i64 {number}",
                         f"  store ptr @{name}, ptr %slot{number}, align 8")
        ),
        "  call void @hlojit_pool_set_threads(i32 2)",
        "  %status = call i32 @hlojit_execute(ptr %context, ptr @record, ptr %slots)",
        f"  call i64 @write(i32 1, ptr @state, i64 {4 * count})",
        "  call i64 @write(i32 1, ptr @table, i64 16)",
        "  ret i32 %status",
        "}",
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    ])  # fmt: skip


@on_linux
@pytest.mark.skipif(shutil.which("cc") is None, reason="no system linker")
def test_a_program_is_an_executable_without_libpython(compiled: Compiled, tmp_path: Path) -> None:
    main = loading.compile_to_object(main_program(compiled), host_target())
    paths = []
    for number, image in enumerate([main, compiled.core, *compiled.objects]):
        paths.append(tmp_path / f"{number}.o")
        paths[-1].write_bytes(image)
    program = tmp_path / "program"
    # Only the linker of the C compiler is used.
    subprocess.run(["cc", *map(str, paths), "-o", str(program), "-lpthread"], check=True, capture_output=True)
    assert b"libpython" not in program.read_bytes()
    done = subprocess.run([str(program)], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    check(done.stdout)
