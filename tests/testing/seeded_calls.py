"""Defects of custom calls and ops that the kit has to find: each is put in, and shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from hlojit import testing
from hlojit.extensions import ArrayCall, ElementwiseCall, ExpansionCall, ForeignCall, ForeignFrame, foreign_handler
from hlojit.ir import tensor
from hlojit.ir.ops.definition import Expand, OpDefinition, Operand, Pointwise

from .plugins import TINY

Check = Callable[[], testing.Report]
_numbers = itertools.count()


def like_operand(call: Any) -> Any:
    return call.operands[0]


def _call(record: Any, **said: Any) -> testing.Report:
    said = {"operands": ["f32"], "shapes": [(5, 3)], "backends": ["cpu"], "budget": TINY} | said
    return testing.check_custom_call(record, **said)


# ------------------------------------------------------------------ functions of arrays


def but_the_last_row(x: Any, r: Any) -> None:
    for i in range(x.shape[0] - 1):
        r[i] = x[i]


def but_zeros(x: Any, r: Any) -> None:
    """Takes memory for zeros."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > 0:
                r[i, j] = x[i, j]


def added_to(x: Any, r: Any) -> None:
    """Sums into what is there."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            r[i, j] += x[i, j]


def reads_what_it_wrote(x: Any, r: Any) -> None:
    """Right unless the result lies on the operand."""
    for i in range(x.size):
        r[i] = x[i] + x[x.size - 1 - i]


_counts = itertools.count()


def counted(x: Any) -> Any:
    return x + np.float32(next(_counts))


_scratch = np.zeros((5, 3), "f4")


def remembered(x: Any) -> Any:
    """A mean with whatever came before."""
    _scratch[...] = np.where(np.isfinite(x), x, 0) + _scratch / 2
    return _scratch.copy()


def native(body: Callable[[Any, Any, int], None]) -> ArrayCall:
    """A C function of ``operand0, result0, size of operand0``."""
    from numba import cfunc, types

    floats = types.CPointer(types.float32)
    return ArrayCall(
        f"kit.native{next(_numbers)}",
        function=cfunc(types.void(floats, floats, types.int64))(body),
        trust="native",
        signature="operand0, result0, operand0.size",
        result_types=like_operand,
        substitute=lambda x: x + x,
    )


def leaves_the_last(x: Any, r: Any, size: int) -> None:
    for i in range(size - 1):
        r[i] = x[i] + x[i]


def reads_behind(x: Any, r: Any, size: int) -> None:
    for i in range(size):
        r[i] = x[i] + x[i] if x[i + 1] == x[i + 1] else x[i]


def writes_to_its_operand(x: Any, r: Any, size: int) -> None:
    for i in range(size):
        r[i] = x[i] + x[i]
        x[i] = 0.0


def writes_behind_its_operand(x: Any, r: Any, size: int) -> None:
    for i in range(size):
        r[i] = x[i] + x[i]
    x[size] = 1.0


@foreign_handler
def half_a_handler(frame: int) -> None:
    call = ForeignFrame(frame)
    call.results[0][:-1] = call.operands[0][:-1]


def second_is_wrong(x: float) -> tuple[float, float]:
    return x + 1, (x if x > 100 or x != x else x - 1)


CALLS: dict[str, tuple[Check, tuple[str, ...]]] = {
    "a row that is not written": (
        lambda: _call(ArrayCall("kit.row", function=but_the_last_row, result_types=like_operand)),
        ("nobody has written", "unwritten_memory"),
    ),
    "memory taken for zeros": (
        lambda: _call(ArrayCall("kit.zeros", function=but_zeros, result_types=like_operand)),
        ("nobody has written",),
    ),
    "sums into memory": (
        lambda: _call(ArrayCall("kit.sums", function=added_to, result_types=like_operand), backends=["cpu"]),
        ("nobody has written",),
    ),
    "an alias that is read behind what is written": (
        lambda: _call(
            ArrayCall("kit.alias", function=reads_what_it_wrote, result_types=like_operand, aliases=((0, 0),)),
            shapes=[(7,)],
            backends=["cpu"],
            oracle=lambda x: x + x[::-1],
        ),
        ("on cpu",),
    ),
    "a Python function that counts": (
        lambda: _call(ArrayCall("kit.counts", function=counted, trust="python"), oracle=lambda x: x + 1),
        ("on cpu",),
    ),
    "a Python function that remembers": (
        lambda: _call(ArrayCall("kit.remembers", function=remembered, trust="python"), backends=["cpu"]),
        ("on cpu",),
    ),
    "a C function that leaves an element": (lambda: _call(native(leaves_the_last)), ("nobody has written",)),
    "a C function that reads behind its operand": (lambda: _call(native(reads_behind), backends=["cpu"]), ("on cpu",)),
    "a C function that writes to its operand": (
        lambda: _call(native(writes_to_its_operand)),
        ("it wrote to argument 0",),
    ),
    "a C function that writes behind its operand": (
        lambda: _call(native(writes_behind_its_operand)),
        ("it wrote behind argument 0",),
    ),
    "a handler that leaves a row": (
        lambda: _call(
            ForeignCall("kit.half", handler=half_a_handler, substitute=lambda x: x, asks_version=False),
            results=["f32"],
            backends=["cpu"],
        ),
        ("nobody has written",),
    ),
    "a second result that is wrong for some numbers": (
        lambda: _call(
            ElementwiseCall("kit.two", function=second_is_wrong),
            results=["f32", "f32"],
            oracle=lambda x: (x + 1, x - 1),
            backends=["cpu"],
        ),
        ("result 1",),
    ),
    "a result of another type than its rule says": (
        lambda: _call(
            ArrayCall(
                "kit.typed", function=lambda x: x * 2.0, trust="python", result_types=lambda c: tensor((3, 5), "f32")
            ),
            backends=["cpu"],
        ),
        (),
    ),
    "an expansion that forgets its configuration": (
        lambda: _call(
            ExpansionCall("kit.scale", expand=lambda b, c: [b.add(c.operands[0], c.operands[0])]),
            config={"factor": 3.0},
            oracle=lambda x, *, factor: x * factor,
        ),
        ("kit.scale",),
    ),
}


# ------------------------------------------------------------------------------- ops


def _op(**fields: Any) -> OpDefinition:
    given: dict[str, Any] = {
        "operands": (Operand("x"), Operand("y")),
        "infer": lambda request: [request.operand_types[0]],
        "reference": lambda call, x, y: x - y,
        "lowering": Pointwise(lambda b, call, x, y: b.fsub(x, y)),
    }
    return OpDefinition(f"kit.seeded{next(_numbers)}", **(given | fields))


def _check_op(record: OpDefinition, **said: Any) -> testing.Report:
    return testing.check_op(record, **({"operands": ["f32", "f32"], "backends": ["cpu"], "budget": TINY} | said))


def _wrong_for_f64(b: Any, call: Any, x: Any, y: Any) -> Any:
    return b.fadd(x, y) if x.kind == "f64" else b.fsub(x, y)


def _larger(b: Any, call: Any, x: Any, y: Any) -> Any:
    return b.select(b.fcmp("ogt", x, y), x, y)


OPS: dict[str, tuple[Check, tuple[str, ...]]] = {
    "code that is wrong for one type": (
        lambda: _check_op(_op(lowering=Pointwise(_wrong_for_f64)), operands=[["f32", "f32"], ["f64", "f64"]]),
        ("f64",),
    ),
    "a maximum that loses NaN": (
        lambda: _check_op(_op(reference=lambda call, x, y: np.maximum(x, y), lowering=Pointwise(_larger))),
        ("nan",),
    ),
    "an expansion that rounds once less": (
        lambda: _check_op(
            _op(
                reference=lambda call, x, y: x * y + y,
                lowering=Expand(
                    lambda b, c: [b.multiply(c.operands[1], b.add(c.operands[0], b.constant(1.0, c.operands[0].type)))]
                ),
            ),
            operands=["f16", "f16"],
        ),
        ("on cpu",),
    ),
    "a reference that is not the same every time": (
        lambda: _check_op(
            _op(reference=lambda call, x, y: x - y + np.float32(next(_counts) % 2)), backends=["reference"]
        ),
        ("reference",),
    ),
}
