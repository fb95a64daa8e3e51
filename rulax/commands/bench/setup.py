"""Builds what is measured: a trainer, or discovery in the setting of the reference's meta-training notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rulax.commands.bench.settings import REFERENCE, BenchDiscoverConfig, BenchTrainConfig, build_bench
from rulax.commands.build import make_environment, make_recipe, make_trainer, start_jax, user_errors
from rulax.commands.discover.settings import build_discover
from rulax.commands.names import read_spec
from rulax.commands.settings import check_bounds, override
from rulax.commands.train.settings import TrainConfig
from rulax.discovery.settings import Discovery
from rulax.errors import UserError

if TYPE_CHECKING:
    from rulax.discovery.discover import Discoverer
    from rulax.envs.base import Environment, HostEnvironment
    from rulax.learning.train import Trainer
    from rulax.rules.base import Recipe

MANY_ITERATIONS = 10**7  # more than any benchmark makes, so that the budget never ends it
SUITE = "catch-notebook"


def prepare(config: BenchTrainConfig) -> Trainer:
    """Check and build; nothing is compiled."""
    check_bounds(config)
    recipe = make_recipe(config.rule, config.rule_options, config.overrides)
    start_jax(config.platform, cache=False)  # a cached program would make the time to compile look like nothing
    environment = widen(make_environment(config.env, config.env_options), config.actions)
    steps = recipe.learning.streams * recipe.learning.unroll * MANY_ITERATIONS
    return make_trainer(environment, recipe, TrainConfig(env=config.env, rule=config.rule, seeds=config.seeds, steps=steps))


def widen(environment: Environment | HostEnvironment, actions: int) -> Environment | HostEnvironment:
    """The environment with as many actions as were asked for."""
    from rulax.envs.base import HostEnvironment
    from rulax.envs.wrappers import MoreActions

    if not actions or actions == environment.num_actions:
        return environment
    if isinstance(environment, HostEnvironment):
        raise UserError("--actions needs an environment written in JAX; leave it out, or use --env catch")
    with user_errors():
        return MoreActions(environment, actions)


def as_recorded(config: BenchTrainConfig, recipe: Recipe, environment: Environment | HostEnvironment) -> bool:
    """Whether the setting is the one in which DeepMind's reference was recorded."""
    # A factor against a measurement in another setting would be a wrong claim.
    if config.rule not in ("disco", "disco103") or config.rule_options or config.env != "catch":
        return False
    recorded = make_recipe(config.rule, {}, build_bench({"preset": REFERENCE}).overrides)
    same = (recipe.learning, recipe.network) == (recorded.learning, recorded.network)
    return same and environment.observation.shape[:2] == (8, 8)


def make_discoverer(config: BenchDiscoverConfig) -> Discoverer:
    """Discovery of a random rule of Disco103's sizes in the notebook's setting."""
    start_jax(config.platform, cache=False)
    from rulax.discovery.discover import Discoverer
    from rulax.discovery.population import Family

    asked = {"agents": config.agents, "window": config.inner, "memory": config.memory, "agents_at_once": config.agents_at_once}
    suite = build_discover({"suite": SUITE, **asked})
    (spec,) = (read_spec(text) for text in suite.envs)
    recipe = make_recipe("disco", {}, suite.overrides)
    environment: Any = make_environment(spec.env, spec.options)
    family = Family(spec.name, environment, recipe, override(Discovery(), suite.overrides))
    return Discoverer([family], suite.steps)


def trace(discoverer: Discoverer) -> Any:
    """The program of its one family, not compiled."""
    import jax

    from rulax.discovery.meta_step import estimate, rule_problem

    (family,), state = discoverer.families, discoverer.skeleton()
    plan = discoverer.plans[family.name]
    return jax.make_jaxpr(estimate(family, rule_problem(family, plan.strategy), plan.at_once))(state.meta_params, state.members[0])
