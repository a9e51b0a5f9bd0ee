"""Make build/dev/hlojit: links that show the four source folders as one import package.

Type checkers and editors cannot follow setuptools' editable-install finder; with ``build/dev`` on their path they see
the same package tree as an installed hlojit.  ``PYTHONPATH=build/dev`` also runs everything without any install.

    python tools/link_tree.py
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUBPACKAGES = ("ir", "extensions", "cuda")


def make_link_tree(root: Path = ROOT) -> Path:
    """Create (or refresh) ``build/dev/hlojit`` under ``root`` and return the folder to put on the path."""
    package = root / "build" / "dev" / "hlojit"
    package.mkdir(parents=True, exist_ok=True)
    targets = {entry.name: entry for entry in (root / "jit").iterdir() if entry.name != "__pycache__"}
    targets |= {name: root / name for name in SUBPACKAGES}
    for stale in package.iterdir():
        if stale.is_symlink() and stale.name not in targets:
            stale.unlink()
    for name, target in targets.items():
        link = package / name
        if not link.is_symlink():
            link.symlink_to(target)
    return package.parent


if __name__ == "__main__":
    print(make_link_tree())
