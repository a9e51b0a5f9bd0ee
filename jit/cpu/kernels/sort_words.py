"""From elements to the words that a sort by keys moves (``line_sort_plan.py``), and back.

Elements that lie side by side are read as vectors; what does not fill the last one is covered by one that ends with the line
and does some elements twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast, final

from hlojit.cpu.kernels.addresses import ZERO, literal, minimum
from hlojit.llvm.builder import LlvmBuilder, Val, scalars
from hlojit.llvm.region import Variable, while_loop
from hlojit.lowering.line_sort_plan import LineSortPlan
from hlojit.lowering.sort_keys import KeyCode, stored_operands
from hlojit.lowering.target import KIND_BITS

Values = tuple[Val, ...]
Operands = Sequence[Val | None]
"""Addresses of the first element of a line in each operand; None: elements' numbers."""


def load_lanes(b: LlvmBuilder, kind: str, base: Val, index: Val, lanes: int) -> Val:
    """Consecutive elements as they are in memory (booleans as i1)."""
    memory = "i8" if kind == "i1" else kind
    pointer = b.element_pointer(base, memory, index)
    value = b.emit(memory, lanes, f"load {b.type(memory, lanes)}, ptr {pointer.text}, align {KIND_BITS[memory] // 8}")
    return b.icmp("ne", value, Val("0", "i8")) if kind == "i1" else value


def reduced(b: LlvmBuilder, stem: str, vector: Val) -> Val:
    """All lanes as one: ``llvm.vector.reduce.<stem>``."""
    if vector.lanes == 1:
        return vector
    symbol = f"llvm.vector.reduce.{stem}.v{vector.lanes}{vector.kind}"
    type = b.type_of(vector)
    b.declare(symbol, f"declare {vector.kind} @{symbol}({type})")
    return b.emit(vector.kind, 1, f"call {vector.kind} @{symbol}({type} {vector.text})")


def numbers_from(b: LlvmBuilder, index: Val, kind: str, lanes: int) -> Val:
    """``index``, ``index + 1``, ... as integers of a kind."""
    number = b.trunc(index, kind)
    if lanes == 1:
        return number
    steps = ", ".join(f"{kind} {lane}" for lane in range(lanes))
    return b.add(b.splat(number, lanes), Val(f"<{steps}>", kind, lanes))


def key_at(
    b: LlvmBuilder,
    codes: Sequence[KeyCode],
    word: str,
    kinds: Sequence[str],
    operands: Operands,
    index: Val,
    lanes: int,
) -> Val:
    """All keys of elements as one unsigned integer of kind ``word``."""
    stored = {}
    for number in stored_operands(codes):
        base, kind = operands[number], kinds[number]
        stored[number] = (
            numbers_from(b, index, kind, lanes) if base is None else load_lanes(b, kind, base, index, lanes)
        )
    together: Val | None = None
    for code in codes:
        key = b.zext(cast(Val, code.compute(scalars(b), stored)), word)
        together = key if together is None else b.or_(b.shl(together, b.constant(word, code.bits)), key)
    assert together is not None
    return together


def each_vector(
    b: LlvmBuilder, length: int, lanes: int, carried: Values, body: Callable[[Val, Values], Values]
) -> Values:
    """``body(index, carried)`` for vectors that cover so many elements: the same one may come twice."""
    whole = length - length % lanes
    loop = b.begin_loop(ZERO, literal(whole), step=lanes, carried=[b.splat(value, lanes) for value in carried])
    carried = b.end_loop(loop, body(loop.index, loop.carried))
    return body(literal(length - lanes), carried) if whole < length else carried


