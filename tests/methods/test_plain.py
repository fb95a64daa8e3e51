"""Disco103 as a plain learner: as many lives as tasks, each as long as a trial, and every reward of a life counts once."""

import numpy as np
import pytest

from rulax.envs.bandit import BernoulliBandit
from rulax.methods import plain
from rulax.methods.rl2_references import two_arms
from tests.shared import weights


@pytest.mark.slow
def test_a_life_is_a_trial(monkeypatch):
    if not weights().exists():
        pytest.skip("the published weights are not here")
    monkeypatch.setenv("RULAX_RULES", str(weights().parent))
    monkeypatch.setitem(plain.TASKS, "quick", 3)
    study = plain.Newborns(plain.Setting(lambda: BernoulliBandit(arms=2), 4, 2, two_arms(4)), "quick", 0)
    while not study.done():
        progress = study.advance()
    assert (progress.fraction, progress.meta_updates, progress.env_steps) == (1, 2, 12)
    assert study.earned.shape == (3,)
    assert set(study.earned) <= {0.0, 1.0, 2.0, 3.0, 4.0}
    means = np.asarray(study.state.life.actor.task.means)
    assert means.shape == (3, 2)
    np.testing.assert_allclose(study.test().values, 4 * means.max(-1) - study.earned, rtol=1e-5)  # regret of a life
