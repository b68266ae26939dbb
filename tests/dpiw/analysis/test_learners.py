"""`fit_sklearn` over scikit-learn's ways to combine estimators: weights reach every model."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_selection import RFE, RFECV, SequentialFeatureSelector
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, RandomizedSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from dpiw import analysis
from dpiw.errors import ReleaseError


class Watched(LogisticRegression):
    """Keeps whether its fits had weights, of all its copies."""

    fits: list[bool] = []  # noqa: RUF012 - emptied by each test

    def fit(self, X, y, sample_weight=None):
        Watched.fits.append(sample_weight is not None)
        return super().fit(X, y, sample_weight=sample_weight)


class Dropping(ClassifierMixin, BaseEstimator):
    """Takes weights and fits its model without them."""

    def __init__(self, estimator=None):
        self.estimator = estimator

    def fit(self, X, y, sample_weight=None):
        self.model_ = clone(self.estimator).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X):
        return self.model_.predict(X)


def model():
    return Watched(max_iter=2000, tol=1e-9)


def piped():
    return make_pipeline(StandardScaler(), model())


REPEATED = {
    "plain": model,
    "pipeline": piped,
    "pipeline in a pipeline": lambda: make_pipeline(PolynomialFeatures(), piped()),
    "columns": lambda: make_pipeline(
        ColumnTransformer([("x", StandardScaler(), ["x"])], remainder="passthrough"), model()
    ),
    "voting": lambda: VotingClassifier([("a", model()), ("b", GaussianNB())], voting="soft"),
    "voting of pipelines": lambda: VotingClassifier([("a", piped())], voting="soft"),
    "one against the rest": lambda: OneVsRestClassifier(piped()),
    "one against one": lambda: OneVsOneClassifier(model()),
    "features left out": lambda: RFE(model()),
    "threshold": lambda: FixedThresholdClassifier(piped()),
}
TAKEN = {
    "search by name": lambda: GridSearchCV(model(), {"C": [0.1, 1]}, cv=2, scoring="roc_auc"),
    "random search": lambda: RandomizedSearchCV(
        model(), {"C": [1]}, n_iter=1, cv=2, random_state=1),
    "search over a pipeline": lambda: GridSearchCV(piped(), {"watched__C": [0.1, 1]}, cv=2),
    "search of models": lambda: GridSearchCV(
        Pipeline([("scale", None), ("last", model())]),
        [{"scale": [StandardScaler(), MinMaxScaler()]},
         {"last": [DecisionTreeClassifier(max_depth=1), piped()]}],
        cv=2, error_score="raise"),
    "random search of models": lambda: RandomizedSearchCV(
        VotingClassifier([("a", model())]), {"a": [GaussianNB(), model()]},
        n_iter=2, cv=2, random_state=1),
    "stacking of pipelines": lambda: StackingClassifier(
        [("a", piped())], final_estimator=model(), cv=2),
    "calibrated pipeline": lambda: CalibratedClassifierCV(piped(), cv=2),
    "bagging of pipelines": lambda: BaggingClassifier(piped(), n_estimators=3, random_state=1),
    "boosting": lambda: AdaBoostClassifier(model(), n_estimators=3),
    "codes": lambda: OutputCodeClassifier(model(), random_state=1),
    "boosted from a model": lambda: GradientBoostingClassifier(n_estimators=3, init=model()),
}  # fmt: skip
PLAIN = {
    "forest": lambda: RandomForestClassifier(25, max_depth=1, random_state=1),
    "boosted trees": lambda: AdaBoostClassifier(n_estimators=1),
    "calibrated default": lambda: CalibratedClassifierCV(cv=2),
    "tree": lambda: DecisionTreeClassifier(max_depth=1),
}
REFUSED = {
    "neighbours, piped": lambda: make_pipeline(StandardScaler(), KNeighborsClassifier()),
    "neighbours in votes": lambda: VotingClassifier(
        [("a", model()), ("k", KNeighborsClassifier())]),
    "neighbours, searched": lambda: GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [3]}),
    "neighbours among those searched": lambda: GridSearchCV(
        Pipeline([("last", model())]), {"last": [model(), KNeighborsClassifier()]}),
    "neighbours, calibrated": lambda: CalibratedClassifierCV(
        make_pipeline(StandardScaler(), KNeighborsClassifier())),
    "neighbours at the end of a stack": lambda: StackingClassifier(
        [("a", model())], final_estimator=KNeighborsClassifier()),
    "boosting of pipelines": lambda: AdaBoostClassifier(piped()),
    "scores that nobody asked": lambda: RFECV(model()),
    "dropping": lambda: Dropping(model()),
    "dropping in a search": lambda: GridSearchCV(Dropping(model()), {"estimator__C": [1]}),
}  # fmt: skip


def by_function(estimator, truth, answers):
    return estimator.score(truth, answers)


REFUSED |= {
    "scored by a function": lambda: GridSearchCV(
        model(), {"C": [1]}, cv=2, scoring={"a": by_function}, refit="a"),
    "scored by a function in votes": lambda: VotingClassifier(
        [("a", RandomizedSearchCV(model(), {"C": [1]}, n_iter=1, cv=2, scoring=by_function))]),
    "features left out by a function": lambda: RFECV(model(), cv=2, scoring=by_function),
    "features chosen by a function": lambda: make_pipeline(
        SequentialFeatureSelector(model(), n_features_to_select=1, cv=2, scoring=by_function),
        model()),
    "penalty by a function": lambda: LogisticRegressionCV(cv=2, scoring=by_function),
    "boosted trees by a function": lambda: HistGradientBoostingClassifier(
        early_stopping=True, scoring=by_function),
}  # fmt: skip


def flipped():
    """Rows of which most say that `ok` falls with x, and the weights that it rises."""
    place = np.arange(61) * 17 % 61  # no fold holds neighbours alone
    x, z = (place - 30) / 15, np.sin(place)
    is_many, is_odd = place % 3 > 0, place % 10 == 0
    ok = (x > 0) ^ is_many ^ is_odd
    return pd.DataFrame({"x": x, "z": z, "ok": ok}), np.where(is_many, 1, 12)


def rising(fitted):
    low, high = (fitted.predict(pd.DataFrame({"x": [x], "z": [0.0]}))[0] for x in (-2.0, 2.0))
    return bool(high) and not low


@pytest.mark.parametrize("name", [*REPEATED, *TAKEN, *PLAIN])
def test_every_model_is_given_weights(name):
    Watched.fits.clear()
    make = (REPEATED | TAKEN | PLAIN)[name]
    table, weights = flipped()
    assert rising(analysis.fit_sklearn(make(), (table, weights), "ok"))
    assert all(Watched.fits)
    assert Watched.fits or name in PLAIN
    assert not rising(make().fit(table[["x", "z"]], table["ok"]))  # without weights it falls


@pytest.mark.parametrize("name", REPEATED)
def test_weights_are_repeated_rows(name):
    table, weights = flipped()
    source = (table, weights / 1.0)
    repeated = table.loc[table.index.repeat(weights)].reset_index(drop=True)
    one = analysis.fit_sklearn(_unpenalised(REPEATED[name]()), source, "ok")
    other = analysis.fit_sklearn(_unpenalised(REPEATED[name]()), (repeated, None), "ok")
    rows = table[["x", "z"]]
    if hasattr(one, "predict_proba"):
        np.testing.assert_allclose(one.predict_proba(rows), other.predict_proba(rows), atol=1e-4)
    np.testing.assert_array_equal(one.predict(rows), other.predict(rows))


def _unpenalised(estimator):
    """A penalty counts rows, and there are more of them repeated."""
    names = [name for name in estimator.get_params() if name == "C" or name.endswith("__C")]
    return estimator.set_params(**dict.fromkeys(names, 1e9))


def test_a_transformed_target_is_weighted():
    table, weights = flipped()
    fitted = analysis.fit_sklearn(TransformedTargetRegressor(), (table * 1.0, weights), "ok", ["x"])
    assert fitted.regressor_.coef_[0] > 0
    assert TransformedTargetRegressor().fit(table[["x"]], table["ok"]).regressor_.coef_[0] < 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_drop_weights_is_refused(name):
    Watched.fits.clear()
    with pytest.raises(ReleaseError, match="sample_weight"):
        analysis.fit_sklearn(REFUSED[name](), flipped(), "ok")
    assert not Watched.fits


def test_a_search_by_a_scorer_that_asks_for_weights_is_taken():
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(f1_score).set_score_request(sample_weight=True)
    search = GridSearchCV(model(), {"C": [0.1, 1]}, cv=2, scoring={"f": scorer}, refit="f")
    assert rising(analysis.fit_sklearn(search, flipped(), "ok"))
    search = TAKEN["search by name"]()
    assert analysis.fit_sklearn(search, flipped(), "ok") is search
    assert search.scoring == "roc_auc"
