"""The rule around a rule: its options, what it asks of the environment, and its mistakes in one sentence."""

import jax
import numpy as np
import pytest

from rulax.rules.actor_critic import LEARNING as OF_ACTOR_CRITIC
from rulax.rules.registry import make_rule
from tests.rules.data import init_params, random_batch, taken_predictions


def test_it_asks_for_its_skills_and_brings_the_agent_that_pays():
    recipe = make_rule("diayn", skills=9, discriminator_hidden=5)
    assert recipe.env_options == {"with_skill": 9}
    assert recipe.make_agent.keywords == {"rate": 1e-3, "steps": 4, "hidden": 5}
    assert make_rule("ppo").env_options == {}


@pytest.mark.parametrize("inner", ["ppo", "actor_critic"])
def test_it_learns_as_the_rule_inside_does(inner):
    recipe, plain = make_rule("diayn", inner=inner, discount=0.9), make_rule(inner, discount=0.9)
    assert (recipe.learning, recipe.network) == (plain.learning, plain.network)
    assert (recipe.learning == OF_ACTOR_CRITIC) == (inner == "actor_critic")
    batch, start = random_batch(plain.rule), plain.rule.start(jax.random.key(0))
    found, expected = (rule.targets(init_params(rule), start, batch) for rule in (recipe.rule, plain.rule))
    jax.tree.map(np.testing.assert_array_equal, found[:2], expected[:2])
    paid = np.asarray(batch.experience.reward)[np.asarray(batch.experience.valid)]
    np.testing.assert_allclose(found[2].pop("skill_reward"), paid.mean(), rtol=1e-5)
    assert found[2].keys() == expected[2].keys()
    taken = taken_predictions(plain.rule, batch)
    losses = [rule.loss({}, taken, found[0], batch.experience)[0] for rule in (recipe.rule, plain.rule)]
    np.testing.assert_array_equal(*losses)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"skills": 1}, "skills must lie between 2 and 256, not 1"),
        ({"skills": 257}, "skills must lie between 2 and 256, not 257"),
        ({"inner": "disco"}, "inner must be ppo or actor_critic, not 'disco'"),
        ({"discriminator_rate": 0.0}, "discriminator_rate must be greater than 0"),
        ({"discriminator_steps": 0}, "discriminator_steps must be at least 1, not 0"),
        ({"skils": 4}, "no option 'skils'.*skills"),
    ],
)
def test_mistakes_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        make_rule("diayn", **options)
