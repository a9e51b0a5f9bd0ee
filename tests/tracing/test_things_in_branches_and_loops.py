"""Branches and loops on traced values that change lists, dictionaries and objects: what Python does, or refused."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import heapq
import operator
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing.errors import TracingError

ROUNDS = 40


class Running:
    """Mean and variance of what has come, as people write them."""

    def __init__(self) -> None:
        self.n = 0
        self.mean = 0.0
        self.square = 0.0

    def take(self, x: Any) -> None:
        self.n += 1
        delta = x - self.mean
        self.mean += delta / self.n
        self.square += delta * (x - self.mean)

    @property
    def variance(self) -> Any:
        return self.square / (self.n + 1)


@dataclasses.dataclass
class Particle:
    place: Any
    speed: Any
    hits: int = 0

    def step(self, dt: float) -> None:
        self.place = self.place + dt * self.speed
        if self.place < 0:
            self.place = -self.place
            self.speed = -self.speed
            self.hits += 1


def counts_in_a_branch(c: Any, x: Any) -> Any:
    counts = {"n": 0, "sum": 0.0}
    if c > 0:
        counts["n"] += 1
        counts["sum"] += x.sum()
    return counts["n"], counts["sum"]


def a_list_in_both(c: Any, x: Any) -> Any:
    rows = [x, x * 2]
    if c > 0:
        rows[0] = rows[1] + 1
    else:
        rows[1] = rows[0] - 1
    return rows


def appends_in_both(c: Any, x: Any) -> Any:
    rows = [x]
    if c > 0:
        rows.append(x + 1)
    else:
        rows.append(x - 1)
    rows.append(x)
    return rows


def an_object(c: Any, x: Any) -> Any:
    stats = Running()
    for each in x:
        if each > c:
            stats.take(each)
    return stats.n, stats.mean, stats.variance


def an_object_in_a_loop(c: Any, x: Any) -> Any:
    stats = Running()
    for i in range(ROUNDS):
        stats.take(x[i % 5] * i + c)
    return stats.n, stats.mean, stats.square


def a_dataclass_in_a_loop(c: Any, x: Any) -> Any:
    one = Particle(x[0], c)
    for _ in range(ROUNDS):
        one.step(0.25)
    return one.place, one.speed, one.hits


def several_objects(c: Any, x: Any) -> Any:
    ones = [Particle(each, c) for each in x]
    for _ in range(ROUNDS):
        for one in ones:
            one.step(0.125)
    return [one.place for one in ones], sum(one.hits for one in ones)


def arrays_in_a_dictionary(c: Any, x: Any) -> Any:
    state = {"u": x.copy(), "v": np.zeros_like(x), "t": 0.0}
    for _ in range(ROUNDS):
        state["v"] -= 0.1 * state["u"]
        state["u"] += 0.1 * state["v"]
        state["t"] += c
    return state


def written_elements(c: Any, x: Any) -> Any:
    state = {"u": x.copy()}
    for i in range(ROUNDS):
        state["u"][i % 5] += c
        if state["u"][0] > 3:
            state["u"] = state["u"] / 2
    return state["u"]


def a_while(c: Any, x: Any) -> Any:
    state = [x.sum(), 0]
    while abs(state[0]) > 0.01 and state[1] < 50:
        state[0] /= 2.5
        state[1] += 1
    return state


def a_break(c: Any, x: Any) -> Any:
    state = {"best": -np.inf, "at": -1}
    for i, each in enumerate(x):
        if each > state["best"]:
            state["best"] = each
            state["at"] = i
        if each > c:
            break
    return state["best"], state["at"]


def an_early_return(c: Any, x: Any) -> Any:
    seen = {"n": 0}
    for each in x:
        seen["n"] += 1
        if each > c:
            return seen["n"]
    return -seen["n"]


def changed_behind_an_early_return(c: Any, x: Any) -> Any:
    rows = [c, 1.0]
    if c > 0:
        return rows
    rows[0] = x.sum()
    return rows


def by_a_function(c: Any, x: Any) -> Any:
    counts = {"n": 0}

    def note(amount: Any) -> None:
        counts["n"] += amount

    if c > 0:
        note(2)
    for i in range(ROUNDS):
        note(i)
    return counts["n"]


def nested_branches(c: Any, x: Any) -> Any:
    counts = {"a": 0, "b": 0, "c": 0}
    for each in x:
        if each > 0:
            counts["a"] += 1
            if each > c:
                counts["b"] += each
        else:
            counts["c"] -= 1
    return counts


def nested_things(c: Any, x: Any) -> Any:
    inner = {"n": 0.0}
    outer = {"inner": inner, "n": 0}
    for i in range(ROUNDS):
        if x[i % 5] > c:
            outer["inner"]["n"] += 1
            outer["n"] += 2
    return inner["n"], outer["n"], outer["inner"] is inner


def through_its_attributes(c: Any, x: Any) -> Any:
    one = Particle(x[0], c)
    if c > 0:
        one.__dict__["hits"] = 3
        setattr(one, "speed", x[1])  # noqa: B010
    else:
        object.__setattr__(one, "place", x[2])
        vars(one)["hits"] = 5
    return one.place, one.speed, one.hits


def by_functions_of_libraries(c: Any, x: Any) -> Any:
    numbers = [1, 3, 5]
    if c > 0:
        heapq.heappush(numbers, 2)
        heapq.heappop(numbers)
        operator.setitem(numbers, 2, 9)
    else:
        list.reverse(numbers)
        bisect.insort(numbers, 4)
        del numbers[0]
    return numbers


def a_slice(c: Any, x: Any) -> Any:
    rows = [x[0], x[1], x[2]]
    if c > 0:
        rows[:2] = [rows[1], rows[0]]
    return rows


def the_keys_exchanged(c: Any, x: Any) -> Any:
    state = {"a": x, "b": x * 2}
    for _ in range(ROUNDS):
        state["a"], state["b"] = state["b"], state["a"] * 0.5
    return state["a"], state["b"]


def changes_its_type(c: Any, x: Any) -> Any:
    state = {"total": 0}
    for i in range(ROUNDS):
        state["total"] = state["total"] + x[i % 5]
    return state["total"]


def raises_on_a_path(c: Any, x: Any) -> Any:
    state = {"n": 0}
    for each in x:
        if each > 1e6:
            state["m"] = 1
            raise ValueError(f"{each} is too much")
        state["n"] += 1
    return state["n"]


def read_before_and_behind(c: Any, x: Any) -> Any:
    state = {"n": x.sum()}
    before = state["n"]
    if c > 0:
        state["n"] = state["n"] * 2
        within = state["n"]
    else:
        within = before
    return before, within, state["n"], list(state)


def new_keys_in_both(c: Any, x: Any) -> Any:
    state = {"a": 1}
    if c > 0:
        state["b"] = x.sum()
        state["c"] = 2
    else:
        state["b"] = 1.5
        state["c"] = 3
    return state


def a_copy_of_one_of_two(c: Any, x: Any) -> Any:
    one, two = [x[0], x[1]], [x[2], x[3]]
    chosen = list(one if c > 0 else two)
    chosen[0] = chosen[0] + 100
    return one, two, chosen


def a_state_that_is_bound_anew(c: Any, x: Any) -> Any:
    state = {"u": x, "n": 0}
    for _ in range(ROUNDS):
        state = {"u": state["u"] * 0.9 + c, "n": state["n"] + 1}
    state["n"] += 5
    state["u"][0] = 7.0
    return state


def a_best_one(c: Any, x: Any) -> Any:
    state, best = [x.sum(), 0], [np.inf, -1]
    for i in range(ROUNDS):
        state = [state[0] * 0.9 - c, i]
        if abs(state[0]) < best[0]:
            best = [abs(state[0]), i]
    return state, best


FUNCTIONS = [
    value
    for name, value in list(globals().items())
    if callable(value) and list(getattr(value, "__annotations__", {})) == ["c", "x", "return"]
]
ARGUMENTS = [
    (each, x) for each in (0.75, -0.5, 2.0) for x in (np.array([0.5, -1.0, 2.5, 1.0, -0.25]), np.linspace(-1, 3, 5))
]


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [list(tree), *(leaf for each in tree.values() for leaf in leaves(each))]
    if isinstance(tree, (list, tuple)):
        return [type(tree), *(leaf for each in tree for leaf in leaves(each))]
    return [tree]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_as_python(function: Callable[..., Any]) -> None:
    compiled = hlojit.jit(function)
    for c, x in ARGUMENTS:
        expected, found = leaves(function(c, x.copy())), leaves(compiled(c, x.copy()))
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            if isinstance(other, (type, list, bool, str)):
                assert one == other
            else:
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
                assert np.asarray(one).dtype.kind == np.asarray(other).dtype.kind


# ---------------------------------------------------------------------------------------------------------- refused


def one_of_two(c: Any, x: Any, one: Any, two: Any) -> Any:
    chosen = one if c > 0 else two
    chosen[0] = chosen[0] + 1
    return one, two


def one_name_on_a_path(c: Any, x: Any) -> Any:
    if c > 0:
        one = two = [x]
    else:
        one, two = [x], [x]
    one[0] = x + 1
    return two


def one_name_at_the_end(c: Any, x: Any) -> Any:
    one, two = [c], [c]
    for i in range(2000):
        one[0] = i * c
        two = one
        one = [two[0]]
        two = one
    return one, two


def in_another(c: Any, x: Any) -> Any:
    first = {"rows": [c]}
    other = {"rows": first["rows"]}
    chosen = first if c > 0 else {"rows": [c]}
    chosen["rows"][0] = c + 5
    return other


def through_nested_branches(c: Any, x: Any) -> Any:
    one, two = [c], [c]
    if c > 0:
        c = c + 0
        if c > 0.25:
            two = one
    two[0] = c + 1
    return one


def through_a_variable_that_is_gone(c: Any, x: Any) -> Any:
    one = [c]
    two = one if c > 0 else [c]
    three = two if x[1] > 0 else [c]
    del two
    three[0] = c + 1
    return one


def both_of_one(c: Any, x: Any) -> Any:
    one = [c]
    two = one if c > 0 else [c]
    three = one if x[1] > 0 else [c]
    del one
    two[0] = c + 1
    return three


def an_array_through_nested_branches(c: Any, x: Any) -> Any:
    y = x.copy()
    if c > 0:
        c = c + 0
        if c > 0.25:
            y = x
    y.sort()
    return y


def one_of_the_round_before(c: Any, x: Any) -> Any:
    kept, one = [c], [c]
    for i in range(2000):
        if x[i % 5] > 3:
            kept = one
        one[0] += i
        one = [one[0]]
    return kept


def grows_in_one(c: Any, x: Any) -> Any:
    rows = [x]
    if c > 0:
        rows.append(x)
    return rows


def grows_in_an_object(c: Any, x: Any) -> Any:
    one = Particle([x], {"log": [c]})
    if c > 0:
        one.place.append(x)
    return one.place


def other_keys(c: Any, x: Any) -> Any:
    state = {"a": x}
    if c > 0:
        state["b"] = x
    return state


def grows_by_its_class(c: Any, x: Any) -> Any:
    rows = [x]
    if c > 0:
        list.append(rows, x)
    return rows


def grows_by_reading(c: Any, x: Any) -> Any:
    table: Any = defaultdict(int)
    if c > 0:
        c = c + table["unknown"]
    return len(table)


def a_set(c: Any, x: Any) -> Any:
    seen = {1}
    if c > 0:
        seen.add(2)
    return len(seen)


def a_queue(c: Any, x: Any) -> Any:
    seen = deque([1])
    if c > 0:
        seen.append(2)
    return len(seen)


def a_counter(c: Any, x: Any) -> Any:
    seen = Counter("a")
    if c > 0:
        seen["a"] += 1
    return seen["a"]


def an_ordered_one(c: Any, x: Any) -> Any:
    seen = OrderedDict(a=1)
    if c > 0:
        seen["a"] += 1
    return seen["a"]


def a_generator_of_numbers(c: Any, x: Any) -> Any:
    numbers = random.Random(3)
    first = 0.0
    if c > 0:
        first = numbers.random()
    return first, numbers.random()


class Checked:
    total = 0

    def __init__(self) -> None:
        self.inner = {"value": 1.0}

    @property
    def value(self) -> float:
        return self.inner["value"]

    @value.setter
    def value(self, to: float) -> None:
        self.inner["value"] = to


def a_property(c: Any, x: Any) -> Any:
    one = Checked()
    if c > 0:
        one.value = 5.0
    return one.value


def a_class(c: Any, x: Any) -> Any:
    if c > 0:
        Checked.total += 1
    return Checked.total


def a_round_grows(c: Any, x: Any) -> Any:
    rows = [c]
    for i in range(2000):
        rows.append(rows[-1] * i)
    return rows[-1]


REFUSED = {
    functools.partial(lambda c, x: one_of_two(c, x, [c, 1.0], [c, 2.0])): "may be another one that is seen here",
    one_name_on_a_path: "may be another one that is seen here",
    one_name_at_the_end: "may be another one that is seen here",
    through_nested_branches: "may be another one that is seen here",
    through_a_variable_that_is_gone: "may be another one that is seen here",
    both_of_one: "may be another one that is seen here",
    an_array_through_nested_branches: "an array that was there before",
    one_of_the_round_before: "may be another one that is seen here",
    in_another: "may be another one that is seen here",
    grows_in_one: "rows has 2 elements on one path, and 1 element on another",
    grows_in_an_object: r"one\.place has 2 elements on one path, and 1 element on another",
    other_keys: r"state has \('a', 'b'\) on one path, and \('a'\) on another",
    grows_by_its_class: "rows has 2 elements on one path",
    grows_by_reading: "changes a defaultdict",
    a_set: "changes a set",
    a_queue: "changes a deque",
    a_counter: "changes a Counter",
    an_ordered_one: "changes a OrderedDict",
    a_generator_of_numbers: "changes a Random",
    a_property: "changes a Checked",
    a_class: "changes a type",
    a_round_grows: "rows has 1 element before a round of the loop and 2 elements behind it",
}


@pytest.mark.parametrize(("function", "message"), REFUSED.items(), ids=lambda each: getattr(each, "__name__", None))
def test_refused(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(TracingError, match=message):
        hlojit.jit(function)(0.5, np.arange(5.0))
    assert Checked.total == 0


def test_what_only_one_name_sees_may_be_chosen_and_changed() -> None:
    @hlojit.jit
    def chosen(c: Any) -> Any:
        rows = [c, 1.0] if c > 0 else [c, 2.0]
        rows[0] = rows[0] + rows[1]
        return rows

    assert chosen(1.0) == [2.0, 1.0]
    assert chosen(-1.0) == [1.0, 2.0]


def test_a_global_thing_cannot_hold_what_is_traced() -> None:
    with pytest.raises(TracingError, match="leaves a traced value"):
        hlojit.jit(in_a_global)(1.0)


COUNTS = {"n": 0}


def in_a_global(c: Any) -> Any:
    if c > 0:
        COUNTS["n"] += 1
    return c
