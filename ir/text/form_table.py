"""The compiled pretty form of each op: templates and forms written by hand, put together when they are first needed.

form = form_of(op("stablehlo.transpose"))
"""

from __future__ import annotations

import re
from typing import Final

from hlojit.ir.environment import OPS, Bounded, tables
from hlojit.ir.errors import HlojitError
from hlojit.ir.ops.definition import OpDefinition
from hlojit.ir.text.controls import WHOLE_FORMS
from hlojit.ir.text.dialect_forms import DIALECT_FORMS, DIALECT_PIECES
from hlojit.ir.text.forms import FORMS
from hlojit.ir.text.pieces import PIECES
from hlojit.ir.text.templates import (
    AttributeDictionary,
    AttributeValue,
    Form,
    Literal,
    Operands,
    Optional,
    Piece,
    TemplateForm,
)

_WHOLE: Final = WHOLE_FORMS | DIALECT_FORMS
_PIECES: Final = PIECES | DIALECT_PIECES
_forms: Final[Bounded[str, tuple[OpDefinition, Form | None]]] = Bounded(2048)
"""Of hlojit's own ops, by name; those of plugins' are kept with the tables that the op is from."""


def form_of(op: OpDefinition) -> Form | None:
    """The compiled pretty form of an op; None if it has only the generic one."""
    found = _forms.get(op.name)
    if found is None or found[0] is not op:
        known = tables()
        forms = known.forms if (OPS, op.name) in known.owners else _forms
        found = forms.get(op.name)
        if found is None or found[0] is not op:
            found = forms.keep(op.name, (op, _compile(op)))
    return found[1]


def _compile(op: OpDefinition) -> Form | None:
    template = FORMS.get(op.syntax, op.syntax if "$" in op.syntax or ":" in op.syntax else None)
    if template is None:
        raise HlojitError(f"op {op.name!r} names an unknown pretty form {op.syntax!r}; known are {', '.join(FORMS)}")
    if not template:
        return None
    if template in _WHOLE:
        return _WHOLE[template](op)

    def piece(word: str) -> Piece:
        if word == "$operands":
            return Operands()
        if word.startswith("$"):
            spec = op.attribute(word[1:])
            if spec is None:
                raise HlojitError(f"op {op.name!r} has no attribute {word[1:]!r}, which its form {op.syntax!r} spells")
            return AttributeValue(spec)
        if word == "attr-dict":
            return AttributeDictionary()
        made = _PIECES.get(word)
        if made is None and re.fullmatch(r"types:.*|<\w+>", word):
            raise HlojitError(f"op {op.name!r}: its form {op.syntax!r} names an unknown piece {word}")
        return made(op) if made is not None else Literal(word)

    pieces: list[Piece] = []
    words = template.split()
    while words:
        word = words.pop(0)
        if word == "(" and ")?" in words:
            inner = words[: words.index(")?")]
            if all(not w.startswith("$") or op.attribute(w[1:]) for w in inner):
                pieces.append(Optional([piece(w) for w in inner]))
            words = words[len(inner) + 1 :]
        else:
            pieces.append(piece(word))
    return TemplateForm(op, pieces)
