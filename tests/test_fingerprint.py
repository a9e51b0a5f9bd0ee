"""Content hashes: equal for equal content, in every process; different for whatever changes what a function does."""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import functools
import importlib
import math
import os
import subprocess
import sys
import threading
import types
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.formats import FloatFormat, element_type
from hlojit.ir.ops.definition import op

ROOT = Path(__file__).resolve().parents[1]


def run(source: str, name: str = "plugin") -> dict[str, Any]:
    """The namespace of a piece of source, run as a module of its own."""
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(source, f"{name}.py", "exec", dont_inherit=True), namespace)
    return namespace


def hash_of(source: str, name: str = "f") -> str:
    return fingerprint(run(source)[name])


SAME = {
    "text layout": ("def f(x):\n    return x + 1", "\n\n# moved\ndef f(x):\n\n    return x + 1"),
    "an unread global": ("A = 1\ndef f(x): return x", "A = 2\ndef f(x): return x"),
    "order of a dict": ("D = {1: 2, 3: 4}\ndef f(x): return D[x]", "D = {3: 4, 1: 2}\ndef f(x): return D[x]"),
}
DIFFERENT = {
    "a constant": ("def f(x): return x + 1", "def f(x): return x + 2"),
    "-0.0": ("def f(x): return x + 0.0", "def f(x): return x + -0.0"),
    "a type": ("def f(x): return x + 1", "def f(x): return x + 1.0"),
    "an operator": ("def f(x): return x + 1", "def f(x): return x - 1"),
    "a name": ("import math\ndef f(x): return math.sin(x)", "import math\ndef f(x): return math.cos(x)"),
    "a global": ("A = 1\ndef f(x): return x + A", "A = 2\ndef f(x): return x + A"),
    "a global's array": (
        "import numpy as np\nA = np.arange(3)\ndef f(x): return A[x]",
        "import numpy as np\nA = np.arange(3) + (np.arange(3) == 2)\ndef f(x): return A[x]",
    ),
    "a global not yet there": ("def f(x): return x + A", "A = 2\ndef f(x): return x + A"),
    "a helper": ("def g(x): return x\ndef f(x): return g(x)", "def g(x): return -x\ndef f(x): return g(x)"),
    "a helper's global": (
        "A = 1\ndef g(x): return x + A\ndef f(x): return g(x)",
        "A = 2\ndef g(x): return x + A\ndef f(x): return g(x)",
    ),
    "a default": ("def f(x, a=1): return x + a", "def f(x, a=2): return x + a"),
    "a keyword default": ("def f(x, *, a=1): return x + a", "def f(x, *, a=2): return x + a"),
    "a captured value": (
        "def make(a): return lambda x: x + a\nf = make(1)",
        "def make(a): return lambda x: x + a\nf = make(2)",
    ),
    "what an inner function reads": (
        "A = 1\ndef f(x): return (lambda y: y + A)(x)",
        "A = 2\ndef f(x): return (lambda y: y + A)(x)",
    ),
    "what an inner function reads of a capture": (
        "def make(a):\n    def f(x): return (lambda y: y + a)(x)\n    return f\nf = make(1)",
        "def make(a):\n    def f(x): return (lambda y: y + a)(x)\n    return f\nf = make(2)",
    ),
    "a partial's argument": (
        "import functools\ndef g(a, x): return a + x\nf = functools.partial(g, 1)",
        "import functools\ndef g(a, x): return a + x\nf = functools.partial(g, 2)",
    ),
    "the object of a bound method": (
        "class C:\n    def __init__(self, a): self.a = a\n    def m(self, x): return x + self.a\nf = C(1).m",
        "class C:\n    def __init__(self, a): self.a = a\n    def m(self, x): return x + self.a\nf = C(2).m",
    ),
    "another method of the class": (
        "class C:\n    def g(self): return 1\n    def m(self, x): return x + self.g()\nf = C().m",
        "class C:\n    def g(self): return 2\n    def m(self, x): return x + self.g()\nf = C().m",
    ),
    "a class's base": (
        "class B:\n    def g(self): return 1\nclass C(B): pass\ndef f(x): return C().g()",
        "class B:\n    def g(self): return 2\nclass C(B): pass\ndef f(x): return C().g()",
    ),
    "a slot": (
        "class C:\n    __slots__ = ('a',)\n    def __init__(self, a): self.a = a\nS = C(1)\ndef f(x): return x + S.a",
        "class C:\n    __slots__ = ('a',)\n    def __init__(self, a): self.a = a\nS = C(2)\ndef f(x): return x + S.a",
    ),
    "a property": (
        "class C:\n    @property\n    def a(self): return 1\ndef f(x): return C().a",
        "class C:\n    @property\n    def a(self): return 2\ndef f(x): return C().a",
    ),
    "a memoized helper": (
        "import functools\n@functools.cache\ndef g(x): return x\ndef f(x): return g(x)",
        "import functools\n@functools.cache\ndef g(x): return -x\ndef f(x): return g(x)",
    ),
    "an attribute of a function": ("def f(x): return f.a\nf.a = 1", "def f(x): return f.a\nf.a = 2"),
    "an exception handler": (
        "def f(x):\n    try:\n        return x\n    except ValueError:\n        return 1",
        "def f(x):\n    try:\n        return x\n    except KeyError:\n        return 1",
    ),
}


