"""The forms in which kernels answer on the CPU, and what is said of those that are wrong."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import re
import threading
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import (
    ArrayFunction,
    Kernel,
    KernelGroup,
    KernelPhase,
    LlvmKernel,
    OpPattern,
    SubgraphPattern,
    TaskFunction,
    using,
)
from hlojit.extensions.functions.numba_arrays import compile_arrays
from hlojit.ir import Instruction, tensor
from hlojit.runtime import get_threads
from llvmlite import ir as llvmlite_ir

from .kernel_plugins import NEGATE, Kernels, X, declining, kernel, launched, llvm, loop, program, times


def run(build: Callable[[KernelGroup], Any], text: str = program(), *arrays: Any) -> Any:
    with using(Kernels(kernel(NEGATE, build))):
        executable = hlojit.compile(text)
    assert launched(executable) == ["nova.kernel"]
    return executable(*(arrays or (X,)))


def doubled(x: Any, result: Any) -> None:
    for i in range(x.size):
        result[i] = 2 * x[i]


def doubled_of_tasks(x: Any, result: Any, begin: int, end: int) -> None:
    for i in range(begin * 10, end * 10):
        result[i] = 2 * x[i]


def negated_of_tasks(x: Any, result: Any, begin: int, end: int) -> None:
    for i in range(begin, end):
        result[i] = -x[i]


def test_what_no_task_writes_is_zero() -> None:
    """And not what the program before has left in the memory."""
    for tasks in (1000, 500, 1):
        answer = TaskFunction(negated_of_tasks, tasks=tasks)
        np.testing.assert_array_equal(run(lambda group: answer), np.where(np.arange(1000) < tasks, -X, 0))  # noqa: B023
    large = np.ones(700_000, "f4")
    text = program(shape="700000")
    run(lambda group: TaskFunction(negated_of_tasks, tasks=700_000), text, large)
    rest = run(lambda group: TaskFunction(negated_of_tasks, tasks=600_000), text, large)
    assert (rest[:600_000] == -1).all() and not rest[600_000:].any()


def past_the_end(x: Any, result: Any, begin: int, end: int) -> None:
    for i in range(begin, end):
        result[i] = x[i + 1]


def past_the_end_at_once(x: Any, result: Any) -> None:
    for i in range(x.size):
        result[i] = x[i + 1]


def test_numba_over_arrays() -> None:
    np.testing.assert_array_equal(run(lambda group: ArrayFunction(doubled)), 2 * X)


@pytest.mark.parametrize("pointers", [False, True], ids=["arrays", "pointers"])
def test_numba_over_ranges_of_tasks(pointers: bool) -> None:
    answer = TaskFunction(doubled_of_tasks, tasks=100, cost=20_000.0, pointers=pointers)
    np.testing.assert_array_equal(run(lambda group: answer), 2 * X)
    before = get_threads()
    hlojit.set_threads(3)
    try:
        np.testing.assert_array_equal(run(lambda group: answer), 2 * X)
    finally:
        hlojit.set_threads(before)


def test_python() -> None:
    seen: list[Any] = []

    def compute(x: Any) -> Any:
        seen.append((threading.get_ident(), x.flags.writeable))
        return 3 * x

    np.testing.assert_array_equal(run(lambda group: ArrayFunction(compute, trust="python")), 3 * X)
    assert seen == [(threading.get_ident(), seen[0][1])]


def test_native() -> None:
    library = ctypes.CDLL(ctypes.util.find_library("c"))
    answer = ArrayFunction(library.memcpy, trust="native", signature="result0, operand0, operand0.size")
    copied = run(lambda group: answer, program("i8"), np.arange(1000).astype("i1"))
    np.testing.assert_array_equal(copied, np.arange(1000).astype("i1"))


def test_llvm_text_in_phases_with_scratch_memory() -> None:
    # The first phase writes into the workspace, which stands behind the result; the second one reads it.
    first = loop("  %value = fmul float %element, 2.0", symbol="first", operands=2)
    second = loop("  %value = fadd float %element, 1.0", symbol="second").replace(
        "%source = load ptr, ptr %buffers",
        "%third = getelementptr ptr, ptr %buffers, i64 2\n  %source = load ptr, ptr %third",
    )
    phases = (KernelPhase("first", 1000, 5.0), KernelPhase("second", 1000, 5.0))
    found = run(lambda group: LlvmKernel(first + second, phases=phases, workspace_bytes=4000))
    np.testing.assert_array_equal(found, 2 * X + 1)


def test_an_llvmlite_module() -> None:
    pointer, integer = llvmlite_ir.PointerType(), llvmlite_ir.IntType(64)
    module = llvmlite_ir.Module("zeros")
    kind = llvmlite_ir.FunctionType(llvmlite_ir.VoidType(), [pointer, pointer, integer, integer])
    function = llvmlite_ir.Function(module, kind, "zeros")
    builder = llvmlite_ir.IRBuilder(function.append_basic_block())
    _, buffers, _, _ = function.args
    result = builder.load(builder.gep(buffers, [integer(1)], source_etype=pointer), typ=pointer)
    builder.store(llvmlite_ir.Constant(llvmlite_ir.ArrayType(llvmlite_ir.FloatType(), 1000), None), result)
    builder.ret_void()
    np.testing.assert_array_equal(run(lambda group: LlvmKernel(module, "zeros")), np.zeros(1000))


def test_kernels_may_define_the_same_names_and_call_the_c_library() -> None:
    def of(factor: float) -> str:
        more = f"""@table = global float {factor:.6e}
        declare float @fabsf(float)
        define float @helper(float %x) {{
          %f = load float, ptr @table
          %a = call float @fabsf(float %x)
          %y = fmul float %a, %f
          ret float %y
        }}"""
        return loop("  %value = call float @helper(float %element)", more=more)

    text = """func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
      %0 = stablehlo.negate %x : tensor<1000xf32>
      %1 = stablehlo.sine %0 : tensor<1000xf32>
      return %1 : tensor<1000xf32>
    }"""
    plugin = Kernels(
        kernel(NEGATE, llvm(of(2.0)), "a"),
        kernel(OpPattern("stablehlo.sine"), llvm(of(4.0)), "b"),
    )
    with using(plugin):
        np.testing.assert_array_equal(hlojit.compile(text)(X), 8 * np.abs(X))


def test_results_of_several_element_types() -> None:
    for kind, dtype in (("f64", "f8"), ("i32", "i4"), ("ui8", "u1"), ("i1", "?")):
        text = program(kind).replace("negate", "not" if kind == "i1" else "negate")
        pattern = OpPattern("stablehlo.not") if kind == "i1" else NEGATE
        with using(Kernels(kernel(pattern, lambda group: ArrayFunction(np.copy, trust="python")))):
            x = (np.arange(1000) % 2).astype(dtype)
            np.testing.assert_array_equal(hlojit.compile(text)(x), x)


def test_empty_arrays_and_scalars() -> None:
    text = program(shape="0")
    with using(Kernels(kernel(NEGATE, llvm(times(2.0))))):
        assert hlojit.compile(text)(np.zeros(0, "f4")).shape == (0,)
    text = program().replace("1000x", "")
    with using(Kernels(kernel(NEGATE, llvm(times(2.0))))):
        assert hlojit.compile(text)(np.float32(3)) == 6


# -------------------------------------------------------------------------------------------------------------- errors

OTHER = "x86.sse42" if platform.machine() == "aarch64" else "aarch64"
"""Whose instructions this processor does not have."""

_WRONG: list[tuple[str, Callable[[KernelGroup], Any], str]] = [
    ("raises", lambda group: 1 // 0, "kernel 'nova.kernel' (plugin 'Kernels'): build raised ZeroDivisionError"),
    ("none", lambda group: None, "build returned None; on 'cpu' a kernel is one of ArrayFunction, TaskFunction, LlvmKernel, or"),
    ("function", lambda group: doubled, "wrap the function: ArrayFunction(function)"),
    ("text", lambda group: "define", "build returned 'define'"),
    ("syntax", llvm("define void @kernel( {"), "LLVM cannot parse its IR"),
    ("name", llvm(loop(symbol="other")), "there is no function @kernel in its IR; it defines @other"),
    ("signature", llvm("define void @kernel(ptr %a) {\n  ret void\n}"), "@kernel is of type void (ptr); a kernel is a function"),
    ("unknown", llvm(loop("  %value = call float @nobody(float %element)", more="declare float @nobody(float)")),
     "its IR declares @nobody, which is neither in the module nor in the C library"),
    ("verifier", llvm(loop("  %value = fadd float %value, 1.0")), "LLVM"),
    ("record", lambda group: LlvmKernel(""), "build: LlvmKernel: ir defines no function"),
    ("processor", llvm(loop("  %crc = call i32 @llvm.{}.crc32b(i32 1, i32 2)\n  %value = sitofp i32 %crc to float",
     more="declare i32 @llvm.{}.crc32b(i32, i32)").replace("{}", OTHER)), "its IR cannot be compiled for"),
    ("pair", lambda group: LlvmKernel(loop(), in_place=((1, 0),)), "in_place has the pair (1, 0), and there are 1 operands"),
    ("no tasks", lambda group: TaskFunction(doubled_of_tasks, tasks=0), "TaskFunction: tasks is 0, and tensor<1000xf32> has elements"),
    ("numba", lambda group: ArrayFunction(lambda x, r: r.nothing()), "numba cannot compile"),
    ("python", lambda group: ArrayFunction(lambda x, r: print(x, sep=[])), "numba cannot compile"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "expected"), [row[1:] for row in _WRONG], ids=[row[0] for row in _WRONG])
def test_wrong_answers_are_one_clear_error(build: Callable[[KernelGroup], Any], expected: str) -> None:
    with using(Kernels(kernel(NEGATE, build))), pytest.raises(hlojit.PluginError) as raised:
        hlojit.compile(hlojit.parse(program(), source_name="model.mlir"))
    message = str(raised.value)
    assert expected in message and message.startswith("kernel 'nova.kernel' (plugin 'Kernels'): "), message
    assert message.endswith("\n  at model.mlir:2:7") or "numba" in message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"backend": ""}, "kernel 'k': backend is ''; give the name of a back end"),
        ({"pattern": "stablehlo.add"}, "pattern is 'stablehlo.add', none of OpPattern, CompositePattern"),
        ({"pattern": OpPattern("")}, "OpPattern: op is '', which is no name"),
        ({"pattern": SubgraphPattern(3)}, "SubgraphPattern: match is 3, which is not a function"),  # type: ignore[arg-type]
        ({"build": None}, "build is None, which is not a function"),
        ({"priority": 1.5}, "priority is 1.5, which is not a whole number"),
        ({"cost": "cheap"}, "cost is 'cheap'; give nanoseconds, a function of the group, or None"),
        ({"cost": -1}, "cost is -1; give"),
    ],
)
def test_kernels_check_themselves(given: dict[str, Any], expected: str) -> None:
    sound: dict[str, Any] = {"backend": "cpu", "pattern": NEGATE, "build": declining("no")}
    with pytest.raises(hlojit.PluginError) as raised:
        Kernel("k", **{**sound, **given})
    assert expected in str(raised.value)


def test_forms_check_themselves() -> None:
    with pytest.raises(hlojit.PluginError, match="ir defines no function"):
        LlvmKernel("")
    with pytest.raises(hlojit.PluginError, match="LlvmKernel|KernelPhase: tasks is -1"):
        LlvmKernel(loop(), tasks=-1)
    with pytest.raises(hlojit.PluginError, match="TaskFunction: cost is 'x'"):
        TaskFunction(doubled_of_tasks, cost="x")  # type: ignore[arg-type]
    with pytest.raises(hlojit.PluginError, match="phases are KernelPhase"):
        LlvmKernel(loop(), phases=("kernel",))  # type: ignore[arg-type]


def test_wrong_matches_are_named() -> None:
    def raising(instruction: Instruction) -> Any:
        raise KeyError("lost")

    for match, expected in ((raising, "match raised KeyError"), (lambda each: [1], "match returned [1]; expected")):
        plugin = Kernels(kernel(SubgraphPattern(match), declining("no")))
        with using(plugin), pytest.raises(hlojit.PluginError) as raised:
            hlojit.compile(program())
        assert expected in str(raised.value) and "kernel 'nova.kernel' (plugin 'Kernels')" in str(raised.value)


def test_a_build_may_compile_its_group_without_kernels_and_not_with_itself() -> None:
    def build(group: KernelGroup) -> Any:
        options = {"disable_passes": ("kernel-selection",)}
        assert hlojit.compile(group.module, options=options)(X)[0] == 2
        return LlvmKernel(times(2.0), tasks=1000)

    np.testing.assert_array_equal(run(build), 2 * X)
    with (
        using(Kernels(kernel(NEGATE, lambda group: hlojit.compile(group.module)))),
        pytest.raises(
            hlojit.PluginError, match=r"build compiles a program for which the kernel is asked again; .*disable_p"
        ),
    ):
        hlojit.compile(program())


def test_a_build_that_never_ends_is_ended_and_named() -> None:
    def never(group: KernelGroup) -> Any:
        while True:
            pass

    with (
        using(Kernels(kernel(NEGATE, never))),
        pytest.raises(hlojit.PluginError, match=r"kernel 'nova.kernel' .*: build had not ended after 0.1 s"),
    ):
        hlojit.compile(program(), options={"pass_time_limit": 0.1})


@pytest.mark.parametrize("answer", [TaskFunction(past_the_end, tasks=1000), ArrayFunction(past_the_end_at_once)])
def test_what_fails_at_run_time_is_named(answer: Any) -> None:
    with using(Kernels(kernel(NEGATE, lambda group: answer))):
        executable = hlojit.compile(program())
    for _ in range(2):
        with pytest.raises(hlojit.ExecutionError) as raised:
            executable(X)
        assert "kernel 'nova.kernel' (plugin 'Kernels'): an index is out of range in past_the_end" in str(raised.value)


def test_what_python_raises_is_named_with_its_place_in_any_thread() -> None:
    def fail(x: Any) -> Any:
        raise ValueError("not today")

    with using(Kernels(kernel(NEGATE, lambda group: ArrayFunction(fail, trust="python")))):
        executable = hlojit.compile(hlojit.parse(program(), source_name="model.mlir"))
    messages: list[str] = []

    def work() -> None:
        with pytest.raises(hlojit.ExecutionError) as raised:
            executable(X)
        messages.append(str(raised.value))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work()
    assert len(messages) == 4
    for message in messages:
        assert (
            "kernel 'nova.kernel' (plugin 'Kernels')" in message
            and "not today" in message
            and "model.mlir:2" in message
        )


# ------------------------------------------------------------------------------------------------- identities and caches


def test_answers_of_one_name_and_other_code_are_other_kernels() -> None:
    for factor in (2.0, 3.0, 2.0):
        np.testing.assert_array_equal(run(llvm(times(factor))), np.float32(factor) * X)
    scale = 2.0

    def scaled(x: Any, result: Any) -> None:
        for i in range(x.size):
            result[i] = scale * x[i]

    np.testing.assert_array_equal(run(lambda group: ArrayFunction(scaled)), 2 * X)
    scale = 5.0
    np.testing.assert_array_equal(run(lambda group: ArrayFunction(scaled)), 5 * X)


def test_programs_with_kernels_can_be_saved_unless_they_are_of_this_process(tmp_path: Any) -> None:
    with using(Kernels(kernel(NEGATE, llvm(times(7.0))))):
        executable = hlojit.compile(program())
    executable.save(tmp_path / "program")
    np.testing.assert_array_equal(hlojit.load(tmp_path / "program")(X), 7 * X)
    with using(Kernels(kernel(NEGATE, lambda group: ArrayFunction(np.negative, trust="python")))):
        executable = hlojit.compile(program())
    with pytest.raises(
        hlojit.HlojitError, match=r"kernel 'nova.kernel' \(plugin 'Kernels'\), a function of this process"
    ):
        executable.save(tmp_path / "other")


def test_an_address_in_the_code_keeps_it_in_this_process(tmp_path: Any) -> None:
    value = ctypes.c_float(4.0)
    address = ctypes.addressof(value)
    body = f"""  %where = inttoptr i64 {address} to ptr
      %factor = load float, ptr %where
      %value = fmul float %element, %factor"""
    with using(Kernels(kernel(NEGATE, llvm(loop(body))))):
        executable = hlojit.compile(program())
    np.testing.assert_array_equal(executable(X), 4 * X)
    with pytest.raises(hlojit.HlojitError, match="has addresses of this process in it"):
        executable.save(tmp_path / "program")


def sum_of_squares(x, result):
    total = np.float32(0)
    for i in range(x.size):
        total = total + x[i] * x[i]
    result[()] = total


def test_fastmath_is_part_of_what_a_function_is() -> None:
    """The flags reach numba, and code of other flags is other code."""
    kinds = (tensor((2,), "f32"),), (tensor((), "f32"),)
    plain, fused = (
        compile_arrays(ArrayFunction(sum_of_squares, fastmath=flags), *kinds, "a kernel")[0]
        for flags in (False, ("contract",))
    )
    assert plain.symbol != fused.symbol and " contract " in fused.llvm_ir and " contract " not in plain.llvm_ir
    assert ArrayFunction(sum_of_squares, fastmath={"contract", "nsz"}).fastmath == ("nsz", "contract")
    assert "nnan" in TaskFunction(sum_of_squares, fastmath=True).array_function.fastmath


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fastmath": "contract"}, "fastmath is True, False or some of nnan"),
        ({"fastmath": ("contact",)}, "not \\('contact',\\)"),
        ({"fastmath": 3}, "not 3"),
        ({"fastmath": True, "trust": "python"}, "trust='python' has no fastmath="),
    ],
)
def test_fastmath_that_is_none_is_refused(given, message: str) -> None:
    with pytest.raises(hlojit.PluginError, match=message):
        ArrayFunction(sum_of_squares, **given)


def test_loops_over_memory_are_vectors_without_a_poll_and_others_poll() -> None:
    """What counts along arrays ends with them; a sum of numbers that nobody has stored may be as long as it likes."""

    def doubled(x, result):
        for i in range(x.size):
            result[i] = 2 * x[i]

    def counted(x, result):
        total = 0
        for i in range(int(x[0])):
            total ^= i * i
        result[0] = total

    kinds = (tensor((64,), "i64"),), (tensor((64,), "i64"),)
    for function, polls in ((doubled, False), (counted, True)):
        code = compile_arrays(ArrayFunction(function, bounds=False), *kinds, "a kernel")[0]
        bodies = re.findall(r"^vector\.body.*?:.*?^\S", code.llvm_ir, re.MULTILINE | re.DOTALL)
        assert bodies and all(("%hlojit." in body) == polls for body in bodies)
