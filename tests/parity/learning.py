"""Cases 6 and 7: whole updates, and the gradient of what follows from them with respect to the rule."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax

from rulax.commands.discover.settings import build_discover
from rulax.commands.settings import override
from rulax.discovery.critic import Critic, CriticState, critic_optimiser, improve, judge, start_critic
from rulax.discovery.memory import Updated, Updates
from rulax.discovery.outer_loss import outer_loss, penalties, predict_along
from rulax.discovery.settings import Discovery
from rulax.discovery.window import Record, mean_penalties, relive
from rulax.learning.optimisers import AdamState, make_optimiser
from rulax.learning.update import Learner, LearnerState, init_learner_state, update
from rulax.metanet.estimates import estimate
from rulax.metanet.sizes import Constants, Sizes
from rulax.rules.base import UpdateRule
from rulax.rules.disco import disco
from rulax.rules.haiku_names import to_haiku
from rulax.rules.pretrained import RuleFile, take_apart
from rulax.settings import Learning, Network
from rulax.types import Batch, Experience
from tests.parity import arrays
from tests.parity.compare import Line, Recorded
from tests.parity.names import estimates_out, meta_logs, meta_out, run_rule, state_out, value_logs
from tests.parity.parts import renamed, taken_of

SINGLE, DOUBLE = 1e-3, 1e-8
# The preset's own settings, so that what is judged is what `rulax discover catch-notebook` runs; widths come from the arrays.
NOTEBOOK = override(Discovery(), build_discover({"suite": "catch-notebook"}).overrides)


def adam_state(optimiser_state) -> AdamState:
    return next(part for part in optimiser_state if isinstance(part, AdamState))


def observing(rule: UpdateRule) -> UpdateRule:
    """The same rule, which also shows what it read and what it made of it (as metrics, which `update` hands through)."""

    def targets(network, state, batch):
        made, after, metrics = rule.targets(network, state, batch)
        return made, after, metrics | {"batch": batch._replace(experience=None), "made": made}

    return rule._replace(targets=targets)


def observed_update(learner: Learner, sizes: Sizes, network, state: LearnerState, experience: Experience):
    """One production `update`, with the reference's logs of it, what the rule read, and the metrics."""
    after, metrics = update(learner, network, state, experience, jax.random.key(0))
    batch, made = metrics["batch"]._replace(experience=experience), metrics["made"]
    _, estimates = estimate(state.rule_state.scales, batch, sizes, Constants())
    taken = taken_of(batch.online, experience.action)
    logs = meta_logs(taken, batch, made, sizes) | value_logs(taken, batch, made, estimates, sizes)
    change = jax.tree.map(lambda new, old: new - old, after.params, state.params)
    logs |= {"total_loss": metrics["loss"], "global_gradient_norm": metrics["gradient_norm"]}
    logs["global_update_norm"] = optax.global_norm(change)
    return after, logs, batch, metrics


@functools.cache
def make_learner(sizes: Sizes, rate: float) -> Learner:
    return Learner(observing(disco(sizes)), make_optimiser(Learning(learning_rate=rate, clip_update=1.0)), slow_decay=0.9)


def learner_out(state: LearnerState, names: dict) -> dict[str, dict]:
    """A learner's state under the reference's names, in groups that share a tolerance."""
    adam = adam_state(state.optimiser_state)
    moments = {"opt_state/count": adam.count}
    moments |= renamed(arrays.named_params(adam.mean, names), "opt_state/mu/")
    moments |= renamed(arrays.named_params(adam.square, names), "opt_state/nu/")
    params = renamed(arrays.named_params(state.params, names), "params/")
    slow = renamed(arrays.named_params(state.slow, names), "target_params/")
    return {"moments": moments, "parameters": params | slow, "rule state": state_out(state.rule_state, "meta_rnn")}


