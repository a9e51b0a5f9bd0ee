"""Writes the files of a vendor's package: templates with the vendor's name put in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from hlojit.ir.errors import HlojitError
from hlojit.new_plugin import modules, templates

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")

_FILES: Final = {
    "pyproject.toml": templates.PYPROJECT,
    "README.md": templates.README,
    ".github/workflows/test.yml": templates.WORKFLOW,
    "hlojit_NAME/__init__.py": templates.INIT,
    "hlojit_NAME/py.typed": "",
    "hlojit_NAME/plugin.py": templates.PLUGIN,
    "hlojit_NAME/arrays.py": modules.ARRAYS,
    "hlojit_NAME/blocks.py": modules.BLOCKS,
    "hlojit_NAME/cases.py": modules.CASES,
    "hlojit_NAME/device.py": modules.DEVICE,
    "tests/test_NAME.py": templates.TESTS,
}


def write_plugin(name: str, folder: Path) -> list[Path]:
    """Write the package ``hlojit-NAME`` into a folder that is new or empty; returns the files.

    Raises ``HlojitError`` for a name that cannot be one of a module and of a dialect, and for a folder with files.
    """
    from hlojit.extensions import API_VERSION, registry

    if not _NAME.fullmatch(name):
        raise HlojitError(f"a plugin's name is a lower-case word such as 'acme' or 'nova2', not {name!r}")
    if name in registry().load().records:
        raise HlojitError(f"a plugin called {name!r} is installed already; choose another name")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HlojitError(f"{folder} exists and is not empty; name another folder with --path")
    written = []
    for path, text in _FILES.items():
        target = folder / path.replace("NAME", name)
        target.parent.mkdir(parents=True, exist_ok=True)
        filled = text.replace("NAME", name).replace("TITLE", name.capitalize()).replace("API_VERSION", str(API_VERSION))
        target.write_text(filled, encoding="utf-8")
        written.append(target)
    return written
