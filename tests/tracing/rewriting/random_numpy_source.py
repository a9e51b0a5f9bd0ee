"""Random functions over numbers, arrays and containers with Python's whole control flow; every loop ends.

Floats are multiples of a quarter and stay small, so arithmetic is exact whatever its order, and results can be compared by bits.
"""

from __future__ import annotations

import re
from random import Random
from typing import Final

HEADER = '''
import numpy as np
from contextlib import nullcontext

LIMIT = 3
WEIGHTS = (0.5, -1.25, 2.0)
TABLE = np.array([0.25, 1.5, -2.0])


class Box:
    """A number, and how often it was asked for."""

    scale = 2

    def __init__(self, value, items):
        self.value = value
        self.items = items

    def grown(self, by):
        if by > 1:
            return self.value + by * self.scale
        return self.value - by

    @property
    def twice(self):
        return self.value + self.value

    def add(self, by):
        self.value = (self.value + by) % 7


def clipped(v, low=-2.0, *, high=2.5):
    if v < low:
        return low
    return v if v < high else high


def countdown(n, total):
    if n == 0:
        return total
    return countdown(n - 1, total + n)


def bumped(array, place, by):
    array[place % len(array)] += by
    if by > 1:
        return array[place % len(array)]
    return by


def first_above(array, limit):
    for number, value in enumerate(array):
        if value > limit:
            return number
    else:
        return -1


def make_adder(by):
    total = 0

    def add(v):
        nonlocal total
        total = (total + v + by) % 11
        return total

    return add
'''


