"""One ordinary call of each function, method and attribute of NumPy that concerns arrays: what the coverage table is made of.

Names: ``a``, ``b`` 4x5 and ``v``, ``w`` 12 of floats (``s`` sorted, ``n`` 4x5 with NaN), ``i``, ``j`` 12 of small integers, ``u``
12 of bytes, ``h`` 4x5 of truth values, ``m`` 4x4 invertible, ``p`` 4x4 symmetric and positive definite, ``z`` 12 of complex numbers.
"""

from __future__ import annotations

from typing import Final

import numpy as np

ARRAYS: Final = "abvwsnijuhmpz"


def arrays() -> dict[str, np.ndarray]:
    """Fresh arrays for one call."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 4, 5))
    v, w = random.normal(size=(2, 12))
    i, j = random.integers(0, 9, (2, 12))
    m = random.normal(size=(4, 4)) + 3 * np.eye(4)
    n = a.copy()
    n[1, 2] = n[3, 0] = np.nan
    u = random.integers(0, 256, 12).astype(np.uint8)
    z = v + 1j * w
    found = {"a": a, "b": b, "v": v, "w": w, "s": np.sort(v), "n": n, "i": i, "j": j, "u": u}
    return found | {"h": a > 0.3, "m": m, "p": m @ m.T + np.eye(4), "z": z}


NUMPY: Final = """
abs(a), absolute(a), acos(np.tanh(a)), acosh(abs(a) + 1), add(a, b), all(h, axis=0), allclose(a, b), amax(a, 1), amin(a, 1), angle(z)
any(h, axis=1), append(a, b, axis=0), apply_along_axis(lambda r: r * r.sum(), 1, a), apply_over_axes(np.sum, a, [0, 1])
arange(5) + a, arccos(np.tanh(a)), arccosh(abs(a) + 1), arcsin(np.tanh(a)), arcsinh(a), arctan(a), arctan2(a, b), arctanh(np.tanh(a))
argmax(a, axis=0), argmin(a), argpartition(v, 3)[3], argsort(a, axis=1), argwhere(h), around(a, 2), array([v, w]), array_equal(a, b)
array_equiv(a, b), array_split(v, 5), asanyarray(a), asarray(a), asarray_chkfinite(a), ascontiguousarray(a.T), asfortranarray(a), asin(np.tanh(a))
asinh(a), astype(a, np.float32), atan(a), atan2(a, b), atanh(np.tanh(a)), atleast_1d(a[0, 0]), atleast_2d(v), atleast_3d(a)
average(a, axis=1, weights=b * b), bartlett(12) * v, bincount(u), bitwise_and(i, j), bitwise_count(i), bitwise_invert(i)
bitwise_left_shift(i, 2), bitwise_not(i), bitwise_or(i, j), bitwise_right_shift(i, 1), bitwise_xor(i, j), blackman(12) * v
block([[a, b], [b, a]]), broadcast_arrays(a, v[:5]), broadcast_shapes(a.shape, (5,)), broadcast_to(v, (3, 12)), cbrt(a), ceil(a)
choose(i % 3, [v, w, s]), clip(a, -1, 0.5), column_stack([v, w]), a.astype(np.common_type(a, u)), compress(h[0], a, axis=1), concat([a, b])
concatenate([a, b], axis=1), conj(z), conjugate(z), convolve(v, w), copy(a), copysign(a, b), copyto(a, b, where=h), corrcoef(a), correlate(v, w[:4])
cos(a), cosh(a), count_nonzero(h, axis=0), cov(a), cross(a[:, :3], b[:, :3]), cumprod(a, axis=1), cumsum(a, axis=0)
cumulative_prod(v), cumulative_sum(v, include_initial=True), deg2rad(a), degrees(a), delete(a, [0, 2], axis=1), diag(m)
diag_indices(4)[0] + m, diag_indices_from(m), diagflat(v), diagonal(m, 1), diff(a, n=2), digitize(v, np.array([-1.0, 0.0, 1.0]))
divide(a, b), divmod(a, b), dot(a, b.T), dsplit(a[..., None], 1), dstack([a, b]), ediff1d(v, to_begin=0.0), einsum('ij,kj->ik', a, b)
empty(5).shape, empty_like(a).shape, equal(i, j), exp(a), exp2(a), expand_dims(a, 1), expm1(a)
extract(h, a), eye(4) @ m, fabs(a), fill_diagonal(m, 2.0), fix(a), flatnonzero(h), flip(a, 0), fliplr(a), flipud(a), float_power(abs(a), b), floor(a)
floor_divide(a, b), fmax(a, n), fmin(a, n), fmod(a, b), frexp(a), fromfunction(lambda x, y: x * v[0] + y, (3, 4)), full((2, 3), v[0])
full_like(a, v[0]), gcd(i, j), geomspace(1.0, 100.0, 5) * v[:5], gradient(a), greater(a, b), greater_equal(a, b), hamming(12) * v, hanning(12) * v
heaviside(a, 0.5), histogram(v, bins=7, range=(-2, 2)), histogram2d(v, w, bins=4, range=[[-2, 2], [-2, 2]]), histogram_bin_edges(v, bins=5, range=(-2, 2))
histogramdd(np.stack([v, w], 1), bins=(3, 2), range=[(-2, 2), (-2, 2)]), hsplit(a, [2]), hstack([a, b]), hypot(a, b), i0(v), identity(4) + m
imag(z), indices((4, 5))[0] * a, inner(a, b), insert(v, 3, 7.0), interp(v, np.arange(5.0), w[:5]), intersect1d(i, j), invert(i)
isclose(a, b), iscomplex(z), iscomplexobj(z), isdtype(a.dtype, 'real floating'), isfinite(n), isfortran(a), isin(i, j), isinf(a), isnan(n)
isneginf(a), isposinf(a), isreal(z), isrealobj(a), isscalar(v[0]), iterable(a), a[np.ix_([0, 2], [1, 3])], kaiser(12, 5.0) * v, kron(a, m), lcm(i + 1, j + 1), ldexp(v, i)
left_shift(i, 2), less(a, b), less_equal(a, b), lexsort((v, i)), linspace(v[0], v[1], 5), log(abs(a)), log10(abs(a)), log1p(abs(a)), log2(abs(a))
logaddexp(a, b), logaddexp2(a, b), logical_and(a > 0, h), logical_not(h), logical_or(a > 0, h), logical_xor(a > 0, h), logspace(0, 2, 5) * v[:5]
m[np.mask_indices(4, np.triu)], matmul(a, b.T), matrix_transpose(a), matvec(m, v[:4]), max(a, axis=0), maximum(a, b), may_share_memory(a, b), mean(a, axis=1)
median(a, axis=0), meshgrid(v, w), min(a), i.astype(np.min_scalar_type(u)), minimum(a, b), mod(a, b), modf(a), moveaxis(a[None], 0, -1), multiply(a, b)
nan_to_num(n), nanargmax(n, axis=1), nanargmin(n, axis=1), nancumprod(n), nancumsum(n, axis=0), nanmax(n, axis=0), nanmean(n, axis=0), nanmedian(n, axis=1)
nanmin(n), nanpercentile(n, 30), nanprod(n, axis=1), nanquantile(n, 0.3, axis=0), nanstd(n, axis=0), nansum(n), nanvar(n, axis=1), ndim(a), negative(a)
nextafter(a, b), nonzero(h), not_equal(i, j), ones((2, 3)) * v[0], ones_like(a), outer(v, w), packbits(h), pad(a, ((1, 2), (0, 1)), mode='edge')
partition(v, 3)[3], percentile(a, [25, 75], axis=0), permute_dims(a, (1, 0)), piecewise(v, [v < 0, v >= 0], [lambda x: -x, lambda x: 2 * x])
place(a, h, np.array([1.0, 2.0])), poly(v[:4]), polyadd(v[:3], w), polyder(v), polydiv(v, w[:3]), polyfit(s, w, 3), polyint(v)
polymul(v, w), polysub(v, w[:3]), polyval(v[:4], w), positive(a), pow(abs(a), b), power(abs(a), b), prod(a, axis=0), u.astype(np.promote_types(a.dtype, u.dtype)), ptp(a, axis=1), put(v, [1, 2], [7.0, 8.0])
put_along_axis(a, np.argmax(a, axis=1, keepdims=True), 9.0, axis=1), putmask(a, h, b), quantile(a, 0.3, axis=1), rad2deg(a), radians(a), ravel(a), ravel_multi_index((i[:3] % 4, j[:3] % 5), (4, 5))
real(z), real_if_close(z), reciprocal(a), remainder(a, b), repeat(v, 3), require(a, np.float64, ['C']), reshape(a, (5, 4)), resize(v, (3, 5)), u.astype(np.result_type(a, u)), right_shift(i, 1)
rint(a), roll(a, 2, axis=1), rollaxis(a[None], 2), roots(v[:4]), rot90(a), round(a, 1), row_stack([a, b]), searchsorted(s, w), select([v < 0, v < 1], [w, 2 * w], 3.0)
setdiff1d(i, j), setxor1d(i, j), shape(a), shares_memory(a, b), sign(a), signbit(a), sin(a), sinc(a), sinh(a), size(a, 1), sort(a, axis=0), sort_complex(v)
spacing(a), split(v, 3), sqrt(abs(a)), square(a), squeeze(a[None]), stack([a, b], axis=1), std(a, axis=0), subtract(a, b), sum(a, axis=1, keepdims=True), swapaxes(a, 0, 1)
take(a, [0, 2], axis=1), take_along_axis(a, np.argsort(a, axis=1), 1), tan(a), tanh(a), tensordot(a, b, axes=([0], [0])), tile(a, (2, 1)), trace(m), transpose(a)
trapezoid(a, dx=0.5), tri(4) * m, tril(m), m[np.tril_indices(4)], m[np.tril_indices_from(m)], trim_zeros(i), triu(m, 1), m[np.triu_indices(4, 1)], m[np.triu_indices_from(m)]
true_divide(a, b), trunc(a), union1d(i, j), unique(i), unique_all(i), unique_counts(i), unique_inverse(i), unpackbits(u), unravel_index(i, (4, 5)), unstack(a)
unwrap(v * 5), vander(v[:4]), var(a, axis=1, ddof=1), vdot(z, z), vecdot(a, b), vecmat(v[:4], m), vsplit(a, 2), vstack([a, b]), where(h, a, b), zeros((2, 3)) + v[0], zeros_like(a)
vectorize(lambda x: x * x + 1)(v), a + np.mgrid[0:4, 0:5][0], a + np.ogrid[0:4, 0:5][0], np.r_[v, 1.0, w], np.c_[v, w], v[np.s_[2:7:2]], v[np.index_exp[::2]]
"""

LINALG: Final = """
cholesky(p), cond(m), cross(a[:, :3], b[:, :3]), det(m), diagonal(m), np.sort_complex(np.linalg.eig(p)[0]), eigh(p)[0], np.sort_complex(np.linalg.eigvals(p)), eigvalsh(p), inv(m)
lstsq(a.T, v[:5]), matmul(a, b.T), matrix_norm(a), matrix_power(m, 3), matrix_rank(m), matrix_transpose(a), multi_dot([a, b.T, m]), norm(a), outer(v, w), pinv(a), qr(a)[1], slogdet(m)
solve(m, v[:4]), svd(a)[1], svdvals(a), tensordot(a, b, axes=2), tensorinv(m, ind=1), tensorsolve(m, v[:4]), trace(m), vecdot(a, b), vector_norm(a)
"""

FFT: Final = """
fft(z), fft2(a), fftfreq(12) * v, fftn(a), fftshift(v), hfft(z), ifft(z), ifft2(a), ifftn(a), ifftshift(v), ihfft(v), irfft(z), irfft2(z.reshape(3, 4)), irfftn(z.reshape(3, 4))
rfft(v), rfft2(a), rfftfreq(12), rfftn(a)
"""

METHODS: Final = """
a.T, h.all(axis=1), h.any(), a.argmax(1), a.argmin(0), v.argpartition(3)[3], a.argsort(0), a.astype(np.float32), a.base is None, i.astype(np.int16).byteswap(), (i % 2).choose([v, w]), a.clip(0, 1)
a.compress(h[:, 0], axis=0), z.conj(), z.conjugate(), a.copy(), a.cumprod(0), a.cumsum(1), a + len(a.device), m.diagonal(), a.dot(b.T), a.dtype == np.float64, a.fill(3.0), a.flags.c_contiguous, a.flat[3], a.flatten()
z.imag, a[0, 0].item(), a.itemsize, a.mT, a.max(0), a.mean(1), a.min(), a.nbytes, a.ndim, h.nonzero(), v.partition(3), a.prod(1), v.put([0], [5.0]), a.ravel(), z.real, a.repeat(2, axis=0)
a.reshape(5, 4), v.resize(12), a.round(1), s.searchsorted(w), a.shape, a.size, v.sort(), a[None].squeeze(0), a.std(), a.strides, a.sum(axis=0), a.swapaxes(0, 1), a.take([1, 2], axis=1), a.tolist(), m.trace(), a.transpose(), a.var(ddof=1), a.view(np.int64)
"""

WRITTEN_OUT: Final = {
    "np.einsum_path": "a + len(np.einsum_path('ij,jk,kl->il', a, b.T, a)[0])",
    "np.unique_values": "np.sort(np.unique_values(i))",
    "np.add.reduce": "np.add.reduce(a, axis=1)",
    "np.add.accumulate": "np.add.accumulate(v)",
    "np.add.reduceat": "np.add.reduceat(v, [0, 3, 7])",
    "np.add.at": "np.add.at(v, i, 1.0)",
    "np.multiply.outer": "np.multiply.outer(v, w)",
    "np.lib.stride_tricks.sliding_window_view": "np.lib.stride_tricks.sliding_window_view(v, 3)",
}

WITHOUT_ARRAYS: Final = {
    "text and files": "array2string array_repr array_str base_repr binary_repr format_float_positional format_float_scientific fromfile fromregex "
    "fromstring genfromtxt load loadtxt save savetxt savez savez_compressed",
    "settings and what is installed": "get_include get_printoptions getbufsize geterr geterrcall info printoptions set_printoptions setbufsize seterr "
    "seterrcall show_config show_runtime test",
    "kinds of elements, not arrays": "can_cast issubdtype mintypecode typename datetime_data",
    "dates and times": "busday_count busday_offset datetime_as_string is_busday isnat",
    "memory, other libraries and Python's iterators": "from_dlpack frombuffer fromiter nested_iters frompyfunc",
    "matrices, which NumPy advises against": "asmatrix bmat",
}
"""Names of ``numpy`` that are not counted."""

METHODS_WITHOUT_ARRAYS: Final = "ctypes data dump dumps getfield setfield setflags to_device tobytes tofile"
"""Methods and attributes about memory and files."""
