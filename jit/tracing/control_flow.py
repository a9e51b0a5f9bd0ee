"""Branches and loops over traced values, in explicit form: cond, switch, while_loop, fori_loop, scan, map.

Functions of branches and bodies take and return containers of arrays and numbers.  What they write of arrays around them is
carried out of the branch or loop.  With nothing traced the same functions run as Python does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
from hlojit.ir.blocks import Block
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing.arrays.storage import Storage
from hlojit.tracing.calls.containers import flatten, paths, unflatten
from hlojit.tracing.calls.pytrees import object_advice, shortened
from hlojit.tracing.errors import TracingError
from hlojit.tracing.frames import Frame, recording
from hlojit.tracing.operations import Operations
from hlojit.tracing.rewriting import substitute
from hlojit.tracing.state import Form, Leaves, form_of, is_number_or_array, joined, require_alike, value_in
from hlojit.tracing.tracer import Tracer

_SHARED: Final = (
    "an array that a branch or loop gave may be one of outside of it, or two of its results may be one array: whether a write "
    "into one changes the other is known only when the function runs; return a copy from the branch or body: .copy()"
)
_ROUNDS: Final = 4
"""Of finding out what a loop carries: each may make a Python integer a float, or find another array that is written."""


def cond(condition: Any, true_function: Callable[..., Any], false_function: Callable[..., Any], *operands: Any) -> Any:
    """``true_function(*operands) if condition else false_function(*operands)``.

    ``condition`` is a truth value: a number or an array without dimensions.  Both functions return containers of the same
    structure, shapes and types; a Python number takes the other's type.  Raises ``TracingError`` where they do not.
    """
    ops = _operations(condition, operands)
    if ops is None:
        return true_function(*operands) if condition else false_function(*operands)
    chosen = _truth(ops, condition, "cond")
    true_function, false_function = substitute(true_function), substitute(false_function)
    return choose(
        ops, chosen, [lambda: true_function(*operands), lambda: false_function(*operands)], "the functions of cond"
    )


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """``branches[index](*operands)``; an index out of bounds is the nearest one."""
    if not branches:
        raise TracingError("switch: at least one branch is needed")
    ops = _operations(index, operands)
    if ops is None or not isinstance(index, Tracer):
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)
    if index.shape or index.dtype.kind not in "iu":
        raise TracingError(f"switch: the index must be one integer, not {index!r}")
    ops.mark()
    limits = [ops.full(number, np.dtype(np.int64)) for number in (0, len(branches) - 1)]
    b = ops.builder
    number = b.maximum(b.minimum(ops.converted(index.value, np.dtype(np.int64)), limits[1]), limits[0])
    number = b.convert(number, "i32")
    return choose(ops, number, [_call(branch, operands) for branch in branches], "the branches of switch")


def _call(branch: Callable[..., Any], operands: Sequence[Any]) -> Callable[[], Any]:
    rewritten = substitute(branch)
    return lambda: rewritten(*operands)


def while_loop(condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any) -> Any:
    """``while condition(state): state = body(state)``, and the last state.

    The state keeps its containers, shapes and types; a Python number becomes what the body makes of it.  Its arrays are
    the loop's own: what the body writes into them does not reach those that the loop began with.
    """
    ops = _operations(state) or Operations.in_work.get()
    if ops is None:
        state = _with_own_arrays(state)
        while condition(state):
            state = body(state)
        return state
    ops.mark()
    return loop(ops, substitute(condition), substitute(body), state, "while_loop")


def fori_loop(start: Any, stop: Any, body: Callable[[Any, Any], Any], state: Any) -> Any:
    """``for i in range(start, stop): state = body(i, state)``, and the last state."""
    ops = _operations(start, stop, state) or Operations.in_work.get()
    if ops is None:
        state = _with_own_arrays(state)
        for number in range(start, stop):
            state = body(number, state)
        return state
    ops.mark()
    start, stop = (_count(ops, each) for each in (start, stop))
    body = substitute(body)
    low, high = (ops.ranges.of(ops.value(each, np.dtype(np.int64))) for each in (start, stop))

    def step(pair: Any) -> Any:
        number, carried = pair
        if isinstance(number, Tracer):
            ops.ranges.note(number.value, low[0], high[1] - 1)
        return number + 1, body(number, carried)

    result = loop(ops, lambda pair: pair[0] < stop, step, (start, state), "fori_loop")
    return result[1]


def _count(ops: Operations, number: Any) -> Any:
    """A limit of a loop as a Python integer, as ``range`` takes it."""
    if isinstance(number, Tracer) and not number.shape and number.dtype.kind in "biu":
        # Of a truth value the integer.
        return ops.python_number(number) + 0
    if isinstance(number, Tracer):
        raise TypeError(f"{number.__class__.__name__!r} object cannot be interpreted as an integer")
    return operator.index(number)


def scan(
    function: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    xs: Any,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """``for x in xs: state, y = function(state, x)``: the last state, and all ``y`` stacked.

    ``xs`` is a container of arrays of one length, or None with ``length``; with ``reverse`` it is walked from its end.
    """
    leaves, structure = flatten(xs)
    count = _count_of(xs, leaves, length)
    ops = _operations(state, xs) or Operations.in_work.get()
    if ops is None:
        return _scanned(
            function, state, lambda number: unflatten(structure, [leaf[number] for leaf in leaves]), count, reverse
        )
    ops.mark()
    function = substitute(function)
    # Of no rows one is made up, for the types of what a step gives.
    arrays = [ops.tracer(leaf) if count else _row_of(ops, leaf) for leaf in leaves]

    def step(number: Any, carried: Any) -> tuple[Any, Any]:
        place = count - 1 - number if reverse and count else number
        return function(carried, unflatten(structure, [array[place] for array in arrays]))

    def body(number: Any, pair: Any) -> Any:
        carried, rows = pair
        carried, y = step(number, carried)
        new = Leaves(y)
        rows = [row.copy() for row in rows]
        for row, leaf in zip(rows, new.traced, strict=True):
            row[count - 1 - number if reverse else number] = leaf
        return carried, rows

    forms, y_structure = _forms_of_rows(ops, step, state)
    made = [_rows(ops, form, count) for form in forms]
    final, rows = fori_loop(0, count, body, (state, made)) if count else (state, made)
    return final, unflatten(y_structure, rows)


def _count_of(xs: Any, leaves: Sequence[Any], length: int | None) -> int:
    """The steps of a scan."""
    for path, leaf in paths(xs):
        if not is_number_or_array(leaf) and not np.ndim(leaf):
            raise TracingError(
                f"scan: xs{path} is {shortened(leaf)} of type {type(leaf).__name__}, no array{object_advice(leaf)}"
            )
    lengths = {np.shape(leaf)[0] if np.shape(leaf) else None for leaf in leaves} | (
        {length} if length is not None else set()
    )
    if len(lengths) != 1 or None in lengths:
        raise TracingError(
            f"scan: xs need one length, and dimensions; they have {sorted(str(each) for each in lengths) or 'none'}"
        )
    (count,) = lengths
    assert count is not None
    return count


def _row_of(ops: Operations, leaf: Any) -> Tracer:
    """One row of zeros for an array without rows."""
    type_ = ops.tracer(leaf).type
    return ops.wrap(ops.full(0, type_.element_type.dtype or type_.element_type, (1, *type_.shape[1:])))


def _rows(ops: Operations, form: Form, count: int) -> Tracer:
    """Room for ``count`` values of a form."""
    element, shape = form.tensor_type.element_type, form.tensor_type.shape
    return ops.wrap(ops.full(0, element.dtype or element, (count, *shape)))


def _forms_of_rows(ops: Operations, step: Callable[[Any, Any], tuple[Any, Any]], state: Any) -> tuple[list[Form], Any]:
    """What each step of a scan gives, found out by recording one that is thrown away."""
    made = len(ops.checks.made)
    start = Leaves(state)
    carried = [form_of(ops, leaf) for leaf in start.traced]
    for _ in range(_ROUNDS + len(carried)):
        with recording(ops, Block(())):
            number = Tracer(ops.wrap(ops.full(0, np.dtype(np.int64))).window, ops, weak=int)
            leaves = [form.tracer(ops, value_in(ops, leaf, form)) for leaf, form in zip(start.traced, carried)]
            result, rows = step(number, unflatten(start.structure, start.with_traced(leaves)))
            y, after = Leaves(rows), Leaves(result)
            require_alike([start, after], "scan: the state and what the function returns")
            own = [form_of(ops, leaf) for leaf in after.traced]
            forms = [form_of(ops, leaf) for leaf in y.traced]
        del ops.checks.made[made:]
        names = [start.names[place] for place in start.places]
        joint = [
            joined(pair, lambda name=name: f"scan: state{name}")  # type: ignore[misc]
            for name, pair in zip(names, zip(carried, own))
        ]
        if joint == carried:
            break
        carried = joint
    return forms, y.structure


def _scanned(
    function: Callable[[Any, Any], tuple[Any, Any]], state: Any, at: Callable[[int], Any], count: int, reverse: bool
) -> tuple[Any, Any]:
    """The same in Python."""
    state = _with_own_arrays(state)
    order = range(count - 1, -1, -1) if reverse else range(count)
    rows: list[Any] = [None] * count
    structure: Any = None
    for number in order:
        state, y = function(state, at(number))
        leaves, structure = flatten(y)
        # What is written into them later is not of this step.
        rows[number] = [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
    return state, unflatten(structure, [np.stack(column) for column in zip(*rows)]) if count else None


def map(function: Callable[[Any], Any], xs: Any) -> Any:
    """``np.stack([function(x) for x in xs])``, of each array that the function returns."""
    called = function if _operations(xs) is None and Operations.in_work.get() is None else substitute(function)
    return scan(lambda _, x: (None, called(x)), None, xs)[1]


# ------------------------------------------------------------------------------------------------------ the machinery


def _operations(*trees: Any) -> Operations | None:
    """Where something in these containers is traced."""
    for tree in trees:
        for leaf in flatten(tree)[0]:
            if isinstance(leaf, Tracer):
                found: Operations = leaf.context
                return found
    return None


def _with_own_arrays(state: Any) -> Any:
    """A state whose arrays are copies, as those of a compiled loop are."""
    leaves, structure = flatten(state)
    return unflatten(structure, [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves])


def _truth(ops: Operations, condition: Any, what: str) -> Value:
    """A truth value of one condition."""
    ops.mark()
    if np.shape(condition) != ():
        raise TracingError(f"{what}: the condition must be one truth value, and has the shape {np.shape(condition)}")
    return ops.value(condition, np.dtype(bool))


def choose(ops: Operations, index: Value, branches: Sequence[Callable[[], Any]], what: str) -> Any:
    """One of several branches: by a truth value (the first if it is true), or by a number from 0."""
    location = ops.builder.location
    frames, results = [], []
    shared: set[int] = set()
    for branch in branches:
        with recording(ops, Block(())) as frame:
            results.append(Leaves(branch()))
            shared |= _shared(results[-1].traced, frame)
            values = [(leaf, form_of(ops, leaf)) for leaf in results[-1].traced]
        frames.append((frame, values))
    require_alike(results, what)
    names = [results[0].names[place] for place in results[0].places]
    forms = [
        joined([form for _, form in leaves], lambda name=name: f"{what}: result{name}")  # type: ignore[misc]
        for name, leaves in zip(names, zip(*(values for _, values in frames)))
    ]
    written = list(dict.fromkeys(storage for frame, _ in frames for storage in frame.written))
    has_code = any(frame.code is not None for frame, _ in frames)
    for frame, values in frames:
        _end(ops, frame, [leaf for leaf, _ in values], forms, written, has_code)
    ops.builder.location = location
    is_truth = str(index.tensor_type.element_type) == "i1"
    made = ops.builder.create(
        "stablehlo.if" if is_truth else "stablehlo.case", [index], regions=[frame.block for frame, _ in frames]
    )
    return _carried_out(ops, made.results, results[0], forms, written, has_code, shared)


def _shared(leaves: Sequence[Any], frame: Frame) -> set[int]:
    """Which of the arrays that a region gives are ones of outside, or one array with another of them.

    NumPy would give them as they are, and a write into one would be seen in the other; here they are others behind the region.
    So they are read only, and those of outside become so.
    """
    arrays = {
        number: leaf.window.storage
        for number, leaf in enumerate(leaves)
        if isinstance(leaf, Tracer) and not leaf.is_scalar and leaf.size
    }
    found = set()
    for number, storage in arrays.items():
        if storage.frame is not frame:
            storage.locked = storage.locked or _SHARED
            found.add(number)
        elif any(other is storage for each, other in arrays.items() if each != number):
            found.add(number)
    return found


def _end(
    ops: Operations,
    frame: Frame,
    leaves: Sequence[Any],
    forms: Sequence[Form],
    written: Sequence[Storage],
    has_code: bool,
) -> None:
    """End a region: with its leaves, the storages that some region wrote, and the number of a failed check."""
    outer, checks = ops.builder, ops.checks
    ops.builder = Builder(frame.block, location=outer.location)
    ops.frames.append(frame)
    try:
        with frame.again():
            values = [value_in(ops, leaf, form) for leaf, form in zip(leaves, forms, strict=True)]
        values += [frame.written.get(storage, storage.value) for storage in written]
        if has_code:
            values.append(ops.builder.constant(0, tensor((), "i32")) if frame.code is None else frame.code)
        ops.builder.return_(*values)
    finally:
        ops.frames.pop()
        ops.builder, ops.checks = outer, checks


def _carried_out(
    ops: Operations,
    values: Sequence[Value],
    shape: Leaves,
    forms: Sequence[Form],
    written: Sequence[Storage],
    has_code: bool,
    shared: Collection[int],
) -> Any:
    """What a branch or loop gives; its writes and failed checks take effect."""
    leaves = [form.tracer(ops, value) for form, value in zip(forms, values)]
    _lock(leaves, shared)
    for storage, value in zip(written, values[len(forms) :]):
        ops.store(storage, value)
    if has_code:
        ops.checks.follow(ops.builder, values[-1])
    return unflatten(shape.structure, shape.with_traced(leaves))


def _lock(leaves: Sequence[Tracer], shared: Collection[int]) -> None:
    for number in shared:
        leaves[number].window.storage.locked = _SHARED


def loop(ops: Operations, condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any, what: str) -> Any:
    """A loop that carries a state, the storages that it writes, and the number of the first check that failed."""
    start = Leaves(state)
    forms = [form_of(ops, leaf) for leaf in start.traced]
    written: list[Storage] = []
    shared: set[int] = set()
    location = ops.builder.location
    for _ in range(_ROUNDS + 2 * len(forms)):
        made = len(ops.checks.made)
        test = _Region(ops, start, forms, written, shared, condition, what, is_test=True)
        step = _Region(ops, start, forms, written, shared, body, what, is_test=False)
        found = list(dict.fromkeys([*written, *test.wrote, *step.wrote]))
        if step.forms == forms and found == written and step.shared <= shared:
            break
        forms, written, shared = step.forms, found, shared | step.shared
        del ops.checks.made[made:]
    else:
        raise TracingError(f"{what}: the types of its state do not settle: {', '.join(str(form) for form in forms)}")
    if test.wrote:
        raise TracingError(f"{what}: its condition writes an array")
    has_code = test.frame.code is not None or step.frame.code is not None
    values = [value_in(ops, leaf, form) for leaf, form in zip(start.traced, forms)] + [
        storage.value for storage in written
    ]
    if has_code:
        values.append(ops.builder.constant(0, tensor((), "i32")))
    test.end_test(has_code)
    step.end_body(forms, written, has_code)
    ops.builder.location = location
    regions = [test.frame.block, step.frame.block]
    results = ops.builder.create("stablehlo.while", values, regions=regions).results
    return _carried_out(ops, results, start, forms, written, has_code, shared)


class _Region:
    """The condition or the body of a loop, recorded for a state of these forms."""

    def __init__(
        self,
        ops: Operations,
        start: Leaves,
        forms: Sequence[Form],
        written: Sequence[Storage],
        shared: Collection[int],
        function: Callable[[Any], Any],
        what: str,
        *,
        is_test: bool,
    ):
        self.ops = ops
        types = [form.tensor_type for form in forms] + [storage.value.tensor_type for storage in written]
        # The last one is there if something is checked.
        block = Block([*types, tensor((), "i32")])
        self.code = block.arguments[-1]
        given = dict(zip(written, block.arguments[len(forms) :]))
        with recording(ops, block) as self.frame:
            for storage, value in given.items():
                ops.store(storage, value)
            leaves = [form.tracer(ops, value) for form, value in zip(forms, block.arguments)]
            _lock(leaves, shared)
            result = function(unflatten(start.structure, start.with_traced(leaves)))
            if is_test:
                self.truth = _truth(ops, result, what)
            else:
                self.leaves = Leaves(result)
                self.shared = _shared(self.leaves.traced, self.frame)
                require_alike([start, self.leaves], f"{what}: the state and what the body returns")
                own = [form_of(ops, leaf) for leaf in self.leaves.traced]
                names = [start.names[place] for place in start.places]
                self.forms = [
                    joined(pair, lambda name=name: f"{what}: state{name}")  # type: ignore[misc]
                    for name, pair in zip(names, zip(forms, own))
                ]

        self.wrote = [storage for storage, value in self.frame.written.items() if value is not given.get(storage)]
        """The storages of outside that it gave another value."""

    def end_test(self, has_code: bool) -> None:
        """Go on while it is true and nothing failed."""
        b = Builder(self.frame.block)
        truth = self.truth
        if has_code:
            none = b.constant(0, tensor((), "i32"))
            truth = b.create("and", [truth, b.compare(self.code, none, "EQ")]).result
        else:
            self.frame.block.arguments.pop()
        b.return_(truth)

    def end_body(self, forms: Sequence[Form], written: Sequence[Storage], has_code: bool) -> None:
        """Give the next state."""
        if self.frame.code is not None:
            # Earlier iterations have not failed, or there would be no further one.
            self.code = self.frame.code
        if not has_code:
            self.frame.block.arguments.pop()
        outer = self.ops.builder
        self.ops.builder = Builder(self.frame.block, location=outer.location)
        self.ops.frames.append(self.frame)
        try:
            with self.frame.again():
                values = [value_in(self.ops, leaf, form) for leaf, form in zip(self.leaves.traced, forms, strict=True)]
            values += [self.frame.written[storage] for storage in written]
            self.ops.builder.return_(*values, *([self.code] if has_code else []))
        finally:
            self.ops.frames.pop()
            self.ops.builder = outer
