"""Programs that leave sizes open: compiled for the shapes that they are called with."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.command import main as command
from hlojit.extensions import hookimpl, using
from hlojit.ir.ops.definition import OpDefinition, Operand, Pointwise

BACKENDS = ("cpu", "reference")

SCALED = """
func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %two = stablehlo.constant dense<2.0> : tensor<f32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %rows = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %columns = stablehlo.constant dense<4> : tensor<1xi32>
  %shape = stablehlo.concatenate %rows, %columns, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %twos = stablehlo.dynamic_broadcast_in_dim %two, %shape, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x4xf32>
  %0 = stablehlo.multiply %x, %twos : tensor<?x4xf32>
  %1 = stablehlo.add %0, %y : tensor<?x4xf32>
  return %1 : tensor<?x4xf32>
}
"""

COUNTED = """
func.func @main(%n: tensor<i64>, %x: tensor<?xf32>) -> tensor<?xf32> {
  %shape = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
  %0 = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>
  %1 = stablehlo.add %0, %x : tensor<?xf32>
  return %1 : tensor<?xf32>
}
"""


def f32(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [0, 1, 3, 64])
def test_a_program_runs_with_any_number_of_rows(rows: int, backend: str) -> None:
    x, y = f32(rows, 4), f32(rows, 4) + 1
    np.testing.assert_array_equal(hlojit.compile(SCALED, backend=backend)(x, y), x * 2 + y)


def test_what_was_compiled_is_kept_and_the_user_sees_it() -> None:
    executable = hlojit.compile(SCALED)
    assert executable.dynamic_shapes == "specialize"
    assert repr(executable).endswith("-> (tensor<?x4xf32>), 0 specializations of at most 64>")
    first = executable.specialized(f32(3, 4), f32(3, 4))
    assert executable.specialized(f32(3, 4), f32(3, 4)) is first
    assert executable.specialized(f32(5, 4), f32(5, 4)) is not first
    assert [shapes[0] for shapes in executable.specializations] == [(3, 4), (5, 4)]
    executable(f32(3, 4), f32(3, 4))
    assert [shapes[0] for shapes in executable.specializations] == [(5, 4), (3, 4)]
    assert str(first.input_types[0]) == "tensor<3x4xf32>"
    assert first.dynamic_shapes == "static"


def test_the_least_recently_used_one_is_given_up() -> None:
    executable = hlojit.compile(SCALED, options={"specializations": 2})
    kept, dropped = (executable.specialized(f32(n, 4), f32(n, 4)) for n in (1, 2))
    gone = weakref.ref(dropped)
    del dropped
    assert executable.specialized(f32(1, 4), f32(1, 4)) is kept
    executable(f32(3, 4), f32(3, 4))
    assert [shapes[0] for shapes in executable.specializations] == [(1, 4), (3, 4)]
    gc.collect()
    assert gone() is None


@pytest.mark.slow
def test_a_thousand_shapes_leave_no_more_than_the_last_ones() -> None:
    executable = hlojit.compile(SCALED, backend="reference", options={"specializations": 8})
    for rows in range(1000):
        x = f32(rows, 4)
        np.testing.assert_array_equal(executable(x, x), x * 3)
        assert len(executable.specializations) <= 8


def test_threads_that_want_one_shape_share_one_compilation() -> None:
    executable = hlojit.compile(SCALED)
    found: list[Any] = []
    barrier = threading.Barrier(8)

    def run(number: int) -> None:
        x = f32(1 + number % 2, 4)
        barrier.wait()
        for _ in range(20):
            found.append((number % 2, executable.specialized(x, x)))
            np.testing.assert_array_equal(executable(x, x), x * 3)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 160
    assert len({id(each) for _, each in found}) == 2


# what is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((f32(3, 5), f32(3, 4)), r"argument 0: expected tensor<\?x4xf32>, .*shape \(3, 5\): dimension 1 is 5, not 4"),
        ((f32(3, 4), f32(3)), r"argument 1: .*shape \(3,\): it has 1 dimensions, not 2"),
        ((f32(3, 4),), "takes 2 arguments, not 1"),
        ((f32(3, 4), f32(3, 4).astype("f8")), "argument 1: expected tensor<3x4xf32>.*float64"),
        (
            (f32(3, 4), f32(2, 4)),
            r"main cannot run with arguments of types \(tensor<3x4xf32>, tensor<2x4xf32>\): "
            r"3 \(argument 0, dimension 0\) and 2 \(argument 1, dimension 0\) must be equal for stablehlo.add at",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: tuple[Any, ...], message: str) -> None:
    executable = hlojit.compile(SCALED)
    with pytest.raises(hlojit.ArgumentError, match=f"(?s){message}"):
        executable(*arguments)
    assert not executable.specializations or message.startswith("argument 1: expected tensor<3x4")


def test_an_argument_beyond_its_bound_is_refused() -> None:
    kind = "tensor<?xf32, #stablehlo.bounds<4>>"
    executable = hlojit.compile(
        f"func.func @main(%x: {kind}) -> {kind} {{ %0 = stablehlo.negate %x : {kind} return %0 : {kind} }}"
    )
    np.testing.assert_array_equal(executable(f32(3)), -f32(3))
    with pytest.raises(hlojit.ArgumentError, match="dimension 0 is 5, more than its bound 4"):
        executable(f32(5))


def test_keywords_and_files_are_refused(tmp_path: Path) -> None:
    executable = hlojit.compile(SCALED)
    with pytest.raises(hlojit.ArgumentError, match="takes its arguments by position"):
        executable(x=f32(3, 4))
    with pytest.raises(hlojit.HlojitError, match="compiled for each combination of shapes"):
        executable.save(tmp_path / "program")
    executable.specialized(f32(3, 4), f32(3, 4)).save(tmp_path / "program")
    loaded = hlojit.load(tmp_path / "program")
    np.testing.assert_array_equal(loaded(f32(3, 4), f32(3, 4)), f32(3, 4) * 3)


@pytest.mark.parametrize("options", [{"dynamic_shapes": "padded"}, {"specializations": 0}, {"specializations": "many"}])
def test_unknown_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(hlojit.HlojitError, match=f"compile option {next(iter(options))}="):
        hlojit.compile(SCALED, options=options)


# arguments whose elements decide shapes


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_argument_whose_value_is_a_size_counts_with_its_value(backend: str) -> None:
    executable = hlojit.compile(COUNTED, backend=backend)
    assert executable.size_arguments == (0,)
    for n in (3, 5, 3):
        np.testing.assert_array_equal(executable(np.int64(n), f32(n)), np.arange(n, dtype="f4") + f32(n))
        np.testing.assert_array_equal(executable(n, f32(n)), np.arange(n, dtype="f4") + f32(n))
    assert len(executable.specializations) == 2
    with pytest.raises(hlojit.ArgumentError, match="add"):
        executable(np.int64(4), f32(3))
    with pytest.raises(hlojit.HlojitError, match="size -1 must not be negative"):
        executable(np.int64(-1), f32(3))


def test_a_program_of_known_arguments_is_an_ordinary_executable() -> None:
    executable = hlojit.compile("""
    func.func @main(%x: tensor<6xf32>) -> tensor<?x?xf32> {
      %shape = stablehlo.constant dense<[2, 3]> : tensor<2xi64>
      %0 = stablehlo.dynamic_reshape %x, %shape : (tensor<6xf32>, tensor<2xi64>) -> tensor<?x?xf32>
      return %0 : tensor<?x?xf32>
    }
    """)
    assert isinstance(executable, hlojit.Executable)
    assert str(executable.output_types[0]) == "tensor<2x3xf32>"
    np.testing.assert_array_equal(executable(f32(6)), f32(6).reshape(2, 3))


PRODUCT = """
func.func @main(%n: tensor<2xi64>) -> tensor<f32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dynamic_broadcast_in_dim %c, %n, dims = [] : (tensor<f32>, tensor<2xi64>) -> tensor<?x?xf32>
  %1 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [0, 1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}
