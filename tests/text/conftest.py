"""MLIR's own parser, as jaxlib ships it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from jax._src.interpreters import mlir
from jaxlib.mlir import ir


@pytest.fixture(scope="session")
def mlir_reads() -> Callable[[str], str]:
    """Parse with MLIR and print: texts of the same program come out the same."""
    context = mlir.make_ir_context()

    def read(text: str) -> str:
        with context:
            return str(ir.Module.parse(text)).replace("func.func public @main", "func.func @main")

    return read
