"""Net present value, and the rate at which it is nothing, by bisection."""

import numpy as np


def value(rate, flows):
    return sum(flow / (1 + rate) ** t for t, flow in enumerate(flows))


def discount(flows, low=0.0, high=1.0):
    if value(low, flows) * value(high, flows) > 0:
        raise ValueError("no rate of return between the limits")
    while high - low > 1e-12:
        middle = (low + high) / 2
        if value(middle, flows) > 0:
            low = middle
        else:
            high = middle
    return middle


def sample(rng):
    return (np.array([-1000.0, 300.0, 420.0, 360.0, 200.0]),)
