"""Functions as users write them, for tests: pytest changes the asserts of test modules, not of this one."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

FACTOR = 2
CALLS: list[str] = []


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    CALLS.append(function.__name__)

    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments) + 1

    return wrapper


@counted
def decorated(x: int) -> int:
    if x > 3:
        return 10
    return 20


def defaults(a: int, b: int = 3, *rest: int, c: int = 4, **named: int) -> tuple[Any, ...]:
    """Its documentation."""
    if a > b:
        return a, b, rest, c, named
    return b, a, rest, c, named


def scaled(x: int) -> int:
    return x * FACTOR if x > 0 else -x


def counter() -> tuple[Callable[[], int], Callable[[], int]]:
    count = 0

    def up() -> int:
        nonlocal count
        if count < 100:
            count += 1
        return count

    return up, lambda: count


def late() -> list[int]:
    functions = []
    for i in range(3):
        if i != 1:
            functions.append(lambda: i)  # noqa: B023
    return [each() for each in functions]


def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1)


def unbound(c: int) -> int:
    if c:
        found = 1
    return found


def deleted(c: int) -> int:
    value = 3
    if c:
        del value
    return value


def loop_variable(n: int) -> int:
    for i in range(n):
        if i == 5:
            break
    return i


def first_of(c: int) -> str:
    try:
        if c == 0:
            return "returned"
        if c == 1:
            raise ValueError
        for _ in range(3):
            if c == 2:
                break
        else:
            return "not broken"
    except ValueError:
        return "caught"
    finally:
        CALLS.append("finally")
    return "fell out"


def swallowing(c: int) -> int:
    x = 1
    with suppress(ValueError):
        x = 2
        if c:
            raise ValueError
        x = 3
    return x


def matched(value: Any) -> Any:
    match value:
        case [x, *rest] if x > 0:
            if rest:
                return rest
        case {"key": x, **rest}:
            return x, rest
        case str():
            return "text"
    return None


def order(log: list[str], values: dict[str, Any]) -> Any:
    def say(name: str) -> Any:
        log.append(name)
        return values[name]

    box = {0: 1, 1: 2}
    box[say("key")] = say("value")
    box[say("key")] += say("value")
    first, box[say("key")] = say("pair")
    return (
        (say("a") and say("b")) or not say("c"),
        say("d") < say("e") < say("f"),
        say("g") if say("h") else say("i"),
        say("j") in [say("k")],
        box,
        first,
    )


def walrus(n: int) -> Any:
    while (half := n // 2) > 3 and (last := half) != 5:
        n = half
    return n, half, [y := v for v in range(3) if v or n], y, last if n > 100 else 0


def generated(n: int) -> Any:
    return sum(i if i % 2 else -i for i in range(n) if i and i != 3)


def multiline(c: int) -> int:
    if c:
        raise ValueError(
            "one",
        )
    assert c, "two"
    return c


def global_assignment(n: int) -> int:
    global FACTOR
    if n:
        FACTOR = n
    return FACTOR


def about_the_frame(c: int) -> Any:
    if c:
        return sorted(locals())
    return None


def generator(n: int) -> Iterator[int]:
    if n:
        yield n


async def coroutine(n: int) -> int:
    if n:
        await asyncio.sleep(0)
    return n


class Base:
    def value(self) -> int:
        return 1


class Private(Base):
    __hidden = 5

    def value(self) -> int:
        __mine = 0
        if self.__hidden > 3:
            __mine = self.__hidden + super().value()
        return __mine if __class__ is Private else -1

    @classmethod
    def made(cls, n: int) -> Any:
        return cls() if n else None

    @staticmethod
    def doubled(n: int) -> int:
        return n * 2 if n else 7

    def __call__(self, n: int) -> int:
        return 1 if n else 2


PAIR = (lambda x: 1 if x else 2), (lambda x: 3 if x else 4)
SAME = (lambda x: x or 1), (lambda x: x or 1)
NESTED = lambda x: (lambda y: y and 3)(x)  # noqa: E731, PLC3002
