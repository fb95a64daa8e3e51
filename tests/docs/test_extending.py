"""The parts that docs/extending.md shows are executed, on a life that can be computed by hand."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents.base import split, write
from rulax.commands.compare.settings import expand
from rulax.commands.discover.settings import build_discover
from rulax.discovery import estimators
from rulax.envs import suites
from rulax.envs.base import Episode
from rulax.settings import Network
from rulax.types import Experience, Head
from tests.discovery.test_estimators import GOAL, WANTED, make_member, make_problem
from tests.docs.pages import DOCS

SHAPE = jax.ShapeDtypeStruct((1,), jnp.float32)
TEXT = (DOCS / "extending.md").read_text(encoding="utf-8")


def block(heading: str, language: str = "python") -> str:
    part = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (code,) = re.findall(rf"```{language}\n(.*?)```", part, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 22
    return code


def run(code: str) -> dict:
    names: dict = {}
    exec(code, names)
    return names


def test_the_agent_scales_its_rewards_by_their_size_so_far():
    agent = run(block("An agent"))["make_scaled"](jax.random.key(0), SHAPE, 2, {"policy": Head(2)}, Network(hidden=(4,)))
    rewards = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
    valid = np.array([[[1, 0], [1, 1], [1, 1], [0, 1]], *[[[1, 1]] * 4] * 2], bool)
    seen = []
    for reward, counts in zip(rewards, valid, strict=True):
        zeros, flags = jnp.zeros((4, 2)), jnp.zeros((5, 2), bool)
        experience = Experience(jnp.zeros((5, 2, 1)), zeros, jnp.asarray(reward), zeros, flags, jnp.asarray(counts), zeros, ())
        agent, learned_from, _ = write(agent, experience, Episode(flags[1:], zeros, zeros))
        seen.append(reward[counts])
        size = np.sqrt(np.mean(np.square(np.concatenate(seen))))
        np.testing.assert_allclose(learned_from.reward, reward / size, rtol=1e-5)
    assert jax.tree.leaves(split(agent)[0].squares) == []


def test_the_estimator_is_the_meta_gradient_along_its_direction(monkeypatch):
    monkeypatch.setattr(estimators, "ESTIMATORS", dict(estimators.ESTIMATORS))
    forward = run(block("An estimator"))["forward"]
    assert estimators.ESTIMATORS["forward"] is forward
    problem, eta, samples = make_problem(3), jnp.array([0.4, 0.2]), 20_000
    exact, same, _ = estimators.backprop(problem, eta, make_member())

    def with_key(key):
        member = make_member()
        return forward(problem, eta, member._replace(life=member.life._replace(key=key)))

    found, after, metrics = jax.jit(jax.vmap(with_key))(jax.random.split(jax.random.key(3), samples))
    np.testing.assert_allclose(after.life.learner_state.params[0], same.life.learner_state.params, rtol=1e-6)
    assert np.isfinite(metrics["outer_loss"]).all()
    # (g . v) v has mean g and variance |g|^2 + g_i^2.
    error = np.sqrt((np.sum(np.square(exact)) + np.square(exact)) / samples)
    assert np.all(np.abs(found.mean(0) - exact) < 4 * error)
    assert np.all(np.abs(exact) > 8 * error)  # so a zero, or the other sign, would not pass


def test_the_method_learns_initial_parameters():
    problem = run(block("A method"))["initial_parameters"](make_problem(3), 0.25)
    start = jnp.array([3.0, 5.0])
    moved, _, _ = estimators.displacement(problem, start, make_member())
    exact, after, _ = estimators.backprop(problem, start, make_member())
    end = GOAL + (np.array([3.0, 5.0]) - GOAL) * 0.75**3
    np.testing.assert_allclose(after.life.learner_state.params, end, rtol=1e-5)
    np.testing.assert_allclose(moved, np.array([3.0, 5.0]) - end, rtol=1e-5)
    np.testing.assert_allclose(exact, 0.75**3 * (end - WANTED), rtol=1e-5)


def test_the_suites_are_accepted(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(block("A suite", "yaml"))
    config = build_discover({"preset": str(path)})
    assert (config.envs, config.validation) == (("chain/short", "chain/short-noisy"), ("chain/distractor",))
    assert (config.overrides["window"], config.rule_options["hidden"]) == (10, 32)
    try:
        run(block("A suite"))
        assert expand(("catch", "waiting")) == ("catch", "chain/short", "chain/long", "chain/distractor")
    finally:
        suites.SUITES.pop("waiting", None)
    known = {entry.name for entry in suites.families()["chain"]}
    assert {*config.envs, *config.validation, "chain/long"} <= known


@pytest.mark.parametrize("page", ["environments.md#your-own", "rules.md#write-your-own"])
def test_environments_and_rules_are_shown_elsewhere(page):
    """tests/envs/test_documentation.py and tests/rules/test_docs.py execute those."""
    assert page in TEXT
