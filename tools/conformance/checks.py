"""Programs that check their own results become programs that return them, and a list of what is expected of them.

    %1 = stablehlo.abs %0 : tensor<3xi64>                     %1 = stablehlo.abs %0 : tensor<3xi64>
    check.expect_eq_const %1, dense<2> : tensor<3xi64>   ->   %expected0 = stablehlo.constant dense<2> : tensor<3xi64>
    return                                                    return %1, %expected0 : tensor<3xi64>, tensor<3xi64>

Both ways of writing a check are read: ops of the dialect ``check`` (pretty or generic) and custom calls of that name.  The
tolerances are the suite's: those that a check states, and otherwise 0.0001 (``expect_almost_eq``; 0.001 as a custom call) and
3 ULP (``expect_close``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tools.conformance.mlir_text import FunctionText, closing, functions, split_list, without_comments

_CHECK = re.compile(
    r"(?:%[\w$.\-]+\s*=\s*)?(?:(?P<call>stablehlo\.custom_call\s+@check\.)|(?P<generic>\"check\.)|check\.)(?P<name>\w+)\"?"
)
_PROBE = re.compile(r"(%[\w$.\-]+)\s*=\s*interpreter\.probe\s+(%[\w$.\-#]+),\s*probe_id\s*=\s*(\"[^\"]*\")\s*:\s*")
_OPERAND = re.compile(r"%[\w$.\-]+(?:#\d+)?")
_NUMBER = r"\s*=\s*([-+.\w]+)"
_TYPE = re.compile(r":\s*")
_LARGEST = (1 << 64) - 1


@dataclass(frozen=True)
class Check:
    """What is expected of the result at ``actual``: the value of the result at ``expected``, as nearly as ``rule`` says."""

    rule: str
    actual: int
    expected: int
    tolerance: float = 0.0
    least: int = 0
    most: int = 0


@dataclass(frozen=True)
class Statement:
    """A check as it stands in the text; ``expected`` is a value or the text of a constant."""

    start: int
    end: int
    rule: str
    actual: str
    expected: str
    type: str
    call: bool
    attributes: str


def checked(text: str) -> list[tuple[str, tuple[Check, ...]]]:
    """For every function of ``text`` with checks, the program that returns what they compare, and the checks."""
    text = without_probes(without_comments(text))
    found: list[tuple[str, tuple[Check, ...]]] = []
    while True:
        checking = [function for function in functions(text) if find_checks(function.body)]
        if not checking:
            return found
        function = checking[0]
        alone = text
        for other in reversed(checking[1:]):
            alone = alone[: other.start] + alone[other.end :]
        found.append(_returning(alone, function))
        text = text[: function.start] + text[function.end :]


def _returning(text: str, function: FunctionText) -> tuple[str, tuple[Check, ...]]:
    """The program with what ``function`` checks as its results."""
    body: list[str] = []
    values: list[str] = []
    types: list[str] = []
    checks: list[Check] = []
    position = 0
    for number, statement in enumerate(find_checks(function.body)):
        body.append(function.body[position : statement.start])
        position = statement.end
        expected = statement.expected
        if not expected.startswith("%"):
            body.append(f"%expected.{number} = stablehlo.constant {expected} : {statement.type}")
            expected = f"%expected.{number}"
        checks.append(_check(statement, len(values)))
        values += [statement.actual, expected]
        types += [statement.type] * 2
    body.append(function.body[position:])
    return replaced(text, function, "".join(body), values, types), tuple(checks)


def replaced(
    text: str, function: FunctionText, body: str, values: list[str], types: list[str], arguments: str | None = None
) -> str:
    """``text`` with another body of ``function``, which returns ``values``."""
    kept = body[: _last_return(body)]
    arguments = function.arguments if arguments is None else arguments
    signature = f"func.func @{function.name}({arguments}) -> ({', '.join(types)}) {{"
    ending = f"return {', '.join(values)} : {', '.join(types)}" if values else "return"
    return f"{text[: function.start]}{signature}{kept}{ending}\n}}{text[function.end :]}"


def _last_return(body: str) -> int:
    """Where a function's own terminator begins."""
    found = [match.start() for match in re.finditer(r"(?<![\w.])(?:func\.)?return\b|\"func\.return\"", body)]
    if not found:
        raise ValueError("the function does not return")
    return found[-1]


