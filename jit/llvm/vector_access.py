"""The CPU's ``Access``: loads, stores and index arithmetic as LLVM text, with one loop variable spread over lanes.

What does not depend on the vectorized variable stays scalar.  Along it, an element's address moves by a coefficient:
0 gives a scalar load, 1 a vector load, -1 a reversed vector load, anything else a gather.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hlojit.ir.scalar.builder import Pair
from hlojit.llvm.builder import LLVM_TYPE, LlvmBuilder, Val
from hlojit.lowering.index import Atom, Index, Quotient, Remainder, RunTime, constant, variable
from hlojit.lowering.target import Target

LONGEST_STRIDE = 4
"""Elements that lie no further apart are loaded with what is between them."""
UNROLLED_WINDOW = 16
"""Loops of rules (windows) with at most so many iterations are written out."""


class VectorAccess:
    """Implements ``hlojit.lowering.elements.Access`` on an ``LlvmBuilder``."""

    pair_alignment = 0
    """Bytes that addresses of pairs of ``f64`` are multiples of; 0: what those of ``f64`` are."""

    def __init__(self, builder: LlvmBuilder, target: Target, bases: Sequence[Val], sizes: Sequence[int]):
        """``bases`` are the buffers' addresses, ``sizes`` their lengths in elements."""
        self.builder = builder
        self.target = target
        self.bases = list(bases)
        self.sizes = list(sizes)
        self.variables: dict[str, Val] = {}
        """Value of every open loop variable (of lane 0 for the vectorized one)."""
        self.vectorized = ""
        self.staged: dict[tuple[int, Index], tuple[int, Index]] = {}
        """Loads (buffer, index) that are to be taken from a copy: its buffer and the index there."""
        self._caches: list[dict[tuple[str, str], Val]] = [{}]
        self._atoms: dict[str, Val] = {}
        self._windows = 0
        self._parts: dict[int, int] = {}
        """Buffers of complex numbers as buffers of their parts."""

    @property
    def mask(self) -> Val | None:
        """Lanes that take part, where a block of lanes reaches beyond the end; None means all."""
        return self.builder.mask

    @mask.setter
    def mask(self, mask: Val | None) -> None:
        self.builder.mask = mask

    # ---------------------------------------------------------------- scopes

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Index values made inside are forgotten at the end."""
        self._caches.append({})
        try:
            yield
        finally:
            self._caches.pop()

    @contextmanager
    def lanes(self, count: int, name: str, mask: Val | None = None) -> Iterator[None]:
        """Inside, variable ``name`` runs over ``count`` lanes."""
        outer = self.builder.lanes, self.vectorized, self.mask
        self.builder.lanes, self.vectorized, self.mask = count, name if count > 1 else "", mask
        try:
            with self.scope():
                yield
        finally:
            self.builder.lanes, self.vectorized, self.mask = outer

    # --------------------------------------------------------------- indices

    def varies(self, atom: Atom) -> bool:
        """Whether an atom differs between lanes."""
        if isinstance(atom, RunTime):
            return self._atoms[atom.key].lanes > 1
        if isinstance(atom, (Quotient, Remainder)):
            return any(self.varies(part) for part, _ in atom.numerator.terms)
        return atom.key == self.vectorized

    def bind(self, key: str, value: Val) -> None:
        """Remember the scalar of a run-time atom."""
        self._atoms[key] = value

    def index_value(self, index: Index, kind: str) -> Val:
        """An index as a scalar, or as a vector where it depends on the vectorized variable."""
        if index.is_constant:
            return self.builder.constant(kind, index.constant)
        if any(self.varies(atom) for atom, _ in index.terms):
            value = self._vector(index, "i32" if _fits(index, 31) else "i64")
            return self._resized(value, kind)
        return self._resized(self.uniform(index), kind)

    def uniform(self, index: Index) -> Val:
        """The ``i64`` of an index, of lane 0 where it depends on the vectorized variable."""
        if index.is_constant:
            return self.builder.constant("i64", index.constant)
        return self._cached("uniform", index, lambda: self._sum(index, "i64", self._uniform_atom))

    def _uniform_atom(self, atom: Atom, kind: str) -> Val:
        if isinstance(atom, (Quotient, Remainder)):
            return self._divided(atom, self.uniform, "i64")
        if isinstance(atom, RunTime):
            return self.builder.extract(self._atoms[atom.key], 0)
        return self.variables[atom.key]

    def _vector(self, index: Index, kind: str) -> Val:
        return self._cached(kind, index, lambda: self._sum(index, kind, self._vector_atom))

    def _vector_atom(self, atom: Atom, kind: str) -> Val:
        if not self.varies(atom):
            return self._resized(self._uniform_atom(atom, "i64"), kind)
        if isinstance(atom, (Quotient, Remainder)):
            return self._divided(atom, lambda numerator: self._vector(numerator, kind), kind)
        if isinstance(atom, RunTime):
            return self._resized(self._atoms[atom.key], kind)
        base = self._resized(self.variables[atom.key], kind)
        return self.builder.add(base, self.builder.lane_indices(kind))

    def _divided(self, atom: Quotient | Remainder, evaluate: Callable[[Index], Val], kind: str) -> Val:
        # Unsigned division of a numerator made non-negative by whole divisors.
        b = self.builder
        shift = -(atom.numerator.low // atom.divisor) if atom.numerator.low < 0 else 0
        numerator = evaluate(atom.numerator + shift * atom.divisor)
        divisor = b.constant(kind, atom.divisor)
        if isinstance(atom, Remainder):
            return b.urem(numerator, divisor)
        quotient = b.udiv(numerator, divisor)
        return b.sub(quotient, b.constant(kind, shift)) if shift else quotient

    def _sum(self, index: Index, kind: str, atom_value: Callable[[Atom, str], Val]) -> Val:
        b = self.builder
        total: Val | None = None
        # Uniform parts first, so that they are added as scalars.
        for atom, coefficient in sorted(index.terms, key=lambda term: self.varies(term[0])):
            part = atom_value(atom, kind)
            if coefficient != 1:
                part = b.mul(part, b.constant(kind, coefficient))
            total = part if total is None else b.add(total, part)
        assert total is not None
        return b.add(total, b.constant(kind, index.constant)) if index.constant else total

    def _resized(self, value: Val, kind: str) -> Val:
        b = self.builder
        if value.kind == kind:
            return value
        return b.trunc(value, kind) if _WIDTH[value.kind] > _WIDTH[kind] else b.sext(value, kind)

    def _cached(self, space: str, index: Index, make: Callable[[], Val]) -> Val:
        key = space, index.key
        for cache in reversed(self._caches):
            if key in cache:
                return cache[key]
        value = self._caches[-1][key] = make()
        return value

    # ---------------------------------------------------------------- memory

    def pointer(self, buffer: int, kind: str, offset: Val, *, inbounds: bool = True) -> Val:
        """Address of an element; guarded lanes may lie outside the buffer."""
        if inbounds:
            return self.builder.element_pointer(self.bases[buffer], kind, offset)
        element = "i8" if kind == "i1" else LLVM_TYPE[kind]
        offset_type = self.builder.type_of(offset)
        text = f"getelementptr {element}, ptr {self.bases[buffer].text}, {offset_type} {offset.text}"
        return self.builder.emit("ptr", offset.lanes, text)

    def load(self, buffer: int, kind: str, linear: Index, condition: Val | None) -> Val:
        """Load an element, or one for each lane."""
        b = self.builder
        buffer, linear = self.staged.get((buffer, linear), (buffer, linear))
        moving = [(atom, coefficient) for atom, coefficient in linear.terms if self.varies(atom)]
        safe = linear.low >= 0 and linear.high < self.sizes[buffer]
        if not moving:
            offset = self.uniform(linear)
            if condition is not None and not safe:
                inside = b.icmp("ult", offset, b.constant("i64", self.sizes[buffer]))
                offset = b.select(inside, offset, b.constant("i64", 0))
            return b.load(kind, self.pointer(buffer, kind, offset))
        # Lanes that a guard switches off may be read where their index is inside the buffer all the same.
        mask = self.mask if safe or condition is None else self._and(self.mask, condition)
        step = moving[0][1] if len(moving) == 1 and moving[0][0].key == self.vectorized else 0
        if step == 1:
            pointer = self.pointer(buffer, kind, self.uniform(linear), inbounds=mask is None)
            return b.load(kind, pointer, vector=True) if mask is None else b.masked_load(kind, pointer, b.splat(mask))
        if step == -1:
            return self._load_reversed(buffer, kind, linear, mask)
        if 2 <= step <= LONGEST_STRIDE and mask is None and self.target.has_feature("avx512vl"):
            return self._load_strided(buffer, kind, linear, step)
        offsets = self._vector(linear, "i32" if _fits(linear, 31) else "i64")
        return b.gather(kind, self.pointer(buffer, kind, offsets, inbounds=mask is None), mask)

    def load_pair(self, buffer: int, kind: str, linear: Index, condition: Val | None) -> Pair:
        """Load a complex number, or one for each lane: as one piece of memory that is taken apart in registers."""
        if kind == "f32":
            return self._halves(self.load(buffer, "i64", linear, condition))
        if self.vectorized and condition is None and self._is_whole_piece(linear):
            b = self.builder
            with b.of_lanes(2 * b.lanes):
                offset = b.mul(self.uniform(linear), b.constant("i64", 2))
                return self._unzipped(b.load(kind, self.pointer(buffer, kind, offset), vector=True))
        parts = self._parts_of(buffer)
        real, imaginary = (self.load(parts, kind, linear * 2 + part, condition) for part in (0, 1))
        return Pair(real, imaginary)

    def _is_whole_piece(self, linear: Index) -> bool:
        """Whether lanes are neighbours in memory, and all of them take part."""
        if self.mask is not None:
            return False
        moving = [atom for atom, _ in linear.terms if self.varies(atom)]
        return len(moving) == 1 and linear.coefficient(self.vectorized) == 1

    def _parts_of(self, buffer: int) -> int:
        """A buffer of complex numbers as one of twice as many parts."""
        found = self._parts.get(buffer)
        if found is None:
            found = self._parts[buffer] = len(self.bases)
            self.bases.append(self.bases[buffer])
            self.sizes.append(2 * self.sizes[buffer])
        return found

    def _halves(self, bits: Val) -> Pair:
        """Two ``f32`` of every ``i64``."""
        b = self.builder
        pairs = b.emit(
            "f32", 2 * bits.lanes, f"bitcast {b.type_of(bits)} {bits.text} to {b.type('f32', 2 * bits.lanes)}"
        )
        return self._unzipped(pairs)

    def _unzipped(self, pairs: Val) -> Pair:
        """The even lanes, and the odd ones."""
        lanes = pairs.lanes // 2
        if lanes == 1:
            return Pair(self.builder.extract(pairs, 0), self.builder.extract(pairs, 1))
        even, odd = (self.builder.shuffled(pairs, pairs, [2 * lane + part for lane in range(lanes)]) for part in (0, 1))
        return Pair(even, odd)

    def _load_reversed(self, buffer: int, kind: str, linear: Index, mask: Val | None) -> Val:
        b = self.builder
        last = self.uniform(linear - (b.lanes - 1))
        pointer = self.pointer(buffer, kind, last, inbounds=mask is None)
        if mask is None:
            return self.reversed(b.load(kind, pointer, vector=True))
        return self.reversed(b.masked_load(kind, pointer, self.reversed(b.splat(mask))))

    def _load_strided(self, buffer: int, kind: str, linear: Index, step: int) -> Val:
        """Load all elements between the first and the last one and pick every ``step``-th."""
        b = self.builder
        count = b.lanes * step
        last = (b.lanes - 1) * step
        bits = ", ".join("i1 true" if lane <= last else "i1 false" for lane in range(count))
        pointer = self.pointer(buffer, kind, self.uniform(linear), inbounds=False)
        memory = b.masked_load("i8" if kind == "i1" else kind, pointer, Val(f"<{bits}>", "i1", count))
        order = ", ".join(f"i32 {lane * step}" for lane in range(b.lanes))
        type = b.type_of(memory)
        text = f"shufflevector {type} {memory.text}, {type} poison, <{b.lanes} x i32> <{order}>"
        value = b.emit(memory.kind, b.lanes, text)
        return b.icmp("ne", value, b.constant("i8", 0)) if kind == "i1" else value

    def reversed(self, vector: Val) -> Val:
        """The lanes in the opposite order."""
        order = ", ".join(f"i32 {lane}" for lane in reversed(range(vector.lanes)))
        type = self.builder.type_of(vector)
        text = f"shufflevector {type} {vector.text}, {type} poison, <{vector.lanes} x i32> <{order}>"
        return self.builder.emit(vector.kind, vector.lanes, text)

    def store(self, value: Val, buffer: int, linear: Index) -> None:
        """Store an element of memory kind, or one for each lane."""
        b = self.builder
        if self.vectorized and linear.coefficient(self.vectorized) != 1:
            offsets = self._vector(linear, "i64")
            b.scatter(value, self.pointer(buffer, value.kind, offsets, inbounds=self.mask is None), self.mask)
            return
        pointer = self.pointer(buffer, value.kind, self.uniform(linear), inbounds=self.mask is None)
        if not self.vectorized:
            b.store(value, pointer)
            return
        vector = b.splat(value)
        if self.mask is None:
            b.store(vector, pointer)
        else:
            b.masked_store(vector, pointer, self.mask)

    def store_pair(self, real: Val, imaginary: Val, buffer: int, linear: Index) -> None:
        """Store a complex number, or one for each lane."""
        b, lanes = self.builder, self.builder.lanes if self.vectorized else 1
        if lanes == 1:
            pairs = b.insert(b.insert(Val("poison", real.kind, 2), 0, real), 1, imaginary)
        else:
            order = [lane + part for lane in range(lanes) for part in (0, lanes)]
            pairs = b.shuffled(b.splat(real), b.splat(imaginary), order)
        if real.kind == "f32":
            text = f"bitcast {b.type_of(pairs)} {pairs.text} to {b.type('i64', lanes)}"
            self.store(b.emit("i64", lanes, text), buffer, linear)
        elif lanes == 1 or self._is_whole_piece(linear):
            offset = b.mul(self.uniform(linear), b.constant("i64", 2))
            b.store(pairs, self.pointer(buffer, real.kind, offset), align=self.pair_alignment)
        else:
            parts = self._parts_of(buffer)
            self.store(real, parts, linear * 2)
            self.store(imaginary, parts, linear * 2 + 1)

    def _and(self, a: Val | None, b: Val) -> Val:
        return b if a is None else self.builder.and_(a, b)

    # ---------------------------------------------------------- control flow

    def is_uniform(self, condition: Val) -> bool:
        """Whether a branch may depend on the condition."""
        return condition.lanes == 1

    def branch(self, condition: Val, then: Callable[[], Val], otherwise: Callable[[], Val]) -> Val:
        """Both sides in blocks of their own, joined by a phi."""
        b = self.builder
        labels = [b.fresh_label(stem) for stem in ("then", "else", "join")]
        b.branch_if(condition, labels[0], labels[1])
        b.begin_block(labels[0])
        with self.scope():
            first = then()
        first_end, first_line = b.label, len(b.lines)
        b.begin_block(labels[1])
        with self.scope():
            second = b.splat(otherwise(), first.lanes) if first.lanes > 1 else otherwise()
        second_end = b.label
        second_line = len(b.lines)
        # The first block is finished now that the lanes of both are known.
        first = b.splat(first, second.lanes)
        tail = b.lines[second_line:]
        del b.lines[second_line:]
        b.branch(labels[2])
        b.lines[first_line:first_line] = [*tail, f"  br label %{labels[2]}"]
        b.begin_block(labels[2])
        return b.phi(first.kind, first.lanes, [(first, first_end), (second, second_end)])

    def loop(
        self, extents: Sequence[int], initial: Sequence[Val], body: Callable[..., Sequence[Val]]
    ) -> tuple[Val, ...]:
        """Nested loops that carry values; few iterations are written out."""
        total = 1
        for extent in extents:
            total *= extent
        if total == 0:
            return tuple(initial)
        if total <= UNROLLED_WINDOW:
            return self._unrolled(extents, (), tuple(initial), body)
        carried = [self.builder.splat(value) if self.vectorized else value for value in initial]
        return self._nested(extents, (), carried, body)

    def _unrolled(
        self,
        extents: Sequence[int],
        indices: tuple[Index, ...],
        carried: tuple[Val, ...],
        body: Callable[..., Sequence[Val]],
    ) -> tuple[Val, ...]:
        if not extents:
            return tuple(body(indices, carried))
        for position in range(extents[0]):
            carried = self._unrolled(extents[1:], (*indices, constant(position)), carried, body)
        return carried

    def _nested(
        self,
        extents: Sequence[int],
        indices: tuple[Index, ...],
        carried: Sequence[Val],
        body: Callable[..., Sequence[Val]],
    ) -> tuple[Val, ...]:
        if not extents:
            return tuple(body(indices, tuple(carried)))
        if extents[0] == 1:
            return self._nested(extents[1:], (*indices, constant(0)), carried, body)
        self._windows += 1
        name = f"w{self._windows}"
        b = self.builder
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", extents[0]), carried=carried)
        self.variables[name] = loop.index
        with self.scope():
            inner = (*indices, variable(name, 0, extents[0] - 1))
            results = self._nested(extents[1:], inner, loop.carried, body)
        return b.end_loop(loop, results)


_WIDTH = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}


def _fits(index: Index, bits: int) -> bool:
    """Whether an index and all parts of it fit a signed integer of ``bits`` + 1."""
    limit = 1 << (bits - 1)
    total = abs(index.constant)
    for atom, coefficient in index.terms:
        total += max(abs(coefficient * atom.low), abs(coefficient * atom.high))
        if isinstance(atom, (Quotient, Remainder)) and not (
            atom.divisor < limit // 2 and _fits(atom.numerator, bits - 1)
        ):
            return False
    return total < limit
