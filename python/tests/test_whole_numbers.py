"""Whole numbers beside tensors, compared with Python's: none passes through a double."""

import numpy as np
import pytest

import lockstep as torch
from lockstep.nn import functional as F

LEAST, MOST = -(2**63), 2**63 - 1
NUMBERS = sorted({sign * (base + more) for base in (2**53, 2**60) for more in (-2, -1, 0, 1, 2) for sign in (1, -1)}
                 | {0, 1, -1, 3, LEAST, LEAST + 1, MOST - 1, MOST})


def wrapped(x):
    return (x - LEAST) % 2**64 + LEAST


def whole(*numbers):
    return torch.tensor(list(numbers), dtype=torch.int64)


def is_int64(x):
    return LEAST <= x <= MOST


OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}


@pytest.mark.parametrize("symbol", OPERATORS)
def test_operators_with_numbers_on_either_side_and_with_tensors(symbol):
    f = OPERATORS[symbol]
    x = whole(*NUMBERS)
    for number in NUMBERS:
        expected = [int(wrapped(int(f(a, number)))) for a in NUMBERS]
        assert [int(v) for v in f(x, number).tolist()] == expected, number
        assert [int(v) for v in f(x, whole(number)).tolist()] == expected, number
        assert [int(v) for v in f(number, x).tolist()] == [int(wrapped(int(f(number, a)))) for a in NUMBERS], number


