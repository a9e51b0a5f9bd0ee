"""The programs of ``benchmarks.sorting``: what is sorted, selected or summed by segments, and what each peer is asked for.

A case has a program of JAX, which hlojit compiles, and a function for every peer: NumPy's, JAX's own compiled program, or
PyTorch's ``topk`` as inductor compiles it, where ``torch`` is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = np.ndarray[Any, Any]
Peer = Callable[..., Any]

TYPES = ("f4", "f8", "f2", "bf16", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
LENGTHS = (256, 4096, 1 << 16, 1 << 20)
LONGEST = 1 << 24
INPUTS = ("random", "sorted", "reversed", "constant", "few", "nan")
ROWS = ((4096, 64), (2048, 512), (1024, 1000), (1000, 1024, 0), (4096, 64, 0))
"""Lines and their length; with a third number, the dimension that is sorted."""
GROUPS = ("sort", "rows", "argsort", "first", "middle", "top_k", "scatter")


@dataclass(frozen=True)
class Case:
    """One program and its arguments, and who else computes it."""

    group: str
    name: str
    dtype: str
    ours: Callable[..., Any]
    peers: Mapping[str, Peer]
    arrays: tuple[Array, ...]
    tolerance: float = 0.0
    compared: Callable[[Any], Any] = field(default=lambda result: result)
    """What of hlojit's results the peers compute too."""


def cases(types: tuple[str, ...], groups: tuple[str, ...], quick: bool) -> Iterator[Case]:
    """Those of some types and groups."""
    generator = np.random.default_rng(0)
    for dtype in types:
        for group in groups:
            if group != "scatter" and (dtype != "bf16" or group == "top_k"):
                yield from MAKERS[group](generator, dtype, quick)
    if "scatter" in groups:
        yield from scatters(generator)


def sorts(generator: np.random.Generator, dtype: str, quick: bool) -> Iterator[Case]:
    """Lengths and inputs."""
    for length in LENGTHS[:3] if quick else LENGTHS:
        for kind in INPUTS:
            if kind != "nan" or dtype.startswith("f"):
                array = drawn(generator, dtype, length, kind)
                yield Case("sort", f"{length} {kind}", dtype, jnp.sort, {"numpy": np.sort}, (array,))
    if not quick and dtype in ("f4", "i8"):
        array = drawn(generator, dtype, LONGEST, "random")
        yield Case("sort", f"{LONGEST} random", dtype, jnp.sort, {"numpy": np.sort}, (array,))


def rows(generator: np.random.Generator, dtype: str, quick: bool) -> Iterator[Case]:
    """Lines side by side, and one behind the other."""
    for *shape, axis in [(*row, 1) if len(row) == 2 else row for row in (ROWS[:2] if quick else ROWS)]:
        array = drawn(generator, dtype, shape[0] * shape[1], "random").reshape(shape)
        ours, theirs = partial(jnp.sort, axis=axis), partial(np.sort, axis=axis)
        yield Case("rows", f"{shape[0]}x{shape[1]} along {axis}", dtype, ours, {"numpy": theirs}, (array,))


def argsorts(generator: np.random.Generator, dtype: str, quick: bool) -> Iterator[Case]:
    """Stable ones."""
    for length in LENGTHS[:3] if quick else LENGTHS:
        theirs = partial(np.argsort, kind="stable")
        yield Case(
            "argsort", f"{length}", dtype, jnp.argsort, {"numpy": theirs}, (drawn(generator, dtype, length, "random"),)
        )


def firsts(generator: np.random.Generator, dtype: str, quick: bool) -> Iterator[Case]:
    """The first elements of a sorted line."""
    for count in (8, 96, 4096):
        yield Case(
            "first",
            f"{count} of 65536",
            dtype,
            lambda x, count=count: jnp.sort(x)[:count],
            {"numpy": lambda x, count=count: np.sort(np.partition(x, count)[:count])},
            (drawn(generator, dtype, 1 << 16, "random"),),
        )


