"""Cases 6 and 7: whole updates, and the gradient of what follows from them with respect to the rule."""

import functools

import jax
import jax.numpy as jnp
import optax

from rulax.agents.layers import MLP
from rulax.learning.optimisers import AdamState, make_optimiser
from rulax.learning.update import Learner, start_life, update
from rulax.metanet.estimates import estimate
from rulax.metanet.sizes import Constants, Sizes
from rulax.rules.base import UpdateRule
from rulax.rules.disco import disco
from rulax.rules.haiku_names import to_haiku
from rulax.rules.pretrained import RuleFile, take_apart
from rulax.rules.values import entropy, kl, log_probability, start_moments
from rulax.settings import Learning
from rulax.types import Experience, LearnerState
from tests.parity import arrays, critic
from tests.parity.compare import Line, Recorded
from tests.parity.names import meta_logs, meta_out, run_rule, state_out, value_logs
from tests.parity.parts import renamed, taken_of

SINGLE, DOUBLE = 1e-3, 1e-6


def adam_state(optimiser_state) -> AdamState:
    return next(part for part in optimiser_state if isinstance(part, AdamState))


def observing(rule: UpdateRule) -> UpdateRule:
    """The same rule, which also shows what it read and what it made of it (as metrics, which `update` hands through)."""

    def targets(network, state, batch):
        made, after, metrics = rule.targets(network, state, batch)
        return made, after, metrics | {"batch": batch._replace(experience=None), "made": made}

    return rule._replace(targets=targets)


def observed_update(learner: Learner, sizes: Sizes, network, state: LearnerState, experience: Experience):
    """One production `update`, with the reference's logs of it; what the rule read and made comes with the metrics."""
    after, metrics = update(learner, network, state, experience, jax.random.key(0))
    batch, made = metrics["batch"]._replace(experience=experience), metrics["made"]
    _, estimates = estimate(state.rule_state.scales, batch, sizes, Constants())
    taken = taken_of(batch.online, experience.action)
    logs = meta_logs(taken, batch, made, sizes) | value_logs(taken, batch, made, estimates, sizes)
    change = jax.tree.map(lambda new, old: new - old, after.params, state.params)
    logs |= {"total_loss": metrics["loss"], "global_gradient_norm": metrics["gradient_norm"]}
    logs["global_update_norm"] = optax.global_norm(change)
    return after, logs, batch, made


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
    state = start_life(learner, agent, jax.random.key(0))
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
    return list(lines.values())


# -- 7 -----------------------------------------------------------------------------------------------------------------------


def outer_loss(network, learner: Learner, sizes: Sizes, life: LearnerState, judge: critic.CriticState, data: dict):
    """The notebook's meta-loss: policy gradient on the validation rollout after the updates, plus regularisers."""
    optimiser = make_optimiser(Learning(learning_rate=critic.LEARNING_RATE, clip_update=critic.CLIP))

    def live(carry, inputs):
        life, judge = carry
        experience, rollout = inputs
        life, logs, batch, made = observed_update(learner, sizes, network, life, experience)
        policy = jax.lax.stop_gradient(batch.online["policy"])  # the critic is no path to the rule
        return (life, critic.improve(optimiser, judge, rollout, policy)), (logs, made, batch.slow["policy"])

    (life, judge), (logs, made, slow_policy) = jax.lax.scan(live, (life, judge), (data["train"], data["train_rollout"]))
    rollout, valid = data["valid_rollout"], data["valid"]
    seen = life.params.predict(life.params.embed(valid))
    reading = critic.read_critic(judge, rollout, jax.lax.stop_gradient(seen["policy"]))
    policy = seen["policy"][:-1]
    advantage = jax.lax.stop_gradient(reading.normalised_advantage)  # weights of the policy gradient are data
    policy_loss = -jnp.mean(advantage * log_probability(policy, valid.action))
    parts = regularisers(seen, valid, made, slow_policy)
    regulariser = (
        -1e-2 * parts["policy_entropy_valid"]
        + 1e-3 * (parts["y_entropy_loss"] + parts["z_entropy_loss"])
        + 1e-3 * (parts["mean_y_sq"] + parts["mean_z_sq"] + parts["mean_pi_sq"])
        + 1e-2 * parts["target_kl"]
    )
    meta_log = {
        "adv": jnp.mean(reading.advantage),
        "normalized_adv": jnp.mean(reading.normalised_advantage),
        "entropy": parts["policy_entropy_valid"],
        "value": jnp.mean(reading.value),
        "val_importance_weight": jnp.mean(jnp.minimum(1, reading.ratios)),
        "pg_loss": policy_loss,
        "reg_loss": regulariser,
        "meta_loss": policy_loss + regulariser,
    }
    parts |= {"reg_loss_recomputed": regulariser}
    return policy_loss + regulariser, (life, judge, logs, meta_log, parts, seen["policy"])


def regularisers(seen: dict, valid: Experience, made: dict, slow_policy) -> dict:
    """The parts of the notebook's regulariser; targets have axes [N, T, B, ...]."""
    chosen = taken_of(seen, valid.action)
    names = {"pi": "policy", "y": "state_prediction", "z": "action_prediction"}.items()
    parts = {f"mean_{name}_sq": jnp.mean(jnp.square(jnp.mean(made[head], (1, 2, 3)))) for name, head in names}
    return parts | {
        "policy_entropy_valid": jnp.mean(entropy(chosen["policy"])),
        "y_entropy_loss": -jnp.mean(entropy(seen["state_prediction"])),
        "z_entropy_loss": -jnp.mean(entropy(chosen["action_prediction"])),
        # Keeps targets near the slow policy, not the slow policy near its targets.
        "target_kl": jnp.mean(kl(jax.lax.stop_gradient(slow_policy[:, :-1]), made["policy"])),
    }


