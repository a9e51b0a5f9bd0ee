"""Make build/dev/hlojit: links that show the four source folders as one import package.

Type checkers and editors cannot follow setuptools' editable-install finder; with ``build/dev`` on their path they see
the same package tree as an installed hlojit.  ``PYTHONPATH=build/dev`` also runs everything without any install.

    python tools/link_tree.py
"""

import tomllib
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
    _write_metadata(root, package.parent)
    return package.parent


def _write_metadata(root: Path, folder: Path) -> None:
    """Announce the entry points, as an installed distribution would."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    metadata = folder / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items()), ""]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


if __name__ == "__main__":
    print(make_link_tree())
