"""Reading the records of StableHLO's dimension numbers: ``#stablehlo.dot<...>`` and their kin."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from hlojit.ir.attributes import (
    Attribute,
    ChannelHandle,
    ConvDimensionNumbers,
    DotAlgorithm,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    OutputOperandAlias,
    RaggedDotDimensionNumbers,
    ResultAccuracy,
    ScatterDimensionNumbers,
)
from hlojit.ir.text.lexer import WORD, Cursor

_SCALAR_TYPE: Final = re.compile(r"[a-z]\w*")
_DECIMAL: Final = re.compile(r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,4})?")
ACCURACY_MODES: Final = ("DEFAULT", "HIGHEST", "TOLERANCE")
_ACCURACY_MODE: Final = re.compile(rf"(?:#stablehlo\.result_accuracy_mode)?<\s*({'|'.join(ACCURACY_MODES)})\s*>")
_DIMENSION_LETTERS: Final = re.compile(r"[bfio?]|[0-9]+")


class RecordReader:
    """Reads the part in angle brackets of each record."""

    def __init__(self, cursor: Cursor, attribute: Callable[[], Attribute]):
        self.cursor = cursor
        self.attribute = attribute
        """Reads any attribute, for records that hold others."""

    def fields(self, readers: dict[str, Callable[[], Any]], what: str) -> dict[str, Any]:
        """Read ``<a = 1, b = [2]>`` in any order; fields may be left out."""
        cursor = self.cursor
        found: dict[str, Any] = {}

        def entry() -> None:
            start = cursor.pos
            name = cursor.take(WORD, f"a field of {what}")
            if name not in readers:
                cursor.fail(f"unknown field {name!r} of {what}; expected one of {', '.join(readers)}", start)
            if name in found:
                cursor.fail(f"field {name!r} is given twice", start)
            cursor.expect("=")
            found[name] = readers[name]()

        cursor.expect("<")
        # MLIR takes a comma behind the last field.
        while not cursor.at(">"):
            entry()
            if not cursor.accept(","):
                break
        if not cursor.accept(">"):
            cursor.expected("',' or '>'")
        return found

    def dot(self) -> Attribute:
        """``#stablehlo.dot<...>``."""
        names = ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting")
        found = self.fields({f"{name}_dimensions": self.cursor.integers for name in names}, "#stablehlo.dot")
        return DotDimensionNumbers(*(found.get(f"{name}_dimensions", ()) for name in names))

    def ragged_dot(self) -> Attribute:
        """``#chlo.ragged_dot<...>``."""
        names = ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting", "lhs_ragged", "rhs_group")
        found = self.fields({f"{name}_dimensions": self.cursor.integers for name in names}, "#chlo.ragged_dot")
        return RaggedDotDimensionNumbers(*(found.get(f"{name}_dimensions", ()) for name in names))

    def output_operand_alias(self) -> Attribute:
        """``#stablehlo.output_operand_alias<...>``."""
        cursor = self.cursor
        readers: dict[str, Callable[[], Any]] = {
            "output_tuple_indices": cursor.integers,
            "operand_index": cursor.integer,
            "operand_tuple_indices": cursor.integers,
        }
        found = self.fields(readers, "#stablehlo.output_operand_alias")
        return OutputOperandAlias(*(found.get(name, 0 if name == "operand_index" else ()) for name in readers))

    def dot_algorithm(self) -> Attribute:
        """``#stablehlo.dot_algorithm<...>``."""
        cursor = self.cursor

        def type_name() -> str:
            return cursor.take(_SCALAR_TYPE, "an element type")

        def flag() -> bool:
            return cursor.take(re.compile(r"true|false"), "true or false") == "true"

        readers: dict[str, Callable[[], Any]] = {
            "lhs_precision_type": type_name,
            "rhs_precision_type": type_name,
            "accumulation_type": type_name,
            "lhs_component_count": cursor.integer,
            "rhs_component_count": cursor.integer,
            "num_primitive_operations": cursor.integer,
            "allow_imprecise_accumulation": flag,
        }
        start = cursor.pos
        found = self.fields(readers, "#stablehlo.dot_algorithm")
        for name in list(readers)[:3]:
            if name not in found:
                cursor.fail(f"expected field {name!r} of #stablehlo.dot_algorithm", start)
        return DotAlgorithm(**found)

    def result_accuracy(self) -> Attribute:
        """``#stablehlo.result_accuracy<atol = 0.0, rtol = 0.0, ulps = 1, mode = ...>``."""
        cursor = self.cursor

        def number() -> float:
            start = cursor.pos
            value = float(cursor.take(_DECIMAL, "a number such as 1.0e-5")[:400])
            if not math.isfinite(value):
                cursor.fail("a tolerance must be finite", start)
            return value + 0.0  # not -0.0

        def mode() -> str:
            start = cursor.pos
            match = _ACCURACY_MODE.match(cursor.text, start)
            if match is None:
                cursor.expected(f"#stablehlo.result_accuracy_mode<...> with {', '.join(ACCURACY_MODES)}")
            cursor.pos = match.end()
            cursor.skip_blank()
            return match[1]

        readers: dict[str, Callable[[], Any]] = {"atol": number, "rtol": number, "ulps": cursor.integer, "mode": mode}
        start = cursor.pos
        found = self.fields(readers, "#stablehlo.result_accuracy")
        if "mode" not in found:
            cursor.fail("expected field 'mode' of #stablehlo.result_accuracy", start)
        return ResultAccuracy(**found)

    def gather(self) -> Attribute:
        """``#stablehlo.gather<...>``."""
        return GatherDimensionNumbers(**self._dimension_fields(GatherDimensionNumbers, "#stablehlo.gather"))

    def scatter(self) -> Attribute:
        """``#stablehlo.scatter<...>``."""
        return ScatterDimensionNumbers(**self._dimension_fields(ScatterDimensionNumbers, "#stablehlo.scatter"))

    def _dimension_fields(self, record: type[Attribute], what: str) -> dict[str, Any]:
        cursor = self.cursor
        names = list(record.__dataclass_fields__)
        return self.fields({n: cursor.integer if n == "index_vector_dim" else cursor.integers for n in names}, what)

    def channel_handle(self) -> Attribute:
        """``#stablehlo.channel_handle<handle = 1, type = 0>``."""
        found = self.fields({"handle": self.cursor.integer, "type": self.cursor.integer}, "#stablehlo.channel_handle")
        return ChannelHandle(found.get("handle", 0), found.get("type", 0))

    def conv(self) -> Attribute:
        """``#stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>`` or its ``raw`` form."""
        cursor = self.cursor
        start = cursor.pos
        cursor.expect("<")
        if cursor.accept_word("raw"):
            cursor.pos = cursor.text.rindex("<", start, cursor.pos)
            return self._conv_raw(start)
        found = self.conv_dimensions()
        cursor.expect(">")
        return found

    def _conv_raw(self, start: int) -> Attribute:
        cursor = self.cursor
        cursor.pos = start
        cursor.expect("<")
        cursor.expect_word("raw")
        found: dict[str, Any] = {}
        names = {}
        for name in ConvDimensionNumbers.__dataclass_fields__:
            names[f"{name}_dimensions" if name.endswith("spatial") else f"{name}_dimension"] = name
        while True:
            at = cursor.pos
            word = cursor.take(WORD, "a field of #stablehlo.conv")
            if word not in names:
                cursor.fail(f"unknown field {word!r} of #stablehlo.conv; expected one of {', '.join(names)}", at)
            cursor.expect("=")
            found[names[word]] = cursor.integers() if word.endswith("dimensions") else cursor.integer()
            if not cursor.accept(","):
                break
        cursor.expect(">")
        for name in names.values():
            found.setdefault(name, () if name.endswith("spatial") else 0)
        return ConvDimensionNumbers(**found)

    def conv_dimensions(self) -> ConvDimensionNumbers:
        """Read ``[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]``."""
        cursor = self.cursor
        batch, feature, spatial = self._dimension_list("b", "f")
        if not cursor.at("x"):
            cursor.expected("'x' between the dimensions of input and kernel")
        cursor.pos += 1
        cursor.skip_blank()
        kernel_in, kernel_out, kernel_spatial = self._dimension_list("i", "o")
        cursor.expect("->")
        out_batch, out_feature, out_spatial = self._dimension_list("b", "f")
        return ConvDimensionNumbers(
            batch, feature, spatial, kernel_in, kernel_out, kernel_spatial, out_batch, out_feature, out_spatial
        )

    def _dimension_list(self, first: str, second: str) -> tuple[int, int, tuple[int, ...]]:
        cursor = self.cursor
        start = cursor.pos
        what = f"'{first}', '{second}' or the number of a spatial dimension"
        words: dict[str, int] = {}

        def entry() -> None:
            at = cursor.pos
            word = cursor.take(_DIMENSION_LETTERS, what)
            if word.isdigit():
                word = str(int(word[:10]))
            elif word not in (first, second):
                cursor.fail(f"expected {what}, found {word!r}", at)
            if word in words:
                cursor.fail(f"dimension {word!r} is given twice", at)
            words[word] = len(words)

        cursor.items("[", "]", entry)
        spatial = []
        for number in range(len(words) - 2):
            if str(number) not in words:
                cursor.fail(f"expected spatial dimension {number} in this list", start)
            spatial.append(words[str(number)])
        for letter in (first, second):
            if letter not in words:
                cursor.fail(f"expected dimension {letter!r} in this list", start)
        return words[first], words[second], tuple(spatial)


RECORDS: Final[dict[str, Callable[[RecordReader], Attribute]]] = {
    "dot": RecordReader.dot,
    "dot_algorithm": RecordReader.dot_algorithm,
    "gather": RecordReader.gather,
    "scatter": RecordReader.scatter,
    "conv": RecordReader.conv,
    "channel_handle": RecordReader.channel_handle,
    "ragged_dot": RecordReader.ragged_dot,
    "output_operand_alias": RecordReader.output_operand_alias,
    "result_accuracy": RecordReader.result_accuracy,
}
"""What reads ``#stablehlo.name<...>``, by name."""