DIFFERENT |= {
    "what an object does not give for copying": tuple(
        "class C:\n    def __init__(self, a): self.a = a\n    def __getstate__(self): return {}\n"
        f"S = C({value})\ndef f(x): return x + S.a"
        for value in (1, 2)
    ),
    "what an object's reduction leaves out": tuple(
        "class C:\n    __slots__ = ('a',)\n    def __init__(self, a): self.a = a\n    def __reduce__(self): return C, ()\n"
        f"S = C({value})\ndef f(x): return x + S.a"
        for value in (1, 2)
    ),
    "what a dataclass holds besides its fields": tuple(
        "from dataclasses import InitVar, dataclass\n@dataclass\nclass C:\n    a: InitVar[int]\n"
        f"    def __post_init__(self, a): self.b = a\nS = C({value})\ndef f(x): return x + S.b"
        for value in (1, 2)
    ),
}
ENUM = """
import enum
class E({base}):
    A = 1
    def scale(self): return {method}
    @property
    def offset(self): return {property}
    @classmethod
    def _missing_(cls, value): return cls({missing})
    @enum.property
    def shown(self): return {shown}
M = E.A
"""
_AS_IT_IS = {"base": "enum.Enum", "method": "2", "property": "3", "missing": "1", "shown": "4"}
DIFFERENT |= {
    f"an enumeration's {part}, read from {reader}": tuple(
        ENUM.format(**{**_AS_IT_IS, part: value}) + f"def f(x): return x * {reader}.scale()"
        for value in (_AS_IT_IS[part], other)
    )
    for part, other in {
        "base": "enum.IntEnum",
        "method": "5",
        "property": "6",
        "missing": "int(value)",
        "shown": "7",
    }.items()
    for reader in ("E.A", "M", "E(1)")
}


@pytest.mark.parametrize("method", ["__call__", "__eq__", "__init__"])
def test_methods_of_a_dataclass_that_was_typed_in(method: str) -> None:
    """Code given to ``exec`` has no file either, like the methods that dataclasses write."""

    def hashed(constant: int) -> str:
        namespace: dict[str, Any] = {"__name__": "vendor"}
        body = f"    def {method}(self, other=0): self.b = {constant}"
        source = f"from dataclasses import dataclass\n@dataclass\nclass F:\n    a: int = 1\n{body}\n"
        exec(compile(source, "<string>", "exec", dont_inherit=True), namespace)
        return fingerprint(namespace["F"])

    assert hashed(2) == hashed(2) != hashed(3)


