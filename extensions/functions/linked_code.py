"""numba's LLVM text of one function, made fit to be part of a kernel.

What it may do is checked here: call functions of its own and of the C math library, raise what is reported (an index out
of range, a division by zero), and nothing else - no memory that is allocated, no address from outside, no other function.
Loops get a poll, so that a call that never ends can be cancelled; every function gets the call's *state* as its first
parameter where that, or a failure, needs it (``hlojit.ir.scalar.calls``).
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hlojit.ir.scalar.calls import FAILED_OFFSET, TICKS_OFFSET, ScalarFunction, plain_kind

POLL_ITERATIONS: Final = 65536
"""Iterations between two looks whether the call is cancelled: tens of microseconds."""
CANCELLED: Final = 2
"""What a cancelled function returns; bit 0 means that it failed."""

REPORTED: Final[Mapping[str, str]] = {
    "IndexError": "an index is out of range",
    "ZeroDivisionError": "a division by zero",
    "OverflowError": "an overflow",
}
"""Exceptions that indexing and arithmetic raise by themselves: the call ends with an error that says so."""

LLVM_TYPE: Final = {"i1": "i1", "f32": "float", "f64": "double"} | {f"i{n}": f"i{n}" for n in (8, 16, 32, 64)}

WIDENED: Final = {"u8": "i64", "u16": "i64", "u32": "i64"}
"""Kinds of arguments that a function gets as another kind, in which they are what they are in Python."""

_MATH: Final = frozenset(
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 exp10 expm1 fabs fdim floor "
    "fma fmax fmin fmod frexp hypot ilogb ldexp lgamma log log10 log1p log2 logb lrint modf nearbyint nextafter pow "
    "remainder remquo rint round scalbn sin sinh sqrt tan tanh tgamma trunc".split()
)
"""Functions of the C math library (with f at the end, those on single precision)."""
_RENAMED: Final = {"numba_gamma": "tgamma", "numba_gammaf": "tgammaf"}
"""numba's helpers that the C library calls otherwise; other ``numba_x`` are ``x`` there."""

NAME = r'(?:"[^"]+"|[\w.$-]+)'
_DEFINE = re.compile(rf"^define (?P<head>[^\n@]*)@(?P<name>{NAME})\((?P<rest>[^\n]*)\{{$", re.MULTILINE)
DECLARE = re.compile(rf"^declare [^\n@]*@(?P<name>{NAME})\(", re.MULTILINE)
_FLOAT_TO_INTEGER = re.compile(r"= (fptosi|fptoui) (<\d+ x \w+>|\w+) (\S+) to (<\d+ x \w+>|i\d+)")
CALL = re.compile(rf"\bcall [^\n@]*?@(?P<name>{NAME})\(")


class Unfit(Exception):
    """Why a function cannot be part of a kernel, to follow its name."""


@dataclass(frozen=True)
class Signature:
    """Kinds of the parameters and of what the function returns, and the bits of a code, if it returns one."""

    kinds: tuple[str, ...]
    returned: str
    code_bits: int = 0

    @property
    def result(self) -> str:
        """The kind that the wrapper returns: codes have that in which they are stored."""
        return plain_kind(f"u{self.code_bits}") if self.code_bits else self.returned

    @property
    def is_checked(self) -> bool:
        """Whether the function may return codes that are none."""
        bits = 1 if self.returned == "i1" else int(self.returned[1:])
        return 0 < self.code_bits < 64 and (self.returned[0] == "i" or bits > self.code_bits) and bits > 1


def linked_function(text: str, native: str, symbol: str, signature: Signature) -> ScalarFunction:
    """The module of numba function ``native`` with a wrapper ``symbol``; raises ``Unfit``.

    ``failure`` of the result is what can fail, in words.
    """
    text = saturating(renamed_helpers(without_attributes(text)))
    functions = functions_of(text)
    _check_calls(text, functions)
    failures = _failures(text, functions)
    if signature.is_checked:
        failures.append(f"a code is outside its {signature.code_bits} bits")
    failure = " or ".join(failures)
    has_loops = False
    for name, body in functions.items():
        polled, loops = with_polls(body)
        has_loops |= loops
        text = text.replace(body, polled)
        functions[name] = polled
    takes_state = bool(failure) or has_loops
    if takes_state:
        text = with_state(text, functions)
    text = made_private(text)
    declared = "\ndeclare i32 @hlojit_poll(ptr)\n" if has_loops else ""
    wrapper = _wrapper(native, symbol, signature, takes_state)
    return ScalarFunction(symbol, f"{text}{declared}\n{wrapper}", signature.result, failure, has_loops)


