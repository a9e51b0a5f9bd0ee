"""numba's LLVM text of a function of arrays, made fit to be part of a kernel.

Other than scalar functions it may allocate, through numba's runtime, and raise what it likes: the kernel gets the number of the
exception and reports it.  What would call Python, or functions that nobody knows, is refused.  Its loops poll.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hlojit.extensions.functions.linked_code import (
    CALL,
    CANCELLED,
    DECLARE,
    NAME,
    Unfit,
    functions_of,
    is_math,
    made_private,
    renamed_helpers,
    saturating,
    with_polls,
    with_state,
    without_attributes,
)
from hlojit.ir.types import TensorType

_RUNTIME: Final = re.compile(r"NRT_\w+|numba_x+\w+|numba_(?:ez_|raw_|complex_|cpow|gcd|attempt_nocopy_reshape)\w*")
"""What numba's code calls of numba's own: its memory, BLAS and LAPACK as it wraps them, shapes."""
_BLAS: Final = frozenset({"numba_gil_ensure", "numba_gil_release", "numba_fatal_error", "Py_FatalError"})
"""What numba does where SciPy's BLAS is not there, or is called in a way that numba should not have called it."""
_C_LIBRARY: Final = frozenset({"memcpy", "memset", "memmove", "memcmp", "bcmp", "strlen"})
_REFERENCE: Final = re.compile(rf"@(?P<name>{NAME})")
_UNWRAP: Final = re.compile(r"@__excinfo_unwrap_args\w+")
_EXTERNAL: Final = re.compile(rf"^@(?P<name>{NAME}) = external [^\n]*$", re.MULTILINE)
_PICKLED: Final = re.compile(r'^@(?P<name>\.const\.pickledata\.[\w.-]+) = [^\n]*? c"(?P<data>[^"]*)"', re.MULTILINE)
_SHAPES: Final = re.compile(
    r"^(?P<head>define [^\n@]*i32 @[^\n(]*raise_with_shape_context[^\n(]*\([^\n]*%excinfo[^\n]*\{)$[\s\S]*?^\}",
    re.MULTILINE,
)
_LONGEST_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class LinkedArrays:
    """LLVM code of a function of arrays.

    ``llvm_ir`` defines ``i32 symbol(ptr state, ptr address...)``, which returns 0, -1 where it was cancelled, or the number of
    what it raised, one more than the place among ``failures``.  ``imports`` pairs symbols with the names by which whoever loads
    the code finds them.
    """

    symbol: str
    llvm_ir: str
    failures: tuple[str, ...]
    imports: tuple[tuple[str, str], ...]


def linked_arrays(
    text: str,
    native: str,
    symbol: str,
    types: Sequence[TensorType],
    *,
    has_range: bool = False,
    takes_addresses: bool = False,
) -> LinkedArrays:
    """The module of numba function ``native`` of arrays of ``types``, with a wrapper ``symbol``; raises ``Unfit``.

    With ``has_range`` function and wrapper take two 64-bit integers more; with ``takes_addresses`` the function takes pointers to
    first elements in place of arrays.
    """
    text = saturating(renamed_helpers(without_attributes(text)))
    text = _said_at_once(text)
    # Only Python calls what makes the text of an exception from numbers; the function is left out with all that it calls.
    text = _UNWRAP.sub("null", re.sub(rf"^define [^\n]*{_UNWRAP.pattern}[\s\S]*?\n}}", "", text, flags=re.MULTILINE))
    text, functions = _reachable(text, native)
    imports = tuple((name, f"numba:{name}") for name in _imported(text))
    failures = _failures(text)
    stated = _with_state_parameter(text, functions)
    for name in stated:
        if re.match(r"define (?:[^@\n]* )?i32 @", functions[name]):
            polled, _ = with_polls(functions[name])
            text = text.replace(functions[name], polled)
    text = made_private(with_state(text, stated))
    declared = "" if "declare i32 @hlojit_poll(" in text else "\ndeclare i32 @hlojit_poll(ptr)\n"
    passed = ["ptr %state"] if native in stated else []
    passed += ["ptr %r", "ptr %e", *_passed(types, takes_addresses)]
    given = ["ptr %state", *(f"ptr %a{number}" for number in range(len(types)))]
    if has_range:
        given += ["i64 %begin", "i64 %end"]
        passed += given[-2:]
    wrapper = _wrapper(native, symbol, given, passed, [name for name, _ in failures])
    return LinkedArrays(symbol, f"{text}{declared}\n{wrapper}", tuple(said for _, said in failures), imports)


