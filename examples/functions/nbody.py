"""Planets under gravitation, by leapfrog steps; the energy at the end."""

import numpy as np


def accelerations(position, mass, softening):
    difference = position[None, :, :] - position[:, None, :]
    squared = (difference**2).sum(axis=-1) + softening**2
    return (mass[None, :, None] * difference * squared[..., None] ** -1.5).sum(axis=1)


def nbody(position, velocity, mass, dt, steps, softening=0.05):
    position, velocity = position.copy(), velocity.copy()
    acceleration = accelerations(position, mass, softening)
    for _ in range(steps):
        velocity += 0.5 * dt * acceleration
        position += dt * velocity
        acceleration = accelerations(position, mass, softening)
        velocity += 0.5 * dt * acceleration
    return position, velocity, 0.5 * (mass * (velocity**2).sum(axis=1)).sum()


def sample(rng):
    return rng.normal(size=(64, 3)), 0.1 * rng.normal(size=(64, 3)), np.full(64, 1.0 / 64), 0.01, 200
