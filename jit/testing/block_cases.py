"""Programs that block formats are tried with, and what they must give: parts, or numbers within a bound.

Each case is a program in text over arguments in blocks, with its results worked out by ``hlojit.testing.block_model``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
from hlojit.compiler import parse
from hlojit.extensions import BlockFormat
from hlojit.ir.graph import Module
from hlojit.testing.block_model import BlockModel

NDArray = np.ndarray[Any, Any]
Expected = Callable[["BlockDraft"], list[Any]]

_LONGEST_BLOCK: Final = 256
"""Of longer blocks arrays of one short block are tried."""


def numbers_for(shape: Sequence[int], seed: int) -> NDArray:
    """Numbers of different sizes."""
    random = np.random.default_rng([seed, *shape])
    numbers = random.standard_normal(shape) * 2.0 ** random.integers(-4, 5, shape)
    return np.asarray(numbers.astype(np.float32))


def rounding_numbers(model: BlockModel, samples: int, seed: int) -> NDArray:
    """Lines of blocks that are hard to encode: elements and scales at and beside their roundings, and every edge of f32."""
    width = min(model.row.block, _LONGEST_BLOCK)
    blocks = [
        *_element_blocks(model, samples, width),
        *_scale_blocks(model, samples, width),
        *_edge_blocks(width, seed),
    ]
    together = 2 if width == model.row.block else 1
    flat = np.array([*blocks, *blocks[: -len(blocks) % together]], np.float32).reshape(-1, width * together)
    # The last block of a line is shorter.
    return np.asarray(flat[:, : flat.shape[1] - width // 3])


def _beside(numbers: Sequence[Fraction], samples: int) -> NDArray:
    """Numbers, what lies in the middle between two of them, and the neighbours in f32."""
    chosen = list(numbers[:: max(1, len(numbers) // max(samples, 1))])
    with np.errstate(all="ignore"):
        middle = [(low + high) / 2 for low, high in zip(chosen, chosen[1:])]
        exactly = np.array([float(each) for each in (*chosen, *middle)], np.float64).astype(np.float32)
        near = [np.nextafter(exactly, np.float32(limit)) for limit in (np.inf, -np.inf)]
    found: NDArray = np.concatenate([exactly, *near])
    return np.asarray(found[np.isfinite(found)])


def _element_blocks(model: BlockModel, samples: int, width: int) -> Iterator[NDArray]:
    """The first number of each block says what its scale is."""
    top = np.float32(float(model.elements.top))
    numbers = _beside(model.elements.finite, samples)
    step = max(width - 1, 1)
    for exponent in (0, 3, -5, -20):
        for start in range(0, len(numbers), step):
            block = np.zeros(width, np.float32)
            block[0] = top
            chosen = numbers[start : start + step]
            block[width - len(chosen) :] = chosen
            yield np.ldexp(block, exponent)


def _scale_blocks(model: BlockModel, samples: int, width: int) -> Iterator[NDArray]:
    """Blocks whose largest number is at and beside where the scale changes."""
    positive = [each for each in model.scales.finite if each > 0]
    with np.errstate(all="ignore"):
        for largest in _beside(positive, samples // 4) * np.float32(float(model.elements.top)):
            if np.isfinite(largest):
                yield (largest / np.arange(1, width + 1, dtype=np.float32) * (-1) ** np.arange(width)).astype(
                    np.float32
                )


def _edge_blocks(width: int, seed: int) -> Iterator[NDArray]:
    limits, random = np.finfo(np.float32), np.random.default_rng(seed)
    for special in (np.nan, np.inf, -np.inf, -0.0, limits.max, limits.tiny, limits.smallest_subnormal):
        for place in {0, width - 1}:
            block = random.standard_normal(width).astype(np.float32)
            block[place] = special
            yield block
        yield np.full(width, special, np.float32)
    yield np.zeros(width, np.float32)
    for exponent in range(-140, 120, 20):
        yield np.ldexp(random.standard_normal(width), exponent).astype(np.float32)


class BlockDraft:
    """Arguments of cases: two arrays in blocks, of whole blocks where the format's are short."""

    def __init__(self, row: BlockFormat, model: BlockModel, seed: int, rows: int = 3):
        self.row = row
        self.model = model
        self.seed = seed
        self.rank = max(2, row.axis + 1, -row.axis)
        self.axis = row.axis % self.rank
        self.other = next(each for each in range(self.rank) if each != self.axis)
        self.has_whole_blocks = row.block <= _LONGEST_BLOCK
        extent = 2 * row.block if self.has_whole_blocks else 48
        self.shape = tuple(extent if each == self.axis else rows for each in range(self.rank))

    def type(self, shape: Sequence[int] | None = None, element: str = "") -> str:
        """The text of a tensor type."""
        sizes = "".join(f"{each}x" for each in (self.shape if shape is None else shape))
        return f"tensor<{sizes}{element or self.row.name}>"

    def with_size(self, dimension: int, size: int) -> tuple[int, ...]:
        """The shape with another size."""
        return tuple(size if each == dimension else extent for each, extent in enumerate(self.shape))

    @cached_property
    def parts(self) -> tuple[list[NDArray], list[NDArray]]:
        """Codes of the two arguments."""
        first, second = (self.model.encode(numbers_for(self.shape, self.seed + each)) for each in (1, 2))
        return first, second

    @cached_property
    def numbers(self) -> tuple[NDArray, NDArray]:
        """What they stand for."""
        first, second = map(self.model.decode, self.parts)
        return first, second