def judged(case: str, groups: list[str], precision: str) -> dict[str, Line]:
    """A line per group. In float32 parameters are judged by a quantile: Adam's first steps divide by |g| + 1e-8, so weights
    with gradients near zero move by up to the learning rate in a direction that rounding decides, in the reference too."""
    tolerance = SINGLE if precision == "float32" else DOUBLE
    lines = {group: Line(f"{case}: {group}", precision, tolerance) for group in groups}
    if "parameters" in lines and precision == "float32":
        lines["parameters"] = Line(f"{case}: parameters (99 % quantile)", precision, tolerance, quantile=0.99)
    return lines


# -- 6 -----------------------------------------------------------------------------------------------------------------------


def learner_steps(data: Recorded, agent_file: Recorded, recorded: Recorded, rule: RuleFile, precision: str) -> list[Line]:
    """Consecutive updates, each on its own rollout."""
    names = arrays.under(agent_file, "in/params/")
    agent = arrays.agent(names, data["in/observations"].shape[3:], rule.sizes)
    learner = make_learner(rule.sizes, arrays.number(data["in/learning_rate"]))
    state = init_learner_state(learner, agent, jax.random.key(0))
    groups = ["targets", "logs", "rule state", "parameters", *(["moments"] if precision == "float32" else [])]
    lines = judged("6 learner steps", groups, precision)

    @jax.jit
    def compute(network, before, experience):
        after, logs, batch, _ = observed_update(learner, rule.sizes, network, before, experience)
        _, estimates, reading = run_rule(network, before.rule_state, batch, rule.sizes)
        return after, logs, meta_out(estimates, reading)

    for step in range(data["in/rewards"].shape[0]):
        state, logs, made = compute(rule.params, state, arrays.experience(data, index=(step,)))
        found = {"logs": renamed(logs, "log/"), "targets": renamed(made, "meta_out/")} | learner_out(state, names)
        for group, line in lines.items():
            recorded.compare_present(line, found[group], f"out/step{step + 1}/")
    recorded.overlooked(lines["targets"])
    return [line for line in lines.values() if line.arrays or line.problem or not recorded.cut]


def first_estimates(data: Recorded, agent_file: Recorded, recorded: Recorded, precision: str) -> Line:
    """What the first update is computed from, before the rule has a say: predictions, Retrace, normalised advantages and errors."""
    sizes = Sizes()
    agent = arrays.agent(arrays.under(agent_file, "in/params/"), data["in/observations"].shape[3:], sizes)
    experience = arrays.experience(data, index=(0,))

    @jax.jit
    def compute():
        predictions = agent.predict(agent.embed(experience))
        state = disco(sizes).start(jax.random.key(0))
        return estimate(state.scales, Batch(experience, predictions, predictions), sizes, Constants())

    scales, estimates = compute()
    line = Line("6 learner steps: first estimates", precision, SINGLE if precision == "float32" else DOUBLE)
    found = renamed(estimates_out(estimates), "meta_out/") | arrays.named_moments("adv_ema", scales.advantage)
    recorded.compare(line, found | arrays.named_moments("td_ema", scales.error), "out/step1/")
    return line


# -- 7 -----------------------------------------------------------------------------------------------------------------------


def penalties_over_every_step(targets, batch):
    """`penalties` as the notebook averages them: also over the steps that the loss leaves out."""
    every = batch.experience._replace(valid=jnp.ones_like(batch.experience.valid))
    return penalties(targets, batch._replace(experience=every))


