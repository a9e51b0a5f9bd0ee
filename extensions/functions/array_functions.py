"""``ArrayFunction``: a function of whole arrays that a plugin supplies, as numba compiles it, in plain Python, or native.

    ArrayFunction(attention)                                            # numba: attention(q, k, v, result) fills result
    ArrayFunction(np.linalg.eigvalsh, trust="python")                   # Python: takes arrays, returns arrays
    ArrayFunction(library.acme_scale, trust="native", signature="operand0, result0, result0.size")

All arrays are in row-major order, without gaps, of the shapes that the program says; operands are read-only.  ``numba`` and
``python`` are *checked*: what they do wrong ends the call with an error.  ``native`` is *trusted native*.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from hlojit.extensions.functions.native_functions import ArgumentList, address_of, argument_list, may_raise
from hlojit.ir.errors import PluginError
from hlojit.ir.formats import ElementType
from hlojit.ir.named_fields import named_fields

FORMS: Final = ("numba", "python", "native")
FAST_MATH: Final = ("nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc")
"""Flags of LLVM's floating-point arithmetic."""


@named_fields
@dataclass(frozen=True, slots=True, weakref_slot=True)
class ArrayFunction:
    """A function that computes arrays from arrays, in one of three forms, which ``trust`` names.

    ``numba``: ``function(*operands, *results)`` writes all elements of the results and returns nothing.  numba compiles it for
    the types of a call, with bounds checks unless ``bounds`` is False (it is trusted native then); it runs without the GIL, and
    Ctrl-C ends its loops.  ``python``: ``function(*operands)`` returns the result, or a tuple of several.  Its operands are its
    own to keep.  ``native``: a function of ``ctypes`` or of ``numba.cfunc``, a function pointer of cffi, a PyCapsule, or an
    address, whose parameters ``signature`` lists::

        operand0, result1                   addresses of the elements
        operand0.size, result0.shape1:i32   numbers of elements, 64-bit integers unless a type is given
        alpha:f64                           an attribute of the call
        operand0, result0 -> status         what it returns: nothing, or an i32 that is not 0 where it failed,
        operand0 -> result0                 or the one element of a result

    ``fastmath`` is numba's: names of what its floating-point arithmetic need not keep to, such as ``("contract",)``, which lets
    ``a * b + c`` be rounded once, and ``("reassoc",)``, which lets sums be vectors; True is all of them, no NaN among these.
    ``error_model`` is numba's: with ``"python"`` a division by zero raises, with ``"numpy"`` it gives an infinity, NaN or 0.
    ``codes`` says that elements of types for which NumPy has no dtype (with numba also those that numba does not know, such as
    ``bf16``) are given as their codes, unsigned integers; without it a call with such elements is refused.  ``substitute`` is
    what back ends without native code run: a function like that of ``python``.
    """

    hlojit_runtime = ("pointer",)
    function: Callable[..., Any] | None
    """None of a native function, which is ``pointer``."""
    trust: str = "numba"
    signature: str = field(default="", kw_only=True)
    codes: bool = field(default=False, kw_only=True)
    bounds: bool = field(default=True, kw_only=True)
    fastmath: bool | Collection[str] = field(default=False, kw_only=True)
    substitute: Callable[..., Any] | None = field(default=None, kw_only=True)
    error_model: str = field(default="numpy", kw_only=True)
    pointer: Any = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.trust not in FORMS:
            raise PluginError(f"an ArrayFunction's trust is one of {', '.join(map(repr, FORMS))}, not {self.trust!r}")
        self._check_fastmath()
        if self.error_model not in ("numpy", "python"):
            raise PluginError(f"an ArrayFunction's error_model is 'numpy' or 'python', not {self.error_model!r}")
        for name in ("signature", "substitute"):
            if getattr(self, name) and self.trust == "python":
                raise PluginError(f"an ArrayFunction of trust='python' has no {name}=: it runs everywhere, on arrays")
        if self.substitute is not None and not callable(self.substitute):
            raise PluginError(f"an ArrayFunction's substitute is {self.substitute!r}, which is not a function")
        if self.trust == "native":
            self._check_native()
        elif not callable(self.function):
            raise PluginError(f"an ArrayFunction's function is {self.function!r}, which cannot be called")
        elif self.signature:
            raise PluginError("an ArrayFunction of trust='numba' has no signature=: numba compiles it for each call")
        elif self.trust == "numba" and isinstance(self.function, np.ufunc):
            raise PluginError(
                f"an ArrayFunction's function is the ufunc {self.function.__name__}; write a function of operands and results: "
                f"def f(x, result): np.{self.function.__name__}(x, result)"
            )

    def _check_fastmath(self) -> None:
        given: Any = self.fastmath
        if isinstance(given, bool):
            given = FAST_MATH if given else ()
        if isinstance(given, (str, bytes)) or not isinstance(given, Collection) or set(given) - set(FAST_MATH):
            raise PluginError(
                f"an ArrayFunction's fastmath is True, False or some of {', '.join(FAST_MATH)}, not {self.fastmath!r}"
            )
        flags = tuple(each for each in FAST_MATH if each in given)
        if flags and self.trust != "numba":
            raise PluginError(f"an ArrayFunction of trust={self.trust!r} has no fastmath=: numba does not compile it")
        object.__setattr__(self, "fastmath", flags)

    def _check_native(self) -> None:
        if may_raise(self.function):
            raise PluginError(
                "an ArrayFunction's function is a ctypes callback of a Python function, which must not raise: give the "
                "Python function with trust='python'"
            )
        if not address_of(self.function):
            raise PluginError(
                f"an ArrayFunction of trust='native' is a function of ctypes, cffi or numba.cfunc, a PyCapsule or an address, "
                f"not {self.function!r}"
            )
        if not self.signature:
            raise PluginError(
                "an ArrayFunction of trust='native' needs signature=, which lists its parameters, for example "
                "'operand0, result0, result0.size'"
            )
        argument_list(self.signature)
        object.__setattr__(self, "pointer", self.function)
        object.__setattr__(self, "function", None)

    @property
    def level(self) -> str:
        """``checked``, or ``trusted native`` where a mistake in it can crash the process."""
        return "trusted native" if self.trust == "native" or not self.bounds else "checked"

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of ``fastmath``, one by one."""
        return FAST_MATH if self.fastmath is True else tuple(self.fastmath or ())

    @property
    def address(self) -> int:
        """Where a native function is."""
        return address_of(self.pointer)

    @property
    def arguments(self) -> ArgumentList:
        """The parameters of a native function."""
        return argument_list(self.signature)

    def outside(self, element: ElementType, user: str) -> np.dtype[Any]:
        """The dtype of the arrays in which Python gets elements; raises ``PluginError`` where there is none, for ``user``."""
        if element.dtype is not None:
            return element.dtype
        if not self.codes:
            raise PluginError(
                f"{user}: NumPy has no dtype for elements of {element}; convert them in the program (stablehlo.convert), or "
                "take their codes as unsigned integers (codes=True)"
            )
        return element.storage

    @property
    def on_arrays(self) -> Callable[..., Any] | None:
        """What computes the results from NumPy arrays, where there is something, as ``python`` does."""
        return self.function if self.trust == "python" else self.substitute


_numbers: Final = itertools.count()
_by_number: Final[WeakValueDictionary[int, ArrayFunction]] = WeakValueDictionary()
"""Functions that have no name by which a program finds them, of this process."""


def numbered(function: ArrayFunction) -> int:
    """A number by which ``function_of`` finds a function as long as somebody has it."""
    number = next(_numbers)
    _by_number[number] = function
    return number


def function_of(number: int) -> ArrayFunction | None:
    """The function of a number, or None if it is gone."""
    return _by_number.get(number)


def name_of(function: ArrayFunction) -> str:
    """What messages call the Python function."""
    python = getattr(function.function, "py_func", function.function)
    name = getattr(python, "__qualname__", None) or type(python).__qualname__
    return re.sub(r"\s+", " ", str(name))
