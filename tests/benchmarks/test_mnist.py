"""The MNIST benchmark on images of its own; no data folder."""

import gzip
import json
import struct

import numpy as np
import pytest

from tests.benchmarks.scripts import load, metrics

mnist = load("mnist")

SMALL = {"steps": 10, "lot": 32, "batch": 16}


def write_idx(path, values):
    head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    with gzip.open(path, "wb") as file:
        file.write(head + values.astype(np.uint8).tobytes())


def mnist_world(folder, monkeypatch, sizes):
    """Sixty training images of noise and forty test ones, and a script that takes them for all."""
    rng = np.random.default_rng(6)
    for name, rows in (("train", 60), ("t10k", 40)):
        grey = rng.integers(0, 256, (rows, 28, 28))
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", grey)
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", np.arange(rows) % 10)
        pixels, digits = mnist.images(folder, name.replace("t10k", "test"), 14)
        expected = grey[3, 2:4, 4:6].mean() / 255
        assert pixels[3, 1 * 14 + 2] == pytest.approx(expected)
        np.testing.assert_array_equal(digits, np.arange(rows) % 10)
    head = "table,dataset,sdgp,metric,iw_method,mean,se,epsilon\n"
    row = "3,MNIST,DPCGAN,MLP_ROC_AUC,None,0.81,0.04,9.64\n"
    (folder / "paper_tables.csv").write_text(head + row)
    monkeypatch.setattr(mnist, "SIZES", sizes)
    monkeypatch.setattr(mnist, "ROWS", 60)
    monkeypatch.setattr(mnist, "SYNTHETIC_ROWS", 50)
    monkeypatch.setattr(mnist, "CLASSIFIER", metrics.Perceptron(steps=5))
    where = {"--data": folder, "--out": folder / "out"}
    return [str(word) for pair in where.items() for word in pair] + ["--device", "cpu", "--sizes"]


def test_variety_is_that_of_the_images_of_a_digit_and_none_where_they_are_one():
    rng = np.random.default_rng(3)
    x, y = rng.random((2000, 9)), np.repeat([0.0, 1.0], 1000)
    image_judge = mnist.Judge(schema=mnist.Size(side=3, settings={}).schema, test=(x, y))
    variety = image_judge.variety
    half = variety(x[::2] + y[::2, None], y[::2], np.ones(1000))
    assert half == pytest.approx(1, abs=0.03)
    alike = np.repeat([[0.2], [0.9]], 1000, axis=0) * np.ones(9)
    assert variety(alike, y, np.ones(2000)) < 1e-9
    doubled = variety(np.vstack([x, x[:500]]), np.append(y, y[:500]), np.ones(2500))
    assert variety(x, y, np.where(np.arange(2000) < 500, 2.0, 1.0)) == pytest.approx(doubled)


@pytest.mark.nightly
def test_mnist_is_reduced_until_its_whole_run_stands_beside_the_paper(tmp_path, monkeypatch):
    networks = {"image": [28, 28], "generator": [2, 2], "discriminator": [2, 2]}
    sizes = {
        "full": mnist.Size(side=28, settings=SMALL | networks),
        "quarter": mnist.Size(side=7, settings=SMALL),
    }
    run, out = mnist_world(tmp_path, monkeypatch, sizes), tmp_path / "out"
    assert mnist.main([*run, "quarter", "--runs", "2"]) == 0
    small = json.loads((out / "mnist.json").read_text())["runs"]["quarter"]
    assert set(small["classifier"]) == {"synthetic", "discriminator", "dp_mlp", "real"}
    page = (out / "mnist.md").read_text()
    assert "Reduced" in page
    assert "0.810" not in page, "figures of smaller images beside the paper's"
    assert (out / "mnist_quarter.png").stat().st_size > 0
    assert mnist.main([*run, "full"]) == 0
    runs = json.loads((out / "mnist.json").read_text())["runs"]
    assert list(runs) == ["full", "quarter"]
    full = runs["full"]
    assert max(full["epsilon_pld"], small["epsilon_pld"]) <= 9.64
    page = (out / "mnist.md").read_text()
    assert "Reduced" not in page
    assert page.count("0.810 ± 0.040") == 1