# What may stand for each kind of value.  $I, $F, $C, $V are an int, a float, a condition and an array of five, one level
# simpler; $i, $f, $c are the simplest ones, $a the name of an array, $k an index, $p a small literal.
GRAMMAR: Final[dict[str, list[str]]] = {
    "I": [
        "($I + $I)", "($I - $I)", "($I * $I) % 13", "($I // 3)", "($I // -2)", "($I // LIMIT)", "($I % 5)", "($I % -4)",
        "($I if $C else $I)", "min($I, $I)", "max($I, $I, 1)", "abs($I)", "int(n[$p])", "len(x)", "first_above($a, $f)",
        "countdown($p, $I)", "box.grown($I) % 9", "(lambda v, w=$I: v - w)($I)", "items[$p]", "d['p']", "box.twice % 5",
        "sum([v * $I for v in range(3)]) % 7", "int($F)", "divmod($I, 4)[0]", "divmod($I, -4)[1]", "($I and $I)", "($I or $I)",
        "-($I)", "($C) + 0", "int($C)", "round($f)", "($I & 7)", "($I ^ 3) % 8", "($I ** 2) % 7", "n[$p]", "int(n.sum())",
        "items[$i % 3]", "(~$I)", "($I << 1) % 32",
    ],
    "i": ["$n", "$n", "$m"],
    "F": [
        "($F + $F)", "($F - $F)", "($F * 0.5) % 8.0", "($F * -1.5) % 8.0", "($F / 2)", "($F / -4.0)", "($F % 3.5)", "($F % -2.5)",
        "($F if $C else $F)", "min($F, $F)", "max($F, $F)", "abs($F)", "float($I)", "$a[$k]", "clipped($F)",
        "clipped($F, $F, high=3.0)", "WEIGHTS[$p]", "$a.sum()", "TABLE[$p]", "c", "np.where($C, $F, $F)[()]", "bumped(y, $i, $F)",
        "sum([v * 0.5 for v in $a])", "d['q']", "($F or $F)", "-($F)", "float($a[$k])", "($F // 2)", "($F // -1.5)", "np.abs($F)",
        "$a[$k] * 0.5", "float(np.max($a))", "x[1:][$p]", "($I / 4)", "$a.mean() * 5 // 1",
    ],
    "f": ["$r", "$r", "$q"],
    "V": [
        "$a * $f", "$a + $a", "$a[::-1]", "$a.copy()", "$a", "np.where($a > $f, $a, $f)", "np.array([v + $f for v in $a])",
        "np.array([$F, $f, 0.5, 1, $f])", "np.zeros(5)", "($a if $C else $a)", "($a if $C else $a + 1.0)", "np.full(5, $f)",
        "$a % 4.0", "np.minimum($a, $F)", "np.arange(5) * 0.5",
    ],
    "C": [
        "($C and $C)", "($C or $C)", "(not $C)", "($i < $I <= $i)", "($f < $F != $f)", "$I", "$a[$k] > $f", "$a.any()",
        "($a > $f).all()", "$i in (1, 2, $i)", "$i in range(4)", "any([$C, $C])", "all([$C, $C])", "bool($F)", "$i not in [0, 1]",
        "$I % 3", "isinstance($i, int)", "(bumped(y, 1, $f) > 0 or $C)", "$c", "$F > $f", "$I == $i",
    ],
    "c": ["$i == $i", "$i != $i", "$i < $i", "$i <= $i", "$f > $f", "$f >= $f", "$i > $i"],
    "k": ["$p", "-1", "-$p", "$i % 5", "($I) % 5", "$i"],
    # Statements of one line.
    "S": [
        "$d = $I % 17", "$d = $I % 17", "$e = $F % 8.0", "$e = $F % 8.0", "$d += $I % 5", "$d -= $I % 5", "$e += $F % 2.0",
        "$a[$k] = $F % 4.0", "$a[$k] = $F % 4.0", "$a[$k] += $F % 4.0", "$a[1:4] = $f", "$a[$k:] -= $f", "$a[::2] *= 0.5", "$a[:] = $V",
        "y = $V", "y = $V % 4.0", "y += $f", "y *= -1", "i, j = j, i", "f, g = g, f + 0.25", "i, *_ = j, a, 1", "x[0], x[1] = x[1], x[0]",
        "x[$k], $d = $f, $i", "items = [*items[1:], $I]", "d = {'p': $I, 'q': $F}", "i, *items = [*items[:2], j, $i]",
        "first, *rest, last = x; f = first - last", "[i, j] = items[:2]", "(i, j), f = (j, i), g", "i = make_adder($i)($i)",
        "bumped($a, $i, $f)", "f = clipped($F)", "np.negative(y, out=y)", "y.sort()", "y.fill($f)", "tmp = $I; del tmp", "f = x[1]",
        "i = j = $I % 3", "f = np.float64(f)", "g = g % 2 if $C else g", "assert $C, 'broken'", "y = y.copy()", "x = x.copy()",
    ],
    # What a branch of a program cannot do, or seldom: changes of Python's objects and of types.
    "T": [
        "items[$p] = $I", "items.append($i)", "d['p'] = $I", "d['q'] += $f", "box.value = $I", "box.add($i)", "box = Box($I, box.items)",
        "box.items[1] += 1", "add = make_adder($i); i = add($i) + add(1)", "i = f", "f = i", "i = i > 2", "f = None", "y, x = x, y",
        "del items[$p]", "items = items + [j]", "d = {**d, 'r': $I}", "i = $i; i: int = i + 1",
    ],
    # Changes of lists, dictionaries and objects that several names may hold.
    "K": [
        "items[$p] = $I % 9", "items[$p] += 1", "d['p'] = $I % 9", "d['q'] += $f", "box.value = $I % 9", "box.add($i)", "box.items[$p] += $i",
        "rows.append($i)", "rows.append($f)", "rows.append((i, $f))", "rows.append(y.copy())", "rows.append($V)", "rows.append([$i, $f])",
        "other[$p] = $I % 9", "other = items", "other = [*items]", "items = other", "items = box.items", "box.items = [a, i, j]", "box = Box(i, other)",
        "other = items if $C else [a, 2, 3]", "other = items if $C else box.items", "d['l'] = items", "d['l'] = 0", "items[0], items[1] = items[1], items[0]",
        "rows = rows[:2]", "rows = [0.5]", "rows[-1:] = [$f]", "items.reverse()", "items.sort()", "d.update(p=$I % 5)", "setattr(box, 'value', $i)",
        "items.append(items.pop(0))", "other.append(other.pop())", "y[0] = len(rows)", "i = items[-1]", "f = d['q']", "d['y'] = y", "d['y'] = y.copy()", "d['q'] = $F % 4.0",
    ],
    # What loops go over, and the first line of the body, for a variable t.
    "L": [
        "range(3)|i += t", "range(12)|i = (i + t) % 23", "range(a % 6)|i += t", "range(10, 0, -1)|j = (j + t) % 19", "range(1, 12, 3)|i += t",
        "range($I % 12)|j -= t", "$a|f = (f + t) % 8.0", "enumerate($a)|f = (f + t[1]) % 8.0; i = t[0]", "zip(x, $a)|g = t[0] - t[1]",
        "reversed(range(9))|i = t", "n|i = int(t)", "items[:3]|i = t", "range(int(n[0]), int(n[1]))|x[t % 5] = t % 4", "range(n[2])|i += 1",
        "WEIGHTS|f = t", "[$I, 2, j]|i += t % 5", "sorted(WEIGHTS)|g -= t", "range(-3)|i += t", "range(20)|if t > a: break",
        "d.values()|f = t + 0.25", "range(9)|t = t * 2; i = t", "range(15)|x[t % 5] += 0.25", "x[::-1]|t += 1; g = t", "enumerate(items)|i += t[0]",
        "range(a, 12)|j = t", "range(12, a, -2)|j = t", "list(range(4))|j = t",
    ],
}  # fmt: skip