@final
@dataclass(frozen=True)
class WordMaker:
    """Emits the loops over one line; ``kinds`` are those of the operands in memory."""

    b: LlvmBuilder
    plan: LineSortPlan
    kinds: Sequence[str]
    native: int
    """Lanes of a vector of words."""
    part: tuple[Val, Val] | None = None
    """The first element of a line that is looked at, and the one behind the last; at least a vector lies between them."""

    @property
    def lanes(self) -> int:
        """Of the vectors in which a line is read."""
        lanes = self.native
        while lanes > self.plan.length:
            lanes //= 2
        return lanes

    def each_vector(self, carried: Values, body: Callable[[Val, Values], Values]) -> Values:
        """``body(index, carried)`` for vectors that cover a line, or a part: the same element may come twice."""
        b, lanes = self.b, self.lanes
        if self.part is None:
            return each_vector(b, self.plan.length, lanes, carried, body)
        first, limit = self.part
        last = b.sub(limit, literal(lanes))
        loop = b.begin_loop(first, last, step=lanes, carried=[b.splat(value, lanes) for value in carried])
        return body(last, b.end_loop(loop, body(loop.index, loop.carried)))

    def _store(self, value: Val, base: Val, index: Val) -> None:
        self.b.store(value, self.b.element_pointer(base, value.kind, index))

    # ---------------------------------------------------------- keys and nothing else

    def keys(self, operand: Val, y: Val) -> tuple[Val, Val, Val]:
        """Words of all elements; returns the smallest and the largest, and whether some code is not told by its key."""
        b, plan = self.b, self.plan
        order = plan.order
        assert order is not None
        half = 1 << (KIND_BITS[plan.word] - 1)

        def body(index: Val, carried: Values) -> Values:
            low, high, differences = carried
            stored = load_lanes(b, order.kind, operand, index, self.lanes)
            key = cast(Val, order.key(scalars(b), stored))
            word = self.word_of(key)
            self._store(word, y, index)
            if order.joined:
                back = cast(Val, order.stored(scalars(b), key))
                differences = b.or_(differences, b.xor(stored, back))
            return b.intrinsic("smin", low, word), b.intrinsic("smax", high, word), differences

        start = (b.constant(plan.word, half - 1), b.constant(plan.word, -half), b.constant(order.kind, 0))
        low, high, differences = self.each_vector(start, body)
        lossy = b.icmp("ne", reduced(b, "or", differences), b.constant(order.kind, 0))
        return reduced(b, "smin", low), reduced(b, "smax", high), lossy

    def keep_key(self, operand: Val, index: Val, words: Val, place: Val) -> None:
        """The word of one element of an operand that is the only one."""
        assert self.plan.order is not None
        stored = load_lanes(self.b, self.plan.order.kind, operand, index, 1)
        self._store(self.word_of(cast(Val, self.plan.order.key(scalars(self.b), stored))), words, place)

    def are_same(self, operand: Val) -> Val:
        """Whether all elements of a line have the bits of the first one; looks no further than one that has not."""
        b, lanes = self.b, self.lanes
        assert self.plan.order is not None
        kind = self.plan.order.kind
        first = b.load(kind, operand)
        first = b.splat(first, lanes) if lanes > 1 else first
        last = literal(self.plan.length - lanes) if self.part is None else b.sub(self.part[1], literal(lanes))
        return self._holds(last, lambda index: b.icmp("eq", load_lanes(b, kind, operand, index, lanes), first))

    def are_sorted(self, operands: Operands) -> Val:
        """Whether no key of a line of several elements is below the one before it; stops where one is.

        Of a part, the key behind it is looked at as well.
        """
        b, plan, lanes = self.b, self.plan, self.lanes
        while lanes >= plan.length:
            lanes //= 2

        def key(index: Val) -> Val:
            return key_at(b, plan.codes, plan.word, self.kinds, operands, index, lanes)

        last = literal(plan.length - 1 - lanes)
        if self.part is not None:
            last = minimum(b, last, b.sub(self.part[1], literal(lanes)))
        return self._holds(last, lambda index: b.icmp("ule", key(index), key(b.add(index, literal(1)))), lanes)

    def _holds(self, last: Val, condition: Callable[[Val], Val], lanes: int = 0) -> Val:
        """Whether a condition holds for vectors one behind the other, from the first element on, and at ``last``."""
        b, lanes = self.b, lanes or self.lanes
        place = Variable(b, "i64", ZERO if self.part is None else self.part[0])
        holds = Variable(b, "i1", Val("true", "i1"))

        def look() -> None:
            holds.set(reduced(b, "and", condition(minimum(b, place.get(), last))))
            place.set(b.add(place.get(), literal(lanes)))

        while_loop(b, lambda: b.and_(holds.get(), b.icmp("slt", place.get(), b.add(last, literal(lanes)))), look)
        return holds.get()

    def word_of(self, key: Val) -> Val:
        """The signed word of an unsigned key."""
        b, plan = self.b, self.plan
        wide = b.zext(key, plan.word)
        return self._signed(wide) if plan.key_bits == KIND_BITS[plan.word] else wide

    def _signed(self, word: Val) -> Val:
        return self.b.xor(word, self.b.constant(word.kind, 1 << (KIND_BITS[word.kind] - 1)))

    def turn_back(self, x: Val, result: Val) -> None:
        """Elements that are wanted from sorted words; ``x`` may be the result's own memory."""
        b, plan, lanes = self.b, self.plan, self.lanes
        while lanes > plan.count:
            lanes //= 2
        order = plan.order
        assert order is not None

        if plan.sorts_in_result and order.is_signed:
            return
        whole = plan.count - plan.count % lanes
        # In place, what the last vector covers must be read before it is written to.
        rest = load_lanes(b, plan.word, x, literal(plan.count - lanes), lanes) if whole < plan.count else None
        loop = b.begin_loop(ZERO, literal(whole), step=lanes)
        word = load_lanes(b, plan.word, x, loop.index, lanes)
        self._store(self._element(word), result, loop.index)
        b.end_loop(loop)
        if rest is not None:
            self._store(self._element(rest), result, literal(plan.count - lanes))

    def turn_back_some(self, words: Val, index: Val, result: Val, place: Val, lanes: int) -> None:
        """Elements of some words, written somewhere else."""
        self._store(self._element(load_lanes(self.b, self.plan.word, words, index, lanes)), result, place)

    def _element(self, word: Val) -> Val:
        b, plan = self.b, self.plan
        assert plan.order is not None
        key = self._signed(word) if plan.key_bits == KIND_BITS[plan.word] else word
        return cast(Val, plan.order.stored(scalars(b), b.trunc(key, plan.order.kind)))

    # ------------------------------------------------------------- keys with numbers

    def numbered(self, operands: Operands, y: Val) -> None:
        """Words of key and number."""
        plan = self.plan

        def body(index: Val, carried: Values) -> Values:
            word = self._with_number(self._key(operands, index), index)
            is_full = plan.key_bits + plan.number_bits == KIND_BITS[plan.word]
            self._store(self._signed(word) if is_full else word, y, index)
            return carried

        self.each_vector((), body)

    def _key(self, operands: Operands, index: Val) -> Val:
        """All keys as one unsigned word."""
        b, plan = self.b, self.plan
        return key_at(b, plan.codes, plan.word, self.kinds, operands, index, self.lanes)

    def _with_number(self, key: Val, index: Val) -> Val:
        b, plan = self.b, self.plan
        number = numbers_from(b, index, plan.word, key.lanes)
        return b.or_(b.shl(key, b.constant(plan.word, plan.number_bits)), number)

    def stored_keys(self, operands: Operands, keys: Val) -> tuple[Val, Val]:
        """Keys of all elements as they are, in words of their own; returns the smallest and the largest."""
        b = self.b

        def find(index: Val, carried: Values) -> Values:
            key = self._key(operands, index)
            self._store(key, keys, index)
            return b.intrinsic("umin", carried[0], key), b.intrinsic("umax", carried[1], key)

        low, high = self.each_vector((b.constant("i64", -1), b.constant("i64", 0)), find)
        return reduced(b, "umin", low), reduced(b, "umax", high)
