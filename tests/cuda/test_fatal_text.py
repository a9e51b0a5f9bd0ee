"""Text that would end the process it is compiled in: refused by name, or compiled in another process."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import hlojit
import pytest
from hlojit.cuda.assemblers.choice import NAMES, assembler
from hlojit.cuda.nvptx import SM_90, NvptxDialect
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.machine_code.worker_process import compile_apart
from hlojit.simt.intrinsics import EXACT, check_intrinsics, stem_of

KERNEL = """
declare {result} @{symbol}({result})
define ptx_kernel void @kernel(ptr addrspace(1) %buffer0) nounwind "nvvm.reqntid"="1" {{
entry:
  %v1 = addrspacecast ptr addrspace(1) %buffer0 to ptr
  %v2 = load {result}, ptr %v1, align 8
  %v3 = call {result} @{symbol}({result} %v2)
  store {result} %v3, ptr %v1, align 8
  ret void
}}
"""


def kernel(symbol: str, result: str = "float") -> KernelCode:
    return KernelCode(KERNEL.format(symbol=symbol, result=result), (Phase("kernel", 1, 1.0, 1),))


FATAL = ["llvm.exp.f32", "llvm.log.f32", "llvm.sin.f32", "llvm.pow.f32", "llvm.tan.f32"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("symbol", FATAL)
def test_what_ends_the_process_is_refused_by_name(name: str, symbol: str) -> None:
    with pytest.raises(
        hlojit.HlojitError, match=rf"kernel kernel calls {symbol}, for which there is no code on sm_90a"
    ):
        assembler(name).ptx(kernel(symbol), SM_90)


@pytest.mark.parametrize("name", NAMES)
def test_what_nobody_defines_is_refused_by_name(name: str) -> None:
    with pytest.raises(hlojit.HlojitError, match="kernel kernel calls expf, which nobody defines for sm_90a"):
        assembler(name).ptx(kernel("expf"), SM_90)


@pytest.mark.parametrize("symbol", ["llvm.exp.f32", "llvm.sin.f32"])
def test_it_does_end_the_process(symbol: str) -> None:
    """Otherwise none of this would be needed."""
    script = (
        "import sys; from hlojit.machine_code.object_code import compile_to_object; from hlojit.cuda.nvptx import SM_90; "
        "compile_to_object(sys.stdin.read(), SM_90, pipeline='threads')"
    )
    text = kernel(symbol).ir
    done = subprocess.run([sys.executable, "-c", script], input=text, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "Traceback" not in done.stderr


def foreign(symbol: str) -> KernelCode:
    """A kernel that calls a plugin's function, which calls an intrinsic."""
    theirs = f"""
declare float @{symbol}(float)
define float @theirs(float %x) alwaysinline {{
  %y = call float @{symbol}(float %x)
  ret float %y
}}"""
    return replace(kernel("theirs"), linked=(("theirs", theirs),))


@pytest.mark.parametrize("symbol", ["llvm.exp.f32", "llvm.sin.f32"])
def test_foreign_text_ends_a_process_of_its_own(symbol: str) -> None:
    with pytest.raises(
        hlojit.HlojitError, match="kernel kernel, which calls theirs, cannot be compiled for sm_90a: LLVM ended"
    ):
        assembler("llvm").ptx(foreign(symbol), SM_90)


def test_foreign_text_that_is_sound_becomes_part_of_the_kernel() -> None:
    ptx = assembler("llvm").ptx(foreign("llvm.sqrt.f32"), SM_90)
    assert "sqrt.rn.f32" in ptx and "call" not in ptx


def test_foreign_text_that_llvm_refuses_is_an_error() -> None:
    code = replace(kernel("theirs"), linked=(("theirs", "define float @theirs(float %x) { nonsense }"),))
    with pytest.raises(hlojit.HlojitError, match="which calls theirs, cannot be compiled for sm_90a: .*nonsense"):
        assembler("llvm").ptx(code, SM_90)


def test_numba_leaves_foreign_text_to_llvm() -> None:
    code = foreign("llvm.sqrt.f32")
    assert assembler("numba").ptx(code, SM_90) == assembler("llvm").ptx(code, SM_90)


def test_a_call_of_a_function_that_foreign_text_leaves_open_is_found_afterwards() -> None:
    with pytest.raises(hlojit.HlojitError, match="kernel kernel calls expf, which nobody defines for sm_90a"):
        assembler("llvm").ptx(foreign("expf"), SM_90)


def test_a_process_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlojit.machine_code.worker_process.PATIENCE", 0.0)
    with pytest.raises(
        hlojit.HlojitError, match="x cannot be compiled for sm_90a: LLVM ended its process, or took too long"
    ):
        compile_apart("", SM_90, pipeline="threads", linked=(), what="x")


@pytest.mark.parametrize(
    ("symbol", "stem"),
    [
        ("llvm.fptosi.sat.i8.f32", "fptosi.sat"),
        ("llvm.masked.gather.v4f32.v4p0", "masked.gather"),
        ("llvm.ctlz.i32", "ctlz"),
        ("llvm.nvvm.shfl.sync.bfly.i32", "nvvm.shfl.sync.bfly"),
        ("llvm.fma.v4f64", "fma"),
    ],
)
def test_stems(symbol: str, stem: str) -> None:
    assert stem_of(symbol) == stem


FLOAT = dict.fromkeys("fabs sqrt floor ceil trunc roundeven rint nearbyint round".split(), 1)
FLOAT |= dict.fromkeys("copysign maxnum minnum maximum minimum".split(), 2) | {"fma": 3}
INTEGER = dict.fromkeys("ctpop bitreverse".split(), 1) | dict.fromkeys("fshl fshr".split(), 3)
INTEGER |= dict.fromkeys("smax smin umax umin uadd.sat usub.sat sadd.sat ssub.sat".split(), 2)


def _calls() -> str:
    """A kernel that calls all that is allowed, in every type."""
    lines, declarations = [], []
    for kinds, table in (
        ({"float": "f32", "double": "f64"}, FLOAT),
        ({f"i{n}": f"i{n}" for n in (8, 16, 32, 64)}, INTEGER),
    ):
        for kind, suffix in kinds.items():
            for name, count in table.items():
                symbol = f"llvm.{name}.{suffix}"
                declarations.append(f"declare {kind} @{symbol}({', '.join([kind] * count)})")
                number = len(lines)
                passed = ", ".join([f"{kind} %x{number}"] * count)
                lines.append(
                    f"  %x{number} = load volatile {kind}, ptr %v1\n  %y{number} = call {kind} @{symbol}({passed})\n"
                    f"  store volatile {kind} %y{number}, ptr %v1"
                )
    head, rest = KERNEL.format(symbol="llvm.sqrt.f32", result="float").split("  %v2 = ")
    tail = rest[rest.index("  ret void") :]
    declarations.remove("declare float @llvm.sqrt.f32(float)")
    return "\n".join([*declarations, head, *lines, tail])


def test_everything_that_is_allowed_has_code() -> None:
    code = KernelCode(_calls(), (Phase("kernel", 1, 1.0, 1),))
    check_intrinsics(code, NvptxDialect(), "sm_90a")
    image = compile_apart(code.ir, SM_90, pipeline="threads", linked=(), what="the kernel").decode()
    assert ".extern" not in image and "call" not in image
    others = {"ctlz", "cttz", "abs", "bswap", "assume", "expect", "lifetime.start", "lifetime.end"}
    assert {*FLOAT, *INTEGER} | others | {name for name in EXACT if name.startswith(("fpto", "masked"))} == EXACT