"""


@pytest.mark.parametrize("how", ["specialize", "symbolic"])
@pytest.mark.parametrize("sizes", [(-1, -1), (2**62, 1), (2**40, 2**40), (2**63 - 1, 2), (-(2**63), 0), (2**62, 0)])
def test_sizes_that_no_memory_has_are_errors(sizes: tuple[int, int], how: str) -> None:
    executable = hlojit.compile(PRODUCT, options={"dynamic_shapes": how})
    with pytest.raises(hlojit.HlojitError, match="cannot run with arguments of types|no memory|more than any machine"):
        executable(np.array(sizes, np.int64))


# operands that decide parts at run time, of results whose size is known


def at_run_time(body: str, *types: str) -> str:
    passed = [type for number, type in enumerate(types[:-1]) if f"%a{number}" in body]
    arguments = ", ".join(f"%a{number}: tensor<{type}>" for number, type in enumerate(passed))
    kinds = ", ".join(f"tensor<{type}>" for type in types[:-1])
    return f"""
    func.func @main({arguments}) -> tensor<{types[-1]}> {{
      %none = stablehlo.constant dense<0> : tensor<1xi64>
      %one = stablehlo.constant dense<1> : tensor<1xi64>
      %steps = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
      %0 = {body} : ({kinds}) -> tensor<{types[-1]}>
      return %0 : tensor<{types[-1]}>
    }}
    """


def i64(*values: int) -> Any:
    return np.array(values, np.int64)


PARTS: list[tuple[str, tuple[Any, ...], Any]] = [
    (
        at_run_time(
            "stablehlo.real_dynamic_slice %a0, %a1, %a2, %steps", "5x6xf32", "2xi64", "2xi64", "2xi64", "2x3xf32"
        ),
        (f32(5, 6), i64(1, 0), i64(3, 6)),
        f32(5, 6)[1:3, 0:6:2],
    ),
    (
        at_run_time(
            "stablehlo.dynamic_pad %a0, %a1, %a2, %a3, %one", "3xf32", "f32", "1xi64", "1xi64", "1xi64", "8xf32"
        ),
        (f32(3), np.float32(7), i64(2), i64(1)),
        np.array([7, 7, f32(3)[0], 7, f32(3)[1], 7, f32(3)[2], 7], np.float32),
    ),
    (
        at_run_time(
            "stablehlo.dynamic_pad %a0, %a1, %a2, %a3, %none", "5xf32", "f32", "1xi64", "1xi64", "1xi64", "3xf32"
        ),
        (f32(5), np.float32(7), i64(-1), i64(-1)),
        f32(5)[1:4],
    ),
    (
        at_run_time("stablehlo.dynamic_reshape %a0, %a1", "6xf32", "2xi64", "2x3xf32"),
        (f32(6), i64(2, 3)),
        f32(6).reshape(2, 3),
    ),
    (
        at_run_time("stablehlo.dynamic_broadcast_in_dim %a0, %a1, dims = [1]", "3xf32", "2xi64", "2x3xf32"),
        (f32(3), i64(2, 3)),
        np.broadcast_to(f32(3), (2, 3)),
    ),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", range(len(PARTS)))
def test_parts_of_known_size(number: int, backend: str) -> None:
    text, arguments, expected = PARTS[number]
    np.testing.assert_array_equal(hlojit.compile(text, backend=backend)(*arguments), expected)


def test_sizes_that_only_data_tell_are_refused_with_their_place() -> None:
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<?xi64> {
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      %sum = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
      %n = stablehlo.convert %sum : (tensor<f32>) -> tensor<i64>
      %shape = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
      %0 = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi64>) -> tensor<?xi64>
      return %0 : tensor<?xi64>
    }
    """
    with pytest.raises(
        hlojit.UnsupportedError, match=r"(?s)dynamic_iota.*tensor<\?xi64> is known only when.*has no bound.*:7:7"
    ):
        hlojit.compile(text)


