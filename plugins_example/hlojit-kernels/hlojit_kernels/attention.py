"""Attention in one pass: ``softmax(q k^T scale) v`` without the matrix of scores in memory.

Programs spell it with a dozen ops.  ``match_attention`` finds them behind the last product, whoever wrote them (StableHLO
text, ``@hlojit.jit``, one head or several); ``build_attention`` looks at the operands of both products, and tries the graph
on random numbers to be sure that what stands between them is the softmax it takes it for.  The kernel is a numba function:
a block of queries meets the keys block by block, and keeps each row's greatest score and sum so far.  It multiplies by loops
of its own: BLAS starts threads of its own in each of the runtime's, and all wait for each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hlojit.extensions import Declined, Instruction, Kernel, KernelGroup, SubgraphPattern, TaskFunction

QUERIES, KEYS = (256, 128, 64), 128
"""Queries of a task, the more the better as long as all cores have some, and keys that they meet at a time: a task's scores and
sums stay in a core's second cache."""

BETWEEN = frozenset(
    f"stablehlo.{name}"
    for name in "broadcast_in_dim divide exponential maximum multiply reduce reshape subtract transpose".split()
)
"""What may stand between the two products."""


def match_attention(last: Instruction) -> list[Instruction] | None:
    """From the product with ``v`` backwards to the product of ``q`` and ``k``, which is the only one on the way."""
    members, pending, products = [last], [last.operands[0].producer], []
    while pending:
        each = pending.pop()
        if each is None or each in members or each.name == "stablehlo.constant":
            continue
        members.append(each)
        if each.name == "stablehlo.dot_general":
            products.append(each)
        elif each.name in BETWEEN:
            pending += [operand.producer for operand in each.operands]
        else:
            return None
    exponentials = [each for each in members if each.name == "stablehlo.exponential"]
    return members if len(products) == len(exponentials) == 1 else None


def exponential(x: Any) -> Any:
    """The exponential of an f32 that is not positive, in arithmetic that numba vectorizes: 2**n times a series.

    The error is below 2e-7 of the result; what is below the least normal number is 0, and NaN stays.
    """
    bounded = x if x > np.float32(-87.0) else np.float32(-87.0)
    # Adding 1.5 * 2**23 rounds to an integer, whose bits are then the last ones of the sum.
    shifted = bounded * np.float32(1.4426950408889634) + np.float32(12582912.0)
    power = shifted - np.float32(12582912.0)
    rest = (bounded - power * np.float32(0.693359375)) + power * np.float32(2.12194440e-4)
    series = np.float32(1 / 720)
    series = series * rest + np.float32(1 / 120)
    series = series * rest + np.float32(1 / 24)
    series = series * rest + np.float32(1 / 6)
    series = series * rest + np.float32(1 / 2)
    series = series * rest + np.float32(1)
    series = series * rest + np.float32(1)
    value = series * np.int32((np.float32(shifted).view(np.int32) + np.int32(127)) << np.int32(23)).view(np.float32)
    below = np.float32(0.0) if x <= np.float32(-87.0) else x
    return value if x > np.float32(-87.0) else below