@dataclass(frozen=True)
class BlockCase:
    """One program: ``body`` says what stands between arguments and return, and the types of the results %r0, %r1 ..."""

    group: str
    name: str
    body: Callable[[BlockDraft], tuple[str, list[str]]]
    results: Expected
    rows: int = 3

    def _sized(self, draft: BlockDraft) -> BlockDraft:
        return draft if self.rows == 3 else BlockDraft(draft.row, draft.model, draft.seed, self.rows)

    def program(self, draft: BlockDraft) -> tuple[Module, tuple[list[NDArray], list[NDArray]]]:
        """The module and the codes of its arguments."""
        draft = self._sized(draft)
        body, kinds = self.body(draft)
        names = ", ".join(f"%r{number}" for number in range(len(kinds)))
        kind, given = draft.type(), ", ".join(kinds)
        text = f"func.func @main(%x: {kind}, %y: {kind}) -> ({given}) {{\n{body}\nreturn {names} : {given}\n}}"
        return parse(text), draft.parts

    def expected(self, draft: BlockDraft) -> list[Any]:
        """For each result parts, or numbers and how far others may be from them."""
        return self.results(self._sized(draft))


def block_cases(row: BlockFormat) -> list[BlockCase]:
    """The programs that a format is tried with."""
    short = row.block <= _LONGEST_BLOCK
    one = row.tensor_scale is None
    return [
        *_computing(),
        *_moving(whole=short, several=one, leading=row.axis < 0),
        *_structures(),
        *_products(),
        *_constants(),
    ]


# what computes


def _pointwise(name: str, compute: Callable[[NDArray, NDArray], NDArray], operands: str = "%x, %y") -> BlockCase:
    def body(draft: BlockDraft) -> tuple[str, list[str]]:
        return f"%r0 = stablehlo.{name} {operands} : {draft.type()}", [draft.type()]

    def results(draft: BlockDraft) -> list[Any]:
        with np.errstate(all="ignore"):
            return [draft.model.encode(compute(*draft.numbers))]

    return BlockCase("arithmetic", name, body, results)


def _computing() -> list[BlockCase]:
    def compared(draft: BlockDraft) -> tuple[str, list[str]]:
        kind, truth = draft.type(), draft.type(element="i1")
        return (
            f"%r0 = stablehlo.compare LT, %x, %y : ({kind}, {kind}) -> {truth}\n"
            f"%r1 = stablehlo.select %r0, %x, %y : {truth}, {kind}",
            [truth, kind],
        )

    def chosen(draft: BlockDraft) -> list[Any]:
        x, y = draft.numbers
        return [_exactly(x < y), draft.model.encode(np.where(x < y, x, y))]

    return [
        _pointwise("add", lambda x, y: x + y),
        _pointwise("subtract", lambda x, y: x - y),
        _pointwise("multiply", lambda x, y: x * y),
        _pointwise("divide", lambda x, y: x / y),
        _pointwise("maximum", lambda x, y: np.where(x == y, np.where(np.signbit(x), y, x), np.maximum(x, y))),
        _pointwise("minimum", lambda x, y: np.where(x == y, np.where(np.signbit(x), x, y), np.minimum(x, y))),
        _pointwise("negate", lambda x, y: -x, "%x"),
        _pointwise("abs", lambda x, y: np.abs(x), "%x"),
        BlockCase("arithmetic", "compare, select", compared, chosen),
    ]


