"""Disco103 as a plain learner: as many lifetimes as tasks, each as long as a trial, and every reward counts once."""

import numpy as np
import pytest

from rulax.envs.bandit import BernoulliBandit
from rulax.methods.experiments import plain
from rulax.methods.experiments.trial_scoring import two_arms
from rulax.methods.plain import PlainDisco
from tests.shared import weights


@pytest.mark.slow
def test_a_lifetime_is_as_long_as_a_trial(monkeypatch):
    if not weights().exists():
        pytest.skip("the published weights are not here")
    monkeypatch.setenv("RULAX_RULES", str(weights().parent))
    monkeypatch.setitem(plain.TASKS, "quick", 3)
    setting = PlainDisco(lambda: BernoulliBandit(arms=2), steps=4, unroll=2)
    run = plain.PlainRun(setting, two_arms(4), "quick", 0)
    while not run.done():
        progress = run.advance()
    assert (progress.fraction, progress.meta_updates, progress.env_steps) == (1, 2, 12)
    assert run.earned.shape == (3,)
    assert set(run.earned) <= {0.0, 1.0, 2.0, 3.0, 4.0}
    means = np.asarray(run.state.life.actor.task.means)
    assert means.shape == (3, 2)
    np.testing.assert_allclose(run.test().values, 4 * means.max(-1) - run.earned, rtol=1e-5)  # regret of a lifetime