@pytest.mark.parametrize("name", ["profile", "scipy"])
@pytest.mark.parametrize("read", ["f(x)", "F"])
def test_a_module_named_like_a_known_one(name: str, read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin's own helper counts by its content, whatever it is called."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def hashed(constant: int) -> str:
        sys.modules.pop(name, None)
        source = f"def f(x): return x * {constant}\nclass F:\n    a = {constant}\n"
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        with monkeypatch.context() as context:
            context.setattr(sys, "dont_write_bytecode", True)
            return hash_of(f"import {name}\ndef g(x): return {name}.{read}", "g")

    present = sys.modules.get(name)
    try:
        assert hashed(2) == hashed(2) != hashed(3)
    finally:
        sys.modules.pop(name)
        if present is not None:
            sys.modules[name] = present


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_count(name: str) -> None:
    before, after = SAME[name]
    assert hash_of(before) == hash_of(after)


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_counts(name: str) -> None:
    before, after = DIFFERENT[name]
    assert hash_of(before) == hash_of(before)
    assert hash_of(before) != hash_of(after)


def with_helper(helper: str, source: str) -> str:
    module = ModuleType("vendor_helper")
    exec(compile(helper, "vendor_helper.py", "exec"), module.__dict__)
    sys.modules["vendor_helper"] = module
    try:
        return hash_of(source)
    finally:
        del sys.modules["vendor_helper"]


@pytest.mark.parametrize(
    "source",
    [
        "import vendor_helper\ndef f(x): return vendor_helper.g(x)",
        "from vendor_helper import g\ndef f(x): return g(x)",
        "import vendor_helper as h\ndef f(x): return (lambda y: h.g(y))(x)",
        "import vendor_helper\ndef make(h): return lambda x: h.g(x)\nf = make(vendor_helper)",
        "def f(x):\n    from vendor_helper import g\n    return g(x)",
        "def f(x):\n    from vendor_helper import k, g\n    return g(x)",
        "def f(x):\n    import vendor_helper\n    return vendor_helper.g(x)",
        "def f(x):\n    import vendor_helper as h\n    return h.g(x)",
    ],
)
def test_helper_modules_count_by_what_is_read_of_them(source: str) -> None:
    common = "k = 0\n"
    first = with_helper(common + "def g(x): return x + 1\nunused = 1", source)
    assert first == with_helper(common + "unused = 2\n\ndef g(x): return x + 1", source)
    assert first != with_helper(common + "def g(x): return x + 2", source)


def test_a_package_s_inner_modules_are_followed() -> None:
    def hashed(constant: int) -> str:
        outer, inner = ModuleType("vendor_helper"), ModuleType("vendor_helper.inner")
        inner.value = constant  # type: ignore[attr-defined]
        outer.inner = inner  # type: ignore[attr-defined]
        namespace = run("def f(x): return x + h.inner.value")
        namespace["h"] = outer
        return fingerprint(namespace["f"])

    assert hashed(1) == hashed(1) != hashed(2)


def test_functions_may_call_each_other_and_themselves() -> None:
    source = "A = {}\ndef f(x): return g(x - 1) if x else A\ndef g(x): return f(x)\nA['f'] = f; A['g'] = {1: g}"
    assert hash_of(source) == hash_of(source)
    assert hash_of(source) != hash_of(source.replace("x - 1", "x - 2"))


def test_a_class_may_mention_itself() -> None:
    source = "class C:\n    def m(self): return super().__init__() or C\ndef f(x): return C"
    assert hash_of(source) == hash_of(source) != hash_of(source.replace("or C", "and C"))


def test_numba_functions_count_by_their_python_and_options() -> None:
    source = "import numba\ndef g(x): return x + 1\nf = numba.njit(g)"
    assert hash_of(source) == hash_of(source)
    assert hash_of(source) != hash_of(source.replace("+ 1", "+ 2"))
    assert hash_of(source) != hash_of(source.replace("njit(g)", "njit(g, fastmath=True)"))
    # A compiled overload is no part of what the function is.
    called = source + "\nf(1)"
    assert hash_of(source) == hash_of(called)
    used = "import numba\n@numba.njit\ndef g(x): return x + 1\ndef f(x): return g(x)"
    assert hash_of(used) != hash_of(used.replace("+ 1", "+ 2"))


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    hidden: Callable[..., Any] | None = field(default=None, compare=False)


class Lazy:
    def __init__(self, value: int):
        self.value = value

    @cached_property
    def double(self) -> int:
        return 2 * self.value


def test_plain_data() -> None:
    values: list[Any] = [
        None, True, 1, 1.0, 1j, "1", b"1", (1,), [1], {1}, {1: 1}, -0.0, 0.0, math.nan, math.inf, 10**6000, range(3),
        slice(3), Mode.FAST, Mode.SLOW, Row("a"), Row("b"), Row("a", lambda x: x), np.float32(1), np.dtype(np.int8), ...,
        np.arange(4), np.arange(4.0), np.arange(4).reshape(2, 2), np.array([1, "a"], object), (1, (2,)), ((1, 2),), "",
    ]  # fmt: skip
    hashes = [fingerprint(value) for value in values]
    assert len(set(hashes)) == len(values)
    assert hashes == [fingerprint(value) for value in values]


def test_arrays_count_by_content_not_layout() -> None:
    array = np.arange(12).reshape(3, 4)
    assert fingerprint(array) == fingerprint(np.asfortranarray(array)) == fingerprint(array.copy())
    assert fingerprint(array) != fingerprint(array.astype(">i8"))


def test_a_cached_property_does_not_count() -> None:
    value, other = Lazy(1), Lazy(1)
    assert other.double == 2
    assert fingerprint(value) == fingerprint(other) != fingerprint(Lazy(2))


def test_a_cached_property_that_was_given_another_value_counts() -> None:
    value = Lazy(1)
    value.double = 5
    assert fingerprint(value) != fingerprint(Lazy(1))
    value.double = 2
    assert fingerprint(value) == fingerprint(Lazy(1))


def test_attributes_of_cached_functions_and_of_metaclasses_count() -> None:
    source = """
import functools
class M(type):
    factor = {0}
class C(metaclass=M):
    pass
@functools.lru_cache
def cached():
    return 1
cached.factor = {1}
def f(x): return x * C.factor * cached.factor
"""
    first, second, third = (fingerprint(run(source.format(*numbers))["f"]) for numbers in ((2, 3), (5, 3), (2, 7)))
    assert len({first, second, third}) == 3 and first == fingerprint(run(source.format(2, 3))["f"])


def test_records_of_formats_and_ops() -> None:
    def decode(bits: int) -> float:
        return bits * 0.5

    plain = FloatFormat("acme8", exponent_bits=4, mantissa_bits=3)
    coded = FloatFormat("acme8", exponent_bits=4, mantissa_bits=3, decode=decode, encode=int)
    assert fingerprint(plain) != fingerprint(coded)
    assert fingerprint(op("add")) != fingerprint(op("subtract"))
    assert fingerprint(element_type("f32")) != fingerprint(element_type("f64"))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import threading\nA = threading.Lock()\ndef f(x): return A", "lock"),
        ("import ctypes\nA = ctypes.CDLL(None).getpid\ndef f(x): return A()", "C object"),
        ("import ctypes\nA = ctypes.c_void_p(1)\ndef f(x): return A", "c_void_p"),
        ("import sys\nA = sys.__stderr__\ndef f(x): return A", "TextIOWrapper"),
        ("import vendor\ndef f(x): return vendor", "module vendor"),
        ("import numpy as np\nA = np.frompyfunc(lambda x: x, 1, 1)\ndef f(x): return A(x)", "ufunc"),
        ("A = (x for x in ())\ndef f(x): return A", "generator"),
    ],
)
def test_what_has_no_content_is_refused_by_name(source: str, said: str) -> None:
    sys.modules["vendor"] = ModuleType("vendor")
    try:
        function = run(source)["f"]
    finally:
        del sys.modules["vendor"]
    with pytest.raises(NotKeyable, match=said) as caught:
        fingerprint(function)
    assert "function f" in str(caught.value)