def _exactly(numbers: NDArray) -> tuple[NDArray, NDArray]:
    return numbers.astype(np.float64), np.zeros(numbers.shape)


# what moves


def _moved(parts: list[NDArray], elements: Callable[[NDArray], NDArray], scales: Callable[[NDArray], NDArray]) -> Any:
    return [elements(parts[0]), scales(parts[1]), *parts[2:]]


def _move(name: str, text: Callable[[BlockDraft], tuple[str, Sequence[int]]], move: Callable[..., Any]) -> BlockCase:
    """An op from %x to a result of a shape; ``move(draft, part, number)`` does the same to elements (0) and scales (1)."""

    def body(draft: BlockDraft) -> tuple[str, list[str]]:
        said, shape = text(draft)
        kind = draft.type(shape)
        indices = (
            "%i = stablehlo.constant dense<1> : tensor<i32>\n%places = stablehlo.constant dense<[2, 0]> : tensor<2xi32>"
        )
        return f"{indices}\n%r0 = {said}{kind}", [kind]

    def results(draft: BlockDraft) -> list[Any]:
        parts = draft.parts[0]
        return [_moved(parts, *(lambda part, number=number: move(draft, part, number) for number in (0, 1)))]

    return BlockCase("movement", name, body, results)


def _ranges(draft: BlockDraft, dimension: int, low: int, high: int) -> str:
    """The text of a slice along one dimension."""
    places = [f"{low}:{high}" if each == dimension else f"0:{size}" for each, size in enumerate(draft.shape)]
    return f"[{', '.join(places)}]"


def _moving(*, whole: bool, several: bool, leading: bool) -> Iterator[BlockCase]:
    yield _move(
        "slice of rows",
        lambda d: (f"stablehlo.slice %x {_ranges(d, d.other, 1, 3)} : ({d.type()}) -> ", d.with_size(d.other, 2)),
        lambda d, part, number: part.take(range(1, 3), axis=d.other),
    )
    yield _move(
        "reverse of rows",
        lambda d: (f"stablehlo.reverse %x, dims = [{d.other}] : ", d.shape),
        lambda d, part, number: np.flip(part, d.other),
    )
    yield _move("gather of rows", _gather, lambda d, part, number: part.take([2, 0], axis=d.other))
    yield _move(
        "dynamic_slice",
        lambda d: (
            f"stablehlo.dynamic_slice %x, {', '.join(['%i'] * d.rank)}, sizes = {list(d.with_size(d.other, 1))} : "
            f"({', '.join([d.type(), *['tensor<i32>'] * d.rank])}) -> ",
            d.with_size(d.other, 1),
        ),
        lambda d, part, number: part.take([1], axis=d.other),
    )
    if whole:
        yield from _moving_blocks()
    if several:
        yield _move(
            "concatenate",
            lambda d: (
                f"stablehlo.concatenate %x, %x, dim = {d.other} : ({d.type()}, {d.type()}) -> ",
                d.with_size(d.other, 2 * d.shape[d.other]),
            ),
            lambda d, part, number: np.concatenate([part, part], d.other),
        )
    if leading:
        yield _move(
            "broadcast_in_dim",
            lambda d: (
                f"stablehlo.broadcast_in_dim %x, dims = {list(range(1, d.rank + 1))} : ({d.type()}) -> ",
                (2, *d.shape),
            ),
            lambda d, part, number: np.stack([part, part]),
        )


def _moving_blocks() -> Iterator[BlockCase]:
    yield _move(
        "slice of blocks",
        lambda d: (
            f"stablehlo.slice %x {_ranges(d, d.axis, d.row.block, 2 * d.row.block)} : ({d.type()}) -> ",
            d.with_size(d.axis, d.row.block),
        ),
        lambda d, part, number: np.split(part, 2, axis=d.axis)[1],
    )
    yield _move(
        "reverse of blocks",
        lambda d: (f"stablehlo.reverse %x, dims = [{d.axis}] : ", d.shape),
        lambda d, part, number: np.flip(part, d.axis),
    )