# -------------------------------------------------------------------------------------------------- what is in the text


def _said_at_once(text: str) -> str:
    """Without the functions that make texts of shapes, to say which arrays do not fit: much code for what is seldom needed."""
    found = _SHAPES.search(text)
    if found is None:
        return text
    data = pickle.dumps((ValueError, ("the shapes of the arrays do not fit",), None), protocol=4)
    escaped = "".join(f"\\{byte:02X}" for byte in data)
    name = ".const.pickledata.hlojit.shapes"
    raised = "  store ptr @hlojit.shapes, ptr %excinfo, align 8\n  ret i32 1\n}"
    text = _SHAPES.sub(lambda match: f"{match['head']}\n{raised}", text)
    return "\n".join([
        text,
        f'@{name} = internal constant [{len(data)} x i8] c"{escaped}"',
        f"@hlojit.shapes = internal constant {{ ptr, i32, ptr, ptr, i32 }} "
        f"{{ ptr @{name}, i32 {len(data)}, ptr null, ptr null, i32 0 }}",
        "",
    ])  # fmt: skip


def _reachable(text: str, native: str) -> tuple[str, dict[str, str]]:
    """The text without functions that nothing calls or names, and the other ones."""
    functions = functions_of(text)
    native = _plain(native)
    known = {_plain(name): body for name, body in functions.items()}
    outside = text
    for body in functions.values():
        outside = outside.replace(body, "")
    waiting = [native, *_referenced(re.sub(r"^declare [^\n]*$", "", outside, flags=re.MULTILINE))]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in known and name not in found:
            found.add(name)
            waiting += _referenced(known[name])
    for name, body in functions.items():
        if _plain(name) not in found:
            text = text.replace(body, "")
    kept = {name: body for name, body in functions.items() if _plain(name) in found}
    return _without_unused_declarations(text, kept.values()), kept


def _without_unused_declarations(text: str, bodies: Iterable[str]) -> str:
    used = {name for body in bodies for name in _referenced(body)}

    def kept(match: re.Match[str]) -> str:
        return match[0] if _plain(match["name"]) in used else ""

    text = re.sub(rf"^declare [^\n@]*@(?P<name>{NAME})\([^\n]*$", kept, text, flags=re.MULTILINE)
    return _EXTERNAL.sub(kept, text)


def _referenced(body: str) -> list[str]:
    return [_plain(match["name"]) for match in _REFERENCE.finditer(body)]


def _plain(name: str) -> str:
    return name.strip('"')


def _imported(text: str) -> list[str]:
    """What the code needs of numba's runtime; raises ``Unfit`` where it needs anything else."""
    wanted = []
    for match in (*DECLARE.finditer(text), *_EXTERNAL.finditer(text)):
        name = _plain(match["name"])
        if name.startswith("llvm.") or is_math(name) or name == "hlojit_poll":
            continue
        if not (name in _C_LIBRARY or name in _BLAS or _RUNTIME.fullmatch(name)):
            is_python = name.startswith(("Py", "_Py", "numba_unpickle"))
            if is_python:
                raise Unfit("calls Python (it prints, uses objmode, or has an object that only Python knows)")
            raise Unfit(f"calls {name}, which is neither its own nor of the C math library")
        wanted.append(name)
    if "numba_gil_ensure" in wanted and not any(map(is_library, wanted)):
        raise Unfit("calls Python (print, objmode, an object)")
    return sorted(set(wanted))


def is_library(name: str) -> bool:
    """Whether a function that the code imports is one of BLAS or LAPACK, as numba wraps them."""
    return name.removeprefix("numba:").startswith(("numba_x", "numba_ez_", "numba_raw_"))


