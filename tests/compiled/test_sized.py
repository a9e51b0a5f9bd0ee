"""Programs that are compiled once for all sizes, saved and loaded again, here and in other processes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit import compiled as files
from hlojit.ir.errors import HlojitError
from hlojit.ir.size_checks import Check, SizeRange
from hlojit.ir.sizes import SizeExpression, extent

from ..collectives.conftest import make_devices

SYMBOLIC = {"dynamic_shapes": "symbolic"}
TEXT = """
func.func @main(%x: tensor<?x3xf32>, %y: tensor<?x3xf32>, %n: tensor<i32>) -> tensor<?x3xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %c = stablehlo.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
  %d = stablehlo.reshape %c : (tensor<1x3xf32>) -> tensor<3xf32>
  %z = stablehlo.multiply %y, %y : tensor<?x3xf32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<?x3xf32>
    cond { %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1> }
    do { %j = stablehlo.add %i, %one : tensor<i32>
      %u = stablehlo.reshape %c : (tensor<1x3xf32>) -> tensor<1x3xf32>
      %b = stablehlo.add %a, %z : tensor<?x3xf32>
      %e = stablehlo.dynamic_update_slice %b, %u, %i, %zero : (tensor<?x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<?x3xf32>
      stablehlo.return %j, %e : tensor<i32>, tensor<?x3xf32> }
  return %r#1 : tensor<?x3xf32>
}
"""
WRAPS = """
func.func @main(%n: tensor<i32>, %x: tensor<?xi32>) -> tensor<?xi32> {
  %c = stablehlo.constant dense<1000000> : tensor<i32>
  %0 = stablehlo.multiply %n, %c : tensor<i32>
  %1 = stablehlo.divide %0, %c : tensor<i32>
  %shape = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %2 = stablehlo.dynamic_broadcast_in_dim %1, %shape, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
  return %2 : tensor<?xi32>
}
"""


def expected(rows: int, rounds: int) -> Any:
    a, z = np.ones((rows, 3), "f4"), np.full((rows, 3), 4, "f4")
    for number in range(rounds):
        a = a + z
        a[min(number, rows - 1)] = [1, 2, 3]
    return a


def call(executable: Any, rows: int, rounds: int) -> Any:
    return executable(np.ones((rows, 3), "f4"), np.full((rows, 3), 2, "f4"), np.int32(rounds))


def compile_symbolic(text: str = TEXT) -> Any:
    made = hlojit.compile(text, options=SYMBOLIC)
    assert made.dynamic_shapes == "symbolic", made.why
    return made


def saved(tmp_path: Path, text: str = TEXT) -> Path:
    path = tmp_path / "program"
    compile_symbolic(text).save(path)
    return path


def test_what_is_loaded_takes_all_sizes(tmp_path: Path) -> None:
    loaded = hlojit.load(saved(tmp_path))
    assert loaded.dynamic_shapes == "symbolic"
    for rows, rounds in ((4, 2), (1, 3), (700, 5)):
        np.testing.assert_array_equal(call(loaded, rows, rounds), expected(rows, rounds))
    with pytest.raises(hlojit.ArgumentError, match=r"argument 1, dimension 0\)? .*must be equal|must be equal"):
        loaded(np.ones((3, 3), "f4"), np.ones((4, 3), "f4"), np.int32(1))
    with pytest.raises(hlojit.ArgumentError, match="dimension 1 is 4, not 3"):
        loaded(np.ones((3, 4), "f4"), np.ones((3, 4), "f4"), np.int32(1))
    loaded.save(tmp_path / "again")
    np.testing.assert_array_equal(call(hlojit.load(tmp_path / "again"), 2, 1), expected(2, 1))


def test_in_another_process(tmp_path: Path) -> None:
    path = saved(tmp_path)
    lines = (
        "import hlojit, numpy as np",
        f"loaded = hlojit.load({str(path)!r})",
        "print(loaded(np.ones((2, 3), 'f4'), np.full((2, 3), 2, 'f4'), np.int32(2)).tolist())",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(expected(2, 2).tolist())


def test_calls_that_the_code_is_not_right_for_are_compiled_from_the_text(tmp_path: Path) -> None:
    loaded = hlojit.load(saved(tmp_path, WRAPS))
    x = np.zeros(1, np.int32)
    assert loaded(np.int32(2), x).tolist() == [2, 2] and not loaded.exceptions
    assert set(loaded(np.int32(3000), x)) == {-1294}
    assert "the size 3000000000, (input0.flat[0] * 1000000), does not fit its type" in loaded.exceptions[(), (1,)]


def test_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.replace("multiply", "add")
    first = call(compile_symbolic(text), 3, 2)
    monkeypatch.setattr("hlojit.compiler.parse", None)
    np.testing.assert_array_equal(call(compile_symbolic(text), 3, 2), first)


def test_tuples(tmp_path: Path) -> None:
    pair = "tuple<tensor<?xf32>, tensor<?xf32>>"
    text = f"""
    func.func @main(%t: {pair}) -> tuple<tensor<?xf32>> {{
      %a = stablehlo.get_tuple_element %t[0] : ({pair}) -> tensor<?xf32>
      %b = stablehlo.get_tuple_element %t[1] : ({pair}) -> tensor<?xf32>
      %c = stablehlo.add %a, %b : tensor<?xf32>
      %r = stablehlo.tuple %c : tuple<tensor<?xf32>>
      return %r : tuple<tensor<?xf32>>
    }}"""
    loaded = hlojit.load(saved(tmp_path, text))
    (found,) = loaded((np.ones(3, "f4"), np.ones(3, "f4")))
    assert found.tolist() == [2, 2, 2]


def broken(sized: Any) -> list[Any]:
    wrong = extent(7, 0)
    check = Check(wrong, "no")
    return [
        dataclasses.replace(sized, table=(*sized.table, wrong)),
        dataclasses.replace(sized, table=(SizeExpression("extent", (0, 9)),)),
        dataclasses.replace(sized, table=(SizeExpression("element", (0, 0)),)),
        dataclasses.replace(sized, table=(SizeExpression("nothing", (1, 2)),)),
        dataclasses.replace(sized, table=(SizeExpression("select", (1, 2)),)),
        dataclasses.replace(sized, table=("3",)),
        dataclasses.replace(sized, arena_bytes=1.5),
        dataclasses.replace(sized, results=()),
        dataclasses.replace(sized, source=3),
        dataclasses.replace(sized, size_arguments=(17,)),
        dataclasses.replace(sized, stated=dataclasses.replace(sized.stated, checks=(check,))),
        dataclasses.replace(sized, needs=dataclasses.replace(sized.needs, assumptions=(check,))),
        dataclasses.replace(sized, needs=dataclasses.replace(sized.needs, ranges=(SizeRange(1, "low", "2", ""),))),
    ]


def test_what_contradicts_itself_is_refused() -> None:
    compiled = compile_symbolic().compiled_program()
    assert files.decode(files.encode(compiled)).sized == compiled.sized
    for sized in broken(compiled.sized):
        data = files.encode(dataclasses.replace(compiled, sized=sized))
        with pytest.raises(HlojitError, match="does not hold a compiled program|cannot be"):
            files.decode(data)
    data = bytearray(files.encode(compiled))
    data[len(data) // 2] ^= 1
    with pytest.raises(HlojitError, match="damaged"):
        files.decode(bytes(data))


def test_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_devices("cpu", monkeypatch, 2)
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %0 = stablehlo.negate %x : tensor<?xf32>
      return %0 : tensor<?xf32>
    }"""
    made = hlojit.compile(text, num_replicas=2, options=SYMBOLIC)
    made.save(tmp_path / "program")
    for each in (made, hlojit.load(tmp_path / "program")):
        assert each.dynamic_shapes == "symbolic"
        for size in (1, 4):
            rows = each([[np.ones(size, "f4")], [np.full(size, 2, "f4")]])
            assert [row[0].tolist() for row in rows] == [[-1] * size, [-2] * size]
