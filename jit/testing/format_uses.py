"""A format in text, in jitted functions, in several threads, and registered again with another meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
from hlojit.arrays import Array
from hlojit.compiler import compile as compile_program
from hlojit.compiler import parse
from hlojit.extensions import FloatFormat, hookimpl, using
from hlojit.ir.environment import current
from hlojit.ir.graph import Module
from hlojit.testing import exact
from hlojit.testing.exact import model_of, variant_of
from hlojit.testing.format_cases import Palette
from hlojit.testing.recorder import Found, Skipped
from hlojit.tracing import jit

NDArray = np.ndarray[Any, Any]


def check_text(palette: Palette, samples: int) -> int:
    """Literals are rounded as the format says; what is printed is read back to the same codes."""
    row, model = palette.format, palette.model
    codes = [code for code in palette.numbers if exact.magnitude(model.value(code)) != exact.INFINITY][:samples]
    for code in codes[:: max(1, len(codes) // 64)]:
        literal = repr(float(model.value(code)))
        literal = literal if "." in literal else literal.replace("e", ".0e")
        kind = f"tensor<3x{row}>"
        body = f"  %c = stablehlo.constant dense<{literal}> : {kind}\n  return %c : {kind}"
        text = f"func.func @main() -> {kind} {{\n{body}\n}}"
        found = _codes_of(parse(text), row)[0]
        if not model.is_same(found, code):
            raise Found(f"{row}: the literal {literal} is read as the code {found:#x}, expected {code:#x}", text)
    module = _constant_module(palette, codes)
    again = _codes_of(parse(str(module)), row)
    for code, other in zip(codes, again, strict=True):
        if code != other and not model.is_same(code, other):
            raise Found(f"{row}: the code {code:#x} is printed and read back as {other:#x}", str(module))
    return len(codes)


def _constant_module(palette: Palette, codes: Sequence[int]) -> Module:
    from hlojit.ir.builder import build_function
    from hlojit.ir.types import tensor

    module = Module()
    with build_function(module, "main", []) as builder:
        builder.return_(builder.constant(palette.stored(codes), tensor((len(codes),), palette.format)))
    return module


def _codes_of(module: Module, row: FloatFormat) -> list[int]:
    dense = next(instruction for instruction in module.walk() if "value" in instruction.attributes).attributes["value"]
    array = np.ascontiguousarray(dense.array.reshape(-1))
    return [int(each) for each in array.view(row.storage_bits)]


# ------------------------------------------------------------------------- jit


def check_jit(palette: Palette) -> Iterator[tuple[str, Callable[[], int]]]:
    """Checks of jitted functions: casts, arrays in and out, arithmetic with arguments and numbers."""
    row, model = palette.format, palette.model
    codes = palette.array((61,), palette.numbers, 21)
    other = palette.array((61,), palette.ordinary, 22)
    x, y = (_outside(palette, each) for each in (codes, other))

    def compared(what: str, found: Any, expected: Callable[..., exact.Number], *operands: NDArray) -> int:
        storage = found.storage if isinstance(found, Array) else np.asarray(found)
        stored = np.ascontiguousarray(storage)
        if stored.dtype.itemsize != row.storage.itemsize:
            raise Found(
                f"{row}: {what} in a jitted function gives {stored.dtype}, expected elements of {row}",
                _jit_script(row, what),
            )
        for number, code in enumerate(stored.view(row.storage_bits).reshape(-1).tolist()):
            wanted = model.codes(expected(*(model.value(each[number]) for each in operands)))
            if not any(model.is_same(code, each) for each in wanted):
                shown = ", ".join(f"{float(model.value(each[number]))!r}" for each in operands)
                raise Found(
                    f"{row}: {what} in a jitted function of ({shown}) is {float(model.value(code))!r} (code {code:#x}), "
                    f"expected {float(model.value(min(wanted)))!r}",
                    _jit_script(row, what),
                )
        return len(codes)

    def cast() -> int:
        numbers = np.array([float(model.value(code)) for code in codes])
        numbers = numbers.astype("f4" if row.compute == "f32" else "f8")
        kind: Any = row.name if row.dtype is None else row.dtype
        return compared(f'x.astype("{row}")', jit(lambda x: x.astype(kind))(numbers), lambda a: a, codes)

    yield "astype", cast
    yield "arrays in and out", lambda: compared("x", jit(lambda x: x[::-1][::-1])(x), lambda a: a, codes)
    yield "addition", lambda: compared("x + y", jit(lambda x, y: x + y)(x, y), exact.add, codes, other)
    yield "product", lambda: compared("x * y", jit(lambda x, y: x * y)(x, y), exact.multiply, codes, other)

    def out() -> int:
        found = np.asarray(jit(lambda x: x.astype(np.float64))(x))
        for code, value in zip(codes.tolist(), found.reshape(-1).tolist(), strict=True):
            if not exact.same(exact.exact(value), model.value(code)):
                raise Found(
                    f"{row}: x.astype(np.float64) in a jitted function gives {value!r} for the code {code:#x}, expected "
                    f"{float(model.value(code))!r}",
                    _jit_script(row, "x.astype(np.float64)"),
                )
        return len(codes)

    yield "to float64", out


def _outside(palette: Palette, codes: NDArray) -> Any:
    stored = palette.stored(codes)
    return stored if palette.format.dtype is not None else Array(stored, palette.format)


def _jit_script(row: FloatFormat, what: str) -> str:
    dtype = row.storage.str[1:]
    return (
        "import hlojit\nimport numpy as np\n\n"
        f'x = y = hlojit.Array(np.arange(4, dtype="{dtype}"), "{row}")\n'
        f"print(hlojit.jit(lambda x, y: {what})(x, y))"
    )


# --------------------------------------------------------------------- threads


def check_threads(row: FloatFormat, backend: str, threads: int) -> int:
    """Threads that compile and run different programs at the same time, from a cold start, each right."""
    palette = Palette(row, model_of(row), 5)
    home = current()

    def work(number: int) -> str:
        with home.activate():
            count = 1000 + 17 * number
            codes = palette.array((count,), palette.numbers, number)
            function = (exact.add, exact.multiply, exact.maximum, exact.subtract)[number % 4]
            name = ("add", "multiply", "maximum", "subtract")[number % 4]
            constant = palette.constant(number)
            text = _thread_text(row, name, count)
            executable = compile_program(text, backend=backend)
            other = palette.stored([constant] * count)
            stored = palette.stored(codes)
            found = executable(*(Array(each, row) if row.dtype is None else each for each in (stored, other)))
            storage = found.storage if isinstance(found, Array) else np.asarray(found)
            for code, result in zip(codes.tolist(), np.ascontiguousarray(storage).view(row.storage_bits).tolist()):
                allowed = palette.model.codes(function(palette.model.value(code), palette.model.value(constant)))
                if not any(palette.model.is_same(result, each) for each in allowed):
                    return f"{name} of the codes {code:#x} and {constant:#x} is {result:#x}, expected {min(allowed):#x}\n{text}"
            return ""

    with ThreadPoolExecutor(threads) as pool:
        for complaint in pool.map(work, range(4 * threads)):
            if complaint:
                raise Found(f"{row}: with {threads} threads at once on {backend}, {complaint}")
    return 4 * threads


def _thread_text(row: FloatFormat, name: str, count: int) -> str:
    kind = f"tensor<{count}x{row}>"
    body = f"  %0 = stablehlo.{name} %x, %y : {kind}\n  return %0 : {kind}"
    return f"func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{\n{body}\n}}"


# ----------------------------------------------------------- registering again


def check_registered_again(row: FloatFormat, backends: Sequence[str]) -> int:
    """A format of the same name with other numbers takes effect at once, for text and for modules parsed before."""
    if row.numpy_name:
        raise Skipped("what is hlojit's own is not registered again")
    variant = variant_of(row)
    if variant is None:
        raise Skipped("there is no other format of that name")
    palette = Palette(row, model_of(row), 3)
    codes = palette.numbers[:256]
    of, to = (f"tensor<{len(codes)}x{name}>" for name in (row, "f64"))
    body = f"  %0 = stablehlo.convert %x : ({of}) -> {to}\n  return %0 : {to}"
    text = f"func.func @main(%x: {of}) -> {to} {{\n{body}\n}}"
    count = 0
    for backend in backends:
        for meant in (row, variant, row):
            model = model_of(meant)
            plugin = SimpleNamespace(
                __name__="hlojit.testing formats", hlojit_formats=hookimpl(lambda meant=meant: [meant])
            )
            if meant is row:
                found = compile_program(text, backend=backend)(Array(palette.stored(codes), row))
            else:
                with current().without(_owner(row)).activate(), using(plugin):
                    found = compile_program(text, backend=backend)(Array(palette.stored(codes), meant))
            for code, value in zip(codes, np.asarray(found).tolist()):
                if not exact.same(exact.exact(value), model.value(code)):
                    raise Found(
                        f"{row}: after another format of this name was registered, the code {code:#x} is {value!r} on {backend}, "
                        f"expected {float(model.value(code))!r}",
                        text,
                    )
                count += 1
    return count


def _owner(row: FloatFormat) -> str:
    """The plugin that has registered the format here."""
    from hlojit.ir.environment import ELEMENT_TYPES, tables

    return tables().owners.get((ELEMENT_TYPES, row.name), "")