RESULT: Final = "return a, b, i, j, f, g, y, items, d, box.value, box.items"


class NumpyWriter:
    """Writes a module with a function ``program(a, b, c, x, n)`` of an int, a float, a np.float64, an array and one of ints."""

    def __init__(self, random: Random, things: float = 0.0):
        self.random = random
        self.things = things
        """How many statements change lists, dictionaries and objects."""
        self.lines: list[str] = []
        self.ints = ["a", "i", "j"]
        self.floats = ["b", "f", "g"]
        self.arrays = ["x", "y"]
        self.targets = {"d": ["i", "j", "a"], "e": ["f", "g", "b"]}
        self.extras: list[str] = []
        """What is returned beside, whether it is bound or not."""
        self.made = 0
        self.in_loop = False
        self.in_function = False
        self.returns = False

    def program(self) -> str:
        """The source."""
        self.lines = [
            HEADER,
            "",
            "def program(a, b, c, x, n):",
            "    i = 1",
            "    j = a % 5",
            "    f = 0.25",
            "    g = b",
        ]
        self.put(
            1,
            self.random.choice(
                ["y = np.zeros(5)", "y = x.copy()", "y = x * 0.5", "y = np.arange(5) * 0.5", "y = x[::-1].copy()"]
            ),
        )
        self.put(1, f"box = Box({self.random.choice(['a', '2', 'j'])}, [a, 2, 3])")
        self.put(1, "d = {'p': a, 'q': b}")
        self.put(1, "items = [a, 1, 2]")
        if self.things:
            self.put(1, "other = items")
            self.put(1, "rows = []")
        for _ in range(self.random.randrange(2, 6)):
            self.statement(1, 3)
        more = [] if self.returns else [*self.extras, *(["rows", "other"] if self.things else [])]
        self.put(1, ", ".join([RESULT, *more]))
        return "\n".join(self.lines) + "\n"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # ------------------------------------------------------------- expressions

    def text(self, template: str, depth: int = 2) -> str:
        """A template with everything filled in."""
        return re.sub(r"\$(\w)", lambda found: self._filled(found[1], depth), template)

    def _filled(self, kind: str, depth: int) -> str:
        r = self.random
        plain = {"n": self.ints, "r": self.floats, "a": self.arrays, **self.targets}
        if kind in plain:
            return r.choice(plain[kind])
        if kind == "m":
            return str(r.randrange(-3, 6))
        if kind == "q":
            return str(r.randrange(-8, 9) / 4)
        if kind == "p" or (kind == "k" and depth <= 0):
            return str(r.randrange(3))
        if kind in "IFC" and (depth <= 0 or self.chance(0.3)):
            kind = kind.lower()
        return self.text(r.choice(GRAMMAR[kind]), depth - 1)

    # -------------------------------------------------------------- statements

    def put(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def block(self, indent: int, depth: int) -> None:
        scope = list(self.ints), list(self.floats), list(self.arrays)
        for _ in range(self.random.randrange(1, 4)):
            self.statement(indent, depth)
        if self.chance(0.8):
            # Else what is bound here may be used behind, where it may not be bound.
            self.ints, self.floats, self.arrays = scope

    def fresh(self, kind: str) -> str:
        self.made += 1
        name = f"{kind}{self.made}"
        if self.chance(0.3) and not self.in_function:
            self.extras.append(name)
        return name

    def statement(self, indent: int, depth: int) -> None:
        kinds = ["line"] * 12
        if depth:
            kinds += ["if", "if", "if", "while", "for", "for", "for", "inner", "with", "match", "alias", "try"]
        if indent > 1:
            kinds += ["return", "raise"]
            kinds += ["break", "continue", "break"] if self.in_loop else []
        kinds += ["view", "temporary", "del", "walrus"]
        getattr(self, "put_" + self.random.choice(kinds))(indent, depth)

    def put_line(self, indent: int, depth: int) -> None:
        if self.things and self.chance(self.things):
            self.put(indent, self.text("$K", 3))
            return
        rare = indent == 1 if self.chance(0.3) else self.chance(0.03)
        self.put(indent, self.text("$T" if rare else "$S", 3))

    def put_view(self, indent: int, depth: int) -> None:
        name = self.fresh("v")
        self.put(indent, f"{name} = {self.text('$a')}{self.random.choice(['[:]', '[::-1]', '.reshape(5)', '.T'])}")
        self.arrays = [*self.arrays, name]

    def put_temporary(self, indent: int, depth: int) -> None:
        if self.chance(0.5):
            name = self.fresh("k")
            self.put(indent, f"{name} = {self.text('$I % 9')}")
            self.ints = [*self.ints, name]
        else:
            name = self.fresh("r")
            self.put(indent, f"{name} = {self.text('$F')}")
            self.floats = [*self.floats, name]

    def put_del(self, indent: int, depth: int) -> None:
        if self.chance(0.1):
            self.put(indent, f"del {self.random.choice(['i', 'f', 'y', *self.extras])}")
        else:
            self.put(indent, self.text("tmp, i = $I, $i; del tmp"))

    def put_walrus(self, indent: int, depth: int) -> None:
        self.put(indent, self.text("if (i := $I % 9) > 2:"))
        self.put_line(indent + 1, 0)

    def put_if(self, indent: int, depth: int) -> None:
        self.put(indent, self.text("if $C:"))
        self.block(indent + 1, depth - 1)
        if self.chance(0.3):
            self.put(indent, self.text("elif $C:"))
            self.block(indent + 1, depth - 1)
        if self.chance(0.5):
            self.put(indent, "else:")
            self.block(indent + 1, depth - 1)

    def put_alias(self, indent: int, depth: int) -> None:
        """One array on one path, another one on the other."""
        self.put(indent, self.text("if $C:"))
        self.put(indent + 1, self.random.choice(["y = x", "y = x[:]", "x = y", *["y = y + 1.0", "x = x.copy()"] * 3]))
        if self.chance(0.5):
            self.put(indent, "else:")
            self.put(indent + 1, self.random.choice(["y = x.copy()", "y = x[::-1]", "x = x + 0.5"]))

    def put_while(self, indent: int, depth: int) -> None:
        self.made += 1
        count = f"w{self.made}"
        self.put(indent, f"{count} = 0")
        limit = self.random.choice(["4", "12", "a % 6", "int(n[1])"])
        self.put(indent, self.text(f"while {count} < {limit} and $C:"))
        self.put(indent + 1, f"{count} += 1")
        self._body(indent, depth)

    def put_for(self, indent: int, depth: int) -> None:
        name = self.fresh("t")
        over, first = self.text(self.random.choice(GRAMMAR["L"])).split("|")
        self.put(indent, f"for {name} in {over}:")
        self._body(indent, depth, re.sub(r"\bt\b", name, first))

    def _body(self, indent: int, depth: int, first: str = "pass") -> None:
        self.put(indent + 1, first)
        in_loop, self.in_loop = self.in_loop, True
        self.block(indent + 1, depth - 1)
        self.in_loop = in_loop
        if self.chance(0.3):
            self.put(indent, "else:")
            self.block(indent + 1, depth - 1)

    def put_return(self, indent: int, depth: int) -> None:
        if self.chance(0.5):
            self.put(indent, self.text("if $C:"))
            indent += 1
        self.returns = self.returns or not self.in_function
        self.put(indent, self.text("return $I") if self.in_function else RESULT)

    def put_break(self, indent: int, depth: int) -> None:
        if self.chance(0.5):
            self.put(indent, self.text("if $C:"))
            indent += 1
        self.put(indent, "break")

    def put_continue(self, indent: int, depth: int) -> None:
        if self.chance(0.5):
            self.put(indent, self.text("if $C:"))
            indent += 1
        self.put(indent, "continue")

    def put_raise(self, indent: int, depth: int) -> None:
        if self.chance(0.7):
            self.put(indent, self.text("if $C:"))
            indent += 1
        self.put(indent, f"raise {self.random.choice(['ValueError', 'KeyError', 'RuntimeError'])}({len(self.lines)})")

    def put_try(self, indent: int, depth: int) -> None:
        self.put(indent, "try:")
        if self.chance(0.7):
            self.put(indent + 1, self.text("$d = $i + $i"))
            self.put_line(indent + 1, 0)
        else:
            self.block(indent + 1, depth - 1)
        self.put(
            indent, self.random.choice(["finally:", "finally:", "except ValueError:", "except ZeroDivisionError:"])
        )
        self.put_line(indent + 1, 0)

    def put_with(self, indent: int, depth: int) -> None:
        self.put(indent, f"with {self.random.choice(['nullcontext(i) as i', 'nullcontext()'])}:")
        self.block(indent + 1, depth - 1)

    def put_match(self, indent: int, depth: int) -> None:
        what, pattern = self.random.choice(
            [("(1, j)", "(1, i)"), ("LIMIT", "3"), ("items[:2]", "[i, _]"), ("d", "{'p': i}"), ("box", "Box(value=i)")]
        )
        self.put(indent, f"match {what}:")
        self.put(indent + 1, f"case {pattern}:")
        self.block(indent + 2, depth - 1)
        self.put(indent + 1, "case _:")
        self.block(indent + 2, depth - 1)

    def put_inner(self, indent: int, depth: int) -> None:
        """A function that assigns variables of its own, or those of the function around it."""
        name = f"inner{len(self.lines)}"
        self.put(indent, f"def {name}(p, q=2):")
        if self.in_function or self.chance(0.4):
            self.put(indent + 1, "a, b, c, i, j, f, g = p, 0.5, 1.5, q, 1, 0.25, 2.0")
            self.put(
                indent + 1,
                "x, y, items, d, box = np.ones(5), np.arange(5.0), [p, 1, 2], {'p': p, 'q': 0.5}, Box(p, [1, 2, 3])",
            )
        else:
            self.put(indent + 1, "nonlocal a, b, i, j, f, g, x, y, items, d, box")
        outer = self.in_loop, self.in_function, self.ints, self.floats, self.arrays
        self.in_loop, self.in_function, self.arrays = False, True, ["x", "y"]
        self.ints, self.floats = ["p", "q", "i", "j"], ["b", "f", "g"]
        self.block(indent + 1, depth - 1)
        self.in_loop, self.in_function, self.ints, self.floats, self.arrays = outer
        self.put(indent, self.text(f"{name}($i{self.random.choice(['', ', q=$i'])})"))
