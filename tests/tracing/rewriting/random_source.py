"""Random programs over whole numbers: nested control flow with jumps; every loop ends."""

from __future__ import annotations

from random import Random


class Writer:
    """``python``: also constructs that runtimes never take over."""

    def __init__(self, random: Random, python: bool):
        self.random = random
        self.python = python
        self.lines: list[str] = []
        self.variables = ["a", "b", "c", "x", "y"]
        self.loops = 0
        self.in_loop = 0

    def program(self) -> str:
        self.lines = ["def helper(a, b):", "    x = y = 1", "    c = a - b"]
        self.block(1, 2)
        self.lines += [
            f"    return {self.number(1)}",
            "",
            "def program(a, b, c):",
            '    """A program."""',
            "    x = y = 0",
        ]
        self.calls = True
        self.block(1, 3)
        if self.random.random() < 0.7:
            self.lines.append("    return x, y, a, b, c")
        return "\n".join(self.lines) + "\n"

    calls = False

    # ------------------------------------------------------------- expressions

    def number(self, depth: int) -> str:
        kind = self.random.randrange(6 if depth else 2)
        if kind == 0:
            return str(self.random.randrange(5))
        if kind == 1:
            return self.random.choice(self.variables)
        if kind == 2 and self.calls and depth > 1:
            return f"helper({self.number(depth - 1)}, {self.number(0)})"
        if kind == 3:
            return f"({self.number(depth - 1)} if {self.condition(depth - 1)} else {self.number(depth - 1)})"
        if kind == 4 and self.python:
            if self.random.random() < 0.5:
                return f"sum([v {self.random.choice('+-')} {self.number(0)} for v in range(3) if {self.condition(depth - 1)}])"
            return f"({self.number(depth - 1)} // {self.number(0)})"
        operator = self.random.choice(["+", "-", "*"])
        return f"({self.number(depth - 1)} {operator} {self.number(depth - 1)})"

    def condition(self, depth: int) -> str:
        kind = self.random.randrange(7 if depth else 2)
        if kind == 2:
            return f"({self.condition(depth - 1)} {self.random.choice(['and', 'or'])} {self.condition(depth - 1)})"
        if kind == 3:
            return f"(not {self.condition(depth - 1)})"
        if kind == 4:
            return f"({self.number(0)} < {self.number(depth - 1)} <= {self.number(0)})"
        if kind == 5:
            return f"{self.number(0)} % 3"
        return f"{self.number(depth and depth - 1)} {self.random.choice(['<', '>', '==', '!=', '<='])} {self.number(0)}"

    # -------------------------------------------------------------- statements

    def put(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def block(self, indent: int, depth: int) -> None:
        for _ in range(self.random.randrange(1, 4)):
            self.statement(indent, depth)

    def statement(self, indent: int, depth: int) -> None:
        kinds = ["assign", "assign", "update"]
        if depth:
            kinds += ["if", "if", "while", "for", "for"]
            kinds += ["try", "with", "match", "inner"] if self.python else []
        if indent > 1:
            kinds += ["return", "raise", "assert"]
            kinds += ["break", "continue", "break"] if self.in_loop else []
        if self.python:
            kinds += ["del", "walrus", "item"]
        getattr(self, "put_" + self.random.choice(kinds))(indent, depth)

    def put_assign(self, indent: int, depth: int) -> None:
        self.put(indent, f"{self.random.choice(self.variables)} = {self.number(2)} % 17")

    def put_update(self, indent: int, depth: int) -> None:
        self.put(
            indent, f"{self.random.choice(self.variables)} {self.random.choice(['+=', '-='])} {self.number(1)} % 5"
        )

    def put_if(self, indent: int, depth: int) -> None:
        self.put(indent, f"if {self.condition(2)}:")
        self.block(indent + 1, depth - 1)
        if self.random.random() < 0.3:
            self.put(indent, f"elif {self.condition(1)}:")
            self.block(indent + 1, depth - 1)
        if self.random.random() < 0.5:
            self.put(indent, "else:")
            self.block(indent + 1, depth - 1)

    def put_while(self, indent: int, depth: int) -> None:
        self.loops += 1
        count = f"k{self.loops}"
        self.put(indent, f"{count} = 0")
        self.put(indent, f"while {count} < {self.random.randrange(4)} and {self.condition(1)}:")
        self.put(indent + 1, f"{count} += 1")
        self._body(indent, depth)

    def put_for(self, indent: int, depth: int) -> None:
        self.loops += 1
        stop = self.random.choice(["3", f"{self.number(0)} % 4", f"({self.number(1)}) % 3"])
        self.put(indent, f"for i{self.loops} in range({stop}):")
        self._body(indent, depth, f"x += i{self.loops}")

    def _body(self, indent: int, depth: int, first: str = "pass") -> None:
        self.put(indent + 1, first)
        self.in_loop += 1
        self.block(indent + 1, depth - 1)
        self.in_loop -= 1
        if self.random.random() < 0.3:
            self.put(indent, "else:")
            self.block(indent + 1, depth - 1)

    def put_return(self, indent: int, depth: int) -> None:
        self.put(indent, f"return {self.number(1)}")

    def put_break(self, indent: int, depth: int) -> None:
        self.put(indent, "break")

    def put_continue(self, indent: int, depth: int) -> None:
        self.put(indent, "continue")

    def put_raise(self, indent: int, depth: int) -> None:
        self.put(indent, f"raise ValueError({len(self.lines)})")

    def put_assert(self, indent: int, depth: int) -> None:
        self.put(indent, f"assert {self.condition(1)}, {len(self.lines)}")

    # -------------------------------------------------------------- Python only

    def put_try(self, indent: int, depth: int) -> None:
        self.put(indent, "try:")
        self.block(indent + 1, depth - 1)
        last = self.random.choice(["except ValueError as error:", "except ZeroDivisionError:", "finally:"])
        self.put(indent, last)
        self.put_assign(indent + 1, 0)
        if last.startswith("except") and self.random.random() < 0.3:
            self.put(indent + 1, "raise")

    def put_with(self, indent: int, depth: int) -> None:
        self.put(indent, f"with suppress({self.random.choice(['ValueError', 'KeyError'])}):")
        self.block(indent + 1, depth - 1)

    def put_match(self, indent: int, depth: int) -> None:
        self.put(indent, f"match {self.number(1)} % 3:")
        self.put(indent + 1, f"case 0 if {self.condition(1)}:")
        self.block(indent + 2, depth - 1)
        self.put(indent + 1, "case x:")
        self.block(indent + 2, depth - 1)

    def put_inner(self, indent: int, depth: int) -> None:
        self.put(indent, "def inner(x):")
        self.put(indent + 1, "nonlocal y")
        self.put(indent + 1, f"y = {self.number(1)} % 7")
        in_loop, self.in_loop = self.in_loop, 0
        self.block(indent + 1, depth - 1)
        self.in_loop = in_loop
        self.put(indent, f"inner({self.number(0)})")

    def put_del(self, indent: int, depth: int) -> None:
        self.put(indent, f"del {self.random.choice(self.variables)}")

    def put_walrus(self, indent: int, depth: int) -> None:
        self.put(indent, f"if {self.condition(1)} and (c := {self.number(1)} % 9) > 2:")
        self.put_assign(indent + 1, 0)

    def put_item(self, indent: int, depth: int) -> None:
        self.put(
            indent, f"box = [0, {self.number(1)}]; box[{self.number(0)} % 3] += {self.number(1)}; y = box[-1] % 11"
        )