def test_a_slice_beyond_an_argument_is_refused() -> None:
    text = at_run_time(
        "stablehlo.real_dynamic_slice %a0, %none, %a1, %one", "?xf32", "1xi64", "1xi64", "1xi64", "?xf32"
    )
    executable = hlojit.compile(text)
    np.testing.assert_array_equal(executable(f32(5), i64(3)), f32(5)[:3])
    with pytest.raises(hlojit.ArgumentError, match="start 0 <= limit 6 <= size 5 must hold"):
        executable(f32(5), i64(6))


# devices, loops, the command


def test_arrays_on_a_device_and_calls_that_return_at_once() -> None:
    executable = hlojit.compile(COUNTED)
    pending = executable.execute(hlojit.put(np.int64(3)), hlojit.put(f32(3)))
    assert pending.shape == (3,)
    np.testing.assert_array_equal(np.asarray(pending), np.arange(3, dtype="f4") + f32(3))
    assert executable.devices == hlojit.devices("cpu")


def test_a_size_that_changes_in_a_loop_is_refused() -> None:
    with pytest.raises(hlojit.HlojitError, match="(?s)while|concatenate"):
        hlojit.compile("""
        func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
          %zero = stablehlo.constant dense<0> : tensor<i32>
          %one = stablehlo.constant dense<1> : tensor<i32>
          %three = stablehlo.constant dense<3> : tensor<i32>
          %0:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<?xf32>
          cond {
            %l = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %l : tensor<i1>
          } do {
            %j = stablehlo.add %i, %one : tensor<i32>
            %b = stablehlo.concatenate %a, %a, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
            stablehlo.return %j, %b : tensor<i32>, tensor<?xf32>
          }
          return %0#1 : tensor<?xf32>
        }
        """)(f32(3))


