"""The value of an instruction at an index: one walk over a fusion that serves every target.

``Elements`` knows how pointwise rules, indexed rules, constants and parameters become scalars; where they come from and
where code goes is the business of an ``Access``: the CPU's writes LLVM text with explicit vectors, the probe's only
counts, a GPU's may use any other builder.

    elements = Elements(access, Body.of(fusion))
    scalar = elements.value(root, index)             # compute form, memoized on (value, index)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast, final

from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.formats import ComplexType, ElementType, FloatFormat, IntegerType
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.definition import Indexed, Pointwise, PointwiseCall, Trait
from hlojit.ir.ops.foreign_rules import indexed, pointwise
from hlojit.ir.ops.views import ConstantView
from hlojit.ir.scalar import formats
from hlojit.ir.scalar.builder import Pair, Scalar, ScalarBuilder
from hlojit.lowering.body import Body
from hlojit.lowering.element_access import Access
from hlojit.lowering.element_constants import (
    LARGEST_TABLE,
    constant_codes,
    constant_numbers,
    constant_parts,
    stored_element,
)
from hlojit.lowering.element_forms import is_narrow, memory_kind, round_element
from hlojit.lowering.index import Index, RunTime, as_index, linear_index
from hlojit.lowering.moved_values import MovedValues
from hlojit.lowering.op_tables import OpTables, Table, index_of_codes
from hlojit.lowering.run_time_names import RunTimeNames

Key = tuple[Value, tuple[Index, ...]]
STORED: Final = "stored"
"""Third part of the key of an element in memory form."""


class _Running(NamedTuple):
    """The instruction whose rule is running, where, and whether it moves memory forms."""

    instruction: Instruction
    at: tuple[Index, ...]
    stored: bool = False


@final
class Elements:
    """Implements ``hlojit.ir.scalar.elements.ElementEmitter``."""

    def __init__(self, access: Access, body: Body):
        self.access = access
        self.body = body
        self.requested: list[Key] = []
        """Every (value, index) that was computed outside guards, in the order of the requests."""
        self.reduced: dict[Value, tuple[Index, Scalar]] = {}
        """Results of reductions that are known in a kernel's current row: where, and their scalars."""
        self.stash: dict[Key, tuple[int, str, Index]] = {}
        """Values that an earlier loop of the kernel kept in memory: buffer, kind, position."""
        self.fetched: list[Key] = []
        """Keys that were taken from the stash."""
        self._scopes: list[dict[Any, Scalar]] = [{}]
        self._conditions: list[Scalar] = []
        self._current: _Running | None = None
        self.reader: Instruction | None = None
        """The instruction for which memory is accessed, for messages."""
        self._moved = MovedValues(body)
        self._names = RunTimeNames()
        self._stored: dict[int, tuple[Scalar, Scalar, ElementType]] = {}
        """Memory forms of loaded scalars, by identity of the object (kept alive here)."""
        self._unguarded = 0
        self._tables = OpTables(access.builder)

    @property
    def builder(self) -> ScalarBuilder:
        """Where pointwise code goes."""
        return self.access.builder

    # ---------------------------------------------------------------- values

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside is forgotten at the end (its code does not dominate what follows)."""
        self._scopes.append({})
        try:
            yield
        finally:
            self._scopes.pop()

    def define(self, value: Value, index: tuple[Index, ...], scalar: Scalar) -> None:
        """Give a value at an index (a region's argument, a finished reduction)."""
        self._scopes[-1][value, index] = scalar

    def define_stored(self, value: Value, index: tuple[Index, ...], scalar: Scalar) -> None:
        """Give a value at an index as it would stand in memory."""
        self._scopes[-1][value, index, STORED] = scalar

    def define_loaded(self, number: int, linear: Index, raw: Scalar) -> None:
        """Give an element of an operand's buffer as it stands there."""
        self._scopes[-1][number, linear, STORED] = raw

    def find(self, key: Any) -> Scalar | None:
        """The scalar of a key that is known in an open scope."""
        for scope in reversed(self._scopes):
            found: Scalar | None = scope.get(key)
            if found is not None:
                return found
        return None

    def value(self, value: Value, index: tuple[Index, ...], *, rounded: bool = True) -> Scalar:
        """The element of ``value`` at ``index`` in compute form.

        Chains of pointwise ops are walked with a stack of our own; only indexed rules recurse.  ``rounded=False``
        leaves the last rounding into a narrow format to the caller's encoding.
        """
        found = self.find((value, index))
        if found is not None:
            return found
        if (
            not rounded
            and (value, index) not in self.stash
            and self._is_pointwise(value)
            and is_narrow(value.tensor_type.element_type)
            and (producer := value.producer) is not None
            and self._tables.of(producer) is None
        ):
            operands = [self.value(operand, _index_of(operand, index)) for operand in producer.operands]
            return self._pointwise(producer, operands, rounded=False)
        return self._walked((value, index))

    def stored(self, value: Value, index: tuple[Index, ...]) -> Scalar:
        """The element of ``value`` at ``index`` as it stands in memory.

        What is only moved on its way from memory - selected, gathered, padded - keeps its bits, those of a NaN as well: it is
        not decoded and encoded again.
        """
        return self._walked((value, index, STORED))

    def root(self, value: Value, index: tuple[Index, ...], *, rounded: bool = True) -> Scalar:
        """The element of a root for ``Frame.store_root``: in compute form, or in memory form where it is only moved."""
        element, self.reader = value.tensor_type.element_type, value.producer
        if not is_narrow(element) or not self._moved.is_moved(value):
            return self.value(value, index, rounded=rounded)
        bits = self.stored(value, index)
        self._stored[id(bits)] = (bits, bits, element)
        return bits

    def _walked(self, wanted: tuple[Any, ...]) -> Scalar:
        stack: list[tuple[Any, ...]] = [wanted]
        while stack:
            key = stack[-1]
            if self.find(key) is not None:
                stack.pop()
                continue
            if key[0] in self.body.parameters:
                self.reader = _user_of(key[0], stack) or self.reader
            if len(key) == 3:
                missing = self._store(*key)
                stack.extend(reversed(missing))
                continue
            top, at = key
            if key in self.stash:
                self.fetched.append(key)
                self._scopes[-1][key] = self.access.load(*self.stash[key], None)
                stack.pop()
                continue
            if not self._is_pointwise(top):
                if not self._conditions and not self._unguarded:
                    self.requested.append(key)
                self._scopes[-1][key] = self._leaf(top, at)
                stack.pop()
                continue
            producer = top.producer
            assert producer is not None
            if self._tables.of(producer) is not None:
                if not self._decoded(top, at):
                    stack.append((top, at, STORED))
                else:
                    stack.pop()
                continue
            keys: list[Key] = [(operand, _index_of(operand, at)) for operand in producer.operands]
            scalars = [self.find(operand) for operand in keys]
            missing = [operand for operand, scalar in zip(keys, scalars) if scalar is None]
            if missing:
                stack.extend(reversed(missing))
                continue
            if not self._conditions and not self._unguarded:
                self.requested.append(key)
            self._scopes[-1][key] = self._pointwise(producer, cast(list[Scalar], scalars))
            stack.pop()
        result = self.find(wanted)
        assert result is not None
        return result

    def _store(self, value: Value, index: tuple[Index, ...], _: str) -> Sequence[tuple[Any, ...]]:
        """Make an element's memory form, or say of which elements it is made that are missing."""
        element, producer = value.tensor_type.element_type, value.producer
        key = value, index, STORED
        if (number := self.body.parameters.get(value)) is not None:
            self._scopes[-1][key] = self._loaded(value, number, index)
            return ()
        table = self._tables.of(producer) if producer is not None and (value, index) not in self.stash else None
        if producer is not None and table is not None and self._is_pointwise(value):
            return self._from_table(producer, table, index)
        if producer is None or not is_narrow(element) or self._is_computed(value, index):
            if (plain := self.find((value, index))) is None:
                return ((value, index),)
            self._scopes[-1][key] = formats.pack(self.builder, plain, element)
            return ()
        if not self._is_pointwise(value):
            self._scopes[-1][key] = (
                self._constant(producer, index, stored=True)
                if Trait.CONSTANT in producer.op.traits
                else self._indexed(_Running(producer, index, stored=True))
            )
            return ()
        wanted = [
            (operand, _index_of(operand, index), STORED)
            if operand.tensor_type.element_type is element
            else (operand, _index_of(operand, index))
            for operand in producer.operands
        ]
        scalars = [self.find(operand) for operand in wanted]
        if missing := [operand for operand, scalar in zip(wanted, scalars) if scalar is None]:
            return missing
        self._scopes[-1][key] = self._ruled(producer, cast(list[Scalar], scalars))
        return ()

    def _from_table(self, producer: Instruction, table: Table, index: tuple[Index, ...]) -> Sequence[tuple[Any, ...]]:
        """Make an element's memory form from those of the operands, or say which are missing."""
        wanted = [(operand, _index_of(operand, index), STORED) for operand in producer.operands]
        codes = [self.find(operand) for operand in wanted]
        if missing := [operand for operand, code in zip(wanted, codes) if code is None]:
            return missing
        place = index_of_codes(self.builder, producer, cast(list[Scalar], codes))
        self._scopes[-1][producer.result, index, STORED] = cast(Any, self.builder).tabulated("i8", table, place)
        return ()

    def _decoded(self, value: Value, index: tuple[Index, ...]) -> bool:
        """Decode an element whose memory form is known; False if it is not."""
        bits = self.find((value, index, STORED))
        if bits is None:
            return False
        if not self._conditions and not self._unguarded:
            self.requested.append((value, index))
        element = value.tensor_type.element_type
        found = self._scopes[-1][value, index] = formats.decode(self.builder, bits, element)
        self._stored[id(found)] = (found, bits, element)
        return True

    def _is_pointwise(self, value: Value) -> bool:
        producer = value.producer
        return (
            producer is not None and value not in self.body.parameters and isinstance(producer.op.lowering, Pointwise)
        )

    def _is_computed(self, value: Value, index: tuple[Index, ...]) -> bool:
        """Whether an element of a narrow float is encoded: bf16 that a loop has kept decoded comes back bit for bit."""
        element = value.tensor_type.element_type
        is_kept = isinstance(element, FloatFormat) and formats.is_bfloat(element) and (value, index) in self.stash
        return is_kept or not self._moved.is_moved(value)

    def _pointwise(self, instruction: Instruction, operands: Sequence[Scalar], *, rounded: bool = True) -> Scalar:
        lowering = instruction.op.lowering
        assert isinstance(lowering, Pointwise)
        result = self._ruled(instruction, operands)
        element = instruction.result.tensor_type.element_type
        return round_element(self.builder, element, result) if rounded and not lowering.exact else result

    def _ruled(self, instruction: Instruction, operands: Sequence[Scalar]) -> Scalar:
        lowering = instruction.op.lowering
        assert isinstance(lowering, Pointwise)
        types = tuple(operand.tensor_type.element_type for operand in instruction.operands)
        call = PointwiseCall(types, instruction.result.tensor_type.element_type, instruction.attributes)
        return cast(Scalar, pointwise(instruction.op, self.builder, call, *operands))

    def _leaf(self, value: Value, index: tuple[Index, ...]) -> Scalar:
        number = self.body.parameters.get(value)
        if number is not None:
            return self.parameter(value, number, index)
        if value in self.reduced:
            where, scalar = self.reduced[value]
            if linear_index(index, value.tensor_type.strides) == where:
                return scalar
            raise UnsupportedError("hlojit.fusion", "", "a row reads the reduction of another row")
        producer = value.producer
        if producer is None:
            bits = self.find((value, index, STORED))
            if bits is None:
                raise HlojitError(f"internal error: {value!r} has no value inside this kernel")
            return formats.decode(self.builder, bits, stored_element(value.tensor_type.element_type))
        if Trait.CONSTANT in producer.op.traits:
            return self._constant(producer, index)
        result = self._indexed(_Running(producer, index))
        if len(producer.results) > 1:
            several = cast(tuple[Scalar, ...], result)
            for other, scalar in zip(producer.results, several, strict=True):
                self.define(other, index, scalar)
            return several[value.index]
        return result

    def _indexed(self, running: _Running) -> Scalar:
        """What the rule of an indexed instruction gives."""
        producer = running.instruction
        lowering = producer.op.lowering
        rule = lowering.rule if isinstance(lowering, Indexed) else self.body.rules.get(producer)
        if rule is None:
            raise UnsupportedError(
                producer.op.name, "", "it is neither pointwise nor indexed nor a reduction", producer.location
            )
        outer, self._current, reader = self._current, running, self.reader
        self.reader = producer
        try:
            return cast(Scalar, indexed(producer.op, rule, self, producer, running.at))
        finally:
            self._current, self.reader = outer, reader

    def parameter(self, value: Value, number: int, index: tuple[Index, ...]) -> Scalar:
        """Load an element of an operand and decode it."""
        element = value.tensor_type.element_type
        key = (number, self.body.linear(number, index))
        found = self.find(key)
        if found is None and isinstance(element, ComplexType):
            condition = self._conditions[-1] if self._conditions else None
            linear = self.body.linear(number, index)
            found = self._scopes[-1][key] = self.access.load_pair(number, element.component, linear, condition)
        if found is None:
            raw = self._loaded(value, number, index)
            found = formats.decode(self.builder, raw, stored_element(element))
            if self.body.packing(number) == 1:
                self._stored[id(found)] = (found, raw, element)
            self._scopes[-1][key] = found
        return found

    def _loaded(self, value: Value, number: int, index: tuple[Index, ...]) -> Scalar:
        """Load an element of an operand in memory form; once, in whatever form it is wanted."""
        linear = self.body.linear(number, index)
        key = (number, linear, STORED)
        found = self.find(key)
        if found is None:
            packing = self.body.packing(number)
            condition = self._conditions[-1] if self._conditions else None
            place = linear if packing == 1 else linear // packing
            found = self.access.load(number, memory_kind(value.tensor_type.element_type), place, condition)
            if packing > 1:
                found = self._unpacked(found, linear, packing)
            self._scopes[-1][key] = found
        return found

    def _unpacked(self, raw: Scalar, linear: Index, packing: int) -> Scalar:
        """One of the elements that share a byte; the first one is in the lowest bits."""
        b = self.builder
        bits = 8 // packing
        shift = b.mul(self.access.index_value(linear % packing, "i8"), b.constant("i8", bits))
        return b.and_(b.lshr(raw, shift), b.constant("i8", (1 << bits) - 1))

    def unchanged(self, scalar: Scalar, element: ElementType) -> Scalar | None:
        """The memory form from which a scalar was loaded, if it is an operand's element of this very type."""
        known = self._stored.get(id(scalar))
        return known[1] if known is not None and known[2] is element else None

    def _constant(self, instruction: Instruction, index: tuple[Index, ...], *, stored: bool = False) -> Scalar:
        dense = ConstantView.of(instruction).value
        element = stored_element(dense.type.element_type)
        if isinstance(element, ComplexType):
            linear = linear_index(index, dense.type.strides)
            return Pair(*(self._tabulated(element.component, table, linear) for table in constant_parts(dense)))
        kind = formats.storage_kind(element) if stored else formats.compute_kind(element)
        if not dense.is_splat and dense.array.size > LARGEST_TABLE:
            raise HlojitError(f"internal error: a constant of {dense.array.size} elements inside a fusion")
        table = constant_codes(dense) if stored else constant_numbers(dense)
        if not stored and kind == element.name and any(number != number for number in table):
            # Numbers of Python need not have the bits of a NaN.
            bits = self._tabulated(f"i{element.bits}", constant_codes(dense), linear_index(index, dense.type.strides))
            return self.builder.bitcast(bits, kind)
        return self._tabulated(kind, table, linear_index(index, dense.type.strides))

    def _tabulated(self, kind: str, table: tuple[int | float, ...], linear: Index) -> Scalar:
        if len(table) == 1:
            return self.builder.constant(kind, table[0])
        if linear.is_constant:
            return self.builder.constant(kind, table[linear.constant])
        return self.builder.lookup(kind, table, self._safe_index(linear, len(table), "i32"))

    def _safe_index(self, linear: Index, size: int, kind: str) -> Scalar:
        """An index that stays in range where a guard is false."""
        scalar = self.access.index_value(linear, kind)
        if not self._conditions or (linear.low >= 0 and linear.high < size):
            return scalar
        inside = self.builder.icmp("ult", scalar, self.builder.constant(kind, size))
        return self.builder.select(inside, scalar, self.builder.constant(kind, 0))

    # --------------------------------------------- what indexed rules may ask

    def operand(self, number: int, index: Sequence[Index | int]) -> Scalar:
        """The element of an operand of the instruction whose rule is running."""
        assert self._current is not None
        outer = self._current
        key = (outer.instruction.operands[number], tuple(as_index(position) for position in index))
        is_stored = (
            outer.stored and key[0].tensor_type.element_type is outer.instruction.result.tensor_type.element_type
        )
        result = self.stored(*key) if is_stored else self.value(*key)
        self._names.note(result, key)
        self._current = outer
        return result

    def index_value(self, index: Index | int, kind: str) -> Scalar:
        """The expression as an integer scalar."""
        index = as_index(index)
        if index.is_constant:
            return self.builder.constant(kind, index.constant)
        key = ("index", kind, index)
        found = self.find(key)
        if found is None:
            found = self._scopes[-1][key] = self.access.index_value(index, kind)
        return found

    def run_time_index(self, value: Scalar, element: ElementType, low: int, high: int) -> Index:
        """An integer scalar of an element type, clamped to ``low <= value <= high``, as an index expression."""
        assert self._current is not None
        if low >= high:
            return Index(low)
        running = self._current
        key, variables = self._names.name(
            value, low, high, (running.instruction, running.at), lambda name: self.find(("atom", name)) is not None
        )
        if self.find(("atom", key)) is not None:
            return Index(0, ((RunTime(key, low, high, variables), 1),))
        b = self.builder
        signed = not isinstance(element, IntegerType) or element.signed
        wide = value if value.kind == "i64" else (b.sext if signed else b.zext)(value, "i64")
        if value.kind == "i1":
            wide = b.zext(value, "i64")
        highest = b.constant("i64", high)
        wide = b.select(b.icmp("slt" if signed else "ult", wide, highest), wide, highest)
        if signed or low > 0:
            lowest = b.constant("i64", low)
            wide = b.select(b.icmp("sgt" if signed else "ugt", wide, lowest), wide, lowest)
        self._scopes[-1]["atom", key] = wide
        self.access.bind(key, wide)
        return Index(0, ((RunTime(key, low, high, variables), 1),))

    def in_range(self, index: Index | int, low: int, high: int) -> Scalar | bool:
        """The condition ``low <= index < high``."""
        index = as_index(index)
        if index.low >= low and index.high < high:
            return True
        if index.high < low or index.low >= high or low >= high:
            return False
        b = self.builder
        kind = "i32" if index.low > -(2**30) and index.high < 2**30 and low > -(2**30) else "i64"
        if index.low >= low:
            return b.icmp("slt", self.index_value(index, kind), b.constant(kind, high))
        if index.high < high:
            return b.icmp("sge", self.index_value(index, kind), b.constant(kind, low))
        shifted = self.index_value(index - low, kind)
        return b.icmp("ult", shifted, b.constant(kind, high - low))

    def guarded(self, condition: Scalar | bool, value: Callable[[], Scalar], otherwise: Callable[[], Scalar]) -> Scalar:
        """``value()`` where the condition holds, ``otherwise()`` elsewhere."""
        if isinstance(condition, bool):
            return value() if condition else otherwise()
        if self.access.is_uniform(condition):
            return self.access.branch(condition, self._branch(value), self._branch(otherwise))
        b = self.builder
        first = self._masked(condition, value)
        second = self._masked(b.xor(condition, b.constant("i1", 1)), otherwise)
        return b.select(condition, first, second)

    def _branch(self, callback: Callable[[], Scalar]) -> Callable[[], Scalar]:
        current = self._current

        def run() -> Scalar:
            self._current = current
            self._unguarded += 1
            try:
                with self.scope():
                    return callback()
            finally:
                self._unguarded -= 1

        return run

    def _masked(self, condition: Scalar, callback: Callable[[], Scalar]) -> Scalar:
        if self._conditions:
            condition = self.builder.and_(self._conditions[-1], condition)
        current = self._current
        self._conditions.append(condition)
        try:
            with self.scope():
                return callback()
        finally:
            self._conditions.pop()
            self._current = current

    def loop(
        self, extents: Sequence[int], initial: Sequence[Scalar], body: Callable[..., Sequence[Scalar]]
    ) -> tuple[Scalar, ...]:
        """A nest of loops, ``body(indices, carried) -> carried``."""
        current = self._current

        def scoped(*arguments: Any) -> Sequence[Scalar]:
            self._current = current
            self._unguarded += 1
            try:
                with self.scope():
                    return body(*arguments)
            finally:
                self._unguarded -= 1

        results = self.access.loop(extents, initial, scoped)
        self._current = current
        return results

    def region(self, number: int, arguments: Sequence[Scalar]) -> tuple[Scalar, ...]:
        """The pointwise code of one of the running instruction's regions, inlined."""
        assert self._current is not None
        return self.inline(self._current.instruction.regions[number], arguments)

    def inline(
        self, block: Block, arguments: Sequence[Scalar], stored: frozenset[int] = frozenset()
    ) -> tuple[Scalar, ...]:
        """The pointwise code of a block of scalars; results of the numbers ``stored`` and their arguments in memory form.

        A block of ``n`` results has arguments for each of them, ``n`` for the first of each, and so on.
        """
        current = self._current
        self._unguarded += 1
        try:
            with self.scope():
                for number, (parameter, argument) in enumerate(zip(block.arguments, arguments, strict=True)):
                    form = (STORED,) if number % len(block.returned) in stored else ()
                    self._scopes[-1][parameter, (), *form] = argument
                return tuple(
                    self.stored(value, ()) if number in stored else self.value(value, ())
                    for number, value in enumerate(block.returned)
                )
        finally:
            self._unguarded -= 1
            self._current = current


def _user_of(value: Value, stack: Sequence[tuple[Any, ...]]) -> Instruction | None:
    """The instruction on a stack of wanted elements for which the uppermost one is wanted."""
    for key in reversed(stack[:-1]):
        producer: Instruction | None = key[0].producer
        if producer is not None and value in producer.operands:
            return producer
    return None


def _index_of(operand: Value, index: tuple[Index, ...]) -> tuple[Index, ...]:
    """A scalar operand of a pointwise op (clamp's bounds, select's predicate) has no index."""
    return index if operand.tensor_type.rank else ()