def without_probes(text: str) -> str:
    """Probes are the identity; a barrier keeps their value apart from other values."""
    return _PROBE.sub(lambda match: f"{match[1]} = stablehlo.optimization_barrier {match[2]} : ", text)


def find_checks(body: str) -> list[Statement]:
    found = []
    for match in _CHECK.finditer(body):
        read = _read_call if match["call"] or match["generic"] else _read_pretty
        found.append(read(body, match))
    return found


def _read_call(body: str, match: re.Match[str]) -> Statement:
    """``@check.expect_eq(%a, %b) {...} : (T, T) -> ()`` and ``"check.expect_eq_const"(%a) <{value = ...}> : (T) -> ()``."""
    operands_end = closing(body, match.end())
    operands = split_list(body[match.end() + 1 : operands_end - 1])
    position, attributes = operands_end, ""
    while (opened := re.compile(r"\s*(?=[<{])").match(body, position)) is not None:
        position = closing(body, opened.end())
        attributes += body[opened.end() : position]
    types = _TYPE.search(body, position)
    assert types is not None
    types_end = closing(body, types.end())
    arrow = re.compile(r"\s*->\s*").match(body, types_end)
    assert arrow is not None
    end = closing(body, arrow.end()) if body[arrow.end()] == "(" else closing(body, body.index("<", arrow.end()))
    expected = operands[1] if len(operands) > 1 else _dense(attributes)
    type_ = split_list(body[types.end() + 1 : types_end - 1])[0]
    return Statement(match.start(), end, match["name"], operands[0], expected, type_, bool(match["call"]), attributes)


def _dense(text: str) -> str:
    start = text.index("dense<")
    return text[start : closing(text, start + len("dense"))]


def _read_pretty(body: str, match: re.Match[str]) -> Statement:
    """``check.expect_eq_const %a, dense<2> : T`` and ``check.expect_close %a, %b, max_ulp_difference = 3 : T, T``."""
    actual = _OPERAND.search(body, match.end())
    assert actual is not None
    position, expected = actual.end(), ""
    behind = re.compile(r"\s*,\s*").match(body, position)
    assert behind is not None
    if other := _OPERAND.match(body, behind.end()):
        position, expected = other.end(), other[0]
    elif body.startswith("dense<", behind.end()):
        position = closing(body, behind.end() + len("dense"))
        expected = body[behind.end() : position]
    colon = re.compile(r"[^:\n]*?:\s*(?=tensor<)").match(body, position)
    while colon is None or "f64" in body[position : colon.start()]:
        raise ValueError(f"a check that cannot be read: {body[match.start() : match.start() + 80]!r}")
    end = closing(body, colon.end() + len("tensor"))
    type_, attributes = body[colon.end() : end], body[position : colon.end()]
    trailing = re.compile(r"\s*,\s*(?:tolerance\s*=[^\n]*|tensor(?=<))|\s*(?=\{)").match(body, end)
    if trailing:
        tail_end = closing(body, trailing.end()) if body[trailing.end()] in "<{" else trailing.end()
        attributes += body[end:tail_end]
        end = tail_end
    return Statement(match.start(), end, match["name"], actual[0], expected or actual[0], type_, False, attributes)


def _check(statement: Statement, position: int) -> Check:
    rule = statement.rule.removesuffix("_const")
    attributes: dict[str, str] = dict(re.findall(r"(\w+)" + _NUMBER, statement.attributes))
    if rule == "expect_close":
        least, most = int(attributes.get("min_ulp_difference", 0)), int(attributes.get("max_ulp_difference", 3))
        return Check("ulp", position, position + 1, least=least % (_LARGEST + 1), most=most % (_LARGEST + 1))
    if rule == "expect_almost_eq":
        usual = 1e-3 if statement.call else 1e-4
        return Check("absolute", position, position + 1, tolerance=float(attributes.get("tolerance", usual)))
    if rule == "eq":
        integer = re.search(r"[x<]u?i\d+>$", statement.type) is not None
        return Check("equal" if integer else "absolute", position, position + 1, tolerance=0.0 if integer else 1e-4)
    return Check("equal", position, position + 1)
