"""Our text as LLVM 7's: what is translated how, and what is refused."""

from __future__ import annotations

import re

import pytest
from hlojit.cuda.assemblers.legacy import LegacyKernel, legacy_kernel
from hlojit.cuda.assemblers.legacy_values import Type, UnknownText, arguments, lanes_of, read_type

KERNEL = """
declare float @llvm.fabs.f32(float)
!91001 = !{{!"branch_weights", i32 1, i32 2000}}
define ptx_kernel void @kernel(ptr addrspace(1) %buffer0, ptr addrspace(1) %buffer1) nounwind "nvvm.reqntid"="128" {{
entry:

  %v1 = addrspacecast ptr addrspace(1) %buffer0 to ptr
{lines}
  ret void
}}
"""


def translated(*lines: str, before: str = "") -> LegacyKernel:
    return legacy_kernel(before + KERNEL.format(lines="\n".join(f"  {line}" for line in lines)), "kernel")


def body(*lines: str, before: str = "") -> list[str]:
    text = translated(*lines, before=before).text
    return [line.strip() for line in text.splitlines() if line.startswith("  ")][3:-1]


def test_a_kernel_is_a_function_of_addresses() -> None:
    made = translated()
    assert (made.symbol, made.parameters, made.threads) == ("kernel.body", 2, 128)
    assert made.text.splitlines() == [
        "define internal void @kernel.body(i64 %buffer0.a, i64 %buffer1.a) alwaysinline nounwind {",
        "entry:",
        "  %buffer0 = inttoptr i64 %buffer0.a to i8 addrspace(1)*",
        "  %buffer1 = inttoptr i64 %buffer1.a to i8 addrspace(1)*",
        "  %x1.l = addrspacecast i8 addrspace(1)* %buffer0 to i8*",
        "  ret void",
        "}",
    ]


def test_pointers_get_types() -> None:
    assert body("%v2 = getelementptr inbounds float, ptr %v1, i64 7", "%v3 = load float, ptr %v2, align 4") == [
        "%x2.l = bitcast i8* %x1.l to float*",
        "%x3.l = getelementptr inbounds float, float* %x2.l, i64 7",
        "%x4.l = bitcast float* %x3.l to i8*",
        "%x5.l = bitcast i8* %x4.l to float*",
        "%x6.l = load float, float* %x5.l, align 4",
    ]


@pytest.mark.parametrize(
    ("kind", "align", "accesses"),
    [
        ("<4 x float>", 16, ["<4 x float>"]),
        ("<4 x float>", 8, ["<2 x float>", "<2 x float>"]),
        ("<8 x float>", 32, ["<4 x float>", "<4 x float>"]),
        ("<16 x i8>", 16, ["<4 x i32>"]),
        ("<8 x i16>", 16, ["<4 x i32>"]),
        ("<8 x i8>", 4, ["i32", "i32"]),
        ("<2 x i8>", 2, ["i16"]),
        ("<2 x i8>", 1, ["i8", "i8"]),
        ("<2 x double>", 16, ["<2 x double>"]),
        ("<4 x i64>", 8, ["i64"] * 4),
    ],
)
def test_accesses_are_as_wide_as_their_alignment_allows(kind: str, align: int, accesses: list[str]) -> None:
    lines = body(f"%v2 = load {kind}, ptr %v1, align {align}", f"store {kind} %v2, ptr %v1, align {align}")
    assert [found[1] for line in lines if (found := re.search(r"= load (.*), \S+ ?\S* ?\S* %", line))] == accesses
    stored = [found[1] for line in lines if (found := re.match(r"store (<.*?>|\w+) ", line))]
    assert stored == accesses


def test_vectors_are_their_lanes() -> None:
    lines = body(
        "%v2 = load <2 x i32>, ptr %v1, align 8",
        "%v3 = shufflevector <2 x i32> %v2, <2 x i32> poison, <2 x i32> <i32 1, i32 0>",
        "%v4 = add <2 x i32> %v3, splat (i32 5)",
    )
    (first, second) = [line.split(" ")[0] for line in lines if "extractelement" in line]
    assert lines[-2:] == [f"%v4.0 = add i32 {second}, 5", f"%v4.1 = add i32 {first}, 5"]


def test_a_product_is_rounded_by_itself() -> None:
    assert body("%v2 = fmul float 0x3FF8000000000000, 0x3FF8000000000000") == [
        "%v2 = call float @llvm.nvvm.mul.rn.f(float 0x3FF8000000000000, float 0x3FF8000000000000)"
    ]


