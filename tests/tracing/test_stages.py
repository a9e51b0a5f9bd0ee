"""JAX's stages: lowering from arrays and descriptions, compiled functions, what they cost, shapes of results, clearing caches."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit import ShapeDtypeStruct
from hlojit.tracing import TracingError

from tests.elsewhere import processors_only

X = np.arange(12.0).reshape(3, 4)


@dataclass
class Model:
    w: Any
    b: Any


@hlojit.jit
def predict(model: Model, x: Any, *, scale: float = 1.0) -> Any:
    y = np.tanh(x @ model.w + model.b) * scale
    return {"y": y, "norm": (y**2).sum()}


def arguments() -> tuple[Model, Any]:
    return Model(np.ones((4, 2)), np.zeros(2)), X


def described() -> tuple[Model, Any]:
    return Model(ShapeDtypeStruct((4, 2), "f8"), ShapeDtypeStruct((2,), float)), ShapeDtypeStruct((3, 4), np.float64)


@pytest.mark.parametrize("given", [arguments, described])
def test_lowered_compiled_called(given: Any) -> None:
    lowered = predict.lower(*given(), scale=2.0)
    assert isinstance(lowered, hlojit.Module) and "stablehlo.dot_general" in lowered.as_text()
    assert lowered.as_text() == str(lowered) == lowered.as_text("stablehlo")
    assert "loc(" in lowered.as_text(debug_info=True)
    compiled = lowered.compile()
    made, expected = compiled(*arguments(), scale=3.0), predict(*arguments(), scale=3.0)
    np.testing.assert_array_equal(made["y"], expected["y"])
    assert made["norm"] == expected["norm"] and type(made["norm"]) is np.float64
    assert "hlojit.fusion" in compiled.as_text() and "hlojit.fusion" not in lowered.as_text()
    assert (
        lowered.out_info
        == compiled.out_info
        == {"y": ShapeDtypeStruct((3, 2), "f8"), "norm": ShapeDtypeStruct((), "f8")}
    )
    (model, x), named = compiled.args_info
    assert (model.w, x, named) == (ShapeDtypeStruct((4, 2), "f8"), ShapeDtypeStruct((3, 4), "f8"), {"scale": 2.0})
    np.testing.assert_array_equal(hlojit.compile(lowered)(np.ones((4, 2)), np.zeros(2), X, 3.0)[0], expected["y"])


class Foreign:
    """What other libraries have for that."""

    def __init__(self, shape: Any, dtype: Any):
        self.shape, self.dtype = shape, dtype


def test_anything_with_shape_and_dtype_is_lowered_from() -> None:
    f = hlojit.jit(lambda x: x * 2)
    assert str(f.lower(Foreign((3, 4), np.dtype("f4")))) == str(f.lower(X.astype("f4")))
    with pytest.raises(
        hlojit.ArgumentError, match=r"argument x: .* describes an array and is none: f\.lower and f\.eval_shape"
    ):
        f(ShapeDtypeStruct((3,), "f8"))
    with pytest.raises(hlojit.ArgumentError, match="for example ShapeDtypeStruct"):
        ShapeDtypeStruct((3, "a"), "f8")  # type: ignore[arg-type]
    with pytest.raises(hlojit.ArgumentError, match=r"argument x: .*datetime64"):
        f.lower(ShapeDtypeStruct((3,), "M8[s]"))


def test_descriptions_are_plain_values() -> None:
    a = ShapeDtypeStruct([2, 3], "f4")
    assert a == ShapeDtypeStruct((2, 3), np.float32) and hash(a) == hash(ShapeDtypeStruct((2, 3), np.float32))
    assert (a.ndim, a.size, repr(a)) == (2, 6, "ShapeDtypeStruct(shape=(2, 3), dtype=float32)")
    assert a != ShapeDtypeStruct((2, 3), "f8")
    assert ShapeDtypeStruct((2,), "bf16") == ShapeDtypeStruct((2,), ml_dtypes.bfloat16) != ShapeDtypeStruct((2,), "f2")
    assert pickle.loads(pickle.dumps(a)) == a
    with pytest.raises(AttributeError, match="make another one instead of setting shape"):
        a.shape = (3,)


MODEL = Model(np.ones((4, 2)), np.zeros(2))


@pytest.mark.parametrize(
    ("given", "named", "says"),
    [
        (
            (MODEL, X[:2]),
            {"scale": 2.0},
            r"argument x: compiled for an array of shape \(3, 4\) .* got an array of shape \(2, 4\)",
        ),
        ((MODEL, X.astype("f4")), {"scale": 2.0}, r"argument x: .* got an array of shape \(3, 4\) and type float32"),
        ((MODEL, X), {"scale": 2}, "argument scale: compiled for a Python float, and got a Python int"),
        ((Model(MODEL.w, 1.0), X), {"scale": 2.0}, r"argument model\.b: .* got a Python float"),
        ((MODEL, "text"), {"scale": 2.0}, r"argument x: .* got a value of type str"),
        ((MODEL, np.ma.masked_less(X, 2)), {"scale": 2.0}, r"argument x: .* MaskedArray"),
        ((MODEL, X), {}, "called with other containers or keywords"),
        (((MODEL.w, MODEL.b), X), {"scale": 2.0}, "called with other containers or keywords"),
        ((MODEL, None), {"scale": 2.0}, "called with other containers or keywords"),
    ],
)
def test_other_arguments_are_refused_by_name(given: Any, named: Any, says: str) -> None:
    compiled = predict.lower(*arguments(), scale=2.0).compile()
    with pytest.raises(hlojit.ArgumentError, match=says):
        compiled(*given, **named)


def test_static_arguments_stay_out_or_are_the_same() -> None:
    @hlojit.jit(static_argnames="n")
    def power(x: Any, n: int, add: Any = 1.0) -> Any:
        return x**n + add

    compiled = power.lower(X, 2, 3.0).compile()
    np.testing.assert_array_equal(compiled(X, 4.0), X**2 + 4)
    np.testing.assert_array_equal(compiled(X, 2, 4.0), X**2 + 4)
    with pytest.raises(hlojit.ArgumentError, match="compiled for the static argument n=2, and got 3"):
        compiled(X, 3, 4.0)


def test_the_seed_of_roundings_may_be_left_to_its_default() -> None:
    @hlojit.jit(rounding_seed="seed")
    def f(x: Any, seed: int = 3) -> Any:
        return x * 2

    np.testing.assert_array_equal(f.lower(X).compile()(X), X * 2)


def test_written_arguments_and_layouts() -> None:
    @hlojit.jit
    def scaled(x: Any, y: Any) -> None:
        x *= y

    compiled = scaled.lower(X, X).compile()
    x = X.copy()
    compiled(x, X)
    np.testing.assert_array_equal(x, X * X)
    with pytest.raises(hlojit.ArgumentError, match="writes its argument x, and two arguments are one array"):
        compiled(x, x)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only: argument x"):
        compiled(x, X)

    @hlojit.jit
    def through_ravel(x: Any) -> Any:
        x.ravel()[0] = 7.0
        return x

    by_rows, by_columns = through_ravel.lower(X).compile(), through_ravel.lower(np.asfortranarray(X)).compile()
    rows, columns = X.copy(), np.asfortranarray(X)
    by_rows(rows)
    by_columns(columns)
    assert rows[0, 0] == 7 and columns[0, 0] == 0
    for compiled, other in ((by_rows, columns), (by_columns, rows)):
        with pytest.raises(
            hlojit.ArgumentError, match="argument x: what the function does depends on how this array lies"
        ):
            compiled(other)


@processors_only
def test_costs_and_memory() -> None:
    f = hlojit.jit(lambda x: (np.sin(x) + 1) * 2)
    lowered = f.lower(ShapeDtypeStruct((1000,), "f8"))
    assert lowered.cost_analysis()["flops"] == 3000
    compiled = lowered.compile()
    assert compiled.cost_analysis() == {"flops": 3000.0, "bytes accessed": 16000.0}
    memory = compiled.memory_analysis()
    assert memory is not None
    assert (memory.argument_size_in_bytes, memory.output_size_in_bytes, memory.temp_size_in_bytes) == (8000, 8000, 0)
    product = hlojit.jit(lambda a, b: a @ b).lower(ShapeDtypeStruct((8, 16), "f4"), ShapeDtypeStruct((16, 4), "f4"))
    assert product.cost_analysis()["flops"] == 2 * 8 * 16 * 4
    donated = hlojit.jit(lambda x: x + 1, donate_argnums=0).lower(X).compile().memory_analysis()
    assert donated is not None and donated.alias_size_in_bytes == X.nbytes
    with pytest.raises(hlojit.ArgumentError, match="one dialect, 'stablehlo'"):
        compiled.as_text(dialect="hlo")


def test_other_back_ends_and_options() -> None:
    lowered = hlojit.jit(lambda x: x + 1).lower(X)
    compiled = lowered.compile(backend="reference")
    np.testing.assert_array_equal(compiled(X), X + 1)
    assert compiled.memory_analysis() is None


def test_a_compiled_function_is_not_called_while_tracing() -> None:
    compiled = hlojit.jit(lambda x: x + 1).lower(X).compile()
    with pytest.raises(TracingError, match="call the function itself there"):
        hlojit.jit(lambda x: compiled(x) * 2)(X)


# ------------------------------------------------------------------------------------------------------------- eval_shape


def test_eval_shape() -> None:
    assert predict.eval_shape(*described()) == {"y": ShapeDtypeStruct((3, 2), "f8"), "norm": ShapeDtypeStruct((), "f8")}
    assert hlojit.eval_shape(lambda x, n: (x.T, n * 2, True), X, 3) == (
        ShapeDtypeStruct((4, 3), "f8"), ShapeDtypeStruct((), "i8"), ShapeDtypeStruct((), "?"),
    )  # fmt: skip
    huge = ShapeDtypeStruct((1 << 30, 1 << 20), "f4")
    assert hlojit.eval_shape(lambda a: a.T @ a, huge) == ShapeDtypeStruct((1 << 20, 1 << 20), "f4")
    assert hlojit.eval_shape(hlojit.grad(lambda x: (x**2).sum()), X) == ShapeDtypeStruct((3, 4), "f8")
    with pytest.raises(hlojit.ArgumentError, match="length depends on values"):
        hlojit.eval_shape(lambda x: x[x > 0], X)
    with pytest.raises(ValueError, match="broadcast"):
        hlojit.eval_shape(lambda x: x + np.ones(5), X)


def test_eval_shape_of_traced_values() -> None:
    @hlojit.jit
    def f(x: Any) -> Any:
        shape = hlojit.eval_shape(lambda a, n: a[:, 0] * n, x, 2).shape
        return np.zeros(shape) + x[:, 0]

    np.testing.assert_array_equal(f(X), X[:, 0])


# ----------------------------------------------------------------------------------------------------------------- caches


def test_caches_are_cleared() -> None:
    traced = []

    def f(x: Any) -> Any:
        traced.append(x.shape)
        return x + 1

    jitted, other = hlojit.jit(hlojit.as_is(f)), hlojit.jit(lambda x: x - 1)
    for _ in range(3):
        jitted(X)
    assert len(traced) == 1
    jitted.clear_cache()
    np.testing.assert_array_equal(jitted(X), X + 1)
    assert len(traced) == 2
    other(X)
    hlojit.clear_caches()
    assert "0 signatures" in repr(other)
    np.testing.assert_array_equal(jitted(X), X + 1)
    assert len(traced) == 3


def test_caches_are_cleared_while_others_call() -> None:
    f = hlojit.jit(lambda x: x * 2 + 1)
    expected, wrong, stop = X * 2 + 1, [], threading.Event()

    def calls() -> None:
        try:
            while not stop.is_set():
                if not np.array_equal(f(X), expected):
                    wrong.append("other numbers")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=calls) for _ in range(3)]
    for each in threads:
        each.start()
    for _ in range(20):
        hlojit.clear_caches()
        f(X)
    stop.set()
    for each in threads:
        each.join()
    assert not wrong