def add_product(a: Any, b: Any, result: Any, columns: int) -> None:
    """result += a b for the first columns: eight rows and four terms at a time, vectors along the columns."""
    rows, depth = a.shape
    whole, fours = rows // 8 * 8, depth // 4 * 4
    for r in range(0, whole, 8):
        for d in range(0, fours, 4):
            a00, a01, a02, a03 = a[r, d], a[r, d + 1], a[r, d + 2], a[r, d + 3]
            a10, a11, a12, a13 = a[r + 1, d], a[r + 1, d + 1], a[r + 1, d + 2], a[r + 1, d + 3]
            a20, a21, a22, a23 = a[r + 2, d], a[r + 2, d + 1], a[r + 2, d + 2], a[r + 2, d + 3]
            a30, a31, a32, a33 = a[r + 3, d], a[r + 3, d + 1], a[r + 3, d + 2], a[r + 3, d + 3]
            a40, a41, a42, a43 = a[r + 4, d], a[r + 4, d + 1], a[r + 4, d + 2], a[r + 4, d + 3]
            a50, a51, a52, a53 = a[r + 5, d], a[r + 5, d + 1], a[r + 5, d + 2], a[r + 5, d + 3]
            a60, a61, a62, a63 = a[r + 6, d], a[r + 6, d + 1], a[r + 6, d + 2], a[r + 6, d + 3]
            a70, a71, a72, a73 = a[r + 7, d], a[r + 7, d + 1], a[r + 7, d + 2], a[r + 7, d + 3]
            for j in range(columns):
                b0, b1, b2, b3 = b[d, j], b[d + 1, j], b[d + 2, j], b[d + 3, j]
                result[r, j] = result[r, j] + a00 * b0 + a01 * b1 + a02 * b2 + a03 * b3
                result[r + 1, j] = result[r + 1, j] + a10 * b0 + a11 * b1 + a12 * b2 + a13 * b3
                result[r + 2, j] = result[r + 2, j] + a20 * b0 + a21 * b1 + a22 * b2 + a23 * b3
                result[r + 3, j] = result[r + 3, j] + a30 * b0 + a31 * b1 + a32 * b2 + a33 * b3
                result[r + 4, j] = result[r + 4, j] + a40 * b0 + a41 * b1 + a42 * b2 + a43 * b3
                result[r + 5, j] = result[r + 5, j] + a50 * b0 + a51 * b1 + a52 * b2 + a53 * b3
                result[r + 6, j] = result[r + 6, j] + a60 * b0 + a61 * b1 + a62 * b2 + a63 * b3
                result[r + 7, j] = result[r + 7, j] + a70 * b0 + a71 * b1 + a72 * b2 + a73 * b3
    for r in range(rows):
        for d in range(fours if r < whole else 0, depth):
            for j in range(columns):
                result[r, j] += a[r, d] * b[d, j]


def weigh(scores: Any, greatest: Any, totals: Any, shrinks: Any, bases: Any, columns: int) -> None:
    """Scores of keys (rows) by queries (columns) become weights; greatest score and sum of each query so far go on.

    ``shrinks`` is by how much what has been summed with the greatest score of before is too large.
    """
    for j in range(columns):  # not by slices: the message about shapes that differ takes numba seconds to compile
        shrinks[j] = greatest[j]
    for row in range(scores.shape[0]):
        for j in range(columns):
            greatest[j] = scores[row, j] if scores[row, j] > greatest[j] else greatest[j]
    for j in range(columns):
        bases[j] = greatest[j] if greatest[j] > -np.inf else np.float32(0.0)  # scores of -inf only, so far
        shrinks[j] = exponential(shrinks[j] - bases[j])
        totals[j] *= shrinks[j]
    for row in range(scores.shape[0]):
        for j in range(columns):
            weight = exponential(scores[row, j] - bases[j])
            scores[row, j] = weight
            totals[j] += weight


def attend_block(q: Any, k: Any, v: Any, factor: Any, result: Any) -> None:
    """Some queries of one head and all of its keys.  Queries are the columns of everything, so that all loops are vectors."""
    count, depth, width = q.shape[0], q.shape[1], v.shape[1]
    columns = (count + 15) // 16 * 16
    line = columns + 16  # lines of a power of two would all lie in the same few places of a cache
    queries = np.zeros((depth, line), np.float32)
    for d in range(depth):
        for i in range(count):
            queries[d, i] = q[i, d] * factor
    scores = np.empty((KEYS, line), np.float32)
    sums = np.zeros((width, line), np.float32)
    totals, shrinks, bases = np.zeros(line, np.float32), np.empty(line, np.float32), np.empty(line, np.float32)
    greatest = np.full(line, -np.inf, np.float32)
    for start in range(0, k.shape[0], KEYS):
        end = min(start + KEYS, k.shape[0])
        weights = scores[: end - start]
        weights[:] = np.float32(0.0)
        add_product(k[start:end], queries, weights, columns)
        weigh(weights, greatest, totals, shrinks, bases, columns)
        for d in range(width):
            for j in range(columns):
                sums[d, j] *= shrinks[j]
        add_product(v[start:end].T, weights, sums, columns)
    for i in range(count):
        for d in range(width):
            result[i, d] = sums[d, i] / totals[i]