def test_nesting_without_end_is_refused() -> None:
    value: Any = ()
    for _ in range(100_000):
        value = (value,)
    with pytest.raises(NotKeyable, match="nested too deeply"):
        fingerprint(value)
    while value:
        (value,) = value


def test_objects_of_the_standard_library() -> None:
    import re

    assert fingerprint(re.compile("a")) != fingerprint(re.compile("b"))
    assert fingerprint(partial(min, 1)) != fingerprint(partial(max, 1))
    assert fingerprint([].append) != fingerprint([1].append)
    assert fingerprint(functools.reduce) != fingerprint(math.sin)
    assert isinstance(fingerprint(ctypes.c_int), str)
    assert isinstance(fingerprint(threading.Lock), str)


def test_processes_agree() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import numpy as np; import test_fingerprint as t\n"
        "from hlojit.ir.fingerprint import fingerprint as f\n"
        "sources = [text for pair in (*t.SAME.values(), *t.DIFFERENT.values()) for text in pair]\n"
        "print(f([t.hash_of(text) for text in sources]))\n"
        "print(f({'a', 'b', 'c', 1, 2.5, (1, 'x'), frozenset({'p', 'q'})}))\n"
        'g = {}; exec(\'def f(x): return x in {"a", "b", "c", "d"}\', g); print(f(g[\'f\']))\n'
        "from hlojit.ir.ops.definition import ops; import hlojit\n"
        "print(f({op.name: f(op) for op in ops()}))\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script, str(ROOT / "tests")],
            capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(said) == 1


