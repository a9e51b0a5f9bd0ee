"""A low-pass filter by the Fourier transform."""

import numpy as np


def fft_filter(signal, rate, cutoff):
    spectrum = np.fft.rfft(signal)
    frequency = np.fft.rfftfreq(len(signal), d=1.0 / rate)
    spectrum[frequency > cutoff] = 0
    return np.fft.irfft(spectrum, n=len(signal))


def sample(rng):
    t = np.arange(4096) / 1000.0
    return np.sin(2 * np.pi * 5 * t) + 0.5 * rng.normal(size=t.size), 1000.0, 20.0
