"""Programs that JAX exports with symbolic shapes, at several shapes, against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import hlojit
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Program(NamedTuple):
    function: Callable[..., Any]
    shapes: tuple[str, ...]
    sizes: tuple[dict[str, int], ...] = ({"b": 3}, {"b": 1}, {"b": 8})
    constraints: tuple[str, ...] = ()
    tolerance: float = 1e-5


def scan(x: Any) -> Any:
    return lax.scan(lambda carry, row: (carry * 0.5 + row, carry.sum()), jnp.zeros_like(x[0]), x)


def rows_by_loop(x: Any) -> Any:
    return lax.fori_loop(0, x.shape[0], lambda i, total: total + x[i], jnp.zeros_like(x[0]))


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqd,bkd->bqk", q, k) / np.sqrt(8)
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores, axis=-1), v)


def layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


TWO = ({"b": 3, "n": 5}, {"b": 1, "n": 4}, {"b": 6, "n": 2})

PROGRAMS = {
    "elementwise": Program(lambda x: jnp.tanh(x) * 2 + 1, ("b, 4",)),
    "two arguments of one size": Program(lambda x, y: x + y, ("b, 4", "b, 4")),
    "outer sum": Program(lambda x, y: x[:, None] + y[None, :], ("b", "n"), TWO),
    "softmax": Program(jax.nn.softmax, ("b, n",), TWO),
    "layer norm": Program(layer_norm, ("b, n",), TWO),
    "mlp": Program(lambda x, w, v: jax.nn.relu(x @ w) @ v, ("b, 6", "6, 5", "5, 3")),
    "attention": Program(attention, ("b, n, 8", "b, n, 8", "b, n, 8"), TWO),
    "reshape to one dimension": Program(lambda x: x.reshape(-1) * 2, ("b, n",), TWO),
    "reshape of a multiple": Program(lambda x: x.reshape((-1, 2, 3)), ("b, 6",)),
    "size that is solved for": Program(lambda x: x * 2, ("2*b, b",)),
    "concatenate": Program(lambda x, y: jnp.concatenate([x, y, x]), ("b, 2", "n, 2"), TWO),
    "pad": Program(lambda x: jnp.pad(x, ((1, 2), (0, 3)), constant_values=7.0), ("b, 4",)),
    "transpose, reverse": Program(lambda x: x.T[::-1], ("b, n",), TWO),
    "slices": Program(lambda x: (x[1:], x[:-1], x[::2]), ("b",), ({"b": 5}, {"b": 4}), ("b >= 2",)),
    "reductions": Program(lambda x: (x.sum(), x.max(0), x.mean(1), x.argmax(1)), ("b, n",), TWO),
    "cumulative sum": Program(lambda x: jnp.cumsum(x, axis=0), ("b, 4",)),
    "sort": Program(lambda x: (jnp.sort(x, axis=0), jnp.argsort(x, axis=0)), ("b, 4",)),
    "top k": Program(lambda x: lax.top_k(x, 2), ("b, n",), TWO, ("n >= 2",)),
    "top half": Program(lambda x: lax.top_k(x, x.shape[1] // 2), ("b, n",), TWO, ("n >= 2",)),
    "random bits": Program(
        lambda x: lax.rng_bit_generator(jnp.arange(4, dtype=jnp.uint32), x.shape)[1] >> 8, ("b, 4",)
    ),
    "iota and eye": Program(lambda x: x @ jnp.eye(x.shape[1]) + jnp.arange(x.shape[1]), ("b, n",), TWO),
    "where, tril": Program(lambda x: jnp.where(jnp.tril(jnp.ones_like(x)) > 0, x, -jnp.inf), ("b, b",)),
    "take": Program(lambda x: x[jnp.array([0, 0, 0])], ("b, 4",)),
    "last row": Program(lambda x: x[-1], ("b, 4",)),
    "scatter": Program(lambda x: x.at[0].set(1.0).at[-1].add(2.0), ("b, 4",)),
    "rows added at indices": Program(
        lambda x, y: x.at[jnp.arange(y.shape[0]) * 3 % 7].add(y, mode="drop"), ("b, n", "2*b, n"), TWO
    ),
    "sums of segments": Program(
        lambda x, y: jnp.zeros_like(x).at[(y[:, 0] * 2).astype(int)].max(y, mode="drop"), ("b, n", "4*b, n"), TWO
    ),
    "gradient of take": Program(
        jax.grad(lambda x: (jnp.take(x, jnp.arange(x.shape[1]), axis=0, mode="clip") ** 2).sum()), ("b, n",), TWO
    ),
    "size as a number": Program(lambda x: x.sum() / x.shape[0], ("b",)),
    "scan": Program(scan, ("b, 4",)),
    "scan of open rows": Program(scan, ("b, n",), TWO),
    "gradient of a scan": Program(jax.grad(lambda x: scan(x)[0].sum()), ("b, n",), TWO),
    "loops in loops": Program(
        lambda x: lax.fori_loop(0, x.shape[0], lambda i, y: lax.fori_loop(0, i, lambda j, z: z * 0.5 + x[j], y), x[0]),
        ("b, n",),
        TWO,
    ),
    "loop until": Program(lambda x: lax.while_loop(lambda y: y.sum() < 50.0, lambda y: y * y + 1, x), ("b, n",), TWO),
    "computed again": Program(jax.grad(jax.checkpoint(lambda x: jnp.tanh(jnp.sin(x) @ x.T).sum())), ("b, n",), TWO),
    "row overwritten": Program(lambda x, y: lax.dynamic_update_slice(x, y, (1, 0)), ("b, n", "1, n"), TWO),
    "loop over the size": Program(rows_by_loop, ("b, 4",)),
    "branches": Program(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), ("b, 4",)),
    "gradient": Program(jax.grad(lambda x: (jax.nn.softmax(x) ** 2).sum()), ("b, n",), TWO),
    "random numbers": Program(lambda x: x + jax.random.uniform(jax.random.key(0), x.shape), ("b, 4",)),
    "convolution": Program(
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        ("b, n, n, 3", "3, 3, 3, 4"),
        TWO,
        tolerance=1e-4,
    ),
    "max pool": Program(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "SAME"), ("b, n",), TWO),
    "image resize": Program(lambda x: jax.image.resize(x, (2 * x.shape[0], 4), "nearest"), ("b, 2",)),
    "repeat, tile": Program(lambda x: (jnp.repeat(x, 3, 0), jnp.tile(x, (2, 1))), ("b, 2",)),
    "roll": Program(lambda x: jnp.roll(x, 1, 0), ("b, 2",)),
}


def exported(program: Program) -> tuple[str, list[Any]]:
    scope = export.SymbolicScope(program.constraints)
    specs = [jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), np.float32) for shape in program.shapes]
    made = export.export(jax.jit(program.function), platforms=["cpu"])(*specs)
    return made.mlir_module(), [spec.shape for spec in specs]


def arguments(shapes: list[Any], sizes: dict[str, int]) -> list[Any]:
    generator = np.random.default_rng(0)
    found = []
    for shape in shapes:
        concrete = [each if isinstance(each, int) else each._evaluate(sizes) for each in shape]
        found.append(generator.standard_normal(concrete).astype(np.float32))
    return found


NOT_SYMBOLIC = {
    "cumulative sum": "custom_call",
    "random bits": "custom_call",
    "max pool": "custom_call",
}
"""Programs that are compiled for each shape all the same, and the op that the reason names."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compilation_for_all_sizes(name: str) -> None:
    program = PROGRAMS[name]
    text, shapes = exported(program)
    executable = hlojit.compile(text, options={"dynamic_shapes": "symbolic"})
    check(executable, program, shapes)
    if name in NOT_SYMBOLIC:
        assert executable.dynamic_shapes == "specialize"
        assert executable.why.startswith(f"stablehlo.{NOT_SYMBOLIC[name]} is not compiled for all sizes at once: ")
        return
    assert executable.dynamic_shapes == "symbolic"
    assert not executable.why
    # The same machine code for all of them.
    assert len({each.spec.entry for each in executable.specializations.values()}) == 1


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_exported_programs_run_at_several_shapes(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    text, shapes = exported(program)
    executable = hlojit.compile(text, backend=backend)
    check(executable, program, shapes)
    assert executable.dynamic_shapes == "specialize"
    assert len(executable.specializations) == len(program.sizes)


def check(executable: Any, program: Program, shapes: list[Any]) -> None:
    for sizes in program.sizes:
        inputs = arguments(shapes, sizes)
        expected = jax.tree.leaves(jax.jit(program.function)(*inputs))
        results = executable(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        assert [result.shape for result in results] == [each.shape for each in expected]
        for result, each in zip(results, expected):
            np.testing.assert_allclose(result, each, rtol=program.tolerance, atol=program.tolerance)


@pytest.mark.parametrize("how", ["specialize", "symbolic"])
def test_a_shape_that_breaks_a_constraint_is_refused_with_the_exporters_message(how: str) -> None:
    text, _ = exported(Program(lambda x, y: x @ y, ("b, n", "n, 3"), constraints=("n >= 3",)))
    executable = hlojit.compile(text, options={"dynamic_shapes": how})
    executable(np.ones((2, 4), np.float32), np.ones((4, 3), np.float32))
    with pytest.raises(
        hlojit.ArgumentError, match=r"Found inconsistency between dimension size args\[1\].shape\[0\] \(= 5\)"
    ):
        executable(np.ones((2, 4), np.float32), np.ones((5, 3), np.float32))
    with pytest.raises(hlojit.ArgumentError, match=r"symbolic shape constraint n >= 3.*'n - 3'.*but found -1"):
        executable(np.ones((2, 2), np.float32), np.ones((2, 3), np.float32))
    with pytest.raises(hlojit.ArgumentError, match=r"Expected value >= 1 for dimension variable 'b'"):
        executable(np.ones((0, 4), np.float32), np.ones((4, 3), np.float32))
    assert len(executable.specializations) == 1


def for_two_platforms(function: Callable[..., Any], *shapes: str) -> str:
    specs = [jax.ShapeDtypeStruct(export.symbolic_shape(shape), np.float32) for shape in shapes]
    return export.export(jax.jit(function), platforms=["cpu", "cuda"])(*specs).mlir_module()


MATRIX = np.float32([[4, 1], [1, 3]])


def test_what_another_platform_has_for_itself_is_not_reached() -> None:
    executable = hlojit.compile(for_two_platforms(jnp.linalg.cholesky, "2, 2"))
    assert "for every platform that the program is exported for: unknown custom call target 'cusolver" in executable.why
    np.testing.assert_allclose(executable(np.int32(0), MATRIX), np.linalg.cholesky(MATRIX), rtol=1e-6)
    assert isinstance(executable.specialized(0, MATRIX), hlojit.Executable)
    with pytest.raises(hlojit.UnsupportedError, match="unknown custom call target 'cusolver_potrf_ffi'"):
        executable(np.int32(1), MATRIX)
    np.testing.assert_allclose(executable(np.int32(0), MATRIX), np.linalg.cholesky(MATRIX), rtol=1e-6)


@pytest.mark.parametrize("how", ["specialize", "symbolic"])
def test_platforms_and_open_sizes(how: str) -> None:
    text = for_two_platforms(lambda x: jnp.linalg.cholesky(x) * 2, "b, 2, 2")
    executable = hlojit.compile(text, options={"dynamic_shapes": how})
    for count in (1, 3):
        x = np.stack([MATRIX] * count)
        np.testing.assert_allclose(executable(np.int32(0), x), np.linalg.cholesky(x) * 2, rtol=1e-6)


def test_programs_that_all_platforms_can_run_choose_when_they_run() -> None:
    text = for_two_platforms(lambda x: lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos), "2, 2")
    executable = hlojit.compile(text)
    assert executable.dynamic_shapes == "static"
    for index, function in enumerate((np.sin, np.cos)):
        np.testing.assert_allclose(executable(np.int32(index), MATRIX), function(MATRIX), rtol=1e-6)


def test_other_branches_on_arguments_are_reached() -> None:
    text = for_two_platforms(jnp.linalg.cholesky, "2, 2").replace("_platform_index", "_other_index")
    with pytest.raises(hlojit.UnsupportedError, match="unknown custom call target 'cusolver_potrf_ffi'"):
        hlojit.compile(text)
