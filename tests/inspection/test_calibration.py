"""Maps from what is said to what is right, fitted where the right ones are known."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.inspection.calibration import Bin, MonotoneMap, WordMap, expected_error, fit_monotone, fit_words, make_bins


def test_the_error_of_bins_worked_by_hand() -> None:
    bins = make_bins(np.array([0.05, 0.95, 0.85, 1.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    assert bins == [Bin(1, 0.05, 0.0), Bin(1, 0.85, 0.0), Bin(2, 0.975, 1.0)]
    assert expected_error(bins) == pytest.approx((0.05 + 0.85 + 2 * 0.025) / 4)
    assert expected_error([]) == 0.0


@pytest.mark.parametrize(("temperature", "offset"), [(1.0, 0.0), (2.5, -0.5), (0.7, 1.0)])
def test_temperature_and_offset_are_found_again(temperature: float, offset: float) -> None:
    chance = np.random.default_rng(5)
    p = chance.uniform(0.01, 0.99, 40_000)
    right = (chance.random(len(p)) < WordMap(temperature, offset)(p)).astype(float)
    found = fit_words(p, right)
    assert found.temperature == pytest.approx(temperature, rel=0.1)
    assert found.offset == pytest.approx(offset, abs=0.06)
    before, after = (expected_error(make_bins(said, right)) for said in (p, found(p)))
    assert after < 0.015
    assert after <= before + 0.002


def test_few_words_and_sure_ones_change_little() -> None:
    assert fit_words(np.zeros(0), np.zeros(0)) == WordMap(1.0, 0.0)
    found = fit_words(np.array([1.0, 0.0, 0.9]), np.array([1.0, 1.0, 1.0]))
    assert np.isfinite(found).all()
    assert found.temperature > 0


def test_a_monotone_map_pools_what_falls() -> None:
    found = fit_monotone(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 0.6, 0.4, 0.9]))
    assert found.at == (1.0, 2.5, 4.0)
    assert found.value == (0.1, 0.5, 0.9)
    assert found(np.array([0.0, 1.75, 9.0])).tolist() == pytest.approx([0.1, 0.3, 0.9])
    chance = np.random.default_rng(3)
    noisy = fit_monotone(chance.random(211), chance.random(211))
    assert all(np.diff(noisy.value) > 0)
    assert isinstance(noisy, MonotoneMap)
