"""Random valid programs: small graphs with loops, branches and updates in place, for comparing back ends.

    text, types = RandomProgram(random.Random(7)).build()

Every choice goes through ``choose(number)``, so Hypothesis can make the choices too.  All ops are exact, hence results of
any two back ends must agree bit for bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Type = tuple[tuple[int, ...], str]

SHAPES: tuple[tuple[int, ...], ...] = ((), (4,), (3, 4), (4, 3), (400,), (0,), (1,), (20, 20))
ELEMENTS = ("i32", "f32", "i32", "i8", "ui16", "i1", "f64", "i64")
DTYPES = {"i32": "i4", "f32": "f4", "i8": "i1", "ui16": "u2", "i1": "?", "f64": "f8", "i64": "i8"}
ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum")
LOGIC = ("and", "or", "xor")
SPECIAL = {"i32": (0, -1, 1, 2**31 - 1, -(2**31)), "i8": (0, -1, 127, -128), "ui16": (0, 1, 65535),
           "i64": (0, -1, 2**63 - 1, -(2**63)), "f32": (0.0, -0.0, 1.5), "f64": (0.0, -0.0, -2.5)}  # fmt: skip


def spell(kind: Type) -> str:
    """A tensor type as text."""
    shape, element = kind
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + element + ">"


class RandomProgram:
    """Writes one program; ``choose(n)`` returns a number below n."""

    def __init__(self, source: random.Random | Callable[[int], int], statements: int = 12, depth: int = 2):
        self.choose: Callable[[int], int] = source.randrange if isinstance(source, random.Random) else source
        self.statements = statements
        self.depth = depth
        self.lines: list[str] = []
        self.count = 0
        # Few types a program, so that values meet.
        self.elements = ("i32", self.pick(ELEMENTS)) if self.choose(3) else ("i32",)
        self.numbers = tuple(element for element in self.elements if element != "i1")

    # ------------------------------------------------------------- choosing

    def pick(self, items: Sequence[Any]) -> Any:
        """One of ``items``."""
        return items[self.choose(len(items))]

    def type(self) -> Type:
        """Any type."""
        return self.pick(SHAPES), self.pick(self.elements)

    def name(self) -> str:
        """A new value's name."""
        self.count += 1
        return f"%v{self.count}"

    def emit(self, scope: dict[str, Type], kind: Type, text: str) -> str:
        """Write ``name = text`` and return the name."""
        name = self.name()
        self.lines.append(f"{name} = {text}")
        scope[name] = kind
        return name

    def some(self, scope: dict[str, Type], kind: Type) -> str:
        """A value of a type: one of the scope's, or a constant."""
        found = [name for name, each in scope.items() if each == kind]
        if found and self.choose(8):
            # The newest are the likeliest, so that chains form.
            return found[-1 - min(self.choose(len(found)), self.choose(len(found)))]
        return self.constant(scope, kind)

    def constant(self, scope: dict[str, Type], kind: Type) -> str:
        """A splat constant."""
        element = kind[1]
        if element == "i1":
            literal = self.pick(("true", "false"))
        else:
            value = self.pick(SPECIAL[element]) if self.choose(2) else self.choose(7)
            literal = repr(float(value)) if element in ("f32", "f64") else str(value)
        return self.emit(scope, kind, f"stablehlo.constant dense<{literal}> : {spell(kind)}")

    # ----------------------------------------------------------- statements

    def statement(self, scope: dict[str, Type], depth: int) -> None:
        """Write one statement (and the constants that it needs)."""
        makers = [self.pointwise] * 4 + [self.dynamic_update] * 3 + [
            self.movement, self.movement, self.reduction, self.dynamic_slice, self.scatter, self.gather, self.select,
            self.product, self.sort,
        ]  # fmt: skip
        if depth > 0:
            makers += [self.loop] * 3 + [self.branch]
        self.pick(makers)(scope, depth)

    def pointwise(self, scope: dict[str, Type], depth: int) -> None:
        """An elementwise op."""
        kind = self.pick(list(scope.values())) if self.choose(4) else self.type()
        element = kind[1]
        names = LOGIC if element == "i1" else ARITHMETIC if element[0] == "f" else ARITHMETIC + LOGIC
        x, y = self.some(scope, kind), self.some(scope, kind)
        self.emit(scope, kind, f"stablehlo.{self.pick(names)} {x}, {y} : {spell(kind)}")

    def select(self, scope: dict[str, Type], depth: int) -> None:
        """A comparison and a choice."""
        kind = self.type()
        x, y = self.some(scope, kind), self.some(scope, kind)
        truth = (kind[0], "i1")
        test = self.emit(
            scope,
            truth,
            f"stablehlo.compare {self.pick(('LT', 'EQ', 'GE'))}, {x}, {y} : "
            f"({spell(kind)}, {spell(kind)}) -> {spell(truth)}",
        )
        self.emit(
            scope, kind, f"stablehlo.select {test}, {x}, {self.some(scope, kind)} : {spell(truth)}, {spell(kind)}"
        )

    def movement(self, scope: dict[str, Type], depth: int) -> None:
        """Reshape, transpose, reverse, broadcast, slice, pad, concatenate or iota."""
        element = self.pick(self.elements)
        which = self.choose(8)
        a, b = ((3, 4), element), ((4, 3), element)
        if which == 0:
            x = self.some(scope, a)
            self.emit(scope, b, f"stablehlo.transpose {x}, dims = [1, 0] : ({spell(a)}) -> {spell(b)}")
        elif which == 1:
            x = self.some(scope, ((20, 20), element))
            self.emit(
                scope,
                ((400,), element),
                f"stablehlo.reshape {x} : ({spell(((20, 20), element))}) -> {spell(((400,), element))}",
            )
        elif which == 2:
            kind = self.pick([((3, 4), element), ((20, 20), element), ((400,), element)])
            x = self.some(scope, kind)
            self.emit(scope, kind, f"stablehlo.reverse {x}, dims = [0] : {spell(kind)}")
        elif which == 3:
            target = self.pick([(3, 4), (400,), (20, 20), (0,), (4,)])
            x = self.some(scope, ((), element))
            self.emit(
                scope,
                (target, element),
                f"stablehlo.broadcast_in_dim {x}, dims = [] : ({spell(((), element))}) -> {spell((target, element))}",
            )
        elif which == 4:
            x = self.some(scope, a)
            self.emit(
                scope,
                ((1,), element),
                f"stablehlo.reshape {self.slice_one(scope, x, element)} : "
                f"({spell(((1, 1), element))}) -> {spell(((1,), element))}",
            )
        elif which == 5:
            x, zero = self.some(scope, ((4,), element)), self.some(scope, ((), element))
            self.emit(
                scope,
                ((4,), element),
                f"stablehlo.pad {x}, {zero}, low = [1], high = [-1], interior = [0] : "
                f"({spell(((4,), element))}, {spell(((), element))}) -> {spell(((4,), element))}",
            )
        elif which == 6:
            x, y = self.some(scope, ((1,), element)), self.some(scope, ((0,), element))
            z = self.some(scope, ((1,), element))
            one, none = spell(((1,), element)), spell(((0,), element))
            self.emit(
                scope,
                ((4,), element),
                f"stablehlo.concatenate {x}, {y}, {z}, {x}, {z}, dim = 0 : "
                f"({one}, {none}, {one}, {one}, {one}) -> {spell(((4,), element))}",
            )
        elif element != "i1":
            kind = self.pick([(3, 4), (400,), (20, 20)]), element
            self.emit(scope, kind, f"stablehlo.iota dim = 0 : {spell(kind)}")

    def slice_one(self, scope: dict[str, Type], x: str, element: str) -> str:
        """A 1x1 piece of a 3x4 array."""
        i, j = self.choose(3), self.choose(4)
        return self.emit(
            {},
            ((1, 1), element),
            f"stablehlo.slice {x} [{i}:{i + 1}, {j}:{j + 1}] : "
            f"({spell(((3, 4), element))}) -> {spell(((1, 1), element))}",
        )

    def reduction(self, scope: dict[str, Type], depth: int) -> None:
        """A reduction whose order does not matter."""
        element = self.pick(self.numbers)
        shape, axis, result = self.pick([((400,), 0, ()), ((3, 4), 0, (4,)), ((20, 20), 1, None), ((3, 4), 1, None)])
        op = self.pick(("maximum", "minimum") if element[0] == "f" else ("add", "maximum", "multiply"))
        result = result if result is not None else ((shape[0],) if shape[0] == 4 else None)
        if result is None:
            shape, axis, result = (4, 3), 1, (4,)
        x, zero = self.some(scope, (shape, element)), self.some(scope, ((), element))
        self.emit(
            scope,
            (result, element),
            f"stablehlo.reduce({x} init: {zero}) applies stablehlo.{op} across dimensions = "
            f"[{axis}] : ({spell((shape, element))}, {spell(((), element))}) -> {spell((result, element))}",
        )

    def dynamic_slice(self, scope: dict[str, Type], depth: int) -> None:
        """Read at an index that may be anything."""
        element = self.pick(self.elements)
        source, result = self.pick([((400,), (4,)), ((400,), (1,)), ((4,), (1,)), ((400,), (400,))])
        x, i = self.some(scope, (source, element)), self.some(scope, ((), "i32"))
        self.emit(
            scope,
            (result, element),
            f"stablehlo.dynamic_slice {x}, {i}, sizes = [{result[0]}] : "
            f"({spell((source, element))}, tensor<i32>) -> {spell((result, element))}",
        )

    def dynamic_update(self, scope: dict[str, Type], depth: int) -> None:
        """Write at an index that may be anything."""
        element = self.pick(self.elements)
        source, part = self.pick([((400,), (4,)), ((400,), (1,)), ((4,), (1,)), ((400,), (400,)), ((20, 20), (3, 4))])
        x, y = self.some(scope, (source, element)), self.some(scope, (part, element))
        indices = [self.some(scope, ((), "i32")) for _ in source]
        self.emit(
            scope,
            (source, element),
            f"stablehlo.dynamic_update_slice {x}, {y}, {', '.join(indices)} : "
            f"({spell((source, element))}, {spell((part, element))}, {', '.join(['tensor<i32>'] * len(source))}) -> "
            f"{spell((source, element))}",
        )

    def scatter(self, scope: dict[str, Type], depth: int) -> None:
        """Scatter four elements."""
        element = self.pick(self.numbers)
        whole, four, scalar = ((400,), element), ((4,), element), spell(((), element))
        x, u, i = self.some(scope, whole), self.some(scope, four), self.some(scope, ((4,), "i32"))
        indices = self.emit({}, ((4, 1), "i32"), f"stablehlo.reshape {i} : (tensor<4xi32>) -> tensor<4x1xi32>")
        old, new, sum_ = self.name(), self.name(), self.name()
        combine = f"{sum_} = stablehlo.{self.pick(('add', 'maximum'))} {old}, {new} : {scalar}\n"
        returned = self.pick((sum_, new))
        self.emit(
            scope,
            whole,
            f'"stablehlo.scatter"({x}, {indices}, {u}) ({{\n^bb0({old}: {scalar}, {new}: {scalar}):\n'
            f"{combine}stablehlo.return {returned} : {scalar}\n}}) {{scatter_dimension_numbers = #stablehlo.scatter<"
            "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, "
            f"indices_are_sorted = false, unique_indices = false}} : ({spell(whole)}, tensor<4x1xi32>, {spell(four)}) "
            f"-> {spell(whole)}",
        )

    def gather(self, scope: dict[str, Type], depth: int) -> None:
        """Gather four elements."""
        element = self.pick(self.elements)
        whole, four = ((400,), element), ((4,), element)
        x, i = self.some(scope, whole), self.some(scope, ((4,), "i32"))
        indices = self.emit({}, ((4, 1), "i32"), f"stablehlo.reshape {i} : (tensor<4xi32>) -> tensor<4x1xi32>")
        self.emit(
            scope,
            four,
            f'"stablehlo.gather"({x}, {indices}) {{dimension_numbers = #stablehlo.gather<'
            "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>, "
            f"indices_are_sorted = false}} : ({spell(whole)}, tensor<4x1xi32>) -> {spell(four)}",
        )

    def product(self, scope: dict[str, Type], depth: int) -> None:
        """A product of integers."""
        element = "i32"
        a, b = self.pick([(((20, 20), element), ((20, 20), element)), (((3, 4), element), ((4,), element))])
        result = ((20, 20), element) if b[0] == (20, 20) else ((3,), element)
        x, y = self.some(scope, a), self.some(scope, b)
        value = self.emit(
            {},
            result,
            f"stablehlo.dot_general {x}, {y}, contracting_dims = [1] x [0] : "
            f"({spell(a)}, {spell(b)}) -> {spell(result)}",
        )
        if result[0] == (20, 20):
            scope[value] = result

    def sort(self, scope: dict[str, Type], depth: int) -> None:
        """Sort with a passenger."""
        kind, other = ((400,), "i32"), ((400,), self.pick(self.elements))
        x, y = self.some(scope, kind), self.some(scope, other)
        first, second = self.name(), self.name()
        a, b, c, d, less = (self.name() for _ in range(5))
        self.lines.append(
            f'{first}, {second} = "stablehlo.sort"({x}, {y}) ({{\n^bb0({a}: tensor<i32>, {b}: tensor<i32>, '
            f"{c}: {spell(((), other[1]))}, {d}: {spell(((), other[1]))}):\n"
            f"{less} = stablehlo.compare LT, {a}, {b} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            f"stablehlo.return {less} : tensor<i1>\n}}) {{dimension = 0 : i64, is_stable = true}} : "
            f"({spell(kind)}, {spell(other)}) -> ({spell(kind)}, {spell(other)})"
        )
        scope[first], scope[second] = kind, other

    # --------------------------------------------------------- control flow

    def body(self, scope: dict[str, Type], depth: int, statements: int) -> list[str]:
        """The lines of a region with ``statements`` statements; names are added to ``scope``."""
        outer, self.lines = self.lines, []
        for _ in range(statements):
            self.statement(scope, depth)
        lines, self.lines = self.lines, outer
        return lines

    def loop(self, scope: dict[str, Type], depth: int) -> None:
        """A loop with a counter and some state, which the body permutes, keeps, updates or replaces."""
        kinds = [((), "i32")] + [
            self.pick([*scope.values(), ((400,), self.pick(self.elements))]) for _ in range(self.choose(5))
        ]
        if len(kinds) > 1 and self.choose(2):
            kinds.append(kinds[-1])
        start = self.emit({}, kinds[0], "stablehlo.constant dense<0> : tensor<i32>")
        limit = self.emit({}, kinds[0], f"stablehlo.constant dense<{self.choose(4)}> : tensor<i32>")
        initial = [start] + [self.some(scope, kind) for kind in kinds[1:]]
        arguments = [self.name() for _ in kinds]
        inner = dict(scope)
        inner.update(zip(arguments, kinds))
        lines = self.body(inner, depth - 1, 1 + self.choose(4))
        outer, self.lines = self.lines, lines
        step = self.emit({}, kinds[0], "stablehlo.constant dense<1> : tensor<i32>")
        counter = self.emit({}, kinds[0], f"stablehlo.add {arguments[0]}, {step} : tensor<i32>")
        returned = [counter] + [self.some(inner, kind) for kind in kinds[1:]]
        lines, self.lines = self.lines, outer
        test = self.name()
        results = self.name()
        self.count += len(kinds)
        types = ", ".join(map(spell, kinds))
        assignments = ", ".join(f"{argument} = {value}" for argument, value in zip(arguments, initial))
        self.lines.append(
            f"{results}:{len(kinds)} = stablehlo.while({assignments}) : {types}\n cond {{\n"
            f"{test} = stablehlo.compare LT, {arguments[0]}, {limit} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            f"stablehlo.return {test} : tensor<i1>\n}} do {{\n"
            + "\n".join(lines)
            + f"\nstablehlo.return {', '.join(returned)} : {types}\n}}"
        )
        scope.update((f"{results}#{number}", kind) for number, kind in enumerate(kinds))

    def branch(self, scope: dict[str, Type], depth: int) -> None:
        """An ``if`` or a ``case`` with an index that may be anything."""
        kinds = [self.pick(list(scope.values())) for _ in range(1 + self.choose(3))]
        cases = self.choose(3)
        index = self.some(scope, ((), "i32" if cases else "i1"))
        regions = []
        types = ", ".join(map(spell, kinds))
        for _ in range(cases + 1 if cases else 2):
            inner = dict(scope)
            lines = self.body(inner, depth - 1, self.choose(3))
            outer, self.lines = self.lines, lines
            returned = [self.some(inner, kind) for kind in kinds]
            lines, self.lines = self.lines, outer
            regions.append("{\n" + "\n".join(lines) + f"\nstablehlo.return {', '.join(returned)} : {types}\n}}")
        results = self.name()
        self.lines.append(
            f'{results}:{len(kinds)} = "stablehlo.{"case" if cases else "if"}"({index}) ({", ".join(regions)}) '
            f": (tensor<{'i32' if cases else 'i1'}>) -> ({types})"
        )
        scope.update((f"{results}#{number}", kind) for number, kind in enumerate(kinds))

    # -------------------------------------------------------------- program

    def build(self) -> tuple[str, list[Type]]:
        """The program's text and its arguments' types."""
        kinds = [((), "i32"), ((400,), "i32"), ((4,), "i32")] + [((400,), self.elements[-1])] * self.choose(3)
        kinds += [self.type() for _ in range(self.choose(4))]
        scope = {f"%a{number}": kind for number, kind in enumerate(kinds)}
        for _ in range(self.statements):
            self.statement(scope, self.depth)
        names = list(scope)
        returned = [self.pick(names[-8:] if self.choose(3) else names) for _ in range(1 + self.choose(4))]
        header = ", ".join(f"{name}: {spell(kind)}" for name, kind in list(scope.items())[: len(kinds)])
        types = ", ".join(spell(scope[name]) for name in returned)
        text = "\n".join(self.lines)
        return f"func.func @main({header}) -> ({types}) {{\n{text}\nreturn {', '.join(returned)} : {types}\n}}", kinds


def random_arguments(kinds: Sequence[Type], seed: int) -> list[np.ndarray[Any, Any]]:
    """Small integers, some of them extreme."""
    generator = np.random.default_rng(seed)
    arrays = []
    for shape, element in kinds:
        array = generator.integers(0 if element in ("ui16", "i1") else -4, 2 if element == "i1" else 9, shape)
        array = np.asarray(array).astype(DTYPES[element])
        if element in SPECIAL and element[0] != "f" and array.size > 4 and generator.integers(2):
            array.flat[generator.integers(array.size)] = generator.choice(np.array(SPECIAL[element], array.dtype))
        arrays.append(array)
    return arrays
