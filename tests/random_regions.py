"""Random programs with one op whose regions hold whatever the statements of random programs are.

    text, types = RandomRegion(random.Random(7)).build()

Regions read arguments of the program as well, scalars and tensors.  Those of maps and scatters, whose order is known, are any
code.  Reductions, windows and sorts are by keys, which a function of any code computes: they keep the first pair of the least
key, whichever way elements are combined, and put the payload into the keys' order.
"""

from __future__ import annotations

from .random_programs import ARITHMETIC, RandomProgram, Type, spell

SCALAR: Type = ((), "i32")
S = spell(SCALAR)
OUTSIDE: dict[str, Type] = {"%k": SCALAR, "%t": ((4,), "i32"), "%u": ((3, 4), "i32")}
GIVEN = ", ".join(f"{name}: {spell(kind)}" for name, kind in OUTSIDE.items())
"""What regions read from outside."""
X: Type = ((3, 5), "i32")


class RandomRegion(RandomProgram):
    """Writes one program around one op."""

    def code(self, arguments: list[str], count: int) -> tuple[str, list[str]]:
        """Statements on numbers and tensors made of them, and as many numbers that depend on the newest of their values."""
        outer, self.lines = self.lines, []
        scope: dict[str, Type] = {**OUTSIDE, **dict.fromkeys(arguments, SCALAR)}
        for name in arguments:
            self.spread(scope, name)
        for _ in range(self.choose(self.statements)):
            self.statement(scope, self.depth)
        results = [self.gathered(scope, self.some(scope, SCALAR)) for _ in range(count)]
        lines, self.lines = self.lines, outer
        return "\n".join(lines), results

    def spread(self, scope: dict[str, Type], name: str) -> None:
        """A tensor whose elements depend on a number, among them one from outside."""
        source = self.pick([each for each, kind in OUTSIDE.items() if kind[0]])
        kind = OUTSIDE[source]
        wide = self.emit({}, kind, f"stablehlo.broadcast_in_dim {name}, dims = [] : ({S}) -> {spell(kind)}")
        self.emit(scope, kind, f"stablehlo.{self.pick(ARITHMETIC)} {wide}, {source} : {spell(kind)}")

    def gathered(self, scope: dict[str, Type], number: str) -> str:
        """A number mixed with the elements of some of the newest tensors."""
        found = [(name, kind) for name, kind in scope.items() if kind[0] and kind[1] == "i32"]
        zero = self.emit({}, SCALAR, f"stablehlo.constant dense<0> : {S}")
        for name, kind in found[-1 - self.choose(2) :]:
            axes = ", ".join(map(str, range(len(kind[0]))))
            sum_ = self.emit(
                {},
                SCALAR,
                f"stablehlo.reduce({name} init: {zero}) applies stablehlo.{self.pick(('add', 'maximum'))} across dimensions = "
                f"[{axes}] : ({spell(kind)}, {S}) -> {S}",
            )
            number = self.emit({}, SCALAR, f"stablehlo.xor {number}, {sum_} : {S}")
        return number

    def key(self) -> str:
        """A function of a number and of what is outside."""
        text, (result,) = self.code(["%x"], 1)
        sum_ = self.name()
        return (
            f"func.func private @key(%x: {S}, {GIVEN}) -> {S} {{\n{text}\n"
            f"{sum_} = stablehlo.xor {result}, %x : {S}\nreturn {sum_} : {S}\n}}\n"
        )

    def keyed(self, value: str) -> tuple[str, str]:
        """A call of the function: text and result."""
        name = self.name()
        types = ", ".join([S, *map(spell, OUTSIDE.values())])
        return f"{name} = func.call @key({value}, {', '.join(OUTSIDE)}) : ({types}) -> {S}\n", name

    def compared(self, one: str, other: str, direction: str) -> tuple[str, str]:
        """Whether one key is less."""
        (first, key), (second, limit) = self.keyed(one), self.keyed(other)
        test = self.name()
        return (
            f"{first}{second}{test} = stablehlo.compare {direction}, {key}, {limit} : ({S}, {S}) -> tensor<i1>\n",
            test,
        )

    def chosen(self, payload: Type) -> str:
        """The region that keeps the pair of the smaller key, the first one of equals."""
        p = spell(payload)
        text, test = self.compared("%a", "%c", "LE")
        if self.choose(2):
            picked = (
                f'%r:2 = "stablehlo.if"({test}) ({{\nstablehlo.return %a, %b : {S}, {p}\n}}, {{\n'
                f"stablehlo.return %c, %d : {S}, {p}\n}}) : (tensor<i1>) -> ({S}, {p})\n"
            )
            results = "%r#0, %r#1"
        else:
            picked = (
                f"%r = stablehlo.select {test}, %a, %c : tensor<i1>, {S}\n"
                f"%s = stablehlo.select {test}, %b, %d : tensor<i1>, {p}\n"
            )
            results = "%r, %s"
        return (
            f"({{\n^bb0(%a: {S}, %b: {p}, %c: {S}, %d: {p}):\n{text}{picked}stablehlo.return {results} : {S}, {p}\n}})"
        )

    def of_any_code(self, count: int) -> str:
        """A region of twice as many numbers as it returns."""
        names = [f"%{letter}" for letter in "abcdef"[: 2 * count]]
        text, results = self.code(names, count)
        arguments = ", ".join(f"{name}: {S}" for name in names)
        types = ", ".join([S] * count)
        mixed = [self.name() for _ in results]
        lines = "\n".join(
            f"{name} = stablehlo.{self.pick(('add', 'xor', 'maximum'))} {result}, {self.pick(names)} : {S}"
            for name, result in zip(mixed, results)
        )
        return f"({{\n^bb0({arguments}):\n{text}\n{lines}\nstablehlo.return {', '.join(mixed)} : {types}\n}})"

    def build(self) -> tuple[str, list[Type]]:
        """The program's text and its arguments' types."""
        payload: Type = (X[0], self.elements[-1])
        makers = [self._map, self._scatter, self._sort, self._reduce, self._window]
        functions, text, results = self.pick(makers)(payload)
        names = [f"%r{number}" for number in range(len(results))]
        types = ", ".join(map(spell, results))
        bound = names[0] if len(names) == 1 else f"%r:{len(names)}"
        returned = names if len(names) == 1 else [f"%r#{number}" for number in range(len(names))]
        kinds = [*OUTSIDE.values(), X, payload, SCALAR, ((), payload[1]), ((7, 1), "i32"), ((7,), "i32")]
        given = f"{GIVEN}, " + ", ".join(
            f"{name}: {spell(kind)}" for name, kind in zip(("%x", "%y", "%i", "%j", "%at", "%v"), kinds[3:])
        )
        body = f"{bound} = {text}\nreturn {', '.join(returned)} : {types}"
        return f"{functions}func.func @main({given}) -> ({types}) {{\n{body}\n}}", kinds

    def _map(self, payload: Type) -> tuple[str, str, list[Type]]:
        x = spell(X)
        region = self.of_any_code(1)
        return "", f'"stablehlo.map"(%x, %x) {region} {{dimensions = array<i64: 0, 1>}} : ({x}, {x}) -> {x}', [X]

    def _scatter(self, payload: Type) -> tuple[str, str, list[Type]]:
        count, v = 1 + self.choose(2), spell(((7,), "i32"))
        region = self.of_any_code(count)
        operands, types = ", ".join(["%v"] * count), ", ".join([v] * count)
        return (
            "",
            f'"stablehlo.scatter"({operands}, %at, {operands}) {region} {{scatter_dimension_numbers = #stablehlo.scatter<'
            f"inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}} : ({types}, "
            f"tensor<7x1xi32>, {types}) -> {types if count == 1 else f'({types})'}",
            [((7,), "i32")] * count,
        )

    def _sort(self, payload: Type) -> tuple[str, str, list[Type]]:
        function, (text, test) = self.key(), self.compared("%a", "%b", "LT")
        p, x, y = spell(((), payload[1])), spell(X), spell(payload)
        return (
            function,
            f'"stablehlo.sort"(%x, %y) ({{\n^bb0(%a: {S}, %b: {S}, %c: {p}, %d: {p}):\n{text}'
            f"stablehlo.return {test} : tensor<i1>\n}}) {{dimension = {self.choose(2)} : i64, is_stable = true}} : "
            f"({x}, {y}) -> ({x}, {y})",
            [X, payload],
        )

    def _combine(self, op: str, attributes: str, payload: Type, shape: tuple[int, ...]) -> tuple[str, str, list[Type]]:
        function, region = self.key(), self.chosen(((), payload[1]))
        operands = ", ".join(map(spell, (X, payload, SCALAR, ((), payload[1]))))
        results: list[Type] = [(shape, "i32"), (shape, payload[1])]
        text = f'"stablehlo.{op}"(%x, %y, %i, %j) {region} {{{attributes}}} : ({operands}) -> ({", ".join(map(spell, results))})'
        return function, text, results

    def _reduce(self, payload: Type) -> tuple[str, str, list[Type]]:
        dimensions, shape = self.pick([("0", (5,)), ("1", (3,)), ("0, 1", ())])
        return self._combine("reduce", f"dimensions = array<i64: {dimensions}>", payload, shape)

    def _window(self, payload: Type) -> tuple[str, str, list[Type]]:
        attributes = (
            "window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 1, 2>, "
            "padding = dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>"
        )
        return self._combine("reduce_window", attributes, payload, (3, 3))
