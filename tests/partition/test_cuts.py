"""Labels at the least cost, against trying all of them."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hlojit.partition.cuts import Labelling


def random_problem(seed: int, labels: int) -> tuple[Labelling, int]:
    source = random.Random(seed)
    problem, nodes = Labelling(labels), source.randrange(2, 8)
    for _ in range(nodes):
        costs = [math.inf if source.random() < 0.2 else float(source.randrange(10)) for _ in range(labels)]
        costs[source.randrange(labels)] = float(source.randrange(10))
        problem.node(costs)
    each = [source.randrange(5) for _ in range(labels)]
    for node in range(nodes):
        users = [other for other in range(node + 1, nodes) if source.random() < 0.4]
        weight = source.randrange(1, 6)
        problem.value(node, users, lambda a, b, weight=weight: float(weight + each[a] + each[b]))  # type: ignore[misc]
    return problem, nodes


def least(problem: Labelling, nodes: int, labels: int) -> float:
    return min(problem.cost(each) for each in itertools.product(range(labels), repeat=nodes))


@pytest.mark.parametrize("seed", range(40))
def test_two_labels_are_given_at_the_least_cost(seed: int) -> None:
    problem, nodes = random_problem(seed, 2)
    assert problem.cost(problem.solve()) == pytest.approx(least(problem, nodes, 2))


@pytest.mark.parametrize("seed", range(40))
def test_three_labels_are_given_at_most_at_twice_the_cost(seed: int) -> None:
    problem, nodes = random_problem(seed, 3)
    assert problem.cost(problem.solve()) <= 2 * least(problem, nodes, 3) + 1e-9


def test_the_first_label_is_taken_where_both_cost_the_same() -> None:
    problem = Labelling(2)
    nodes = [problem.node((1.0, 1.0)) for _ in range(5)]
    for one, other in itertools.pairwise(nodes):
        problem.value(one, [other], lambda a, b: 3.0)
    assert problem.solve() == [0] * 5


def test_what_has_to_be_together_is() -> None:
    problem = Labelling(2)
    one, other = problem.node((0.0, math.inf)), problem.node((9e9, 0.0))
    problem.value(one, [other], lambda a, b: math.inf)
    assert problem.solve() == [0, 0]


def test_a_value_is_paid_for_once_for_each_label() -> None:
    problem = Labelling(3)
    source, *users = [problem.node([0.0 if label == at else math.inf for label in range(3)]) for at in (0, 1, 1, 2)]
    problem.value(source, users, lambda a, b: 10.0)
    assert problem.cost(problem.solve()) == 20.0
