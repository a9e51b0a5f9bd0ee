"""``check_block_format``: every code, every rounding and what programs do with blocks, against exact arithmetic.

    report = check_block_format("mxfp8")
    report.raise_if_failed()

What is right is worked out from the format's fields (``hlojit.testing.block_model``); nothing of what encodes and decodes for
programs takes part.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from hlojit.arrays import Array
from hlojit.compiler import parse
from hlojit.extensions import BlockFormat, hookimpl, registry, using
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import element_type, find_element_type
from hlojit.ir.graph import Module
from hlojit.ir.types import TensorType, tensor
from hlojit.testing.block_cases import BlockCase, BlockDraft, block_cases, numbers_for, rounding_numbers
from hlojit.testing.block_model import BlockModel
from hlojit.testing.execution import execute
from hlojit.testing.formats import DEFAULT_BACKENDS
from hlojit.testing.recorder import Budget, Found, Recorder, Refused, budget_of
from hlojit.testing.report import Report
from hlojit.testing.script import script
from hlojit.testing.signatures import of_parts
from hlojit.tracing.decorator import jit

NDArray = np.ndarray[Any, Any]


def check_block_format(
    format: BlockFormat | str,
    *,
    backends: Sequence[str] = DEFAULT_BACKENDS,
    seed: int = 0,
    budget: str | Budget = "quick",
    progress: bool | None = None,
    groups: Collection[str] = (),
) -> Report:
    """Try a block format, given as a row or by the name under which a plugin has registered it.

    Elements times scales, encodings of numbers at and beside every rounding of element and scale, ops on each of ``backends``,
    products, constants, text, ``@hlojit.jit`` and several threads.  ``groups`` names the groups of checks to make (default: all).
    """
    row = element_type(format) if isinstance(format, str) else format
    if not isinstance(row, BlockFormat):
        raise HlojitError(f"check_block_format checks block formats; {row} is none")
    recorder = Recorder("block format", row.name, budget_of(budget), seed, progress, frozenset(groups))
    with _registered(row):
        _BlockCheck(row, recorder, tuple(backends)).run()
    return recorder.report()


@contextmanager
def _registered(row: BlockFormat) -> Iterator[None]:
    """Have a format, and those of its parts, registered if they are not."""
    registry().load()  # an installed plugin may bring them
    formats = [each for each in (*row.part_formats, row) if find_element_type(each.name) != each]
    plugin = SimpleNamespace(__name__="hlojit.testing block formats", hlojit_formats=hookimpl(lambda: formats))
    with using(plugin):
        yield


@dataclass
class _BlockCheck:
    row: BlockFormat
    recorder: Recorder
    backends: tuple[str, ...]

    @cached_property
    def model(self) -> BlockModel:
        """What is right."""
        return BlockModel(self.row)

    def run(self) -> None:
        run = self.recorder.run
        run("encodings", "hlojit.Array.to_values", self._host_decoding)
        run("rounding", "hlojit.Array.from_values", self._host_encoding)
        for backend in self.backends:
            run("encodings", f"decoding on {backend}", partial(self._decoding, backend), backend=backend)
            for source in ("f32", "f64"):
                check = partial(self._encoding, source, backend)
                run("rounding", f"from {source} on {backend}", check, backend=backend)
        for case in block_cases(self.row):
            for backend in self.backends:
                run(case.group, f"{case.name} on {backend}", partial(self._case, case, backend), backend=backend)
        run("text", "programs are read and written back", self._text)
        for backend in self.backends:
            run("jit", f"astype, arguments and results on {backend}", partial(self._jit, backend), backend=backend)
            run("threads", f"on {backend}", partial(self._threads, backend), backend=backend)

    # ------------------------------------------------------------------ parts

    def _codes(self, overall: float) -> list[NDArray]:
        """Parts in which every element meets a scale and every scale an element; a sample of wide formats."""
        most = self.recorder.budget.samples
        elements, scales = (self._sample(row.bits, most) for row in self.row.part_formats[:2])
        block = self.row.block
        per_scale = -(-len(elements) // block)
        scales = scales[: max(1, 64 * most // (per_scale * block))]
        # The scales lie beside each other: one that is taken for another's shows.
        lines = np.repeat(np.resize(elements, (per_scale, 1, block)), len(scales), 1)
        shaped = [lines.reshape(per_scale, -1), np.repeat(scales[None], per_scale, 0)]
        rank = self.rank
        parts = [np.moveaxis(each.reshape((1,) * (rank - 2) + each.shape), -1, self.row.axis) for each in shaped]
        return parts if self.row.tensor_scale is None else [*parts, np.asarray(np.float32(overall))]

    def _sample(self, bits: int, most: int) -> NDArray:
        if bits <= 12:
            return np.arange(1 << bits, dtype=np.uint64)
        top, random = (1 << bits) - 1, np.random.default_rng(self.recorder.seed)
        edges = [0, 1, 2, top, top - 1, top >> 1, (top >> 1) + 1, (top >> 1) + 2]
        return np.array([*edges, *random.integers(0, top, most // 4)], np.uint64)

    @property
    def rank(self) -> int:
        """Of arrays that are tried: the least, and two at least."""
        return max(2, self.row.axis + 1, -self.row.axis)

    def _stored(self, parts: Sequence[NDArray]) -> tuple[NDArray, ...]:
        """Codes as they lie in memory; the tensor's scale is a number."""
        coded = [
            np.ascontiguousarray(part.astype(row.storage_bits)).view(row.storage)
            for part, row in zip(parts[:2], self.row.part_formats)
        ]
        return *coded, *parts[2:]

    def _array(self, parts: Sequence[NDArray]) -> Array:
        rows = self.row.part_formats
        whole = [
            Array(part, row) if row.dtype is None else part.view(row.dtype)
            for part, row in zip(self._stored(parts), rows)
        ]
        return Array.from_parts(whole, self.row)

    @property
    def _overalls(self) -> tuple[float, ...]:
        return (1.0,) if self.row.tensor_scale is None else (1.0, 0.3, -2.0, 0.0, 3e38, 1e-40, float("nan"))

    def _host_decoding(self) -> int:
        count = 0
        for overall in self._overalls:
            parts = self._codes(overall)
            count += self._same_numbers(self._array(parts).to_values(), parts, "hlojit.Array.to_values")
        return count

    def _decoding(self, backend: str) -> int:
        count = 0
        for overall in self._overalls:
            parts = self._codes(overall)
            kind = tensor(parts[0].shape, self.row)
            module = _converting(kind, tensor(kind.shape, "f32"))
            (found,) = self._results(module, backend, [self._stored(parts)])
            count += self._same_numbers(found, parts, f"a conversion to f32 on {backend}")
        return count

    def _same_numbers(self, found: NDArray, parts: Sequence[NDArray], what: str) -> int:
        wanted = self.model.decode(parts)
        wrong = ~(
            (found == wanted) & (np.signbit(found) == np.signbit(wanted)) | ((found != found) & (wanted != wanted))
        )
        if not wrong.any():
            return wanted.size
        at = tuple(np.argwhere(wrong)[0].tolist())
        along = self.row.axis % len(at)
        block = tuple(each // self.row.block if axis == along else each for axis, each in enumerate(at))
        factors = []
        for part, codes, place in zip((self.model.elements, self.model.scales), parts, (at, block)):
            code = int(codes[place])
            factors.append(f"{part.value(code)!r} (code {code:#x})")
        raise Found(
            f"{self.row}: element {factors[0]} times scale {factors[1]} is {float(wanted[at])!r}; {what} makes it "
            f"{float(found[at])!r}"
        )

    # -------------------------------------------------------------- encoding

    def _battery(self) -> NDArray:
        flat = rounding_numbers(self.model, self.recorder.budget.samples, self.recorder.seed)
        return np.moveaxis(flat.reshape((1,) * (self.rank - 2) + flat.shape), -1, self.row.axis)

    def _host_encoding(self) -> int:
        numbers, count = self._battery(), 0
        for each in self._tensors(numbers):
            found = [
                np.asarray(part.storage if isinstance(part, Array) else part)
                for part in Array.from_values(each, self.row).parts
            ]
            count += self.same_parts(found, self.model.encode(each), "hlojit.Array.from_values", each)
        return count

    def _encoding(self, source: str, backend: str) -> int:
        numbers, count = self._battery(), 0
        for each in self._tensors(numbers):
            given = each if source == "f32" else each.astype(np.float64) * (1 + 2.0**-30)
            module = _converting(tensor(each.shape, source), tensor(each.shape, self.row))
            found = self._results(module, backend, [given])
            with np.errstate(all="ignore"):
                wanted = self.model.encode(given.astype(np.float32))
            count += self.same_parts(found, wanted, f"a conversion from {source} on {backend}", given)
        return count

    def _tensors(self, numbers: NDArray) -> list[NDArray]:
        """Of a format with a scale of the tensor several tensors: one with the largest numbers leaves nothing of the others."""
        if self.row.tensor_scale is None:
            return [numbers]
        finite = np.where(np.isfinite(numbers) & (np.abs(numbers) < 1e6), numbers, np.float32(0.5))
        return [numbers, finite, finite * np.float32(1e-38), np.zeros_like(numbers), np.full_like(numbers, np.nan)]

    def same_parts(
        self, found: Sequence[NDArray], wanted: Sequence[NDArray], what: str, numbers: NDArray | None
    ) -> int:
        """Compare codes that were made with those that should have been; how many."""
        for name, part, ours, theirs in zip(
            ("element", "scale"), (self.model.elements, self.model.scales), found, wanted
        ):
            codes = np.ascontiguousarray(ours).view(part.row.storage_bits).reshape(theirs.shape)
            for at in np.argwhere(codes != theirs.astype(codes.dtype)):
                place = tuple(at.tolist())
                code, right = int(codes[place]), int(theirs[place])
                if not part.model.is_same(code, right):
                    of = f" of {float(numbers[place])!r}" if numbers is not None and name == "element" else ""
                    raise Found(
                        f"{self.row}: {what}: {name} {list(place)}{of} is {part.value(code)!r} (code {code:#x}), expected "
                        f"{part.value(right)!r} (code {right:#x})"
                    )
        if len(wanted) > 2 and not np.array_equal(found[2], wanted[2], equal_nan=True):
            raise Found(f"{self.row}: {what}: the tensor's scale is {float(found[2])!r}, expected {float(wanted[2])!r}")
        return wanted[0].size + wanted[1].size

    # -------------------------------------------------------------- programs

    def _results(self, module: Module, backend: str, arguments: Sequence[Any]) -> tuple[NDArray, ...]:
        flat, arrays = of_parts(module, arguments)
        outcome = execute(flat, backend, arrays)
        if outcome.results is None:
            if outcome.kind == "refused":
                raise Refused(outcome.message)
            raise Found(f"{self.row} on {backend}: {outcome.message}", script(flat, arrays, backend))
        return outcome.results

    def _case(self, case: BlockCase, backend: str) -> int:
        draft = BlockDraft(self.row, self.model, self.recorder.seed)
        module, arguments = case.program(draft)
        found = iter(self._results(module, backend, [self._stored(each) for each in arguments]))
        count = 0
        for number, (kind, wanted) in enumerate(zip(module.main.result_types, case.expected(draft), strict=True)):
            what = f"{case.name} on {backend}: result {number}"
            try:
                if isinstance(kind, TensorType) and kind.element_type == self.row:
                    count += self.same_parts([next(found) for _ in wanted], wanted, what, None)
                else:
                    count += self._near(next(found), wanted, what)
            except Found as complaint:
                flat, arrays = of_parts(module, [self._stored(each) for each in arguments])
                raise Found(str(complaint), script(flat, arrays, backend)) from None
        return count

    def _near(self, found: NDArray, wanted: tuple[NDArray, NDArray], what: str) -> int:
        """Numbers within a bound of what is right."""
        right, bound = wanted
        wrong = ~(np.abs(found.astype(np.float64) - right) <= bound)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0].tolist())
            raise Found(f"{self.row}: {what}{list(at)} is {found[at]!r}, expected {right[at]!r} within {bound[at]!r}")
        return right.size

    def _text(self) -> int:
        draft, count = BlockDraft(self.row, self.model, self.recorder.seed), 0
        for case in block_cases(self.row):
            module, _ = case.program(draft)
            text = str(module)
            if str(parse(text)) != text:
                raise Found(f"{self.row}: the program of {case.name} is read as another one", text)
            count += 1
        return count

    def _jit(self, backend: str) -> int:
        numbers = numbers_for(BlockDraft(self.row, self.model, self.recorder.seed).shape, self.recorder.seed)
        wanted = self.model.encode(numbers)
        given = self._array(wanted)

        def both(x: Any, blocks: Any) -> Any:
            return x.astype(self.row.name), blocks, blocks.to_values() + np.float32(1)

        encoded, same, more = jit(backend=backend)(both)(numbers, given)
        count = 0
        for each in (encoded, same):
            parts = [np.asarray(part.storage if isinstance(part, Array) else part) for part in each.parts]
            count += self.same_parts(parts, wanted, f"@hlojit.jit on {backend}", None)
        if not np.array_equal(more, self.model.decode(wanted) + np.float32(1)):
            raise Found(f"{self.row}: @hlojit.jit on {backend}: decoded numbers plus 1 are wrong")
        return count + numbers.size

    def _threads(self, backend: str) -> int:
        counts: list[int] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                counts.append(self._jit(backend))
            except BaseException as error:
                failed.append(error)

        # Each sees the formats that are registered here.
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(work,))
            for _ in range(self.recorder.budget.threads)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        if failed:
            raise failed[0]
        return sum(counts)


def _converting(source: TensorType, target: TensorType) -> Module:
    return parse(
        f"func.func @main(%x: {source}) -> {target} {{\n  %0 = stablehlo.convert %x : ({source}) -> {target}\n"
        f"  return %0 : {target}\n}}"
    )
