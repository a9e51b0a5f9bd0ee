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

QUERIES, KEYS = 32, 128
"""Queries of a task, and keys that it meets at a time: scores and both blocks stay in a core's first caches."""

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
    power = np.float32(math.floor(bounded * np.float32(1.4426950408889634) + np.float32(0.5)))
    rest = (bounded - power * np.float32(0.693359375)) + power * np.float32(2.12194440e-4)
    series = np.float32(1 / 720)
    series = series * rest + np.float32(1 / 120)
    series = series * rest + np.float32(1 / 24)
    series = series * rest + np.float32(1 / 6)
    series = series * rest + np.float32(1 / 2)
    series = series * rest + np.float32(1)
    series = series * rest + np.float32(1)
    value = series * np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)
    below = np.float32(0.0) if x <= np.float32(-87.0) else x
    return value if x > np.float32(-87.0) else below


def add_product(a: Any, b: Any, result: Any, rows: int, depth: int, columns: int) -> None:
    """result += a b, four rows of ``a`` and four of ``b`` at a time: numba's loops are vectors along the columns."""
    for row in range(0, rows, 4):
        for d in range(0, depth, 4):
            a00, a01, a02, a03 = a[row, d], a[row, d + 1], a[row, d + 2], a[row, d + 3]
            a10, a11, a12, a13 = a[row + 1, d], a[row + 1, d + 1], a[row + 1, d + 2], a[row + 1, d + 3]
            a20, a21, a22, a23 = a[row + 2, d], a[row + 2, d + 1], a[row + 2, d + 2], a[row + 2, d + 3]
            a30, a31, a32, a33 = a[row + 3, d], a[row + 3, d + 1], a[row + 3, d + 2], a[row + 3, d + 3]
            for j in range(columns):
                b0, b1, b2, b3 = b[d, j], b[d + 1, j], b[d + 2, j], b[d + 3, j]
                result[row, j] += a00 * b0 + a01 * b1 + (a02 * b2 + a03 * b3)
                result[row + 1, j] += a10 * b0 + a11 * b1 + (a12 * b2 + a13 * b3)
                result[row + 2, j] += a20 * b0 + a21 * b1 + (a22 * b2 + a23 * b3)
                result[row + 3, j] += a30 * b0 + a31 * b1 + (a32 * b2 + a33 * b3)


def attend_block(q: Any, k: Any, v: Any, result: Any) -> None:
    """Some queries, scaled, of one head and all of its keys; sizes are filled up with zeros to multiples of four."""
    count, depth, width = q.shape[0], q.shape[1], v.shape[1]
    queries = np.zeros((QUERIES, depth + 3), np.float32)
    queries[:count, :depth] = q
    turned = np.zeros((depth + 3, KEYS), np.float32)
    scores = np.zeros((QUERIES, KEYS), np.float32)
    values = np.zeros((KEYS, width), np.float32)
    sums = np.zeros((QUERIES, width), np.float32)
    totals = np.zeros(count, np.float32)
    greatest = np.full(count, -np.inf, np.float32)
    lanes = np.empty(16, np.float32)
    rows = (count + 3) // 4 * 4
    for start in range(0, k.shape[0], KEYS):
        keys = min(KEYS, k.shape[0] - start)
        turned[:depth, :keys] = k[start : start + keys].T
        values[:keys] = v[start : start + keys]
        values[keys:] = np.float32(0.0)
        scores[:] = np.float32(0.0)
        add_product(queries, turned, scores, rows, depth, keys)
        for row in range(count):
            line = scores[row]
            lanes[:] = greatest[row]
            for j in range(0, keys - 15, 16):  # sixteen maxima side by side: one alone is no vector code
                for i in range(16):
                    lanes[i] = line[j + i] if line[j + i] > lanes[i] else lanes[i]
            for j in range(keys // 16 * 16, keys):
                lanes[0] = line[j] if line[j] > lanes[0] else lanes[0]
            highest = lanes.max()
            base = highest if highest > -np.inf else np.float32(0.0)  # scores of -inf only, so far
            shrink = exponential(greatest[row] - base)
            greatest[row] = highest
            lanes[:] = np.float32(0.0)
            for j in range(keys):
                line[j] = exponential(line[j] - base)
            for j in range(0, keys - 15, 16):
                for i in range(16):
                    lanes[i] += line[j + i]
            total = lanes.sum()
            for j in range(keys // 16 * 16, keys):
                total += line[j]
            totals[row] = totals[row] * shrink + total
            for d in range(width):
                sums[row, d] *= shrink
        add_product(scores, values, sums, rows, keys, width)
    for row in range(count):
        for d in range(width):
            result[row, d] = sums[row, d] / totals[row]


def attention(heads: int, scale: float) -> Callable[..., None]:
    """The kernel's function: a task is a block of queries of one head."""
    factor = np.float32(scale)

    def tasks(q: Any, k: Any, v: Any, result: Any, begin: int, end: int) -> None:
        count, keys, depth, width = q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]
        blocks = -(-count // QUERIES)
        queries, outputs = q.reshape((heads, count, depth)), result.reshape((heads, count, width))
        keyed, values = k.reshape((heads, keys, depth)), v.reshape((heads, keys, width))
        for task in range(begin, end):
            head, first = task // blocks, task % blocks * QUERIES
            last = min(first + QUERIES, count)
            attend_block(queries[head, first:last] * factor, keyed[head], values[head], outputs[head, first:last])

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
    tasks = heads * -(-q[-2] // QUERIES)
    return TaskFunction(
        attention(heads, scale), tasks=tasks, bounds=False, cost=QUERIES * k[-2] * (q[-1] + v[-1] + 16) / 30
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


ATTENTION = Kernel(
    "kernels.attention",
    backend="cpu",
    pattern=SubgraphPattern(match_attention, root="stablehlo.dot_general"),
    build=build_attention,
)