def notebook_loss(network, learner: Learner, sizes: Sizes, life: LearnerState, critic: CriticState, data: dict):
    """The window, critic and outer loss of discovery on recorded arrays, and all that the reference recorded of them."""

    def one_update(network, life, experience, key):
        life, logs, batch, metrics = observed_update(learner, sizes, network, life, experience)
        shown = {"logs": logs, "policy": jax.lax.stop_gradient(batch.online["policy"][:-1])}
        return Updated(life, metrics | shown, penalties_over_every_step(metrics["made"], batch))

    keys = jax.random.split(jax.random.key(0), data["train"].action.shape[0])
    life, metrics, penalised = relive(Updates(one_update), network, Record(life, data["train"], keys))

    def one_step(critic, inputs):
        return improve(NOTEBOOK, critic, *inputs)

    critic, _ = jax.lax.scan(one_step, critic, (data["train_early"], metrics["policy"]))
    policy = predict_along(life.params, data["valid"])["policy"]
    judgement = judge(NOTEBOOK, critic, data["valid_early"], jax.lax.stop_gradient(policy[:-1]))
    means = mean_penalties(penalised)
    loss, parts = outer_loss(NOTEBOOK, life.params, data["valid_early"], judgement.normalised_advantage, means)
    meta_log = {
        "adv": jnp.mean(judgement.advantage),
        "normalized_adv": jnp.mean(judgement.normalised_advantage),
        "entropy": parts["policy_entropy"],
        "value": jnp.mean(judgement.value),
        "val_importance_weight": jnp.mean(jnp.minimum(1, judgement.ratios)),
        "pg_loss": parts["policy_loss"],
        "reg_loss": parts["regulariser"],
        "meta_loss": loss,
    }
    return loss, (life, critic, metrics["logs"], meta_log, components(parts), policy)


def components(parts: dict) -> dict:
    """The parts of the regulariser under the names that they were recorded by."""
    means = {"pi": "policy_mean", "y": "state_prediction_mean", "z": "action_prediction_mean"}
    return {f"mean_{name}_sq": parts[ours] for name, ours in means.items()} | {
        "policy_entropy_valid": parts["policy_entropy"],
        "y_entropy_loss": -parts["state_prediction_entropy"],
        "z_entropy_loss": -parts["action_prediction_entropy"],
        "target_kl": parts["target_kl"],
        "reg_loss_recomputed": parts["regulariser"],
    }


TORSO, HEAD = "value_fn/~_embedding_pass/torso/~/linear_{}", "value_fn/~_head_pass/torso_head/~/linear_0"


def named_layers(critic: Critic) -> dict:
    """The critic's layers (or anything of its structure) under the reference's names."""
    return {TORSO.format(i): layer for i, layer in enumerate(critic.torso.mlp.layers)} | {HEAD: critic.head}


def recorded_critic(params: dict, observation_shape: tuple[int, ...]) -> CriticState:
    """The production critic with the weights that the notebook's value function had at the start."""
    settings = dataclasses.replace(NOTEBOOK, critic_hidden=arrays.widths(params, TORSO.removesuffix("_{}")))
    spec = jax.ShapeDtypeStruct(observation_shape, jnp.float32)
    critic = start_critic(settings, Network(torso="mlp"), spec, jax.random.key(0))
    names = [f"{name}/{part}" for name in named_layers(critic.params) for part in ("w", "b")]
    leaves, structure = jax.tree.flatten(critic.params)
    network = jax.tree.unflatten(structure, [jnp.asarray(params[n]).reshape(x.shape) for n, x in zip(names, leaves, strict=True)])
    return critic._replace(params=network, optimiser_state=critic_optimiser(settings).init(network))


def critic_params(critic: Critic) -> dict:
    layers = named_layers(critic).items()
    return {f"{name}/{part}": value for name, layer in layers for part, value in (("w", layer.weight), ("b", layer.bias))}


def critic_out(critic: CriticState) -> dict[str, dict]:
    adam = adam_state(critic.optimiser_state)
    moments = {"value_opt_state/count": adam.count} | renamed(critic_params(adam.mean), "value_opt_state/mu/")
    moments |= renamed(critic_params(adam.square), "value_opt_state/nu/")
    state = arrays.named_moments("value_adv_ema", critic.advantage) | arrays.named_moments("value_td_ema", critic.error)
    return {"moments": moments, "parameters": renamed(critic_params(critic.params), "value_params/"), "rule state": state}


