"""Transformations of functions: against JAX's, composed with each other and with ``jit``, and what they refuse."""

from __future__ import annotations

from typing import Any, NamedTuple

import hlojit
import numpy as np
import pytest

X = np.linspace(-0.9, 1.1, 5)
M = np.cos(np.arange(12.0)).reshape(3, 4)


def energy(x: Any) -> Any:
    return np.sum(np.tanh(x) ** 2 * np.exp(-x))


def layer(parameters: Any, x: Any) -> Any:
    return np.tanh(x @ parameters["w"] + parameters["b"])


PARAMETERS = {"w": np.sin(np.arange(8.0)).reshape(4, 2), "b": np.array([0.5, -0.5])}


class Point(NamedTuple):
    x: Any
    y: Any


def _jax(transformation: str, function: Any, *arguments: Any, **options: Any) -> Any:
    import jax

    with jax.enable_x64(True):
        return getattr(jax, transformation)(function, **options)(*arguments)


def _same(found: Any, expected: Any) -> None:
    import jax

    mine, theirs = jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def _in_jax(x: Any) -> Any:
    from jax import numpy as jnp

    return jnp.sum(jnp.tanh(x) ** 2 * jnp.exp(-x))


@pytest.mark.parametrize("transformation", ["grad", "value_and_grad", "hessian", "jacfwd", "jacrev"])
def test_derivatives_of_a_number(transformation: str) -> None:
    _same(getattr(hlojit, transformation)(energy)(X), _jax(transformation, _in_jax, X))


def test_gradients_of_containers() -> None:
    def loss(parameters: Any, x: Any) -> Any:
        return np.sum(layer(parameters, x) ** 2)

    def in_jax(parameters: Any, x: Any) -> Any:
        from jax import numpy as jnp

        return jnp.sum(jnp.tanh(x @ parameters["w"] + parameters["b"]) ** 2)

    _same(hlojit.grad(loss)(PARAMETERS, M), _jax("grad", in_jax, PARAMETERS, M))
    _same(hlojit.grad(loss, argnums=(1, 0))(PARAMETERS, M), _jax("grad", in_jax, PARAMETERS, M, argnums=(1, 0)))
    _same(
        hlojit.jit(hlojit.value_and_grad(loss, -1))(PARAMETERS, M),
        _jax("value_and_grad", in_jax, PARAMETERS, M, argnums=1),
    )


@pytest.mark.parametrize("transformation", ["jacfwd", "jacrev"])
def test_jacobians_have_the_results_outside(transformation: str) -> None:
    def function(p: Any) -> Any:
        return {"a": p.x * np.sum(p.y), "b": (p.y @ p.y.T,)}

    _same(getattr(hlojit, transformation)(function)(Point(X, M)), _jax(transformation, function, Point(X, M)))


def test_auxiliary_values() -> None:
    def function(x: Any) -> Any:
        return energy(x), {"twice": 2 * x, "count": np.int32(3)}

    gradient, aux = hlojit.grad(function, has_aux=True)(X)
    (value, again), _ = hlojit.value_and_grad(function, has_aux=True)(X)
    np.testing.assert_allclose(gradient, hlojit.grad(energy)(X))
    np.testing.assert_allclose((value, *aux["twice"]), (energy(X), *2 * X))
    assert again["count"] == 3
    jacobian, aux = hlojit.jacrev(lambda x: (np.sin(x), x[0]), has_aux=True)(X)
    np.testing.assert_allclose(jacobian, np.diag(np.cos(X)), atol=1e-15)
    assert aux == X[0]


def test_tangents_and_cotangents_are_given() -> None:
    value, tangent = hlojit.jvp(layer, (PARAMETERS, M), (PARAMETERS, 2 * M))
    result, pull = hlojit.vjp(layer, PARAMETERS, M)
    np.testing.assert_allclose(value, result)
    parameters, x = pull(np.ones((3, 2)))
    total = np.sum(parameters["w"] * PARAMETERS["w"]) + np.sum(parameters["b"] * PARAMETERS["b"]) + np.sum(x * 2 * M)
    np.testing.assert_allclose(total, np.sum(tangent))


def test_they_compose_with_jit_on_either_side() -> None:
    expected = hlojit.grad(energy)(X)
    np.testing.assert_allclose(hlojit.jit(hlojit.grad(energy))(X), expected)
    np.testing.assert_allclose(hlojit.grad(hlojit.jit(energy))(X), expected)
    np.testing.assert_allclose(hlojit.jit(lambda x: hlojit.grad(hlojit.jit(energy))(x) + 1)(X), expected + 1)


