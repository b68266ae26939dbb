import numpy as np
import pytest

from dpiw import analysis
from dpiw.analysis.estimators.quantiles import weighted_quantile
from dpiw.errors import ReleaseError
from tests.support.worlds import people

pytest.importorskip("matplotlib").use("Agg")


@pytest.fixture(autouse=True)
def closed():
    """Every figure of a test is closed after it."""
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def source():
    return people(300), np.random.default_rng(81).gamma(2.0, 1.0, 300)


@pytest.mark.parametrize("column", ["age", "visits", "region", "smoker", "born"])
def test_bars_sum_to_the_weight_that_is_known(column):
    frame, w = source()
    axes = analysis.histogram((frame, w), column, bins=10)
    known = frame[column].notna().to_numpy() if column == "visits" else np.ones(len(w), dtype=bool)
    assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(w[known].sum() / w.sum())
    assert axes.get_xlabel() == column


def test_boxes_are_weighted_quantiles():
    frame, w = source()
    axes = analysis.box((frame, w), "age", by="region")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["north", "south", "west"]
    rows = (frame["region"] == "north").to_numpy()
    low, middle = weighted_quantile(frame["age"].to_numpy()[rows], w[rows], np.array([0.05, 0.5]))
    heights = {float(y) for line in axes.lines for y in line.get_ydata()}
    assert any(y == pytest.approx(low) for y in heights)
    assert any(y == pytest.approx(middle) for y in heights)


def test_pairs_and_given_axes():
    from matplotlib import pyplot

    frame, w = source()
    figure = analysis.pairs((frame, w), ["age", "visits", "smoker"], bins=5)
    assert len(figure.axes) == 9
    axes = pyplot.subplots()[1]
    assert analysis.histogram((frame, w), "age", ax=axes) is axes
    assert analysis.box((frame, w), "age", ax=axes) is axes


def test_what_is_refused():
    frame, w = source()
    for draw in (
        lambda: analysis.pairs((frame, w), ["age"]),
        lambda: analysis.pairs((frame, w), "age"),
        lambda: analysis.histogram((frame, w), "Age"),
        lambda: analysis.box((frame.assign(age=np.nan), w), "age"),
    ):
        with pytest.raises(ReleaseError):
            draw()


@pytest.mark.parametrize("bins", [-1, 0, True, 2.5, "x", [50, 40], [50], ["a", "b"]])
def test_bins_that_are_none(bins):
    for draw, columns in ((analysis.histogram, "age"), (analysis.pairs, ["age", "visits"])):
        with pytest.raises(ReleaseError, match=f"{draw.__name__}: bins: "):
            draw(source(), columns, bins=bins)


def test_edges_of_numbers_and_of_dates():
    assert len(analysis.histogram(source(), "age", bins=[20, 40, 65]).patches) == 2
    edges = ["1950-01-01", "1960-01-01", "1970-01-01", "1980-01-01"]
    axes = analysis.histogram(source(), "born", bins=edges)
    assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(1)
    with pytest.raises(ReleaseError, match="column 'born'"):
        analysis.histogram(source(), "born", bins=["01/01/1960", "1970-01-01"])