def _with_state_parameter(text: str, functions: Mapping[str, str]) -> list[str]:
    """The functions that take the state: all but those that somebody calls by address, and what these call."""
    named: set[str] = set()
    for line in text.splitlines():
        if line.startswith(("define ", "declare ")):
            continue
        called = {match.start("name") for match in CALL.finditer(line)}
        named |= {_plain(m["name"]) for m in _REFERENCE.finditer(line) if m.start("name") not in called}
    waiting = [name for name in functions if _plain(name) in named]
    without: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in without:
            without.add(name)
            referenced = set(_referenced(functions[name]))
            waiting += [other for other in functions if _plain(other) in referenced]
    return [name for name in functions if name not in without]


# ----------------------------------------------------------------------------------------------------- what it raises


def _failures(text: str) -> list[tuple[str, str]]:
    """Symbols of the pickled exceptions in a text, and what is said of each."""
    return [(match["name"], _said(match["data"])) for match in _PICKLED.finditer(text) if ".sha1" not in match["name"]]


class _Named:
    """A class of a pickled exception, of which only the name is wanted: nothing of it is imported or run."""

    def __init__(self, *arguments: Any, **keywords: Any):
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        pass


class _Names(pickle.Unpickler):
    """Reads exceptions without running anything: every class is a ``_Named``."""

    def find_class(self, module: str, name: str) -> Any:
        return type(name, (_Named,), {})


def _said(escaped: str) -> str:
    """What an exception says, from numba's pickled (class, arguments, place)."""
    raw = re.sub(rb"\\([0-9A-Fa-f]{2})", lambda code: bytes([int(code[1], 16)]), escaped.encode("latin-1"))
    try:
        kind, arguments = _Names(io.BytesIO(raw)).load()[:2]
        name = kind.__name__
    except Exception:
        return "it raised an exception"
    if name == "IndexError" and arguments == ("index is out of bounds",):
        return "an index is out of range"
    plain = isinstance(arguments, tuple) and all(isinstance(each, (str, int, float, bool)) for each in arguments)
    text = ", ".join(map(repr, arguments)) if plain else "..."
    return f"it raised {name}({text[:_LONGEST_TEXT]})"


# --------------------------------------------------------------------------------------------------------- the wrapper


def _passed(types: Sequence[TensorType], takes_addresses: bool) -> Iterable[str]:
    """Arrays as numba passes them: each being what it consists of, or addresses."""
    for number, kind in enumerate(types):
        if takes_addresses:
            yield f"ptr %a{number}"
            continue
        size = kind.element_type.itemsize
        strides = [stride * size for stride in kind.strides]
        yield from ("ptr null", "ptr null", f"i64 {kind.size}", f"i64 {size}", f"ptr %a{number}")
        yield from (f"i64 {extent}" for extent in (*kind.shape, *strides))


def _wrapper(native: str, symbol: str, given: Sequence[str], passed: Sequence[str], raised: Sequence[str]) -> str:
    """numba's convention: ``i32 status(ptr result, ptr exception, arguments...)``."""
    quoted = native if re.fullmatch(r"[\w.$]+", native) else f'"{_plain(native)}"'
    lines = [
        f"define i32 @{symbol}({', '.join(given)}) alwaysinline nounwind {{",
        "entry:",
        "  %r = alloca ptr",
        "  %e = alloca ptr",
        "  store ptr null, ptr %e",
        f"  %s = call i32 @{quoted}({', '.join(passed)})",
        "  %ok = icmp eq i32 %s, 0",
        "  br i1 %ok, label %done, label %failed",
        "done:",
        "  ret i32 0",
        "failed:",
        f"  %cancelled = icmp eq i32 %s, {CANCELLED}",
        "  %exception = load ptr, ptr %e",
        "  %none = icmp eq ptr %exception, null",
        "  %unknown = select i1 %cancelled, i32 -1, i32 -2",
        "  br i1 %none, label %unsaid, label %said",
        "unsaid:",
        "  ret i32 %unknown",
        "said:",
        "  %what = load ptr, ptr %exception",
        "  %n0 = add i32 0, -2",
    ]
    for number, name in enumerate(raised):
        lines.append(f"  %is{number} = icmp eq ptr %what, @{name}")
        lines.append(f"  %n{number + 1} = select i1 %is{number}, i32 {number + 1}, i32 %n{number}")
    return "\n".join([*lines, f"  ret i32 %n{len(raised)}", "}", ""])
