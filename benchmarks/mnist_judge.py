"""What classifiers make of synthetic digits: they are fitted on them, and tested on real ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from metrics import Array, Perceptron, auc, design, ess_share, level_scores
from mnist_files import DIGITS
from sklearn.linear_model import LogisticRegression

from dpiw.data.schema import PublicSchema, ScaledTable

SEED = 1
CLASSIFIER = Perceptron(hidden=64, steps=1500, learning_rate=0.003, rows=10_000)


def classified(train: tuple[Array, Array], w: Array, test: tuple[Array, Array]) -> dict[str, float]:
    """Macro one-vs-rest AUC and accuracy on real digits of a perceptron fitted on `train`."""
    scores = CLASSIFIER.score(*train, w, test[0], regression=False, seed=SEED, levels=DIGITS)
    if scores is None:
        return {"auc": 0.5, "accuracy": 1 / DIGITS}
    hits = np.argmax(scores, axis=1) == test[1]
    return {"auc": auc(test[1], scores), "accuracy": float(hits.mean())}


def spread(x: Array, y: Array, w: Array) -> float:
    """Standard deviation of a pixel among images of one digit, mean over pixels and digits."""
    deviations = []
    for digit in np.unique(y):
        images, weights = x[y == digit], w[y == digit]
        mean = np.average(images, axis=0, weights=weights)
        deviations.append(np.sqrt(np.average((images - mean) ** 2, axis=0, weights=weights)).mean())
    return float(np.mean(deviations))


def linear(x: Array, y: Array, w: Array) -> LogisticRegression:
    """Multinomial logistic regression with scikit-learn's default penalty."""
    return LogisticRegression(max_iter=300).fit(x, y, sample_weight=w / w.mean())


def slopes(model: LogisticRegression) -> Array:
    """Slopes of every digit, shape (digits, pixels); zero for a digit that was not drawn."""
    coefficients = np.zeros((DIGITS, model.n_features_in_))
    coefficients[model.classes_.astype(int)] = model.coef_
    return coefficients


@dataclass(frozen=True, kw_only=True)
class Judge:
    """What classifiers make of digits, on the real test digits.

    Attributes:
        schema: of the images.
        test: pixels and digits.
    """

    schema: PublicSchema
    test: tuple[Array, Array]

    @cached_property
    def _slopes(self) -> Array:
        return slopes(linear(*self.test, np.ones(len(self.test[1]))))

    def variety(self, x: Array, y: Array, w: Array) -> float:
        """The digits' `spread` over that of the test digits: 0 where each is one image."""
        return spread(x, y, w) / spread(*self.test, np.ones(len(self.test[1])))

    def figures(self, rows: ScaledTable, w: Array | None = None) -> dict[str, float]:
        """Of both classifiers; with weights, their share of effective rows too."""
        x, y = design(self.schema, rows)
        weights = np.ones(len(y)) if w is None else w
        model = linear(x, y, weights)
        score = level_scores(model, self.test[0], DIGITS)
        hits = np.argmax(score, axis=1) == self.test[1]
        return {
            **classified((x, y), weights, self.test),
            "linear_auc": auc(self.test[1], score),
            "linear_accuracy": float(hits.mean()),
            "variety": self.variety(x, y, weights),
            "beta_mse": float(((slopes(model) - self._slopes) ** 2).mean()),
        } | ({} if w is None else {"ess_share": ess_share(w)})