OUTSIDE = {
    "open": "def f(x): return open('a').read()",
    "open under another name": "read = open\ndef f(x): return read('a')",
    "eval": "def f(x): return eval('x')",
    "globals": "A = 1\ndef f(x): return globals()['A']",
    "vars": "def f(x): return vars(x)",
    "builtins": "import builtins\ndef f(x): return builtins.open('a')",
    "__import__": "def f(x): return __import__('a')",
    "os.environ": "import os\ndef f(x): return os.environ['A']",
    "environ": "from os import environ\ndef f(x): return environ['A']",
    "getenv": "from os import getenv as g\ndef f(x): return g('A')",
    "an import inside": "def f(x):\n    import os\n    return os.getcwd()",
    "a name imported inside": "def f(x):\n    from random import random\n    return random()",
    "importlib": "import importlib\ndef f(x): return importlib.import_module('a').A",
    "pathlib": "from pathlib import Path\ndef f(x): return Path('a').read_bytes()",
    "a captured path": "from pathlib import Path\nA = Path('a')\ndef f(x): return A.stat()",
    "a path that is given": "def f(x): return x.read_text()",
    "random": "import random\ndef f(x): return random.random()",
    "a random function": "from random import random\ndef f(x): return random()",
    "time": "import time as t\ndef f(x): return t.time()",
    "a clock": "from time import monotonic\ndef f(x): return monotonic()",
    "datetime": "from datetime import datetime\ndef f(x): return datetime.now()",
    "sys": "import sys\ndef f(x): return sys.argv[1]",
    "numpy.load": "import numpy as np\ndef f(x): return np.load('a')",
    "numpy.load by name": "from numpy import load\ndef f(x): return load('a')",
    "numpy.random": "import numpy as np\ndef f(x): return np.random.rand()",
    "numpy.random by name": "from numpy.random import rand\ndef f(x): return rand()",
    "an inner function": "def f(x):\n    def g(): return open('a')\n    return g",
    "a helper": "def g(): return open('a').read()\ndef f(x): return g()",
    "a method": "class f:\n    def run(self): return open('a')",
    "a default": "import time\ndef g(): return time.time()\ndef f(x, g=g): return g()",
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_reads_from_outside_of_its_source_is_refused(name: str) -> None:
    with pytest.raises(NotKeyable, match="may be something else in another process"):
        hash_of(OUTSIDE[name])


def test_constants_of_the_interpreter_and_pure_functions_are_not_outside() -> None:
    hash_of(
        "import sys, math, json\nimport numpy as np\ndef f(x): return sys.maxsize, math.sin(x), np.exp(x), json.dumps(1)"
    )
    hash_of("def open(x): return x\ndef f(x): return open(x)")


def test_a_stated_identity_stands_for_what_is_read() -> None:
    source = "def f(x): return open('a').read()\nf.hlojit_identity = {}"
    one, other = (hash_of(source.format(text)) for text in ("'one'", "lambda: 'other'"))
    assert one == hash_of(source.format("lambda: 'one'")) != other
    assert hash_of(source.format("'one'").replace("'a'", "'b'")) != one, "the source counts as well"
    inherited = "class B:\n    hlojit_identity = {}\nclass f(B):\n    def run(self): return open('a')\ng = f().run"
    first, second = (run(inherited.format(text)) for text in ("'one'", "staticmethod(lambda: 'other')"))
    assert fingerprint(first["f"]) != fingerprint(second["f"])
    assert fingerprint(first["g"]) != fingerprint(second["g"])
    for wrong in ("3", "lambda: 1 / 0", "None"):
        with pytest.raises(NotKeyable, match="hlojit_identity, which"):
            hash_of(source.format(wrong))


@pytest.mark.parametrize("made", ["type", "new_class", "make_dataclass"])
def test_classes_that_a_call_makes_count_by_content(made: str) -> None:
    """They have the name of a module of the standard library: ``ABCMeta``'s, or that of ``types``."""
    makers: dict[str, Callable[[dict[str, Any]], type]] = {
        "type": lambda members: type("Tile", (Abstract,), members),
        "new_class": lambda members: types.new_class("Tile", (Abstract,), {}, lambda scope: scope.update(members)),
        "make_dataclass": lambda members: dataclasses.make_dataclass("Tile", [], bases=(Abstract,), namespace=members),
    }
    make = makers[made]
    given: list[dict[str, Any]] = [{"run": lambda self: 1}, {"run": lambda self: 2}, {"size": 4}, {"size": 5}]
    assert make(given[0]).__module__ in ("abc", "types")
    hashes = [fingerprint(make(dict(members))()) for members in given]
    assert len(set(hashes)) == 4
    assert hashes == [fingerprint(make(dict(members))()) for members in given]


class Abstract(ABC):  # noqa: B024  its metaclass is what matters
    """A base of classes that calls make."""