def recorded_critic(params: dict) -> critic.CriticState:
    """The notebook's value function as two MLPs."""

    def mlp(stem: str) -> MLP:
        sizes = arrays.widths(params, stem)
        skeleton = MLP(jax.random.key(0), (params[f"{stem}_0/w"].shape[0], *sizes))
        leaves = [jnp.asarray(params[f"{stem}_{layer}/{part}"]) for layer in range(len(sizes)) for part in ("w", "b")]
        return jax.tree.unflatten(jax.tree.structure(skeleton), leaves)

    networks = (mlp("value_fn/~_embedding_pass/torso/~/linear"), mlp("value_fn/~_head_pass/torso_head/~/linear"))
    optimiser = make_optimiser(Learning(learning_rate=critic.LEARNING_RATE, clip_update=critic.CLIP))
    return critic.CriticState(networks, optimiser.init(networks), start_moments(), start_moments())


def critic_params(networks: tuple[MLP, MLP]) -> dict:
    stems = ("value_fn/~_embedding_pass/torso/~/linear", "value_fn/~_head_pass/torso_head/~/linear")
    layers = [(f"{stem}_{i}", layer) for stem, mlp in zip(stems, networks, strict=True) for i, layer in enumerate(mlp.layers)]
    return {f"{n}/{part}": value for n, layer in layers for part, value in (("w", layer.weight), ("b", layer.bias))}


def critic_out(judge: critic.CriticState) -> dict[str, dict]:
    adam = adam_state(judge.optimiser_state)
    moments = {"value_opt_state/count": adam.count} | renamed(critic_params(adam.mean), "value_opt_state/mu/")
    moments |= renamed(critic_params(adam.square), "value_opt_state/nu/")
    state = arrays.named_moments("value_adv_ema", judge.advantage) | arrays.named_moments("value_td_ema", judge.error)
    return {"moments": moments, "parameters": renamed(critic_params(judge.params), "value_params/"), "rule state": state}


@functools.cache
def compiled_gradient(learner: Learner, sizes: Sizes):
    """The meta-gradient as a function of arrays; both cases, and all their numbers of updates, share it."""

    def loss(network, life, judge, batches):
        return outer_loss(network, learner, sizes, life, judge, batches)

    # The arrays are small and the program is large: time goes into compiling it, not into running it.
    return jax.jit(jax.grad(loss, has_aux=True), compiler_options={"xla_llvm_disable_expensive_passes": True})


def meta_gradient(
    data: Recorded, opening: Recorded | None, recorded: Recorded, rule: RuleFile, precision: str, noise: float = 0.0
) -> list[Line]:
    """The meta-gradient through each recorded number of updates; `opening` holds a warm optimiser state, if there is one.

    `noise` is how far the recorded float32 outer losses are from the recorded float64 ones, their noise floor: they are
    differences of nearly equal numbers.
    """
    names = arrays.under(data, "in/params/")
    agent = arrays.agent(names, data["in/train/observations"].shape[3:], rule.sizes)
    learner = make_learner(rule.sizes, arrays.number(data["in/learning_rate"]))
    life, case = start_life(learner, agent, jax.random.key(0)), "7 meta-gradient"
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
    lines["outer loss"].tolerance = max(lines["outer loss"].tolerance, noise)
    if precision == "float32" and opening is None:
        # With a fresh Adam the derivative of its first step is 1 / (|g| + 1e-8): rounding decides the float32 gradient.
        del lines["gradient of the rule"]
        recorded.ignore("/meta_grad/")
    judge = recorded_critic(arrays.under(data, "in/value_params/"))
    for updates in sorted({int(name.split("/")[1][1:]) for name in recorded if name.startswith("out/n")}):
        batches = experience_of(data, updates)
        slopes, (after, critic_after, logs, meta_log, components, policy) = compiled_gradient(learner, rule.sizes)(
            rule.params, life, judge, batches
        )
        found = critic_out(critic_after)
        for group, results in learner_out(after, names).items():
            found[group] |= renamed(results, "learner/")
        found["gradient of the rule"] = renamed(to_haiku("gradient", take_apart(slopes)), "meta_grad/")
        found["logs"] = renamed(logs, "train_metrics/")
        found["outer loss"] = renamed(meta_log, "meta_log/") | renamed(components, "components/") | {"valid_logits": policy}
        for group, line in lines.items():
            recorded.compare_present(line, found[group], f"out/n{updates}/")
    recorded.overlooked(lines["logs"])
    return [line for line in lines.values() if line.arrays]


def experience_of(data: Recorded, updates: int) -> dict:
    """The rollouts, in our format for agents and in the reference's for its critic."""
    rollouts = [arrays.experience(data, "in/train/", (step,)) for step in range(updates)]
    train = {name: jnp.asarray(value)[:updates] for name, value in arrays.under(data, "in/train/").items()}
    return {
        "train": jax.tree.map(lambda *parts: jnp.stack(parts), *rollouts),
        "train_rollout": train,
        "valid": arrays.experience(data, "in/valid/"),
        "valid_rollout": {name: jnp.asarray(value) for name, value in arrays.under(data, "in/valid/").items()},
    }
