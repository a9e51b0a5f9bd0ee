"""Numbers in environment variables."""

from __future__ import annotations

import pytest
from hlojit.disk_cache import limit_setting
from hlojit.ir.errors import HlojitError
from hlojit.ir.settings import LARGEST, bytes_of, number_of
from hlojit.runtime.quota import default_threads


@pytest.mark.parametrize("text", ["\u00b2", "\u0663", "9" * 5000, "-1", "1_0", "k", "1e3", "1 0"])
def test_what_is_no_number_is_said(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_SETTING", text)
    monkeypatch.setenv("HLOJIT_CACHE_SIZE", text)
    monkeypatch.setenv("HLOJIT_NUM_THREADS", text)
    for read in (
        lambda: bytes_of("HLOJIT_SETTING"),
        lambda: number_of("HLOJIT_SETTING", 1, 10**40),
        limit_setting,
        default_threads,
    ):
        with pytest.raises(HlojitError, match=r"HLOJIT_\w+=.*is not a number") as raised:
            read()
        assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("text", "expected"), [("", None), ("0", 0), (" 12 ", 12), ("3k", 3072), ("2G", 2 << 30), ("9" * 25, LARGEST)]
)
def test_bytes(text: str, expected: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_SETTING", text)
    assert bytes_of("HLOJIT_SETTING") == expected


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_SETTING", "8")
    assert number_of("HLOJIT_SETTING", 1, 8) == 8
    with pytest.raises(HlojitError, match="from 1 to 7"):
        number_of("HLOJIT_SETTING", 1, 7)
