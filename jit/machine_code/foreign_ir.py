"""LLVM IR that somebody else has written, made fit to be a kernel among others: checked, and its names its own.

Functions that are launched get the names that they are launched by; everything else that the module defines is internal, so that
another kernel may define the same names.  Imports llvmlite: it is loaded when it is first needed.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import llvmlite.binding as llvm
from hlojit.ir.errors import HlojitError
from hlojit.ir.fork_gate import fork_gate
from hlojit.machine_code.object_code import initialize
from hlojit.machine_code.undisturbed import lock, undisturbed

SIGNATURE: Final = "void (ptr, ptr, i64, i64)"
_TARGET_LINE: Final = re.compile(r"^(target (triple|datalayout)|source_filename|; ModuleID) ?= .*$", re.MULTILINE)


class BadIr(HlojitError):
    """What is wrong with a module."""


def own_module(ir: str, symbols: Mapping[str, str], known: Collection[str]) -> str:
    """The text of a module whose functions ``symbols`` have other names; raises ``BadIr``.

    ``known`` are names of functions that whoever loads it has.  What else it declares has to be in the process.
    """
    with fork_gate.inside:
        found: str = undisturbed(_own_module, ir, dict(symbols), frozenset(known))
    return found


def _own_module(ir: str, symbols: Mapping[str, str], known: Collection[str]) -> str:
    with fork_gate.inside_for_another, lock, llvm.create_context() as context:
        initialize()
        try:
            module = llvm.parse_assembly(_TARGET_LINE.sub("", ir), context)
        except RuntimeError as error:
            raise BadIr(f"LLVM cannot parse its IR: {_short(error)}") from error
        try:
            try:
                module.verify()
            except RuntimeError as error:
                raise BadIr(f"LLVM's verifier refuses its IR: {_short(error)}") from error
            _check(module, symbols, known)
            _rename(module, symbols)
            return _TARGET_LINE.sub("", str(module))
        finally:
            module.close()


def _short(error: RuntimeError) -> str:
    return " ".join(str(error).split())[:500]


def _check(module: Any, symbols: Mapping[str, str], known: Collection[str]) -> None:
    functions = {each.name: each for each in module.functions}
    defined = sorted(name for name, each in functions.items() if not each.is_declaration)
    for name in symbols:
        if name not in defined:
            raise BadIr(
                f"there is no function @{name} in its IR; it defines {', '.join(f'@{one}' for one in defined) or 'none'}"
            )
        found = str(functions[name].global_value_type)
        if found != SIGNATURE:
            raise BadIr(
                f"@{name} is of type {found}; a kernel is a function void (ptr context, ptr buffers, i64 begin, i64 end)"
            )
    for each in (*functions.values(), *module.global_variables):
        name = each.name
        if not each.is_declaration or name.startswith("llvm.") or name in known:
            continue
        if not _is_in_process(name):
            raise BadIr(
                f"its IR declares @{name}, which is neither in the module nor in the C library; an address can be a constant, "
                "inttoptr (i64 ... to ptr)"
            )


def _is_in_process(name: str) -> bool:
    # LLVM itself knows the process's symbols when it has linked something.
    return hasattr(ctypes.CDLL(None), name) or bool(llvm.address_of_symbol(name))


def _rename(module: Any, symbols: Mapping[str, str]) -> None:
    for each in [*module.functions, *module.global_variables]:
        name = each.name
        if name in symbols:
            each.name = symbols[name]
            each.linkage = "external"
        elif not each.is_declaration and not name.startswith("llvm."):
            each.linkage = "internal"
