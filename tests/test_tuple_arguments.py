"""Programs that take and return tuples: nested Python tuples of arrays, on every back end, saved, kept and started alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.command import main
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.interpreter import evaluate
from hlojit.nested_executable import NestedExecutable

F, N = "tensor<2xf32>", "tensor<3xi32>"
GIVEN, MADE = f"tuple<{F}, tuple<{N}, tuple<>>>", f"tuple<{N}, tuple<{F}>>"
PROGRAM = f"""
func.func public @main(%t: {GIVEN}, %x: {F}) -> ({MADE}, {F}, tuple<>) {{
  %f = stablehlo.get_tuple_element %t[0] : ({GIVEN}) -> {F}
  %s = stablehlo.get_tuple_element %t[1] : ({GIVEN}) -> tuple<{N}, tuple<>>
  %n = stablehlo.get_tuple_element %s[0] : (tuple<{N}, tuple<>>) -> {N}
  %e = stablehlo.get_tuple_element %s[1] : (tuple<{N}, tuple<>>) -> tuple<>
  %g = stablehlo.add %f, %x : {F}
  %m = stablehlo.negate %n : {N}
  %u = stablehlo.tuple %g : tuple<{F}>
  %r = stablehlo.tuple %m, %u : {MADE}
  return %r, %x, %e : {MADE}, {F}, tuple<>
}}"""
PAIR = f"tuple<{F}, {N}>"
SAME = f"func.func @main(%t: {PAIR}) -> {PAIR} {{ return %t : {PAIR} }}"
A, B, X = np.float32([1, 2]), np.int32([3, 4, 5]), np.float32([10, 20])


def check(results: Any) -> None:
    (m, (g,)), x, nothing = results
    assert np.asarray(m).tolist() == [-3, -4, -5] and np.asarray(g).tolist() == [11, 22]
    assert np.asarray(x).tolist() == [10, 20] and nothing == ()
    assert [type(each) for each in (results, results[0], results[0][1])] == [tuple] * 3


@pytest.fixture(params=["cpu", "cuda", "reference"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    name: str = request.param
    return name


def test_they_are_python_tuples(backend: str) -> None:
    executable = hlojit.compile(PROGRAM, backend=backend)
    check(executable((A, (B, ())), X))
    check(executable([A, [B, ()]], X))
    check(executable.call((A, (B, ())), X))
    assert [str(type) for type in executable.input_types] == [GIVEN, F]
    assert [str(type) for type in executable.output_types] == [MADE, F, "tuple<>"]
    assert repr(executable) == f"<NestedExecutable main: ({GIVEN}, {F}) -> ({MADE}, {F}, tuple<>)>"


def test_one_tuple_is_the_result(backend: str) -> None:
    f, n = hlojit.compile(SAME, backend=backend)((A, B))
    assert f.tolist() == [1, 2] and n.tolist() == [3, 4, 5]
    (only,) = hlojit.compile(SAME.replace(f", {N}", ""), backend=backend)((A,))
    assert only.tolist() == [1, 2]


def test_the_interpreter_takes_them() -> None:
    check(evaluate(hlojit.parse(PROGRAM), (A, (B, ())), X))
    with pytest.raises(
        ArgumentError, match=r"element 1 of argument 0 of @main is no tuple of 2 for tuple<tensor<3xi32>"
    ):
        evaluate(hlojit.parse(PROGRAM), (A, B), X)


def test_tokens_in_them_are_no_values(backend: str) -> None:
    text = SAME.replace(PAIR, f"tuple<{F}, !stablehlo.token, {N}>")
    f, n = hlojit.compile(text, backend=backend)((A, B))
    assert f.tolist() == [1, 2] and n.tolist() == [3, 4, 5]


def test_what_is_nested_otherwise_is_named(backend: str) -> None:
    executable = hlojit.compile(PROGRAM, backend=backend)
    for arguments, message in (
        (((A, (B, ())),), rf"main takes 2 arguments, not 1: \({GIVEN}, {F}\)"),
        ((A, X), rf"argument 0: expected a tuple of 2 for {GIVEN}, got an array of shape \(2,\)"),
        (((A, B, ()), X), r"argument 0: expected a tuple of 2 .*, got a tuple of 3"),
        (((A, B), X), r"argument 0\[1\]: expected a tuple of 2 for tuple<tensor<3xi32>, tuple<>>, got an array"),
        (((A, (B, 5)), X), r"argument 0\[1\]\[1\]: expected a tuple of 0 for tuple<>, got an object of type int"),
        (((A, (A, ())), X), r"argument 0\[1\]\[0\]: expected tensor<3xi32>"),
        (((A, (B, ())), B), r"argument 1: expected tensor<2xf32>"),
    ):
        with pytest.raises(ArgumentError, match=message):
            executable(*arguments)
    with pytest.raises(ArgumentError, match="by position"):
        executable(t=(A, (B, ())), x=X)


def test_started_without_waiting(backend: str) -> None:
    executable = hlojit.compile(PROGRAM, backend=backend)
    results = executable.execute((A, (B, ())), X)
    check(results)
    assert results[0][0].device is not None
    check(executable((hlojit.put(A, str(executable.devices[0])), (B, ())), X))


def test_saved_and_kept(tmp_path: Path) -> None:
    for _ in range(2):  # the second time from the cache on disk
        executable = hlojit.compile(PROGRAM)
        check(executable((A, (B, ())), X))
    executable.save(tmp_path / "program")
    loaded = hlojit.load(tmp_path / "program")
    check(loaded((A, (B, ())), X))
    assert repr(loaded) == repr(executable)
    loaded.save(tmp_path / "again")
    check(hlojit.load(tmp_path / "again")((A, (B, ())), X))


def test_several_processes(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CPU_DEVICES", "2")
    monkeypatch.setenv("HLOJIT_CUDA", "simulator devices=2")
    from .collectives.conftest import make_devices

    make_devices(backend, monkeypatch)
    text = PROGRAM.replace(
        f"stablehlo.negate %n : {N}",
        '"stablehlo.all_reduce"(%n) ({ ^bb0(%a: tensor<i32>, %b: tensor<i32>): %c = stablehlo.add %a, %b : tensor<i32>\n'
        f"stablehlo.return %c : tensor<i32> }}) {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}} : ({N}) -> {N}",
    )
    executable = hlojit.compile(text, backend=backend, num_replicas=2)
    rows = executable([[(A, (B, ())), X], [(A + 1, (B * 2, ())), X]])
    assert [row[0][0].tolist() for row in rows] == [[9, 12, 15]] * 2
    assert [row[0][1][0].tolist() for row in rows] == [[11, 22], [12, 23]]
    with pytest.raises(ArgumentError, match=r"argument 0\[1\]: expected a tuple of 2"):
        executable([[(A, (B, ())), X], [(A, B), X]])
    with pytest.raises(ArgumentError, match="pass a list of 2 lists"):
        executable([[(A, (B, ())), X]])


@pytest.mark.parametrize("mode", ["specialize", "symbolic"])
def test_open_sizes(mode: str) -> None:
    text = PROGRAM.replace("2xf32", "?xf32")
    executable = hlojit.compile(text, options={"dynamic_shapes": mode})
    check(executable((A, (B, ())), X))
    assert executable.dynamic_shapes == mode
    (_, (g,)), _, _ = executable((np.ones(7, "f4"), (B, ())), np.ones(7, "f4"))
    assert g.tolist() == [2] * 7
    with pytest.raises(ArgumentError, match=r"2 \(argument 0\[0\], dimension 0\) and 3 \(argument 1, dimension 0\)"):
        executable((A, (B, ())), np.ones(3, "f4"))
    assert isinstance(executable.specialized((A, (B, ())), X), NestedExecutable)


def test_sizes_that_the_run_tells(tmp_path: Path) -> None:
    bounded = "tensor<?xf32, #stablehlo.bounds<2>>"
    executable = hlojit.compile(f"""
    func.func @main(%t: tuple<{F}, tensor<i32>>) -> tuple<{bounded}, {F}> {{
      %x = stablehlo.get_tuple_element %t[0] : (tuple<{F}, tensor<i32>>) -> {F}
      %n = stablehlo.get_tuple_element %t[1] : (tuple<{F}, tensor<i32>>) -> tensor<i32>
      %0 = stablehlo.set_dimension_size %x, %n, dim = 0 : ({F}, tensor<i32>) -> {bounded}
      %1 = stablehlo.tuple %0, %x : tuple<{bounded}, {F}>
      return %1 : tuple<{bounded}, {F}>
    }}""")
    executable.save(tmp_path / "program")
    for each in (executable, hlojit.load(tmp_path / "program")):
        part, whole = each((A, np.int32(1)))
        assert part.tolist() == [1] and whole.tolist() == [1, 2]


@pytest.mark.parametrize("attribute", ["jax.buffer_donor = true", "tf.aliasing_output = 0 : i32"])
def test_elements_are_donated(attribute: str) -> None:
    text = SAME.replace(f"%t: {PAIR}", f"%t: {PAIR} {{{attribute}}}")
    text = text.replace(
        "return",
        f"%f = stablehlo.get_tuple_element %t[0] : ({PAIR}) -> {F}\n%n = stablehlo.get_tuple_element %t[1] : ({PAIR}) -> {N}\n"
        f"%g = stablehlo.negate %f : {F}\n%m = stablehlo.negate %n : {N}\n%u = stablehlo.tuple %g, %m : {PAIR}\nreturn",
    ).replace("return %t", "return %u")
    executable = hlojit.compile(text)
    assert executable.spec.donated == ((0, 0), (1, 1))
    f, n = A.copy(), B.copy()
    g, m = executable((f, n))
    assert g.tolist() == [-1, -2] and m.tolist() == [-3, -4, -5]
    assert g.ctypes.data == f.ctypes.data and m.ctypes.data == n.ctypes.data


def test_donation_by_number() -> None:
    executable = hlojit.compile(PROGRAM, donate=[0])
    assert [number for number, _ in executable.spec.donated] == [0, 1]


@pytest.mark.parametrize(
    ("output", "message"),
    [(3, "has 1 results"), (0, r"the result is tuple<tensor<2xf32>, tensor<3xi32>> and the argument tensor<2xf32>")],
)
def test_elements_that_are_no_output(output: int, message: str) -> None:
    text = SAME.replace("@main(", f"@main(%x: {F} {{tf.aliasing_output = {output} : i32}}, ")
    with pytest.raises(HlojitError, match=message):
        hlojit.compile(text)


def test_the_command_takes_their_elements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.mlir"
    program.write_text(PROGRAM)
    for name, array in (("a", A), ("b", B), ("x", X)):
        np.save(tmp_path / f"{name}.npy", array)
    assert main(["run", str(program), "--input", *(str(tmp_path / f"{name}.npy") for name in "abx")]) == 0
    printed = capsys.readouterr().out
    assert "result 0[0]: tensor<3xi32>\n[-3 -4 -5]" in printed
    assert "result 0[1][0]: tensor<2xf32>\n[11. 22.]" in printed and "result 1: tensor<2xf32>\n[10. 20.]" in printed
