"""Every kind of kernel of ``make assemble``, for one GPU: nothing is called, spilt or split."""

from __future__ import annotations

from pathlib import Path

import pytest
from hlojit.cuda.assemblers.choice import NAMES

from tools import assemble

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", assemble.KINDS)
def test_every_kind_of_kernel_is_as_it_should_be(kind: str, tmp_path: Path) -> None:
    rows = list(assemble.rows([kind], ["sm_90a"], NAMES, tmp_path))
    missing = [row for row in rows if isinstance(row, str)]
    if missing:
        pytest.skip(missing[0])
    assert not [fault for row in rows for fault in row.faults()]
    assert {row.assembler for row in rows} == set(NAMES)


def test_the_table_has_a_row_a_kernel(tmp_path: Path) -> None:
    (row,) = assemble.rows(["chain_f32"], ["sm_80"], ["numba"], tmp_path)
    assert row.cells()[:3] == ["chain_f32", "numba", "sm_80"] and row.cells()[-1] == "6 of 6"
    assert (tmp_path / "sm_80" / "chain_f32.numba.ptx").read_text() == row.ptx


def test_faults_are_found() -> None:
    (row,) = assemble.rows(["chain_f32"], ["sm_80"], ["llvm"], ROOT / "build" / "assembled")
    bad = assemble.Row(
        "bad",
        "llvm",
        "sm_80",
        row.code,
        "\tcall f;\n\t.local .b8 x[8];\n",
        {"k": assemble.Usage(255, 8, 8, 0)},
        frozenset({"ld"}),
    )
    assert len(bad.faults()) == 4