@pytest.mark.parametrize("symbol", ["//", "%"])
def test_quotients(symbol):
    f = (lambda a, b: a // b) if symbol == "//" else (lambda a, b: a % b)
    x = whole(*NUMBERS)
    for number in NUMBERS:
        if number != 0:
            assert f(x, number).tolist() == [wrapped(f(a, number)) for a in NUMBERS], number
            assert f(whole(number), number).tolist() == [f(number, number)]
    divisors = [n for n in NUMBERS if n != 0]
    for number in NUMBERS:
        assert f(number, whole(*divisors)).tolist() == [wrapped(f(number, d)) for d in divisors], number
    assert torch.div(whole(2**53 + 1), 2**53 + 1, rounding_mode="trunc").tolist() == [1]


def test_powers():
    for base in (-3, -2, 0, 1, 2, 3, 7, 2**31 + 1):
        for power in (0, 1, 2, 3, 39, 62, 63, 200):
            expected = [wrapped(base**power)]
            assert (whole(base) ** power).tolist() == expected, (base, power)
            assert (base ** whole(power)).tolist() == expected, (base, power)
            assert (whole(base) ** whole(power)).tolist() == expected, (base, power)
            assert whole(base).pow_(power).tolist() == expected, (base, power)
    assert (whole(1, -1, -1, 2, 0) ** whole(-3, -3, -2, -1, -1)).tolist() == [1, -1, 1, 0, 0]
    with pytest.raises(torch.Error, match="power of -1"):
        whole(2) ** -1


@pytest.mark.parametrize("number", NUMBERS)
def test_functions_that_write_or_compare_with_a_number(number):
    x = whole(number, 5)
    mask = torch.tensor([True, False])
    assert torch.tensor(number).item() == number
    assert torch.tensor([number, 1]).tolist() == [number, 1]
    assert torch.full((2,), number).tolist() == [number, number]
    assert torch.full((1,), number, dtype=torch.int64).tolist() == [number]
    assert torch.full_like(x, number).tolist() == [number, number]
    assert x.new_full((1,), number).tolist() == [number]
    assert x.new_tensor([number]).tolist() == [number]
    assert torch.scalar_tensor(number, dtype=torch.int64).item() == number if hasattr(torch, "scalar_tensor") else True
    assert whole(0, 0).fill_(number).tolist() == [number, number]
    assert whole(0, 0).fill_(torch.tensor(number)).tolist() == [number, number]
    assert whole(1, 2).masked_fill(mask, number).tolist() == [number, 2]
    assert whole(1, 2).masked_fill_(mask, number).tolist() == [number, 2]
    assert torch.where(mask, number, whole(1, 2)).tolist() == [number, 2]
    assert torch.where(mask, whole(1, 2), number).tolist() == [1, number]
    assert whole(1, 2).scatter(0, whole(1), number).tolist() == [1, number]
    assert whole(1, 2).scatter_(0, whole(1), number).tolist() == [1, number]
    assert F.pad(whole(1), (0, 1), value=number).tolist() == [1, number]
    assert torch.add(whole(1), number).tolist() == [wrapped(1 + number)]
    assert torch.add(whole(1), whole(3), alpha=number).tolist() == [wrapped(1 + 3 * number)]
    assert torch.sub(whole(1), 3, alpha=number).tolist() == [wrapped(1 - 3 * number)]
    assert torch.add(whole(1), number, alpha=3).tolist() == [wrapped(1 + 3 * number)]
    assert whole(1).add_(number).mul_(3).sub_(number).tolist() == [wrapped((1 + number) * 3 - number)]
    assert whole(1, 2).index_add(0, whole(1), whole(3), alpha=number).tolist() == [1, wrapped(2 + 3 * number)]
    assert torch.addcmul(whole(1), whole(3), whole(5), value=number).tolist() == [wrapped(1 + 15 * number)]
    assert whole(number).clamp(min=number).tolist() == [number]
    assert whole(*NUMBERS).clamp(number, MOST).tolist() == [max(n, number) for n in NUMBERS]
    assert whole(*NUMBERS).clamp(max=number).tolist() == [min(n, number) for n in NUMBERS]
    assert torch.maximum(whole(number), whole(0)).tolist() == [max(number, 0)]
    assert (number in x) and torch.eq(x, number).tolist() == [True, number == 5]
    for write in (lambda t: t.__setitem__(0, number), lambda t: t.__setitem__(mask, number),
                  lambda t: t.__setitem__([0], number), lambda t: t.__setitem__(slice(0, 1), number),
                  lambda t: t.copy_(whole(number, 2))):
        y = whole(1, 2)
        write(y)
        assert y.tolist() == [number, 2]
    assert x.sum().item() == wrapped(number + 5) and x.cumsum(0).tolist() == [number, wrapped(number + 5)]
    assert x.prod().item() == wrapped(number * 5) and x.cumprod(0)[1].item() == wrapped(number * 5)
    assert x.max().item() == max(number, 5) and x.min().item() == min(number, 5)
    assert x.sort().values.tolist() == sorted([number, 5]) and x.unique().tolist() == sorted([number, 5])
    assert (x[0] if abs(number) < 2**62 else whole(7)[0]).__index__() == (number if abs(number) < 2**62 else 7)
    assert (-x)[0].item() == wrapped(-number) and abs(x)[0].item() == wrapped(abs(number))
    assert torch.from_numpy(np.array([number])).tolist() == [number] and x.numpy().tolist() == [number, 5]
    assert torch.from_dlpack(x).tolist() == [number, 5]
    assert whole(number).scatter_add(0, whole(0), whole(1)).tolist() == [wrapped(number + 1)]
    assert (whole(number) @ whole(3)).item() == wrapped(3 * number)
    # Floating tensors take the number that is nearest in their type.
    assert torch.full((1,), number, dtype=torch.float64).item() == float(number)
    assert (torch.zeros(1, dtype=torch.float64) + number).item() == float(number)


@pytest.mark.parametrize("start", [n for n in NUMBERS if n < MOST - 9])
def test_ranges(start):
    for step in (1, 3):
        assert torch.arange(start, start + 7, step).tolist() == list(range(start, start + 7, step))
    assert torch.arange(start + 7, start, -3).tolist() == list(range(start + 7, start, -3))
    assert torch.arange(start, start).tolist() == []


def test_ranges_over_all_numbers():
    assert torch.arange(LEAST, MOST, 2**62).tolist() == list(range(LEAST, MOST, 2**62))
    assert torch.arange(MOST, LEAST, -(2**62)).tolist() == list(range(MOST, LEAST, -(2**62)))
    assert torch.arange(2**53 + 0.0, 2**53 + 3.0).dtype == torch.float32
    with pytest.raises(torch.Error, match="arange"):
        torch.arange(0, 5, 0)
    with pytest.raises(torch.Error, match="arange"):
        torch.arange(0, 5, -1)


def test_numbers_beyond_int64_are_errors():
    for number in (2**63, -(2**63) - 1, 2**70):
        for call in (lambda: torch.tensor(number), lambda: whole(1) + number, lambda: torch.full((1,), number),
                     lambda: torch.arange(number), lambda: whole(1) == number):
            with pytest.raises((OverflowError, TypeError, torch.Error)):
                call()
    with pytest.raises(torch.Error, match="expected it within int64"):
        torch.from_numpy(np.array([2**63], dtype=np.uint64))
    assert torch.from_numpy(np.array([MOST], dtype=np.uint64)).tolist() == [MOST]
    for fraction in (1e30, float("nan"), float("inf")):
        with pytest.raises(torch.Error, match="expected a number of its range"):
            torch.tensor([fraction], dtype=torch.int64)


def test_one_hot_and_bincount_refuse_large_numbers():
    for call in (lambda: F.one_hot(whole(2**53 + 1), 3), lambda: F.one_hot(whole(0), 2**62),
                 lambda: torch.bincount(whole(2**60 + 1))):
        with pytest.raises((torch.Error, MemoryError)):
            call().tolist()
