"""The film of Watch it break keeps to its size and its time, whatever its pictures are."""

import importlib.util
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

PATH = Path(__file__).parent / "benchmarks" / "film_watch.py"


@pytest.fixture(scope="module")
def film():
    spec = importlib.util.spec_from_file_location("film_watch", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pictures(count, noise):
    """Grey grounds, one lighter than the other, with more or less on them that cannot be compressed."""
    drawn = np.random.default_rng(0)
    size = (40, 60, 3)
    return [Image.fromarray((11 * number + noise * drawn.random(size)).astype(np.uint8)) for number in range(count)]


def greys(made):
    return [np.asarray(one.convert("RGB")).mean() for one in ImageSequence.Iterator(Image.open(io.BytesIO(made)))]


def test_what_does_not_fit_loses_quality_then_frames_and_keeps_first_and_last(film):
    whole = pictures(12, 120)
    most = len(film.animated(whole, 50, 10**6)[0]) // 4
    made, quality, count = film.animated(whole, 50, most)
    assert len(made) <= most
    assert quality < film.QUALITIES[0]
    assert 4 <= count < 12
    found = greys(made)
    assert len(found) == count
    for shown, picture in ((found[0], whole[0]), (found[-1], whole[-1])):
        assert shown == pytest.approx(np.asarray(picture).mean(), abs=6)
    with pytest.raises(ValueError, match="do not fit into 50 bytes"):
        film.animated(whole, 50, 50)
