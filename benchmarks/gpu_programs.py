"""The programs of ``python -m benchmarks.gpu``: what is bound by memory in several sizes, products of all types, whole models.

    case = CASES["softmax_64m"]
    program = case.program()            # a benchmarks.programs.Program; makes the arrays
    case.nbytes, case.operations        # what it has to move and to compute: for shares of what the machine can do

Arrays are a block of random numbers, repeated: making 1 GB of others would take longer than everything that is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from benchmarks.gpu_models import gpt2_batched_forward, gpt2_training_step
from benchmarks.programs import Program, _layer_norm

Array = np.ndarray[Any, Any]
BLOCK = (1 << 20) - 3
"""Elements of the random block: a prime-like length, so that rows are not alike."""
COLUMNS = 4096
"""Of what is worked on row by row."""


@dataclass(frozen=True)
class Case:
    """A program with what is known of it beforehand."""

    name: str
    group: str
    make: Callable[[], Program]
    nbytes: int = 0
    """What it moves at least, if it is bound by memory."""
    operations: float = 0.0
    """Of its products, two for a multiply-add."""
    dtype: str = ""
    """What its products multiply."""
    tolerance: float = 1e-4
    """Relative to the largest element of a result."""
    seconds: float = 60.0
    """How long everything about it may take."""
    not_on_cpu: bool = False
    """JAX's CPU back end has no such product."""

    def program(self) -> Program:
        """Make it."""
        return self.make()


_shapes_only: ContextVar[bool] = ContextVar("shapes_only", default=False)


@contextmanager
def shapes_only() -> Iterator[None]:
    """A block in which arrays are one zero that is seen everywhere: for those who only want to compile."""
    token = _shapes_only.set(True)
    try:
        yield
    finally:
        _shapes_only.reset(token)


def filled(*shape: int, dtype: Any = np.float32, scale: float = 1.0, seed: int = 0) -> Array:
    """An array of normal numbers, or of small integers for integer types."""
    random, kind = np.random.default_rng(seed), np.dtype(dtype)
    if _shapes_only.get():
        return np.broadcast_to(np.zeros((), kind), shape)
    if kind.kind in "iu":
        block = random.integers(-7, 8, BLOCK).astype(kind)
    else:
        block = (random.standard_normal(BLOCK, np.float32) * np.float32(scale)).astype(kind)
    return np.resize(block, shape)


def _program(
    name: str, function: Callable[..., Any], arguments: Callable[[], Sequence[Any]], tolerance: float
) -> Program:
    return Program(name, function, tuple(arguments()), tolerance)


# ------------------------------------------------------------------------------------------------------ bound by memory