@functools.cache
def compiled_gradient(learner: Learner, sizes: Sizes):
    """The meta-gradient as a function of arrays; both cases, and all their numbers of updates, share it."""

    def loss(network, life, critic, batches):
        return notebook_loss(network, learner, sizes, life, critic, batches)

    # The arrays are small and the program is large: time goes into compiling it, not into running it.
    return jax.jit(jax.grad(loss, has_aux=True), compiler_options={"xla_llvm_disable_expensive_passes": True})


def meta_gradient(
    data: Recorded, opening: Recorded | None, recorded: Recorded, rule: RuleFile, precision: str, noise: float = 0.0
) -> list[Line]:
    """The meta-gradient through each recorded number of updates; `opening` holds a warm optimiser state, if there is one.

    `noise` is how far the recorded float32 outer losses are from the recorded float64 ones, their noise floor, and 0 in float64:
    they are differences of nearly equal numbers.
    """
    names = arrays.under(data, "in/params/")
    agent = arrays.agent(names, data["in/train/observations"].shape[3:], rule.sizes)
    learner = make_learner(rule.sizes, arrays.number(data["in/learning_rate"]))
    life, case = init_learner_state(learner, agent, jax.random.key(0)), "7 meta-gradient"
    if opening is not None:
        case = "7w meta-gradient"
        moments = (
            arrays.agent(arrays.under(opening, f"in/opt/{part}/"), data["in/train/observations"].shape[3:], rule.sizes)
            for part in ("mu", "nu")
        )
        adam = AdamState(jnp.asarray(opening["in/opt/count"]), *moments)
        life = life._replace(optimiser_state=tuple(adam if isinstance(part, AdamState) else part for part in life.optimiser_state))
    groups = ["gradient of the rule", "logs", "outer loss"]
    if not (precision == "float64" and opening is not None):
        groups += ["rule state", "parameters"]
    lines = judged(case, [*groups, *(["moments"] if precision == "float32" else [])], precision)
    lines["outer loss"].tolerance += noise  # theirs on top of what our own rounding may be
    if precision == "float32" and opening is None:
        # With a fresh Adam the derivative of its first step is 1 / (|g| + 1e-8): rounding decides the float32 gradient.
        del lines["gradient of the rule"]
        recorded.ignore("/meta_grad/")
    critic = recorded_critic(arrays.under(data, "in/value_params/"), data["in/train/observations"].shape[3:])
    for updates in sorted({int(name.split("/")[1][1:]) for name in recorded if name.startswith("out/n")}):
        batches = experience_of(data, updates)
        slopes, (after, critic_after, logs, meta_log, found_parts, policy) = compiled_gradient(learner, rule.sizes)(
            rule.params, life, critic, batches
        )
        found = critic_out(critic_after)
        for group, results in learner_out(after, names).items():
            found[group] |= renamed(results, "learner/")
        found["gradient of the rule"] = renamed(to_haiku("gradient", take_apart(slopes)), "meta_grad/")
        found["logs"] = renamed(logs, "train_metrics/")
        found["outer loss"] = renamed(meta_log, "meta_log/") | renamed(found_parts, "components/") | {"valid_logits": policy}
        for group, line in lines.items():
            recorded.compare_present(line, found[group], f"out/n{updates}/")
    recorded.overlooked(lines["logs"])
    return [line for line in lines.values() if line.arrays or line.problem]


def experience_of(data: Recorded, updates: int) -> dict:
    """The rollouts, as agents read them and as the notebook's critic does."""

    def stacked(read) -> Experience:
        return jax.tree.map(lambda *parts: jnp.stack(parts), *(read(data, "in/train/", (step,)) for step in range(updates)))

    return {
        "train": stacked(arrays.experience),
        "train_early": stacked(arrays.early_experience),
        "valid": arrays.experience(data, "in/valid/"),
        "valid_early": arrays.early_experience(data, "in/valid/"),
    }
