"""Distances on the earth, and the nearest town of each place."""

import numpy as np


def haversine(lat1, lon1, lat2, lon2):
    lat1, lon1, lat2, lon2 = map(np.radians, (lat1, lon1, lat2, lon2))
    a = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    return 2 * 6371.0 * np.arcsin(np.sqrt(a))


def nearest(places, towns):
    table = haversine(places[:, 0, None], places[:, 1, None], towns[:, 0], towns[:, 1])
    best = np.argmin(table, axis=1)
    return best, table[np.arange(len(places)), best]


def sample(rng):
    return rng.uniform(-80, 80, size=(2000, 2)), rng.uniform(-80, 80, size=(100, 2))
