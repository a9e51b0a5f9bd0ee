"""Record what vendors may import, and compare it with what earlier versions of the hooks had.

python tools/api_surface.py            # write tests/extensions/surface/<version of the hooks>.json
python tools/api_surface.py --check    # exit status 1 if something that was recorded is gone or changed

The surface are the exported names (``__all__``) of ``hlojit``, ``hlojit.extensions``, ``hlojit.ir``, ``hlojit.numpy`` (but for
what is NumPy's own), ``hlojit.random`` and ``hlojit.testing``, with the parameters of functions, constructors and methods, and
the members of enumerations.  Between versions of one first number names and optional parameters may be added; nothing may go,
move or become required, and classes that vendors derive from get no new abstract methods.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "extensions" / "surface"
MODULES = ("hlojit", "hlojit.extensions", "hlojit.ir", "hlojit.numpy", "hlojit.random", "hlojit.testing")

Surface = Mapping[str, Mapping[str, Any]]
"""By module and name: what ``_described`` makes of an object."""


def surface() -> dict[str, dict[str, Any]]:
    """The surface as it is now."""
    found = {}
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        exported = {each: getattr(module, each) for each in sorted(module.__all__)}
        found[name] = {each: _described(value) for each, value in exported.items() if not _is_numpys(value)}
    return found


def breaks(recorded: Surface, present: Surface) -> Iterator[str]:
    """What was recorded and is not there any more, or is something else."""
    for module, names in recorded.items():
        for name, old in names.items():
            new = present.get(module, {}).get(name)
            where = f"{module}.{name}"
            if new is None:
                yield f"{where} is gone"
                continue
            if "members" in old:
                for member in sorted(set(old["members"]) - set(new.get("members", ()))):
                    yield f"{where}.{member} is gone"
            if "parameters" in old:
                yield from _signature_breaks(where, old["parameters"], new.get("parameters"))
            for method, parameters in old.get("methods", {}).items():
                if method not in new.get("methods", {}):
                    yield f"{where}.{method} is gone"
                else:
                    yield from _signature_breaks(f"{where}.{method}", parameters, new["methods"][method])
            for attribute in sorted(set(old.get("attributes", ())) - set(new.get("attributes", ()))):
                yield f"{where}.{attribute} is gone"
            for method in sorted(set(new.get("abstract", ())) - set(old.get("abstract", ()))):
                if "abstract" in old:
                    yield f"{where}.{method} is abstract now: classes that were derived from it cannot be made any more"


def written(recorded: Surface) -> str:
    """The record as JSON with a name in each line, so that a change of one name is a change of one line."""
    modules = []
    for module, names in sorted(recorded.items()):
        lines = (f"  {json.dumps(name)}: {json.dumps(entry, sort_keys=True)}" for name, entry in sorted(names.items()))
        modules.append(f" {json.dumps(module)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(modules) + "\n}\n"


def _signature_breaks(where: str, old: list[list[str]] | None, new: list[list[str]] | None) -> Iterator[str]:
    """Calls that were right and are wrong now: by position, by name, or without a parameter."""
    if old is None:
        return
    if new is None:
        yield f"{where} is not called any more"
        return
    by_name = {name: (position, kind, default) for position, (name, kind, default) in enumerate(new)}
    takes_more = {kind for _, kind, _ in new}
    for position, (name, kind, default) in enumerate(old):
        if name not in by_name:
            if not (kind == "keyword" and "**" in takes_more) and not (kind == "position" and "*" in takes_more):
                yield f"{where}: the parameter {name} is gone"
            continue
        at, is_now, has_default = by_name[name]
        if kind in ("position", "either") and (at != position or is_now == "keyword"):
            yield f"{where}: the parameter {name} is not the {position + 1}. any more"
        if kind in ("keyword", "either") and is_now == "position":
            yield f"{where}: the parameter {name} is not given by name any more"
        if default and not has_default:
            yield f"{where}: the parameter {name} has no default any more"
    known = {name for name, _, _ in old}
    for name, kind, default in new:
        if name not in known and not default and kind not in ("*", "**"):
            yield f"{where}: the parameter {name} is new and has no default"


# ------------------------------------------------------------------------------------------------------------ objects


def _is_numpys(found: Any) -> bool:
    """Whether it is a function or class of NumPy's, whose parameters depend on NumPy's version."""
    return str(getattr(found, "__module__", None)).split(".")[0] == "numpy"


def _described(found: Any) -> dict[str, Any]:
    if isinstance(found, type) and issubclass(found, enum.Enum):
        return {"kind": "enumeration", "members": sorted(found.__members__)}
    if isinstance(found, type):
        return _class(found)
    if callable(found) and not isinstance(found, type) and hasattr(found, "__name__"):
        return {"kind": "function", "parameters": _parameters(found)}
    return {"kind": "object", "type": type(found).__name__}


def _class(kind: type) -> dict[str, Any]:
    methods, attributes = {}, []
    for name in sorted(dir(kind)):
        if name.startswith("_"):
            continue
        value = inspect.getattr_static(kind, name)
        plain = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if inspect.isfunction(plain):
            methods[name] = _parameters(plain)
        elif not inspect.isbuiltin(plain) and name not in dir(BaseException):
            attributes.append(name)
    attributes += [name for name in getattr(kind, "__dataclass_fields__", {}) if not name.startswith("_")]
    return {
        "kind": "class",
        "parameters": None if issubclass(kind, BaseException) else _parameters(kind),
        "methods": methods,
        "attributes": sorted(set(attributes)),
        "abstract": sorted(getattr(kind, "__abstractmethods__", ())),
    }


_KINDS = {0: "position", 1: "either", 2: "*", 3: "keyword", 4: "**"}


def _parameters(function: Any) -> list[list[str]] | None:
    """Name, how it is given, and whether it has a default, of every parameter."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [[each.name, _KINDS[int(each.kind)], "" if each.default is each.empty else "default"] for each in parameters]


def main(arguments: list[str]) -> int:
    """Write the record of this version, or compare with all that there are."""
    from hlojit.extensions import API_VERSION

    present = surface()
    if "--check" not in arguments:
        FOLDER.mkdir(exist_ok=True)
        path = FOLDER / f"{'.'.join(map(str, API_VERSION))}.json"
        path.write_text(written(present), encoding="utf-8")
        return 0
    broken = [
        f"{path.stem}: {each}"
        for path in sorted(FOLDER.glob("*.json"))
        for each in breaks(json.loads(path.read_text(encoding="utf-8")), present)
    ]
    print("\n".join(broken) or "nothing that was recorded is gone or changed")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