def _rms_norm(x: Any, scale: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def _chain(x: Any) -> Any:
    return 0.5 * x * (1 + jnp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def _softmax_gradient(x: Any, g: Any) -> Any:
    return jax.vjp(partial(jax.nn.softmax, axis=-1), x)[1](g)[0]


def _layer_norm_gradient(x: Any, scale: Any, g: Any) -> Any:
    return jax.vjp(lambda x, scale: _layer_norm(x, scale, 0.0), x, scale)[1](g)


def _of_rows(function: Callable[..., Any], arrays: float, *more: int, dtype: Any = np.float32) -> Any:
    """A function of rows x 4096 elements that moves so many arrays of this size; ``more``: vectors of 4096, as -1 matrices."""

    def make(name: str, nbytes: int, tolerance: float) -> tuple[Callable[[], Program], int]:
        rows = max(1, nbytes // np.dtype(dtype).itemsize // COLUMNS)

        def arguments() -> list[Any]:
            shapes = [(rows, COLUMNS) if each < 0 else (COLUMNS,) for each in (-1, *more)]
            return [filled(*shape, dtype=dtype, seed=number) for number, shape in enumerate(shapes)]

        return partial(_program, name, function, arguments, tolerance), int(
            arrays * rows * COLUMNS * np.dtype(dtype).itemsize
        )

    return make


def _line(function: Callable[..., Any], arrays: float) -> Any:
    """A function of one line of elements."""

    def make(name: str, nbytes: int, tolerance: float) -> tuple[Callable[[], Program], int]:
        return partial(_program, name, function, lambda: [filled(nbytes // 4)], tolerance), int(arrays * nbytes)

    return make


def _table(function: Callable[..., Any], arrays: float) -> Any:
    """A function of a table of rows of 1024 and as many numbers of rows."""

    def make(name: str, nbytes: int, tolerance: float) -> tuple[Callable[[], Program], int]:
        rows = max(1, nbytes // 4096)

        def arguments() -> list[Any]:
            numbers = np.random.default_rng(3).integers(0, rows, rows).astype(np.int32)
            return [filled(rows, 1024), numbers]

        return partial(_program, name, function, arguments, tolerance), int(arrays * rows * 4096)

    return make


_BF16 = ml_dtypes.bfloat16
_MEMORY: dict[str, tuple[Any, float]] = {
    "copy": (_of_rows(lambda x: -x, 2), 0.0),
    "add": (_of_rows(lambda x, y: x + y, 3, -1), 0.0),
    "chain": (_of_rows(_chain, 2), 1e-5),
    "chain_bf16": (_of_rows(_chain, 2, dtype=_BF16), 4e-2),
    "softmax": (_of_rows(partial(jax.nn.softmax, axis=-1), 2), 1e-5),
    "softmax_bf16": (_of_rows(partial(jax.nn.softmax, axis=-1), 2, dtype=_BF16), 4e-2),
    "layer_norm": (_of_rows(_layer_norm, 2, 1, 1), 1e-4),
    "rms_norm": (_of_rows(_rms_norm, 2, 1), 1e-4),
    "softmax_gradient": (_of_rows(_softmax_gradient, 3, -1), 1e-4),
    "layer_norm_gradient": (_of_rows(_layer_norm_gradient, 3, 1, -1), 1e-3),
    "sum_rows": (_of_rows(lambda x: x.sum(1), 1), 1e-4),
    "sum_columns": (_of_rows(lambda x: x.sum(0), 1), 1e-4),
    "sum_all": (_of_rows(jnp.sum, 1), 1e-2),
    "argmax_rows": (_of_rows(lambda x: jnp.argmax(x, 1), 1), 0.0),
    "transpose": (_of_rows(lambda x: x.T, 2), 0.0),
    "cumsum_rows": (_of_rows(lambda x: jnp.cumsum(x, 1), 2), 1e-3),
    "cumsum_line": (_line(jnp.cumsum, 2), 1e-2),
    "sort_line": (_line(jnp.sort, 2), 0.0),
    "sort_rows": (_of_rows(partial(jnp.sort, axis=1), 2), 0.0),
    "top_k": (_of_rows(lambda x: lax.top_k(x, 8), 1), 0.0),
    "gather": (_table(lambda x, i: x[i], 2), 0.0),
    "scatter_add": (_table(lambda x, i: jnp.zeros_like(x).at[i].add(x), 2), 1e-4),
}
_ONE_SIZE = (
    "chain_bf16",
    "softmax_bf16",
    "argmax_rows",
    "cumsum_line",
    "sort_line",
    "sort_rows",
    "top_k",
    "scatter_add",
)
"""What is measured in the smallest size only: it takes long, or its larger sizes say nothing else."""


def _memory_cases(sizes: Sequence[tuple[str, int]]) -> list[Case]:
    cases = []
    for name, (shape, tolerance) in _MEMORY.items():
        for label, nbytes in sizes[:1] if name in _ONE_SIZE else sizes:
            full = f"{name}_{label}"
            make, moved = shape(full, nbytes, tolerance)
            cases.append(Case(full, "memory", make, nbytes=moved, tolerance=tolerance))
    return cases


# -------------------------------------------------------------------------------------------------------------- products


def _dot(x: Any, y: Any, result: Any, precision: Any = None) -> Any:
    """Rows by rows: terms are neighbours on both sides, as products of bytes want them."""
    return lax.dot_general(x, y, (((1,), (1,)), ((), ())), precision=precision, preferred_element_type=result)


def _product(name: str, shape: tuple[int, int, int], dtype: Any, result: Any, **more: Any) -> Case:
    m, n, k = shape
    kind, precision = np.dtype(dtype), more.pop("precision", None)

    def arguments() -> list[Any]:
        scale = 1.0 if kind.itemsize > 1 else 0.25
        return [filled(m, k, dtype=kind, scale=scale), filled(n, k, dtype=kind, scale=scale, seed=1)]

    function = partial(_dot, result=result, precision=precision)
    usual = {4: 1e-4, 2: 2e-2, 1: 6e-2}[kind.itemsize] if kind.kind != "i" else 0.0
    label, tolerance = more.pop("label", kind.name), more.pop("tolerance", usual)
    return Case(
        name, "products", partial(_program, name, function, arguments, tolerance),
        nbytes=kind.itemsize * (m * k + n * k) + np.dtype(result).itemsize * m * n, operations=2.0 * m * n * k,
        dtype=label, tolerance=tolerance, **more,
    )  # fmt: skip


def _mlp(x: Any, up: Any, down: Any) -> Any:
    return jax.nn.gelu(x @ up) @ down


def _mlp_case(name: str, rows: int, width: int) -> Case:
    def arguments() -> list[Any]:
        return [
            filled(rows, width, dtype=_BF16),
            filled(width, 4 * width, dtype=_BF16, scale=width**-0.5),
            filled(4 * width, width, dtype=_BF16, scale=(4 * width) ** -0.5),
        ]

    return Case(
        name, "products", partial(_program, name, _mlp, arguments, 4e-2), nbytes=2 * (2 * rows * width + 8 * width * width),
        operations=16.0 * rows * width * width, dtype="bfloat16", tolerance=4e-2,
    )  # fmt: skip


def _batched_case(name: str, batch: int, length: int, width: int) -> Case:
    def arguments() -> list[Any]:
        return [filled(batch, length, width, dtype=_BF16, seed=seed) for seed in (0, 1)]

    return Case(
        name, "products", partial(_program, name, lambda x, y: jnp.einsum("btd,bsd->bts", x, y), arguments, 2e-2),
        nbytes=2 * batch * length * (2 * width + length), operations=2.0 * batch * length * length * width,
        dtype="bfloat16", tolerance=2e-2,
    )  # fmt: skip


def _convolution_case(name: str, images: int, side: int, channels: int, dtype: Any) -> Case:
    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def arguments() -> list[Any]:
        weights = filled(3, 3, channels, channels, dtype=dtype, scale=(9 * channels) ** -0.5, seed=1)
        return [filled(images, side, side, channels, dtype=dtype), weights]

    elements, itemsize = images * side * side * channels, np.dtype(dtype).itemsize
    return Case(
        name, "products", partial(_program, name, function, arguments, 2e-2),
        nbytes=itemsize * (2 * elements + 9 * channels * channels), operations=18.0 * elements * channels,
        dtype=np.dtype(dtype).name, tolerance=2e-2,
    )  # fmt: skip


def _product_cases(cubes: Sequence[int], scale: int) -> list[Case]:
    middle = cubes[min(2, len(cubes) - 1)]
    cube = (middle,) * 3
    tf32 = lax.DotAlgorithmPreset.TF32_TF32_F32
    return [
        *(_product(f"bf16_{size}", (size, size, size), _BF16, _BF16) for size in cubes),
        _product("bf16_to_f32", cube, _BF16, np.float32, tolerance=1e-3),
        _product("f16", cube, np.float16, np.float16),
        _product("tf32", cube, np.float32, np.float32, precision=tf32, label="tf32", tolerance=2e-3, not_on_cpu=True),
        _product("f32", cube, np.float32, np.float32, precision=lax.Precision.HIGHEST, tolerance=1e-4),
        _product("fp8", cube, ml_dtypes.float8_e4m3fn, _BF16),
        *(_product(f"fp8_{size}", (size,) * 3, ml_dtypes.float8_e4m3fn, _BF16) for size in cubes[3:]),
        _product("int8", cube, np.int8, np.int32),
        _product("bf16_8_rows", (8, middle, middle), _BF16, _BF16),
        _product("bf16_1_row", (1, middle, middle), _BF16, _BF16),
        _mlp_case("mlp_768", 4096 // scale**2, 768 // scale),
        _mlp_case("mlp_4096", 4096 // scale**2, 4096 // scale**2),
        _batched_case("attention_scores", 96 // scale, 512 // scale, 64),
        _convolution_case("convolution_3x3_64", 32 // scale, 56 // scale, 64, _BF16),
        _convolution_case("convolution_3x3_256", 32 // scale, 28 // scale, 256 // scale, _BF16),
    ]


# ------------------------------------------------------------------------------------------------------ models, launches


def _rounds(x: Any) -> Any:
    """50 kernels: what follows a maximum of everything is not fused with what comes before."""
    for _ in range(49):
        x = x - 0.5 * x.max()
    return x


def _model_cases(is_small: bool) -> list[Case]:
    sizes = {"layers": 1, "width": 128, "vocabulary": 257, "batch": 2, "length": 16} if is_small else {}
    three = partial(
        _program, "launch_three_arrays", lambda x, y: x + y, lambda: [filled(1024), filled(1024, seed=1)], 0.0
    )
    fifty = partial(_program, "fifty_kernels", _rounds, lambda: [filled(4096)], 1e-5)
    forward, training = (partial(make, **sizes) for make in (gpt2_batched_forward, gpt2_training_step))
    return [
        Case("launch_three_arrays", "launches", three, tolerance=0.0),
        Case("fifty_kernels", "launches", fifty, tolerance=1e-5),
        Case("gpt2_forward_bf16", "models", forward, dtype="bfloat16", tolerance=6e-2, seconds=120.0),
        Case("gpt2_training_step", "models", training, dtype="bfloat16", tolerance=6e-2, seconds=180.0),
    ]


SIZES = (("64m", 64 << 20), ("256m", 256 << 20), ("1g", 1 << 30))


def cases(*, dry: bool = False, quick: bool = False) -> dict[str, Case]:
    """All by name, in the order of their weight; ``quick``: fewer sizes; ``dry``: tiny ones, to try everything without a GPU."""
    sizes = [("64m", 64 << 10)] if dry else list(SIZES[:1] if quick else SIZES)
    cubes = (32, 48, 64) if dry else (1024, 4096) if quick else (1024, 2048, 4096, 8192)
    memory = _memory_cases(sizes)
    first = [case for case in memory if case.name.endswith(sizes[0][0])]
    later = [case for case in memory if case not in first]
    models = _model_cases(dry)
    found = [*models[:2], *first, *_product_cases(cubes, 8 if dry else 1), *models[2:], *later]
    return {case.name: case for case in found}