# ------------------------------------------------------------------------------------------------------- reading the text


def without_attributes(text: str) -> str:
    """Drop what belongs to the module, and attributes: what they promise no longer holds with polls and states."""
    text = re.sub(r"^(target (triple|datalayout)|source_filename) = .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^attributes #\d+ = .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^((?:define|declare|\s.*\bcall) [^\n]*?)((?: #\d+)+)", r"\1", text, flags=re.MULTILINE)
    return re.sub(r"^(define|declare) ([^\n@]*)range\([^)]*\) ", r"\1 \2", text, flags=re.MULTILINE)


def renamed_helpers(text: str) -> str:
    """Call the C math library where numba calls its own helpers, which are the same functions."""
    for name in {match["name"] for match in DECLARE.finditer(text)}:
        plain = _RENAMED.get(name) or name.removeprefix("numba_")
        if plain != name and is_math(plain):
            text = re.sub(rf"@{re.escape(name)}\(", f"@{plain}(", text)
    return text


def saturating(text: str) -> str:
    """Conversions of floats to integers, in what numba compiled for others, as ours are (``kernel_arithmetic``)."""
    declared: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        instruction, source, value, target = match.groups()
        names = [
            re.sub(r"<(\d+) x (\w+)>", r"v\1\2", kind).replace("double", "f64").replace("float", "f32")
            for kind in (target, source)
        ]
        symbol = f"llvm.{instruction}.sat.{'.'.join(names)}"
        declared[symbol] = f"declare {target} @{symbol}({source})"
        return f"= call {target} @{symbol}({source} {value})"

    text = _FLOAT_TO_INTEGER.sub(replaced, text)
    known = {match["name"] for match in DECLARE.finditer(text)}
    return "\n".join([text, *(line for symbol, line in declared.items() if symbol not in known)])


def is_math(name: str) -> bool:
    return name in _MATH or (name.endswith("f") and name[:-1] in _MATH)


def functions_of(text: str) -> dict[str, str]:
    """Text of every function that is defined, by name."""
    return {
        match["name"]: text[match.start() : text.index("\n}", match.start()) + 2] for match in _DEFINE.finditer(text)
    }


def _check_calls(text: str, functions: Mapping[str, str]) -> None:
    if "NRT_" in text:
        raise Unfit("allocates memory (arrays, lists, strings)")
    if "inttoptr" in text:
        raise Unfit("uses an address from outside: a C function or pointer, or an array of more than 1 MB")
    for match in DECLARE.finditer(text):
        name = match["name"]
        if not (name.startswith("llvm.") or is_math(name)):
            raise Unfit(f"calls {name}, which is neither its own nor of the C math library")
    calls: dict[str, set[str]] = {}
    for name, body in functions.items():
        calls[name] = {match["name"] for match in CALL.finditer(body)}
        if len(re.findall(r"\bcall ", body)) != len(CALL.findall(body)) or "invoke " in body or "asm " in body:
            raise Unfit("calls a function by its address")
    check_recursion(calls)


def check_recursion(calls: Mapping[str, set[str]]) -> None:
    """The depth of calls must be known: the stack of a worker is small."""
    left = {name: {callee for callee in callees if callee in calls} for name, callees in calls.items()}
    while left:
        leaves = [name for name, callees in left.items() if not callees & left.keys()]
        if not leaves:
            raise Unfit("calls itself")
        for name in leaves:
            del left[name]


def _failures(text: str, functions: Mapping[str, str]) -> list[str]:
    """What can fail, in words."""
    used = {name for body in functions.values() for name in re.findall(r"@\.const\.picklebuf\.(\w+)", body)}
    found = []
    for name in sorted(used):
        raised = _exception_name(text, name)
        if raised not in REPORTED:
            raise Unfit(f"can raise {raised}")
        found.append(REPORTED[raised])
    returns_failure = any(re.search(r"\bret i32 (?!0\b)", body) for body in functions.values())
    if returns_failure and not found:
        raise Unfit("can raise an exception")
    return sorted(set(found))