def test_the_command_runs_and_says_what_happened(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "program.mlir").write_text(SCALED)
    np.save(tmp_path / "x.npy", f32(3, 4))
    status = command(["run", str(tmp_path / "program.mlir"), "--input", *[str(tmp_path / "x.npy")] * 2])
    said = capsys.readouterr()
    assert status == 0
    assert "result 0: tensor<3x4xf32>" in said.out
    assert "compiled for these shapes (dynamic_shapes: specialize)" in said.err


def test_the_kept_programs_of_another_process_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", str(tmp_path))
    text = SCALED.replace("dense<2.0>", "dense<3.5>")
    first = hlojit.compile(text).specialized(f32(3, 4), f32(3, 4))
    entries = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert entries
    again = hlojit.compile(text).specialized(f32(3, 4), f32(3, 4))
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == entries
    np.testing.assert_array_equal(again(f32(3, 4), f32(3, 4)), first(f32(3, 4), f32(3, 4)))


@pytest.mark.parametrize("how", ["specialize", "symbolic"])
def test_places_with_braces_are_named_as_they_are(how: str) -> None:
    executable = hlojit.compile(
        """
        func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> (tensor<1xf32>, tensor<?xf32>) {
          %c = stablehlo.constant dense<1.0> : tensor<f32>
          %0 = stablehlo.add %x, %y : tensor<?xf32> loc("body{k}/add{0}")
          %1 = stablehlo.slice %0 [2:3] : (tensor<?xf32>) -> tensor<1xf32> loc("{")
          %2 = stablehlo.pad %0, %c, low = [-4], high = [0], interior = [0]
            : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32> loc("}{2}")
          return %1, %2 : tensor<1xf32>, tensor<?xf32>
        }
        """,
        options={"dynamic_shapes": how},
    )
    for x, y, what in ((3, 4, "stablehlo.add at 'body{k}/add{0}'"), (2, 2, "slice"), (3, 3, "stablehlo.pad at '}{2}'")):
        with pytest.raises(hlojit.ArgumentError, match=re.escape(what)):
            executable(f32(x), f32(y))


class Emptied(dict[Any, Any]):
    """Between the look at how many there are and the look at which, another thread gives up all but the newest."""

    def items(self) -> Any:
        for key in list(self)[:-1]:
            del self[key]
        return super().items()


def test_several_threads_may_give_up_the_same() -> None:
    executable = hlojit.compile(SCALED, options={"specializations": 1})
    executable._known = Emptied()
    for rows in (2, 3, 4):
        executable(f32(rows, 4), f32(rows, 4))
    assert len(executable._known) == 1


def test_what_fails_in_a_vendors_inference_is_not_taken_for_shapes_that_do_not_fit() -> None:
    def infer(call: Any) -> Any:
        (type,) = call.operand_types
        return (type.no_such_attribute if type.is_static else type,)

    doubled = OpDefinition(
        "acme.doubled",
        operands=(Operand("operand"),),
        infer=infer,
        reference=lambda call, x: x * 2,
        lowering=Pointwise(lambda b, call, x: b.fadd(x, x)),
    )
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %0 = "acme.doubled"(%x) : (tensor<?xf32>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }
    """
    plugin = SimpleNamespace(__name__="acme", hlojit_ops=hookimpl(lambda: [doubled]))
    with using(plugin):
        executable = hlojit.compile(text)
        with pytest.raises(hlojit.PluginError, match="inference of acme.doubled failed .*no_such_attribute"):
            executable(f32(3))
