"""copy() converts elements exactly as torch's Tensor.copy_ does, for every pair of dtypes.

Sources of one or two bytes are tested with every bit pattern, wider ones with special values, values
around the rounding ties of every narrower type, and random bits from a fixed seed. Left out is what C++,
and so torch, leaves undefined: a float that does not fit the integer type it goes to, and bool bytes
other than 0 and 1. NaNs need only be NaNs, their payloads may differ.
"""

import subprocess
import warnings

import numpy as np
import pytest
import torch
from programs import PROBE

SEED = 20240607

INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
          "float8_e5m2fnuz", "float8_e8m0fnu"]
COMPLEX = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
CONVERTIBLE = ["bool", *INTEGERS, *FLOATS, *COMPLEX]
FLOAT4 = "float4_e2m1fn_x2"


def dtype(name):
    return getattr(torch, name)


def raw(tensor):
    """The elements of a contiguous tensor as a numpy array of bytes."""
    return tensor.view(torch.uint8).numpy()


def probe(source, from_name, to_names):
    done = subprocess.run([PROBE, "copy", from_name, ",".join(to_names)], input=raw(source).tobytes(),
                          capture_output=True)
    return done.returncode, done.stdout, done.stderr.decode()


def float_specials():
    """Doubles around everything interesting in the narrower formats."""
    rng = np.random.default_rng(SEED)
    values = [0.0, np.inf, np.nan, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, 1 / 3]
    for e in range(-160, 132):
        for step in (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 2.0**-8, 2.0**-9, 2.0**-11, 2.0**-12, 2.0**-24):
            for k in (0, 1, 3):
                tie = 2.0**e * (1 + k * step)
                values += [tie, tie * (1 + 2.0**-23), tie * (1 - 2.0**-23), tie * (1 + 2.0**-52)]
    values += list(np.arange(0, 600, 0.25)) + list(2.0 ** np.arange(0, 64) - 1)
    values += list(np.float64(2.0) ** rng.uniform(-140, 128, 4000))
    values = np.array(values)
    return np.concatenate([values, -values])


def integer_specials(name):
    rng = np.random.default_rng(SEED)
    bits = 8 * dtype(name).itemsize
    numbers = {0}
    for e in range(bits + 1):
        for k in range(-3, 4):
            numbers |= {2**e + k, -(2**e) + k}
    for e in range(8, bits):  # ties of float32, float16 and bfloat16
        numbers |= {2**e + 2 ** (e - m) + d for m in (3, 4, 8, 9, 11, 12, 24, 25, 53, 54) if m <= e
                    for d in (-1, 0, 1)}
    numbers |= {int(n) >> int(s) for n, s in zip(rng.integers(0, 2**63, 5000), rng.integers(0, 64, 5000))}
    unsigned = np.array([n % 2**bits for n in sorted(numbers)], dtype=f"uint{bits}")
    return torch.from_numpy(unsigned.view(np.uint8)).view(dtype(name))


def elements(name):
    """Test values of one source type."""
    rng = np.random.default_rng(SEED)
    if name == "bool":
        return torch.tensor([False, True] * 40)
    if name in COMPLEX:
        parts = elements(COMPLEX[name])
        other = parts[torch.from_numpy(rng.permutation(len(parts)))]
        pairs = torch.stack([parts.view(bits_of(parts)), other.view(bits_of(parts))], 1).contiguous()
        return pairs.view(torch.uint8).view(-1).view(dtype(name))
    if dtype(name).itemsize <= 2:
        every = np.arange(256**dtype(name).itemsize, dtype=f"uint{8 * dtype(name).itemsize}")
        return torch.from_numpy(every.view(np.uint8)).view(dtype(name))
    if name in INTEGERS:
        return integer_specials(name)
    random_bits = torch.from_numpy(rng.integers(0, 256, 8 * 20000, dtype=np.uint8)).view(dtype(name))
    with np.errstate(over="ignore"):
        special = float_specials().astype(np.float32 if name == "float32" else np.float64)
    return torch.cat([torch.from_numpy(special), random_bits])


def bits_of(tensor):
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize]


def is_defined(source, to_name):
    """Which elements of `source` have a result that C++ defines, as a numpy mask."""
    if to_name not in INTEGERS or not (source.dtype.is_floating_point or source.dtype.is_complex):
        return np.ones(len(source), dtype=bool)
    real = source.to(torch.complex128).real if source.dtype.is_complex else source.to(torch.float64)
    with np.errstate(invalid="ignore"):
        whole = np.trunc(real.numpy())
    # torch goes to uint8 by way of int64, so all that fits there has a result.
    limits = torch.iinfo(torch.int64 if to_name == "uint8" else dtype(to_name))
    # float(max) may round up to max + 1, which is out of range: hence the strict upper bound.
    return (whole >= float(limits.min)) & (whole < float(limits.max + 1))


def is_nan(raw_bytes, name):
    """Which parts are NaN, and how many bytes a part has."""
    part = COMPLEX.get(name, name)
    tensor = torch.from_numpy(raw_bytes.copy()).view(dtype(part))
    if not tensor.dtype.is_floating_point:
        return np.zeros(len(tensor), dtype=bool), tensor.dtype.itemsize
    return tensor.to(torch.float64).isnan().numpy(), tensor.dtype.itemsize


def first_difference(source, to_name, got):
    """What differs from torch's result, in words; None when nothing does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Casting complex values to real discards the imaginary part"
        want = raw(torch.empty(len(source), dtype=dtype(to_name)).copy_(source))
    got_nan, part = is_nan(got, to_name)
    want_nan, _ = is_nan(want, to_name)
    same = (got.reshape(-1, part) == want.reshape(-1, part)).all(1) | (got_nan & want_nan)
    same = same.reshape(len(source), -1).all(1) | ~is_defined(source, to_name)
    if same.all():
        return None
    i = int(np.argmin(same))
    size = dtype(to_name).itemsize
    got_hex, want_hex = (a[i * size:(i + 1) * size].tobytes().hex() for a in (got, want))
    return (f"{int((~same).sum())} of {len(source)} differ, first {source[i].item()}: "
            f"got {got_hex}, torch has {want_hex}")


@pytest.mark.parametrize("from_name", CONVERTIBLE)
def test_every_destination_gets_the_bits_torch_gives_it(from_name):
    source = elements(from_name)
    status, output, error = probe(source, from_name, CONVERTIBLE)
    assert status == 0, error
    wrong = {}
    for to_name in CONVERTIBLE:
        size = len(source) * dtype(to_name).itemsize
        got, output = np.frombuffer(output[:size], dtype=np.uint8), output[size:]
        difference = first_difference(source, to_name, got)
        if difference:
            wrong[to_name] = difference
    assert not wrong, f"seed {SEED}: {wrong}"
    assert not output


@pytest.mark.parametrize("name", CONVERTIBLE)
def test_float4_converts_to_nothing_and_from_nothing_as_in_torch(name):
    source = torch.zeros(16, dtype=dtype(name))
    target = torch.zeros(16, dtype=torch.uint8).view(dtype(FLOAT4))
    for a, b in [(source, target), (target, source)]:
        with pytest.raises(NotImplementedError):
            b.copy_(a)
        status, output, error = probe(a, str(a.dtype)[len("torch."):], [str(b.dtype)[len("torch."):]])
        assert status == 1 and not output and "unsupported" in error


def test_float4_copies_to_itself_unchanged():
    every = torch.arange(256, dtype=torch.uint8)
    status, output, error = probe(every.view(dtype(FLOAT4)), FLOAT4, [FLOAT4])
    assert status == 0, error
    assert output == raw(every).tobytes()