def _exception_name(text: str, name: str) -> str:
    """The class in a pickled exception of numba's; read without running anything."""
    data = re.search(rf'^@\.const\.pickledata\.{name} = [^\n]*? c"([^"]*)"', text, re.MULTILINE)
    if data is None:
        return "an exception"
    raw = re.sub(rb"\\([0-9A-Fa-f]{2})", lambda code: bytes([int(code[1], 16)]), data[1].encode("latin-1"))
    words = [argument for opcode, argument, _ in pickletools.genops(raw) if isinstance(argument, str)]
    return words[1] if len(words) > 1 else "an exception"


# --------------------------------------------------------------------------------------------------------------- rewriting


_WIDE_ACCESS: Final = re.compile(r"= load <|\bstore <")


def with_polls(function: str) -> tuple[str, bool]:
    """The function with a poll at the head of every loop that may be long, and whether there is one."""
    lines = function.split("\n")
    places = [number for number, line in enumerate(lines) if re.match(rf"{NAME}:", line)]
    if not places:
        return function, False
    labels = [lines[number].partition(":")[0] for number in places]
    targets = {}
    for label, start, end in zip(labels, places, [*places[1:], len(lines)], strict=True):
        targets[label] = re.findall(rf"label %({NAME})", "\n".join(lines[start:end]))
    blocks = {
        label: lines[start:end] for label, start, end in zip(labels, places, [*places[1:], len(lines)], strict=True)
    }
    heads = [
        head for head in _loop_heads(labels[0], targets) if not _ends_with_memory(head, blocks[head], targets[head])
    ]
    if not heads:
        return function, False
    result: list[str] = []
    waiting = ""
    for line in lines:
        if waiting and not re.match(r"\s+\S+ = phi ", line):
            result += _poll(waiting, heads.index(waiting))
            waiting = ""
        result.append(line)
        label = line.partition(":")[0]
        if re.match(rf"{NAME}:", line) and label in heads:
            waiting = label
    text = "\n".join(result)
    # The head ends where its poll begins: who comes from the head comes from behind the poll.
    for number, head in enumerate(heads):
        text = text.replace(f", %{head} ]", f", %hlojit.go.{number} ]")
    return text, True


def _ends_with_memory(label: str, block: Sequence[str], targets: Sequence[str]) -> bool:
    """Whether a block is a whole loop of LLVM's vectorizer over memory: it counts, and ends where its arrays do at the latest."""
    return (
        label in targets
        and re.match(r'"?(?:vec\.epilog\.)?vector\.body', label) is not None
        and any(_WIDE_ACCESS.search(line) for line in block)
    )


def _loop_heads(entry: str, targets: Mapping[str, Sequence[str]]) -> list[str]:
    """Blocks to which an edge goes back, in a walk from the entry: every cycle holds one."""
    heads: list[str] = []
    state = {entry: 1}
    stack = [(entry, iter(targets[entry]))]
    while stack:
        block, following = stack[-1]
        for target in following:
            if target not in state:
                state[target] = 1
                stack.append((target, iter(targets[target])))
                break
            if state[target] == 1 and target not in heads:
                heads.append(target)
        else:
            state[block] = 2
            stack.pop()
    return heads


def _poll(head: str, number: int) -> list[str]:
    """Count an iteration; every ``POLL_ITERATIONS`` ask the runtime, and return if the call is to stop.

    A cancelled call keeps its count: all later calls of the function end at once.
    """
    s = f"%hlojit.{number}."
    return [
        f"  {s}at = getelementptr inbounds i8, ptr %hlojit.state, i64 {TICKS_OFFSET}",
        f"  {s}ticks = load i32, ptr {s}at, align 4",
        f"  {s}next = add i32 {s}ticks, 1",
        f"  store i32 {s}next, ptr {s}at, align 4",
        f"  {s}due = icmp ugt i32 {s}next, {POLL_ITERATIONS}",
        f"  br i1 {s}due, label %hlojit.ask.{number}, label %hlojit.go.{number}",
        f"hlojit.ask.{number}:",
        f"  {s}context = load ptr, ptr %hlojit.state, align 8",
        f"  {s}stop = call i32 @hlojit_poll(ptr {s}context)",
        f"  {s}cancelled = icmp ne i32 {s}stop, 0",
        f"  {s}again = select i1 {s}cancelled, i32 {POLL_ITERATIONS}, i32 0",
        f"  store i32 {s}again, ptr {s}at, align 4",
        f"  br i1 {s}cancelled, label %hlojit.end.{number}, label %hlojit.go.{number}",
        f"hlojit.end.{number}:",
        f"  ret i32 {CANCELLED}",
        f"hlojit.go.{number}:",
    ]


