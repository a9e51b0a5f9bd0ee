"""Writes the files of a vendor's package: templates with the vendor's name put in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from hlojit.ir.errors import HlojitError
from hlojit.new_plugin import kernels_and_devices, project, types_and_calls

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")

_FILES: Final = {
    "pyproject.toml": project.PYPROJECT,
    "README.md": project.README,
    ".github/workflows/test.yml": project.WORKFLOW,
    "hlojit_NAME/__init__.py": project.INIT,
    "hlojit_NAME/py.typed": "",
    "hlojit_NAME/plugin.py": project.PLUGIN,
    "hlojit_NAME/arrays.py": types_and_calls.ARRAYS,
    "hlojit_NAME/blocks.py": types_and_calls.BLOCKS,
    "hlojit_NAME/device.py": kernels_and_devices.DEVICE,
    "hlojit_NAME/double_negation.py": types_and_calls.DOUBLE_NEGATION,
    "hlojit_NAME/float8.py": types_and_calls.FLOAT8,
    "hlojit_NAME/row_norm.py": kernels_and_devices.ROW_NORM,
    "hlojit_NAME/softsign.py": types_and_calls.SOFTSIGN,
    "hlojit_NAME/swish.py": types_and_calls.SWISH,
    "tests/test_plugin.py": project.TEST_PLUGIN,
    "tests/test_arrays.py": types_and_calls.TEST_ARRAYS,
    "tests/test_blocks.py": types_and_calls.TEST_BLOCKS,
    "tests/test_device.py": kernels_and_devices.TEST_DEVICE,
    "tests/test_double_negation.py": types_and_calls.TEST_DOUBLE_NEGATION,
    "tests/test_float8.py": types_and_calls.TEST_FLOAT8,
    "tests/test_row_norm.py": kernels_and_devices.TEST_ROW_NORM,
    "tests/test_softsign.py": types_and_calls.TEST_SOFTSIGN,
    "tests/test_swish.py": types_and_calls.TEST_SWISH,
}
"""What is written, by path.  Each module of a thing that can be deleted has a test of its name."""


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
