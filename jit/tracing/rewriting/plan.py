"""What is collected while the source of one function is rewritten: its sites, its functions, names for new variables."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from hlojit.tracing.rewriting.protocol import FunctionInfo, Kind, Site
from hlojit.tracing.rewriting.variables import mangled

HOOKS: Final = "_hlojit"
"""The free variable of rewritten code that holds its ``Hooks``."""


@final
@dataclass
class Plan:
    """Of one piece of rewritten code, with the functions inside of it."""

    file: str
    lines: Sequence[str]
    class_name: str
    """The class around it, or empty."""
    sites: list[Site] = field(default_factory=list)
    names: list[tuple[str, ...]] = field(default_factory=list)
    functions: list[FunctionInfo] = field(default_factory=list)
    _variables: int = 0

    def site(
        self, kind: Kind, node: ast.expr | ast.stmt, function: str, inside: str = "", **facts: Any
    ) -> ast.Constant:
        """The number of a new site, as the source names it."""
        text = self.lines[node.lineno - 1].strip() if node.lineno <= len(self.lines) else ""
        site = Site(kind, function, self.file, node.lineno, node.col_offset + 1, text, inside=inside, **facts)
        self.sites.append(site)
        self.names.append(tuple(mangled(each, self.class_name) for each in site.names))
        return ast.copy_location(ast.Constant(len(self.sites) - 1), node)

    def function(self, name: str, line: int, outer: frozenset[str] = frozenset()) -> int:
        """The number of a new function."""
        self.functions.append(FunctionInfo(name, self.file, line, outer))
        return len(self.functions) - 1

    def variable(self) -> str:
        """A name that nobody has."""
        self._variables += 1
        return f"_hlojit_{self._variables}"