def test_they_compose_with_each_other() -> None:
    cubed = hlojit.grad(hlojit.grad(hlojit.grad(lambda x: x**5)))
    assert cubed(2.0) == 240
    np.testing.assert_allclose(hlojit.vmap(cubed)(X), 60 * X**2)
    rows = np.stack([X, 2 * X])
    np.testing.assert_allclose(
        hlojit.grad(lambda x: np.sum(hlojit.vmap(energy)(x)))(rows), hlojit.vmap(hlojit.grad(energy))(rows)
    )
    np.testing.assert_allclose(hlojit.vmap(hlojit.vmap(lambda a, b: a * b, (None, 0)), (0, None))(X, X), np.outer(X, X))
    _, tangent = hlojit.jvp(hlojit.grad(energy), (X,), (X,))
    np.testing.assert_allclose(tangent, hlojit.hessian(energy)(X) @ X)


def test_what_a_function_closes_over_is_constant() -> None:
    assert hlojit.grad(lambda x: hlojit.grad(lambda y: x * y)(x) * x)(3.0) == 6.0
    assert hlojit.jit(lambda x: hlojit.jvp(lambda y: x * y, (x,), (1.0,))[1])(3.0) == 3.0


def test_python_numbers_stay_weak() -> None:
    gradient = hlojit.grad(lambda w, rate: np.sum(w * rate))(X.astype("f4"), 0.5)
    assert gradient.dtype == np.float32
    assert hlojit.grad(lambda rate, w: np.sum(w * rate))(0.5, X.astype("f4")).dtype == np.float64


def test_written_arguments_are_values() -> None:
    def function(x: Any) -> Any:
        x[1] = x[0] * x[2]
        x *= 2
        return np.sum(x * x)

    def values(x: Any) -> Any:
        return 4 * (x[0] ** 2 + (x[0] * x[2]) ** 2 + x[2] ** 2)

    x = X[:3].copy()
    np.testing.assert_allclose(hlojit.grad(function)(x), hlojit.grad(values)(x))
    np.testing.assert_array_equal(x, X[:3])


def test_axes_of_batches() -> None:
    found = hlojit.vmap(
        lambda p, x: {"y": p["w"] @ x, "z": x}, in_axes=({"w": None, "b": 0}, 1), out_axes={"y": 1, "z": -1}
    )({"w": M, "b": X}, np.ones((4, 5)))
    np.testing.assert_allclose(found["y"], M @ np.ones((4, 5)))
    assert found["z"].shape == (4, 5)
    np.testing.assert_allclose(hlojit.vmap(lambda x, s: x * s, in_axes=(0, None))(X, 2.0), 2 * X)
    assert hlojit.vmap(lambda: np.zeros(2), axis_size=3)().shape == (3, 2)
    np.testing.assert_array_equal(hlojit.vmap(np.sort)(M), np.sort(M, 1))
    np.testing.assert_array_equal(hlojit.vmap(np.cumsum, 1, 1)(M), np.cumsum(M, 0))


@pytest.mark.parametrize("function", [np.linalg.norm, np.mean, np.var, np.prod, np.max, np.median])
def test_numpy_functions(function: Any) -> None:
    try:
        gradient = hlojit.grad(function)(X)
    except hlojit.HlojitError:
        pytest.skip("not traced")
    step = 1e-6 * np.eye(X.size)
    expected = [(function(X + d) - function(X - d)) / 2e-6 for d in step]
    np.testing.assert_allclose(gradient, expected, atol=1e-7)


# conventions