def _gather(draft: BlockDraft) -> tuple[str, Sequence[int]]:
    kept = [each for each in range(draft.rank) if each != draft.other]
    sizes = ", ".join(map(str, draft.with_size(draft.other, 1)))
    said = (
        f'"stablehlo.gather"(%x, %places) {{dimension_numbers = #stablehlo.gather<offset_dims = {kept}, '
        f"collapsed_slice_dims = [{draft.other}], start_index_map = [{draft.other}], index_vector_dim = 1>, "
        f"slice_sizes = array<i64: {sizes}>}} : ({draft.type()}, tensor<2xi32>) -> "
    )
    return said, draft.with_size(draft.other, 2)


# control flow, products, constants


def _structures() -> list[BlockCase]:
    def loop(draft: BlockDraft) -> tuple[str, list[str]]:
        kind = draft.type()
        body = f"""%zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<3> : tensor<i32>
  %k, %r0, %r1 = stablehlo.while(%i = %zero, %v = %x, %w = %y) : tensor<i32>, {kind}, {kind}
   cond {{
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %next = stablehlo.add %i, %one : tensor<i32>
    %sum = stablehlo.add %v, %w : {kind}
    stablehlo.return %next, %w, %sum : tensor<i32>, {kind}, {kind}
  }}"""
        return body, [kind, kind]

    def turned(draft: BlockDraft) -> list[Any]:
        model, (first, second) = draft.model, draft.parts
        for _ in range(3):
            first, second = second, model.encode(model.decode(first) + model.decode(second))
        return [first, second]

    def through(draft: BlockDraft) -> tuple[str, list[str]]:
        return f"%r0, %r1 = stablehlo.optimization_barrier %y, %x : {draft.type()}, {draft.type()}", [draft.type()] * 2

    return [
        BlockCase("control flow", "while", loop, turned),
        BlockCase("control flow", "arguments as results", through, lambda draft: [draft.parts[1], draft.parts[0]]),
    ]


def _products() -> Iterator[BlockCase]:
    def body(draft: BlockDraft) -> tuple[str, list[str]]:
        kind, free = draft.type(), [size for each, size in enumerate(draft.shape) if each != draft.axis]
        product, sums = draft.type([*free, *free], "f32"), draft.type(free, "f32")
        return (
            f"%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
            f"%r0 = stablehlo.dot_general %x, %y, contracting_dims = [{draft.axis}] x [{draft.axis}] : "
            f"({kind}, {kind}) -> {product}\n"
            f"%r1 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [{draft.axis}] : "
            f"({kind}, tensor<f32>) -> {sums}",
            [product, sums],
        )

    def results(draft: BlockDraft) -> list[Any]:
        x, y = (each.astype(np.float64) for each in draft.numbers)
        dims = ((draft.axis,), (draft.axis,))
        unit = draft.shape[draft.axis] * 2.0**-23
        return [
            (np.tensordot(x, y, dims), np.tensordot(np.abs(x), np.abs(y), dims) * unit),
            (x.sum(draft.axis), np.abs(x).sum(draft.axis) * unit),
        ]

    for rows in (1, 3, 9):
        yield BlockCase("products", f"dot_general and reduce of {rows} rows", body, results, rows)


def _constants() -> list[BlockCase]:
    def body(draft: BlockDraft) -> tuple[str, list[str]]:
        kind, numbers = draft.type(), numbers_for(draft.shape, draft.seed)
        return (
            f"%r0 = stablehlo.constant dense<1.7> : {kind}\n%r1 = stablehlo.constant dense<{numbers.tolist()}> : {kind}\n"
            f"%c = stablehlo.constant dense<-0.3> : {kind}\n%r2 = stablehlo.multiply %x, %c : {kind}",
            [kind] * 3,
        )

    def results(draft: BlockDraft) -> list[Any]:
        model = draft.model
        once = model.encode(np.full(draft.shape, 1.7, np.float32))
        factor = model.decode(model.encode(np.full(draft.shape, -0.3, np.float32)))
        return [once, model.encode(numbers_for(draft.shape, draft.seed)), model.encode(draft.numbers[0] * factor)]

    return [BlockCase("constants", "splats, lists and factors", body, results)]