def test_signs_are_bits() -> None:
    lines = body("%v2 = load float, ptr %v1, align 4", "%v3 = fneg float %v2")
    assert lines[-2].endswith("= xor i32 %x4.l, -2147483648") and lines[-1].endswith("bitcast i32 %x5.l to float")


def test_a_loop_sees_values_that_come_later() -> None:
    text = KERNEL.format(
        lines="""  br label %loop1
loop1:
  %loop1.i = phi i64 [ 0, %entry ], [ %v2, %loop1 ]
  %v2 = add nsw i64 %loop1.i, 4
  %v3 = icmp slt i64 %v2, 64
  br i1 %v3, label %loop1, label %loop1.end
loop1.end:"""
    )
    assert "  %loop1.i = phi i64 [ 0, %entry ], [ %v2, %loop1 ]\n" in legacy_kernel(text, "kernel").text


def test_a_guarded_access_moves_the_edges_of_later_joins() -> None:
    text = KERNEL.format(
        lines="""  %v2 = load i8, ptr %v1, align 1
  %v3 = icmp ne i8 %v2, 0
  %v4 = insertelement <2 x i1> poison, i1 %v3, i64 0
  %v5 = insertelement <2 x i1> %v4, i1 true, i64 1
  %v6 = getelementptr float, ptr %v1, <2 x i64> <i64 1, i64 2>
  %v7 = call <2 x float> @llvm.masked.gather.v2f32.v2p0(<2 x ptr> align 4 %v6, <2 x i1> %v5, <2 x float> zeroinitializer)
  br label %after
after:
  %v8 = phi <2 x float> [ %v7, %entry ]"""
    )
    made = legacy_kernel(text, "kernel").text
    (label,) = re.findall(r"^(l\d+\.l):\n  %\S+ = phi float", made, re.MULTILINE)
    assert len(re.findall(rf"%v8\.\d = phi float \[ %\S+, %{re.escape(label)} \]", made)) == 2


def test_constants_get_names_of_their_kernel() -> None:
    table = "@.table.0 = private unnamed_addr constant [2 x float] [float 1.0, float 2.0], align 64\n"
    text = translated("%v2 = getelementptr inbounds float, ptr @.table.0, i64 1", before=table).text
    assert text.startswith(
        "@kernel_constant_0 = internal addrspace(1) constant [2 x float] [float 1.0, float 2.0], align 64\n"
    )
    assert "bitcast i8* addrspacecast ([2 x float] addrspace(1)* @kernel_constant_0 to i8*) to float*" in text


@pytest.mark.parametrize(
    "line",
    [
        "%v2 = freeze i32 5",
        "%v2 = frem float 0x0, 0x0",
        "%v2 = call float @llvm.exp.f32(float 0x0)",
        "%v2 = call float @llvm.maxnum.f32(float 0x0, float 0x0)",
        "%v2 = call i32 @abs(i32 5)",
        "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 1)",
        "%v2 = atomicrmw fmax ptr %v1, float 0x0 monotonic",
        "%v2 = load bfloat, ptr %v1, align 2",
        "%v2 = add i32 %unknown, 1",
        "%v2 = bitcast <2 x i32> zeroinitializer to i128",
        "switch i32 5, label %a [ i32 1, label %b ]",
        "nonsense",
    ],
)
def test_what_has_no_form_is_an_error(line: str) -> None:
    with pytest.raises(UnknownText, match="cannot write"):
        translated(line)


def test_other_text_of_a_module_is_an_error() -> None:
    with pytest.raises(UnknownText, match="@x = global i32 5"):
        translated(before="@x = global i32 5\n")


def test_types_and_lists_are_read() -> None:
    assert read_type("<4 x float> %v1, %v2") == (Type("float", 4), "%v1, %v2")
    assert read_type("ptr addrspace(3) @x") == (Type("ptr", 1, 3), "@x")
    assert read_type("<2 x ptr> align 4 %v6") == (Type("ptr", 2), "%v6")
    assert arguments("i32 -1, <2 x i32> <i32 1, i32 2>, [2 x i8] %x") == [
        "i32 -1",
        "<2 x i32> <i32 1, i32 2>",
        "[2 x i8] %x",
    ]
    assert lanes_of(Type("i32", 2), "<i32 poison, i32 3>") == ["undef", "3"]
    assert lanes_of(Type("float", 2), "zeroinitializer") == ["0.0", "0.0"]
