"""What LLVM calls where a processor has no instruction between half and wider numbers, against NumPy."""

from __future__ import annotations

import ctypes
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.cpu.processor import host_target
from hlojit.machine_code.loading import compile_to_object, load_objects
from hlojit.runtime.native import native


def converter(function: str, source: str, target: str) -> Any:
    """A C function that converts elements of one array into another by one of the runtime's functions."""
    text = f"""
    declare {target} @{function}({source})
    define void @convert(ptr %from, ptr %to, i64 %count) {{
    entry:
      br label %loop
    loop:
      %n = phi i64 [0, %entry], [%next, %loop]
      %source = getelementptr {source}, ptr %from, i64 %n
      %x = load {source}, ptr %source
      %y = call {target} @{function}({source} %x)
      %target = getelementptr {target}, ptr %to, i64 %n
      store {target} %y, ptr %target
      %next = add i64 %n, 1
      %more = icmp ult i64 %next, %count
      br i1 %more, label %loop, label %done
    done:
      ret void
    }}"""
    image = compile_to_object(text, host_target(), pipeline="plain")
    code = load_objects([image], ["convert"], native().symbols())
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code.address("convert"))

    def convert(values: Any, dtype: str) -> Any:
        found = np.empty(values.shape, dtype)
        call(values.ctypes.data, found.ctypes.data, values.size)
        assert code is not None
        return found

    return convert


def halves() -> Any:
    return np.arange(1 << 16, dtype="u2").view("f2")


def neighbours(dtype: str) -> Any:
    """All numbers of half, those in the middle between two, and what lies right beside both."""
    exact = np.sort(halves()[np.isfinite(halves())].astype(dtype))
    middles = (exact[1:] + exact[:-1]) / 2
    numbers = np.concatenate([exact, middles, np.array([65519, 65520, 65521, 1e30, 1e-30, np.inf, np.nan], dtype)])
    sides = [numbers, np.nextafter(numbers, np.inf), np.nextafter(numbers, -np.inf)]
    return np.concatenate([*sides, *(-side for side in sides)]).astype(dtype)


def assert_same(found: Any, expected: Any) -> None:
    same = (
        found.view("u2" if found.itemsize == 2 else "u4") == expected.view("u2" if found.itemsize == 2 else "u4")
    ) | (np.isnan(found) & np.isnan(expected))
    assert same.all()


@pytest.mark.parametrize(
    ("function", "source", "dtype"), [("__truncsfhf2", "float", "f4"), ("__truncdfhf2", "double", "f8")]
)
def test_narrowed(function: str, source: str, dtype: str) -> None:
    numbers = neighbours(dtype)
    with np.errstate(over="ignore"):
        assert_same(converter(function, source, "half")(numbers, "f2"), numbers.astype("f2"))


def test_widened() -> None:
    assert_same(converter("__extendhfsf2", "half", "float")(halves(), "f4"), halves().astype("f4"))


@pytest.mark.parametrize("element", ["i4", "i8", "i32", "i64", "ui8"])
def test_the_remainder_of_a_converted_integer(element: str) -> None:
    text = f"""
    func.func @main(%a: tensor<{element}>, %b: tensor<f16>) -> tensor<f16> {{
      %0 = stablehlo.convert %a : (tensor<{element}>) -> tensor<f16>
      %1 = stablehlo.remainder %0, %b : tensor<f16>
      return %1 : tensor<f16>
    }}"""
    program = hlojit.compile(text)
    dtype = program.spec.inputs[0].element_type.dtype
    for a, b in ((7, 4.0), (-5 if element[0] == "i" else 5, 3.0), (6, -2.5)):
        assert program(np.array(a, dtype), np.float16(b)) == np.fmod(np.float16(a), np.float16(b))
