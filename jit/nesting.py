"""How arguments and results are nested in tuples: programs underneath take and return tensors, one after the other.

    nesting = Nesting.of(module.main)       # (tuple<tensor<2xf32>, tensor<3xi32>>, tensor<f32>) -> tuple<tensor<f32>>
    nesting                                 # Nesting("(**)*", "(*)")

Tokens are no values, in tuples as outside of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from hlojit.ir.errors import ArgumentError
from hlojit.ir.graph import Function
from hlojit.ir.types import TokenType, TupleType, Type, tuple_type

_OPEN, _CLOSE, _LEAF = "(", ")", "*"


@final
@dataclass(frozen=True, slots=True)
class Nesting:
    """The structure of arguments and of results: a parenthesis opens and closes a tuple, a star is a tensor."""

    arguments: str
    results: str

    @classmethod
    def of(cls, function: Function) -> Nesting | None:
        """That of a function's signature; None if there is no tuple in it."""
        arguments = _structure([argument.type for argument in function.body.arguments])
        results = _structure(function.result_types)
        return cls(arguments, results) if _OPEN in arguments + results else None

    @property
    def argument_names(self) -> list[str]:
        """What an argument's tensors are called, in order: ``0[1]`` is the second element of the first argument."""
        return _names(self.arguments)

    @property
    def result_names(self) -> list[str]:
        """As ``argument_names``."""
        return _names(self.results)


def _structure(types: Sequence[Type]) -> str:
    found: list[str] = []
    stack: list[Type | str] = list(reversed(types))
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            found.append(top)
        elif isinstance(top, TupleType):
            found.append(_OPEN)
            stack += [_CLOSE, *reversed(top.elements)]
        elif not isinstance(top, TokenType):
            found.append(_LEAF)
    return "".join(found)


def is_structure(text: str, leaves: int) -> bool:
    """Whether a text is a structure with so many tensors."""
    depth = 0
    for letter in text:
        depth += {_OPEN: 1, _CLOSE: -1}.get(letter, 0)
        if depth < 0 or letter not in (_OPEN, _CLOSE, _LEAF):
            return False
    return depth == 0 and text.count(_LEAF) == leaves


def _names(structure: str) -> list[str]:
    found, path = [], [0]
    for letter in structure:
        if letter == _OPEN:
            path.append(0)
            continue
        if letter == _CLOSE:
            path.pop()
        else:
            found.append(_name(path))
        path[-1] += 1
    return found


def _name(path: Sequence[int]) -> str:
    return str(path[0]) + "".join(f"[{number}]" for number in path[1:])


def nested(leaves: Sequence[Any], structure: str) -> tuple[Any, ...]:
    """The leaves in Python tuples."""
    following, stack = iter(leaves), [[]]  # type: tuple[Iterator[Any], list[list[Any]]]
    for letter in structure:
        if letter == _OPEN:
            stack.append([])
        elif letter == _CLOSE:
            made = tuple(stack.pop())
            stack[-1].append(made)
        else:
            stack[-1].append(next(following))
    return tuple(stack[0])


def nested_types(leaves: Sequence[Type], structure: str) -> tuple[Type, ...]:
    """The types of what ``nested`` makes of values of these types."""
    following, stack = iter(leaves), [[]]  # type: tuple[Iterator[Type], list[list[Type]]]
    for letter in structure:
        if letter == _OPEN:
            stack.append([])
        elif letter == _CLOSE:
            made = tuple_type(stack.pop())
            stack[-1].append(made)
        else:
            stack[-1].append(next(following))
    return tuple(stack[0])


def flattened(name: str, values: Sequence[Any], structure: str, types: Sequence[Type]) -> list[Any]:
    """The leaves of arguments, in tuples or lists; raises ``ArgumentError`` naming what is nested in another way.

    ``name`` is the program's, ``types`` are those of the arguments.
    """
    if len(values) != len(types):
        raise ArgumentError(
            f"{name} takes {len(types)} argument{'s' if len(types) != 1 else ''}, not {len(values)}: "
            f"({', '.join(map(str, types))})"
        )
    leaves: list[Any] = []
    # What is left of the tuples around the place where we are.
    around: list[Iterator[tuple[Any, Type]]] = [zip(values, types)]
    path = [-1]
    for letter in structure:
        if letter == _CLOSE:
            around.pop()
            path.pop()
            continue
        path[-1] += 1
        value, type = next(around[-1])
        if letter == _LEAF:
            leaves.append(value)
            continue
        elements = type.elements if isinstance(type, TupleType) else ()
        if not isinstance(value, (tuple, list)) or len(value) != len(elements):
            raise ArgumentError(
                f"{name}, argument {_name(path)}: expected a tuple of {len(elements)} for {type}, got {_described(value)}"
            )
        around.append(zip(value, elements))
        path.append(-1)
    return leaves


def _described(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    shape = getattr(value, "shape", None)
    return f"an array of shape {shape}" if isinstance(shape, tuple) else f"an object of type {type(value).__name__}"