def middles(generator: np.random.Generator, dtype: str, quick: bool) -> Iterator[Case]:
    """An element in the middle of a sorted line, and medians of rows."""
    for length in (4096, 1 << 16) if quick else (4096, 1 << 16, 1 << 20):
        for kind in ("random", "sorted", "constant", "few"):
            yield Case(
                "middle",
                f"of {length} {kind}",
                dtype,
                lambda x, place=length // 2: jnp.sort(x)[place],
                {"numpy": lambda x, place=length // 2: np.partition(x, place)[place]},
                (drawn(generator, dtype, length, kind),),
            )
    if dtype in ("f4", "f8"):
        for shape in ((1 << 16,), (256, 1024)):
            array = drawn(generator, dtype, int(np.prod(shape)), "random").reshape(shape)
            yield Case(
                "middle",
                f"median of {'x'.join(map(str, shape))}",
                dtype,
                partial(jnp.median, axis=-1),
                {"numpy": partial(np.median, axis=-1)},
                (array,),
                1e-6,
            )


def top_ks(generator: np.random.Generator, dtype: str, quick: bool) -> Iterator[Case]:
    """The largest elements and their numbers; of equal ones each may take what it likes, so that values are compared."""
    wanted: list[tuple[tuple[int, ...], int, str]] = [((1 << 16,), 8, kind) for kind in INPUTS]
    wanted += [((256, 1024), 8, "random"), ((1 << 16,), 256, "random"), ((32, 32000), 50, "random")]
    if not quick:
        wanted.append(((1 << 20,), 64, "random"))
    for shape, count, kind in wanted:
        if kind == "nan" and not dtype.startswith(("f", "bf")):
            continue
        array = drawn(generator, dtype, int(np.prod(shape)), kind).reshape(shape)
        peers: dict[str, Peer] = {"jax": compiled(lambda x, count=count: lax.top_k(x, count)[0])}
        other = inductor_top_k(dtype, count)
        if other is not None:
            peers["inductor"] = other
        yield Case(
            "top_k",
            f"{count} of {'x'.join(map(str, shape))} {kind}",
            dtype,
            lambda x, count=count: lax.top_k(x, count),
            peers,
            (array,),
            compared=lambda result: result[0],
        )
    if dtype == "f4":
        yield Case(
            "top_k",
            "approx_max_k 8 of 256x1024",
            dtype,
            lambda x: lax.approx_max_k(x, 8),
            {"jax": compiled(lambda x: lax.approx_max_k(x, 8)[0])},
            (drawn(generator, dtype, 1 << 18, "random").reshape(256, 1024),),
            compared=lambda result: result[0],
        )


def scatters(generator: np.random.Generator) -> Iterator[Case]:
    """Sums by segments, counts and histograms; NumPy's ``bincount`` adds up in f64."""
    for updates, segments in ((1 << 16, 256), (1 << 20, 4096), (1 << 20, 1 << 18)):
        values = generator.standard_normal(updates).astype("f4")
        places = generator.integers(0, segments, updates, "i4")
        ours = partial(_segment_sum, segments)
        peers = {"numpy": partial(_bincount_sum, segments), "jax": compiled(ours)}
        yield Case("scatter", f"sum {updates} in {segments}", "f4", ours, peers, (values, places), 1e-2)
        counting = partial(jnp.bincount, length=segments)
        peers = {"numpy": partial(np.bincount, minlength=segments), "jax": compiled(counting)}
        yield Case("scatter", f"bincount {updates} in {segments}", "i4", counting, peers, (places,))
    values = generator.standard_normal(1 << 20).astype("f4")
    for name, ours, theirs in (
        ("histogram 1048576 in 64", partial(_histogram, 64), lambda x: np.histogram(x, 64)[0]),
        ("histogram of bytes 1048576", _byte_histogram, lambda x: np.bincount(x, minlength=256)),
    ):
        array = values if "bytes" not in name else generator.integers(0, 256, 1 << 20, "u1")
        # Where an edge is rounded differently, a number on it is in the next bin.
        peers = {"numpy": theirs, "jax": compiled(ours)}
        yield Case("scatter", name, array.dtype.str[1:], ours, peers, (array,), 4.0 if array is values else 0.0)


def _segment_sum(segments: int, x: Any, places: Any) -> Any:
    return jnp.zeros(segments, x.dtype).at[places].add(x)


def _bincount_sum(segments: int, x: Array, places: Array) -> Array:
    return np.bincount(places, x, segments)


def _histogram(bins: int, x: Any) -> Any:
    return jnp.histogram(x, bins)[0]


def _byte_histogram(x: Any) -> Any:
    return jnp.zeros(256, "i4").at[x].add(1)


MAKERS: dict[str, Callable[[np.random.Generator, str, bool], Iterator[Case]]] = {
    "sort": sorts, "rows": rows, "argsort": argsorts, "first": firsts, "middle": middles, "top_k": top_ks,
}  # fmt: skip


def compiled(function: Callable[..., Any]) -> Peer:
    """JAX's own program, results waited for."""
    program = jax.jit(function)
    return lambda *arrays: np.asarray(program(*arrays))


@cache
def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    return torch


def inductor_top_k(dtype: str, count: int) -> Peer | None:
    """``torch.topk`` compiled by inductor, None where torch or its type is missing."""
    torch = _torch()
    if torch is None or dtype in ("u2", "u4", "u8"):
        return None
    torch._dynamo.reset()  # It compiles one function for few types and shapes only.
    program = torch.compile(lambda x: torch.topk(x, count), dynamic=False)
    known: dict[int, Any] = {}

    def run(array: Array) -> Any:
        tensor = known.get(id(array))
        if tensor is None:
            bits = array.view("i2") if dtype == "bf16" else array
            tensor = known[id(array)] = torch.from_numpy(bits)
            if dtype == "bf16":
                tensor = known[id(array)] = tensor.view(torch.bfloat16)
        values = program(tensor)[0]
        return values.view(torch.int16).numpy().view(array.dtype) if dtype == "bf16" else values.numpy()

    return run


def drawn(generator: np.random.Generator, dtype: str, length: int, kind: str) -> Array:
    """An array of a kind."""
    exact = np.dtype(jnp.bfloat16 if dtype == "bf16" else dtype)
    is_float = exact.kind not in "iu"
    if is_float:
        array = generator.standard_normal(length).astype(exact)
    else:
        limits = np.iinfo(exact)
        array = generator.integers(limits.min, limits.max, length, exact, endpoint=True)
    if kind in ("sorted", "reversed"):
        array = np.sort(array)[:: 1 if kind == "sorted" else -1].copy()
    elif kind == "constant":
        array[:] = 3
    elif kind == "few":
        array = generator.integers(0, 4, length).astype(exact)
    elif kind == "nan":
        array[generator.random(length) < 0.05] = np.nan
    return array
