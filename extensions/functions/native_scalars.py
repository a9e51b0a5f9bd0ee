"""C functions of scalars as elementwise calls: ``ElementwiseCall("acme.gamma", function=tgamma)``.

    tgamma = ctypes.CDLL(None).tgamma
    tgamma.argtypes, tgamma.restype = [ctypes.c_double], ctypes.c_double

Kernels call it for every element, where it stands in a fused loop.  Compiled code holds the target's name; the function is looked
up when it is loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hlojit.extensions.functions.native_functions import C_FUNCTION, address_of, may_raise
from hlojit.ir.errors import PluginError
from hlojit.ir.scalar.calls import ScalarFunction, plain_kind

_KINDS: Final[dict[Any, str]] = {
    ctypes.c_bool: "i1",
    ctypes.c_float: "f32",
    ctypes.c_double: "f64",
    **{getattr(ctypes, f"c_int{bits}"): f"i{bits}" for bits in (8, 16, 32, 64)},
    **{getattr(ctypes, f"c_uint{bits}"): f"u{bits}" for bits in (8, 16, 32, 64)},
}
_LLVM: Final = {"i1": "i1", "f32": "float", "f64": "double"} | {f"i{bits}": f"i{bits}" for bits in (8, 16, 32, 64)}


@dataclass(frozen=True, slots=True)
class NativeScalar:
    """A C function of numbers, with the kinds of its parameters and of what it returns."""

    hlojit_runtime = ("function",)
    target: str
    parameters: tuple[str, ...]
    returned: str
    function: Any = field(compare=False)

    def __call__(self, *values: Any) -> Any:
        return self.function(*values)

    @property
    def name(self) -> str:
        """What messages call it."""
        return getattr(self.function, "__name__", "a C function")

    @property
    def address(self) -> int:
        """Where it is."""
        return address_of(self.function)

    def compiled(self, kinds: Sequence[str], user: str) -> ScalarFunction:
        """The code that calls it with scalars of these kinds; raises ``PluginError`` where they do not fit."""
        if len(kinds) != len(self.parameters):
            count = len(self.parameters)
            raise PluginError(
                f"{user}: {self.name} takes {count} argument{'' if count == 1 else 's'}, not {len(kinds)}"
            )
        lines, passed, declared = [], [], []
        for number, (given, wanted) in enumerate(zip(kinds, self.parameters)):
            kind, value = _type(wanted), f"%a{number}"
            conversion = _conversion(given, wanted)
            if conversion is None:
                raise PluginError(
                    f"{user}: parameter {number} of {self.name} is {wanted}, which does not hold every {given}; convert "
                    "the operand in the program"
                )
            if conversion:
                lines.append(f"  %c{number} = {conversion} {_type(given)} {value} to {kind}")
                value = f"%c{number}"
            passed.append(f"{kind} {_extension(wanted)}{value}")
            declared.append(f"{kind} {_extension(wanted)}".rstrip())
        target = hashlib.sha256(self.target.encode()).hexdigest()[:16]
        external, symbol = f"hlojit_c_{target}", f"hlojit_scalar_c_{target}_{'_'.join(kinds)}"
        result = _type(self.returned)
        head = ", ".join(f"{_type(kind)} %a{number}" for number, kind in enumerate(kinds))
        text = "\n".join([
            f"declare {_extension(self.returned)}{result} @{external}({', '.join(declared)})",
            f"define {result} @{symbol}({head}) alwaysinline nounwind {{",
            *lines,
            f"  %r = call {_extension(self.returned)}{result} @{external}({', '.join(passed)})",
            f"  ret {result} %r",
            "}",
            "",
        ])  # fmt: skip
        return ScalarFunction(symbol, text, self.returned, imports=((external, f"scalar:{self.target}"),))


def native_scalar(function: Any, target: str) -> NativeScalar | None:
    """A C function as an elementwise call takes it, or None for anything else; raises ``PluginError`` where it cannot be one."""
    if not isinstance(function, C_FUNCTION):
        return None
    user = f"custom call target {target!r}"
    if may_raise(function):
        raise PluginError(
            f"{user}: function is a ctypes callback of a Python function; give the Python function itself"
        )
    name, declared, returned = (
        getattr(function, "__name__", "it"),
        getattr(function, "argtypes", None),
        getattr(function, "restype", None),
    )
    if declared is None:
        raise PluginError(
            f"{user}: {name} is a C function whose parameters nobody knows; say {name}.argtypes = [ctypes.c_double] and "
            f"{name}.restype = ctypes.c_double, with what is right"
        )
    for kind in (*declared, returned):
        if kind not in _KINDS:
            raise PluginError(
                f"{user}: {name} takes or returns {getattr(kind, '__name__', kind)}; a function of scalars takes and returns "
                "numbers (an ArrayCall with trust='native' takes addresses)"
            )
    return NativeScalar(target, tuple(_KINDS[kind] for kind in declared), _KINDS[returned], function)


def _type(kind: str) -> str:
    return _LLVM[plain_kind(kind)]


def _bits(kind: str) -> int:
    return int(kind[1:])


def _extension(kind: str) -> str:
    """What C wants of a number that is narrower than a register."""
    if kind[0] == "f" or _bits(kind) > 32:
        return ""
    return "zeroext " if kind[0] == "u" or kind == "i1" else "signext "


def _conversion(given: str, wanted: str) -> str | None:
    """LLVM's conversion that changes no number, empty where there is none to do, or None."""
    if given == wanted:
        return ""
    unsigned = given[0] == "u" or given == "i1"
    if wanted[0] == "f":
        exact = 24 if wanted == "f32" else 53
        if given[0] == "f":
            return "fpext" if _bits(given) < _bits(wanted) else None
        return ("uitofp" if unsigned else "sitofp") if _bits(given) <= exact else None
    if given[0] == "f" or wanted == "i1" or (wanted[0] == "u" and not unsigned):
        return None
    fits = _bits(given) < _bits(wanted)
    return ("zext" if unsigned else "sext") if fits else None