def attention(heads: int, scale: float, block: int) -> Callable[..., None]:
    """The kernel's function: a task is a block of queries of one head."""
    factor = np.float32(scale)

    def tasks(q: Any, k: Any, v: Any, result: Any, begin: int, end: int) -> None:
        count, keys, depth, width = q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]
        blocks = -(-count // block)
        queries, outputs = q.reshape((heads, count, depth)), result.reshape((heads, count, width))
        keyed, values = k.reshape((heads, keys, depth)), v.reshape((heads, keys, width))
        for task in range(begin, end):
            head, first = task // blocks, task % blocks * block
            last = min(first + block, count)
            attend_block(queries[head, first:last], keyed[head], values[head], factor, outputs[head, first:last])

    return tasks


def build_attention(group: KernelGroup) -> TaskFunction | Declined:
    """The kernel for a group, or why it is not an attention that it computes."""
    types = group.operand_types
    if len(types) != 3 or len(group.result_types) != 1:
        return Declined("q, k and v are wanted, and nothing else read of it")
    if any(each.element_type.name != "f32" or each.rank != types[0].rank for each in types):
        return Declined("q, k and v of f32 and of one rank are wanted")
    products = [each for each in group.instructions if each.name == "stablehlo.dot_general"]
    if [*products[0].operands, products[1].operands[1]] != list(group.graph.body.arguments):
        return Declined("keys that are transposed in memory are not wanted")
    q, k, v = (each.shape for each in types)
    if 0 in (*q, *k, *v) or (*q[:-2], q[-1]) != (*k[:-2], k[-1]) or k[:-1] != v[:-1]:
        return Declined(f"shapes {q}, {k}, {v} are not those of queries, keys and values")
    scale = scale_of(group)
    if scale is None:
        return Declined("it is another function of its operands")
    heads = math.prod(q[:-2])
    wanted = 2 * group.target.machine.cores
    block = next((each for each in QUERIES if heads * -(-q[-2] // each) >= wanted), QUERIES[-1])
    return TaskFunction(
        attention(heads, scale, block),
        tasks=heads * -(-q[-2] // block),
        bounds=False,
        fastmath=("contract",),
        cost=block * k[-2] * (q[-1] + v[-1] + 16) / 60,
    )


def scale_of(group: KernelGroup) -> float | None:
    """The factor of the scores with which attention computes what the group does, by trying those that stand in the graph."""
    constants = [group.constant(value) for each in group.instructions for value in each.operands]
    numbers = {float(each.flat[0]) for each in constants if each is not None} - {0.0}
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal(each.shape, "f4") for each in group.operand_types)
    (expected,) = group.evaluate(q, k, v)
    products = q.astype("f8") @ np.swapaxes(k, -1, -2)
    for scale in (1.0, *numbers, *(1 / number for number in numbers)):
        if math.isfinite(scale):
            scores = products * scale
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            if np.allclose(weights / weights.sum(-1, keepdims=True) @ v, expected, rtol=1e-3, atol=1e-4):
                return scale
    return None


# Random numbers of a fixed seed are the same in every process; what reads random ones would not be kept on disk.
scale_of.hlojit_identity = "numbers of seed 0"  # type: ignore[attr-defined]


ATTENTION = Kernel(
    "kernels.attention",
    backend="cpu",
    pattern=SubgraphPattern(match_attention, root="stablehlo.dot_general"),
    build=build_attention,
)
