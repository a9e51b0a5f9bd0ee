"""LLVM IR text of today as libNVVM takes it for GPUs before sm_100: the text of LLVM 7.

Pointers have types there, and much does not exist (``fneg``, ``freeze``, ``poison``, saturating conversions, most intrinsics).
Only what our own builders write is translated, line by line; any other line is an error::

    %v3 = fneg <2 x float> %v2
        becomes
    %x1.l = bitcast float %v2.0 to i32
    %x2.l = xor i32 %x1.l, -2147483648 ...

The translation has no vectors but in loads and stores: LLVM 7 would lay some of them down in memory to change their shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from hlojit.cuda.assemblers.legacy_instructions import translate_line
from hlojit.cuda.assemblers.legacy_values import Type, UnknownText, arguments, read_type
from hlojit.cuda.assemblers.legacy_writer import LegacyWriter
from hlojit.ir.errors import HlojitError

_DEFINE: Final = re.compile(
    r"^define (?:(?P<linkage>ptx_kernel|internal) )?(?P<result>\w+) @(?P<symbol>[\w.$]+)\((?P<parameters>[^\n]*)\) "
    r"(?P<attributes>[^\n]*)\{$"
)
_CONSTANT: Final = re.compile(
    r"^(?P<name>@[\w.]+) = private unnamed_addr constant (?P<type>\[\d+ x \w+\]) (?P<value>.+?)(?P<align>, align \d+)?$"
)
_SHARED: Final = re.compile(
    r"^(?P<name>@[\w.]+) = external addrspace\(3\) global (?P<type>\[0 x i8\])(?P<align>, align \d+)$"
)
_DROPPED: Final = ("declare ", "!", "target ", "attributes ")
_THREADS: Final = re.compile(r'"nvvm\.reqntid"="(\d+)"')
_AT_ONCE: Final = re.compile(r'"nvvm\.minctasm"="(\d+)"')


@final
@dataclass(frozen=True, slots=True)
class LegacyKernel:
    """A kernel as an ordinary function ``symbol`` of its buffers' addresses (i64), with everything that it needs."""

    text: str
    symbol: str
    parameters: int
    threads: int
    at_once: int
    """Blocks that a multiprocessor has registers for."""


@final
@dataclass(frozen=True, slots=True)
class _Function:
    """A function as it was read."""

    linkage: str
    result: str
    symbol: str
    parameters: list[str]
    attributes: str
    lines: list[str]


def legacy_kernel(text: str, symbol: str) -> LegacyKernel:
    """The kernel ``symbol`` of a module's text."""
    module_lines: list[str] = []
    functions = list(_functions(text, module_lines))
    globals_, definitions = _globals(module_lines, symbol)
    (kernel,) = [each for each in functions if each.symbol == symbol]
    helpers = [each for each in functions if each.linkage == "internal"]
    declarations: dict[str, str] = {}
    texts = [_translated(each, globals_, declarations) for each in (*helpers, kernel)]
    found = _THREADS.search(kernel.attributes)
    if kernel.linkage != "ptx_kernel" or found is None:
        raise HlojitError(f"internal error: {symbol} is no kernel of the nvptx dialect")
    whole = "\n".join([*definitions, *declarations.values(), *texts, ""])
    at_once = _AT_ONCE.search(kernel.attributes)
    blocks = int(at_once[1]) if at_once is not None else 1
    return LegacyKernel(whole, f"{symbol}.body", len(kernel.parameters), int(found[1]), blocks)


def _functions(text: str, others: list[str]) -> Iterator[_Function]:
    """The functions of a module; what stands between them goes to ``others``."""
    lines: list[str] | None = None
    head = re.match("", "")
    for line in text.splitlines():
        if line.startswith("define "):
            head, lines = _DEFINE.match(line), []
            if head is None:
                raise UnknownText(line)
        elif line == "}":
            assert head is not None and lines is not None
            parameters = arguments(head["parameters"])
            yield _Function(
                head["linkage"] or "", head["result"], head["symbol"], parameters, head["attributes"], lines
            )
            lines = None
        elif line:
            (others if lines is None else lines).append(line)


def _globals(lines: list[str], symbol: str) -> tuple[dict[str, str], list[str]]:
    """What stands for the address of a global, and definitions; constants get names that no other kernel has."""
    addresses: dict[str, str] = {}
    definitions = []
    for line in lines:
        if line.startswith(_DROPPED):
            continue
        if found := _CONSTANT.match(line):
            name = f"@{symbol}_constant_{len(addresses)}"
            definitions.append(
                f"{name} = internal addrspace(1) constant {found['type']} {found['value']}{found['align'] or ''}"
            )
            addresses[found["name"]] = f"addrspacecast ({found['type']} addrspace(1)* {name} to i8*)"
        elif found := _SHARED.match(line):
            definitions.append(line)
            addresses[found["name"]] = f"addrspacecast ({found['type']} addrspace(3)* {found['name']} to i8*)"
        else:
            raise UnknownText(line)
    return addresses, definitions


def _translated(function: _Function, globals_: dict[str, str], declarations: dict[str, str]) -> str:
    w = LegacyWriter(globals_)
    is_kernel = function.linkage == "ptx_kernel"
    parameters, addresses = [], []
    for parameter in function.parameters:
        kind, name = read_type(parameter)
        if is_kernel:
            address = Type("ptr", 1, 1).text
            parameters.append(f"i64 {name}.a")
            addresses.append(f"{name} = inttoptr i64 {name}.a to {address}")
        else:
            parameters.append(f"{kind.text} {name}")
        w.bind(name, [name])
    for line in function.lines:
        if not line.startswith(" "):
            w.begin_block(line.removesuffix(":"), read=True)
            while addresses:
                w.line(addresses.pop(0))
        else:
            translate_line(w, line)
    declarations.update(w.declarations)
    symbol = f"{function.symbol}.body" if is_kernel else function.symbol
    head = f"define internal {function.result} @{symbol}({', '.join(parameters)}) alwaysinline nounwind {{"
    return "\n".join([head, *w.finish(), "}"])
