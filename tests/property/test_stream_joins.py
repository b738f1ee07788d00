"""Against an oracle (DuckDB): whatever the batches, the stream's results are the batch join of all rows in time.

No Spark: a fake source feeds the driver and the very units that Spark's tasks run. Failure is data: a run stops at
any step of the commit order, in any epoch, and goes on from the state folder alone.
"""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.streams import INPUTS, cases_for, feed_through

from evenkeel.streaming.driver import STEPS
from evenkeel.streaming.strategies import STRATEGIES, strategy_named
from evenkeel.streaming.windows import Window
from evenkeel.testing import assert_same_rows

WINDOWS = {"none": Window(), "sliding": Window("sliding", 5), "tumbling": Window("tumbling", 7)}
NAN = float("nan")
BY_KEY = [s.name for s in STRATEGIES if "equi" in cases_for(s)]


@cache  # Hypothesis checks every strategy it has not met
def side_of(drift: int):
    """Few values, so that many rows match and many are the same."""
    row = st.fixed_dictionaries({
        "k": st.sampled_from([0, 0, 0, 1, 2, -3, None]),
        "s": st.sampled_from(["", "a", "a", "ü", None]),
        "x": st.one_of(st.none(), st.integers(-6, 6)),
        "f": st.sampled_from([0.0, -0.0, 1.5, NAN, float("inf"), None]),
        "t": st.one_of(st.integers(drift, drift + 12), st.integers(drift, drift + 12), st.none()),
        "n": st.integers(0, 3),
    })  # fmt: skip
    return st.lists(row, max_size=9)


@st.composite
def feeds(draw):
    """Batches whose times move on, some of them falling behind the watermark."""
    out = []
    for i in range(draw(st.integers(2, 5))):
        out.append({side: draw(side_of(i * 5)) for side in INPUTS})
    return out


def run(strategy, case, window, how, batches, lateness, crashes=()):
    return feed_through(strategy, case, WINDOWS[window], how, batches, lateness, crashes)


@pytest.mark.parametrize("strategy", [s.name for s in STRATEGIES])
@pytest.mark.parametrize("window", WINDOWS)
@settings(max_examples=5)
@given(data=st.data())
def test_inner(strategy, window, data):
    case = data.draw(st.sampled_from(cases_for(strategy_named(strategy), window)))
    run(strategy, case, window, "inner", data.draw(feeds()), data.draw(st.sampled_from([0, 3])))


@pytest.mark.parametrize("how", ["left", "right", "full", "left_semi", "left_anti"])
@pytest.mark.parametrize("strategy", [s.name for s in STRATEGIES])
@settings(max_examples=4)
@given(data=st.data())
def test_outer(how, strategy, data):
    window = data.draw(st.sampled_from(["sliding", "tumbling"]))
    case = data.draw(st.sampled_from(cases_for(strategy_named(strategy), window)))
    run(strategy, case, window, how, data.draw(feeds()), data.draw(st.sampled_from([0, 3])))


@pytest.mark.parametrize("strategy", [s.name for s in STRATEGIES if not s.needs_equality])
def test_rows_that_can_match_nothing_are_shown(strategy):
    """They are sorted by their time alone, which must not be lost with the position they do not have."""
    none = {"k": None, "s": None, "x": None, "f": None, "n": 1}
    batches = [{side: [{**none, "t": 10 * i + n} for n in range(3)] for side in INPUTS} for i in range(5)]
    assert run(strategy, "inequality", "sliding", "full", batches, 0).results().num_rows >= 12


@pytest.mark.parametrize("step", STEPS)
@settings(max_examples=4)
@given(data=st.data())
def test_crash_at_every_step(step, data):
    batches = data.draw(feeds())
    crashes = {(data.draw(st.integers(0, len(batches) - 1)), step) for _ in range(3)}
    window = data.draw(st.sampled_from(list(WINDOWS)))
    how = data.draw(st.sampled_from(["inner", "full", "left_semi"])) if window != "none" else "inner"
    strategy = data.draw(st.sampled_from(BY_KEY))
    run(strategy, "equi", window, how, batches, 0, sorted(crashes))


@pytest.mark.parametrize("strategy", BY_KEY)
@settings(max_examples=2)
@given(batches=feeds(), seed=st.randoms(use_true_random=False))
def test_order_does_not_matter(strategy, batches, seed):
    """The order-consistent protocol: rows reordered inside batches and across them give the same pairs."""
    first = run(strategy, "equi", "none", "inner", batches, 0).results()
    rows_of = {i: [r for b in batches for r in b[i]] for i in INPUTS}
    moved = [{i: [] for i in INPUTS} for _ in range(4)]
    for i in INPUTS:
        seed.shuffle(rows_of[i])
        for r in rows_of[i]:
            moved[seed.randrange(4)][i].append(r)
    assert_same_rows(run(strategy, "equi", "none", "inner", moved, 0).results(), first)
