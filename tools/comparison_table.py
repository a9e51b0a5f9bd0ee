"""Write ``docs/comparison.md``'s counts of the example packages' lines; ``--check`` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools import generated_pages

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "comparison.md"
MARKS = ("<!-- lines: begin -->\n", "<!-- lines: end -->\n")
EXAMPLES = {
    "hlojit-acme": "an accelerator: memory of its own, a 16x16 matrix unit, no f64, a command stream, passes, a kernel",
    "hlojit-null": "the least back end, with devices, a pass and a float format",
    "hlojit-posit": "three number formats that have no fields: posit8, posit16, posit32",
    "hlojit-mx": "three block formats, and a transformer layer in them",
    "hlojit-kernels": "kernels and custom calls in every form",
}


def page(text: str) -> str:
    """The page with the lines that the packages have now."""
    rows = [
        f"| [`{name}`](../plugins_example/{name}) | {what} | {_counts(name)} |\n" for name, what in EXAMPLES.items()
    ]
    return generated_pages.between(
        text, MARKS, "".join(["| package | what it brings | files | lines |\n|---|---|---|---|\n", *rows])
    )


def _counts(name: str) -> str:
    """Files and lines of what is installed, ``pyproject.toml`` included; without tests and benchmarks."""
    folder = ROOT / "plugins_example" / name
    files = [folder / "pyproject.toml", *sorted((folder / name.replace("-", "_")).glob("**/*.py"))]
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    return f"{len(files)} | {lines}"


if __name__ == "__main__":
    raise SystemExit(generated_pages.main(PAGE, page, __doc__))
