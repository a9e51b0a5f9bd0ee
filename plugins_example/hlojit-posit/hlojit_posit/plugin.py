"""Posits of 8, 16 and 32 bits as element types: ``tensor<8xposit16>``, ``x.astype("posit8")``."""

from __future__ import annotations

from hlojit.extensions import FloatFormat, hookimpl

from hlojit_posit.codec import decoder, encoder

hlojit_api = (1, 2)


def posit(bits: int) -> FloatFormat:
    """The row of posits of so many bits."""
    return FloatFormat(f"posit{bits}", bits=bits, accumulator="f64", decode=decoder(bits), encode=encoder(bits))


POSIT8, POSIT16, POSIT32 = (posit(bits) for bits in (8, 16, 32))


@hookimpl
def hlojit_formats() -> list[FloatFormat]:
    """The three formats of the standard that there is hardware for."""
    return [POSIT8, POSIT16, POSIT32]