def _jax_numpy(name: str) -> Any:
    from jax import numpy as jnp

    return getattr(jnp, name)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("abs", [np.array([-1.0, 0.0, 2.0])]),
        ("maximum", [np.array([1.0, 1.0, 0.0]), np.array([1.0, 2.0, -1.0])]),
        ("minimum", [np.array([1.0, 1.0, 0.0]), np.array([1.0, 2.0, -1.0])]),
        ("max", [np.array([3.0, 3.0, 1.0])]),
        ("power", [np.array([2.0, 2.0, 0.0]), np.array([0.0, 3.0, 2.0])]),
        ("sqrt", [np.array([0.0, 4.0])]),
        ("where", [np.array([True, False]), np.array([1.0, 2.0]), np.array([3.0, 4.0])]),
        ("sign", [np.array([-2.0, 0.0])]),
        ("floor", [np.array([-2.5, 0.5])]),
        ("arctan2", [np.array([0.0, 1.0]), np.array([1.0, 0.0])]),
        ("abs", [np.array([3 + 4j, 0j])]),
        ("prod", [np.array([0.0, 2.0, 3.0])]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_conventions_are_those_of_jax(name: str, arguments: Any) -> None:
    import jax

    moving = tuple(k for k, x in enumerate(arguments) if x.dtype.kind in "fc")
    mine = hlojit.grad(lambda *x: np.sum(getattr(np, name)(*x)), moving)(*arguments)
    with jax.enable_x64(True):
        theirs = jax.grad(lambda *x: _jax_numpy(name)(*x).sum(), moving)(*arguments)
    for a, b in zip(mine, theirs):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_nan_is_kept_out_by_where_twice() -> None:
    def safe(x: Any) -> Any:
        positive = x > 0
        return np.sum(np.where(positive, np.log(np.where(positive, x, 1.0)), 0.0))

    np.testing.assert_array_equal(hlojit.grad(safe)(np.array([-1.0, 0.0, 2.0])), [0.0, 0.0, 0.5])


def test_complex_gradients_are_those_of_jax() -> None:
    z = X[:3] + 1j * X[1:4]
    gradient = hlojit.grad(lambda z: np.sum(np.abs(z * z) + np.real(z)))(z)
    _same(gradient, _jax("grad", lambda z: (abs(z * z) + z.real).sum(), z))
    holomorphic = hlojit.grad(lambda z: np.sum(z**3), holomorphic=True)(z)
    np.testing.assert_allclose(holomorphic, 3 * z**2)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_gradients_have_the_type_of_the_argument(dtype: str) -> None:
    gradient = hlojit.grad(lambda x: np.sum(np.real(x * x)))(X.astype(dtype))
    assert gradient.dtype == np.dtype(dtype)
    np.testing.assert_allclose(gradient, 2 * X.astype(dtype), rtol=1e-2 if dtype == "f2" else 1e-6)


# rules of their own


def test_custom_jvp() -> None:
    @hlojit.custom_jvp
    def function(x: Any, y: Any) -> Any:
        return np.sin(x) * y

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (a, b) = primals, tangents
        return function(x, y), 10 * np.cos(x) * y * a + np.sin(x) * b

    np.testing.assert_allclose(function(X, X), np.sin(X) * X)
    assert hlojit.grad(function)(1.0, 2.0) == pytest.approx(20 * np.cos(1))
    assert hlojit.grad(function, 1)(1.0, 2.0) == pytest.approx(np.sin(1))
    np.testing.assert_allclose(hlojit.jvp(function, (1.0, 2.0), (1.0, 0.0))[1], 20 * np.cos(1))
    np.testing.assert_allclose(hlojit.vmap(hlojit.grad(function))(X, X), 10 * np.cos(X) * X)
    found = hlojit.grad(lambda x: np.sum(hlojit.vmap(function)(x, np.ones(5))))(X)
    np.testing.assert_allclose(found, 10 * np.cos(X))


def test_a_custom_rule_may_call_the_function() -> None:
    @hlojit.custom_jvp
    def function(x: Any) -> Any:
        return np.exp(x)

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        y = function(*primals)
        return y, 2 * y * tangents[0]

    assert hlojit.grad(hlojit.grad(function))(0.5) == pytest.approx(4 * np.exp(0.5))


def test_custom_vjp() -> None:
    @hlojit.custom_vjp
    def clipped(x: Any, parts: Any) -> Any:
        return np.sum(x * parts["scale"])

    def forward(x: Any, parts: Any) -> Any:
        return clipped(x, parts), (x, parts["scale"])

    clipped.defvjp(forward, lambda kept, t: (np.clip(t * kept[1], -0.5, 0.5) * np.ones_like(kept[0]), None))
    parts = {"scale": np.array(3.0)}
    np.testing.assert_allclose(hlojit.grad(clipped)(X, parts), np.full(5, 0.5))
    _, gradient = hlojit.jit(hlojit.value_and_grad(clipped, (0, 1)))(X, parts)
    assert gradient[1]["scale"] == 0
    np.testing.assert_allclose(
        hlojit.vmap(hlojit.grad(clipped), (0, None))(np.stack([X, X]), parts), np.full((2, 5), 0.5)
    )
    with pytest.raises(hlojit.UnsupportedError, match="custom_vjp, and forward mode needs custom_jvp"):
        hlojit.jacfwd(clipped)(X, parts)


def test_arguments_that_are_no_arrays_for_custom_rules() -> None:
    calls = []

    def function(kind: Any, x: Any) -> Any:
        return getattr(np, kind)(x)

    named = hlojit.custom_jvp(function, nondiff_argnums=(0,))

    @named.defjvp
    def rule(kind: Any, primals: Any, tangents: Any) -> Any:
        calls.append(kind)
        return getattr(np, kind)(*primals), 7 * tangents[0]

    assert hlojit.grad(lambda x: named("sin", x))(1.0) == 7
    assert calls == ["sin"]


def test_checkpoints_compute_again() -> None:
    inner = hlojit.checkpoint(lambda x, k: np.sin(np.sin(x) * k))
    function = hlojit.grad(lambda x: np.sum(inner(x, 2.0)))
    np.testing.assert_allclose(function(X), hlojit.grad(lambda x: np.sum(np.sin(np.sin(x) * 2)))(X))
    text = str(hlojit.jit(function).lower(X))
    assert text.count(".sine ") == 3
    assert "optimization_barrier" in text
    np.testing.assert_allclose(hlojit.hessian(lambda x: np.sum(inner(x, 2.0)))(X).shape, (5, 5))
    np.testing.assert_allclose(inner(X, 2.0), np.sin(np.sin(X) * 2))


def test_checks_inside_raise_and_arguments_stay_inside() -> None:
    def picked(x: Any, k: Any) -> Any:
        return x[k] ** 2

    np.testing.assert_allclose(hlojit.grad(picked)(X, 1), [0, 2 * X[1], 0, 0, 0])
    for transformed in (hlojit.grad(picked), hlojit.jacrev(picked), hlojit.jacfwd(picked)):
        with pytest.raises(IndexError):
            transformed(X, 9)
    with pytest.raises(IndexError):
        hlojit.vmap(picked, (None, 0))(X, np.array([1, 9]))

    def writes(x: Any, y: Any) -> Any:
        y[0] = 0
        return hlojit.grad(lambda z: np.sum(z) * y[1])(x), y

    np.testing.assert_allclose(hlojit.jit(writes)(X, X.copy())[0], np.full(5, X[1]))

    def leaks(x: Any) -> Any:
        y = x * 1

        def inner(z: Any) -> Any:
            y[0] = z[0]
            return np.sum(y * z)

        return hlojit.grad(inner)(x)

    with pytest.raises(hlojit.HlojitError, match="writes into an array that it has not been given"):
        hlojit.jit(leaks)(X)


def test_loops_and_branches_of_functions() -> None:
    def powers(x: Any) -> Any:
        return hlojit.fori_loop(0, 3, lambda i, s: s * x + i, x)

    assert hlojit.grad(powers)(2.0) == pytest.approx(4 * 8 + 0 + 1)
    np.testing.assert_allclose(hlojit.vmap(hlojit.grad(powers))(X), 4 * X**3 + 1)
    chosen = hlojit.grad(lambda x: hlojit.cond(x > 0, np.sin, lambda y: y * y, x))
    assert (chosen(-2.0), chosen(0.0)) == (-4.0, 0.0)
    np.testing.assert_allclose(hlojit.vmap(chosen)(X), np.where(X > 0, np.cos(X), 2 * X))

    def until(x: Any) -> Any:
        return hlojit.while_loop(lambda s: s < 100.0, lambda s: s * x, x)

    assert hlojit.jacfwd(until)(3.0) == 5 * 3.0**4
    np.testing.assert_allclose(hlojit.vmap(until)(np.array([2.0, 3.0])), [128.0, 243.0])
    assert hlojit.grad(until)(3.0) == 5 * 3.0**4
    _, rows = hlojit.vmap(lambda x: hlojit.scan(lambda s, a: (s + a, s * a), 0.0, x))(np.stack([X, X]))
    assert rows.shape == (2, 5)
    sums = hlojit.grad(lambda x: hlojit.scan(lambda s, a: (s * a, s + a), 1.0, x)[0])
    np.testing.assert_allclose(sums(X), np.prod(X) / X)


# refused


def test_arguments_that_are_refused() -> None:
    with pytest.raises(hlojit.ArgumentError, match=r"argument\[0\] has elements of type i64"):
        hlojit.grad(energy)(np.arange(3))
    with pytest.raises(hlojit.ArgumentError, match="returned an array of shape"):
        hlojit.grad(np.sin)(X)
    with pytest.raises(hlojit.ArgumentError, match="must return a real number, and returned i64"):
        hlojit.grad(np.argmax)(X)
    with pytest.raises(hlojit.ArgumentError, match="say holomorphic=True"):
        hlojit.grad(lambda x: np.sum(x * 1j))(X)
    with pytest.raises(hlojit.ArgumentError, match="argnums"):
        hlojit.grad(energy, 1)(X)
    with pytest.raises(hlojit.ArgumentError, match="batches have different sizes: 5 .* 3"):
        hlojit.vmap(lambda a, b: a)(X, M)
    with pytest.raises(hlojit.ArgumentError, match="tangents must have the types"):
        hlojit.jvp(energy, (X,), (X[:3],))
    with pytest.raises(hlojit.HlojitError, match="has no derivative yet: call defjvp"):
        hlojit.grad(hlojit.custom_jvp(lambda x: x))(1.0)


def test_ops_without_a_rule_are_named() -> None:
    def function(x: Any) -> Any:
        return hlojit.op("chlo.bessel_i1e")(x)

    with pytest.raises(
        hlojit.UnsupportedError, match="the derivative of chlo.bessel_i1e is not supported: .*custom_jvp"
    ) as caught:
        hlojit.grad(function)(1.0)
    assert "test_functions.py" in str(caught.value)