def with_state(text: str, functions: Iterable[str]) -> str:
    """Every function takes the state first and hands it on."""
    for name in functions:
        text = text.replace(f"@{name}()", f"@{name}(ptr %hlojit.state)")
        text = re.sub(rf"@{re.escape(name)}\((?!ptr %hlojit\.state)", f"@{name}(ptr %hlojit.state, ", text)
    return text


def made_private(text: str) -> str:
    """Let every function of the module be inlined and dropped; its variables are only data here."""
    text = re.sub(
        r"^define (?!internal|private)(?:linkonce_odr |weak_odr |dso_local |hidden )*",
        "define internal ",
        text,
        flags=re.MULTILINE,
    )
    return re.sub(
        r"^(@[^\n]*) = common (local_unnamed_addr )?global", r"\1 = internal global", text, flags=re.MULTILINE
    )


def _wrapper(native: str, symbol: str, signature: Signature, takes_state: bool) -> str:
    """numba's convention is ``i32 status(ptr result, ptr exception, arguments...)``; a status of 0 is success."""
    kinds = [LLVM_TYPE[plain_kind(kind)] for kind in signature.kinds]
    returned, result = (LLVM_TYPE[plain_kind(kind)] for kind in (signature.returned, signature.result))
    memory = "i8" if returned == "i1" else returned
    parameters = [f"{kind} %a{number}" for number, kind in enumerate(kinds)]
    passed, widened = ["ptr %r", "ptr %e"], []
    for number, (kind, parameter) in enumerate(zip(signature.kinds, parameters)):
        wide = WIDENED.get(kind)
        if wide is not None:
            widened.append(f"  %w{number} = zext {parameter} to {wide}")
        passed.append(parameter if wide is None else f"{wide} %w{number}")
    if takes_state:
        parameters, passed = [*parameters, "ptr %state"], ["ptr %state", *passed]
    quoted = native if re.fullmatch(r"[\w.$]+", native) else f'"{native}"'
    lines = [
        f"define {result} @{symbol}({', '.join(parameters)}) alwaysinline nounwind {{",
        f"  %r = alloca {memory}",
        "  %e = alloca ptr",
        f"  store {memory} zeroinitializer, ptr %r",
        *widened,
        f"  %s = call i32 @{quoted}({', '.join(passed)})",
        f"  %m = load {memory}, ptr %r",
        "  %v = trunc i8 %m to i1" if returned == "i1" else f"  %v = bitcast {memory} %m to {returned}",
        *(_code(signature, returned, result) if signature.code_bits else ()),
    ]
    if takes_state:
        status = "%outside" if signature.is_checked else "%s"
        lines += [
            f"  %at = getelementptr inbounds i8, ptr %state, i64 {FAILED_OFFSET}",
            "  %before = load i32, ptr %at, align 4",
            f"  %failed = or i32 %before, {status}",
            "  store i32 %failed, ptr %at, align 4",
        ]
    lines.append(f"  ret {result} {'%code' if signature.code_bits else '%v'}")
    return "\n".join([*lines, "}", ""])


def _code(signature: Signature, returned: str, result: str) -> list[str]:
    """The returned integer as a code; ``%outside`` is the status, and a failure where it is none."""
    extend = "sext" if signature.returned[0] == "i" and returned != "i1" else "zext"
    lines = [f"  %wide = {'bitcast' if returned == 'i64' else extend} {returned} %v to i64"]
    if signature.is_checked:
        mask = (1 << signature.code_bits) - 1
        lines += [
            f"  %is_outside = icmp ugt i64 %wide, {mask}",
            "  %bit = zext i1 %is_outside to i32",
            "  %outside = or i32 %s, %bit",
            f"  %own = and i64 %wide, {mask}",
        ]
    value = "%own" if signature.is_checked else "%wide"
    return [*lines, f"  %code = {'bitcast' if result == 'i64' else 'trunc'} i64 {value} to {result}"]
