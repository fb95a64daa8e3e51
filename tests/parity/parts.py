"""Cases 1 to 5: meta-network, value estimation, losses, optimiser, agent network, each on its own."""

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.learning.optimisers import adam_direction, make_optimiser
from rulax.learning.update import Learner, Reading, gradient, init_learner_state, update
from rulax.metanet.sizes import Constants, Sizes
from rulax.rules.disco import disco, loss_weights, losses
from rulax.rules.haiku_names import to_haiku
from rulax.rules.pretrained import RuleFile, take_apart
from rulax.settings import Learning
from rulax.types import Array, Batch, Experience, Predictions, now
from tests.parity import arrays
from tests.parity.compare import Line, Recorded
from tests.parity.names import TERMS, meta_logs, meta_out, run_rule, state_out, value_logs


def recorded_batch(data: Recorded) -> Batch:
    return Batch(arrays.experience(data), arrays.predictions(data, "in/agent_out/"), arrays.predictions(data, "in/target_out/"))


# -- 1 -----------------------------------------------------------------------------------------------------------------------


def meta_network(data: Recorded, rule: RuleFile, line: Line, gradients: Line) -> None:
    """Case 1: the rule's targets, everything between, and the derivatives."""
    batch, state = recorded_batch(data), arrays.rule_state(data)
    compute = jax.jit(lambda network, state, batch: run_rule(network, state, batch, rule.sizes))
    for prefix, before in {"out/": state, "out_init/": disco(rule.sizes).start(jax.random.key(0))}.items():
        after, estimates, reading = compute(rule.params, before, batch)
        values = {"q_value": estimates.values, "v_scalar": estimates.value, "target_q_value": estimates.slow_values}
        data.compare(line, meta_out(estimates, reading) | values | renamed(state_out(after, "rnn"), "new_"), prefix)
        data.compare(line, {"new_toy_target_params/toy/w": toy_slow_copy(data, rule, batch, before)}, prefix)
        if prefix == "out/":
            data.compare(line, intermediate(reading), "dbg/")
    meta_network_gradients(data, rule, batch, gradients)
    data.overlooked(line)


def renamed(results: dict, before: str) -> dict:
    return {before + name: value for name, value in results.items()}


def intermediate(reading) -> dict[str, Array]:
    main, lifetime = reading.encodings
    return {
        "input_main": main.inputs,
        "policy_emb_main": main.actions,
        "input_metalstm": lifetime.inputs,
        "policy_emb_metalstm": lifetime.actions,
        "traj_rnn_out": reading.recurrent,
        "modulated": reading.features,
    }


class ToyAgent(eqx.Module):
    """The recorded stand-in for an agent: one matrix that nothing depends on, and fixed predictions."""

    toy: Array
    fixed: Predictions

    def embed(self, experience: Experience) -> Array:
        return jnp.zeros(experience.first.shape)

    def predict(self, embedding: Array) -> Predictions:
        return self.fixed

    def predict_taken(self, embedding: Array, action: Array) -> Predictions:
        return taken_of(self.fixed, action)


def taken_of(online: Predictions, action: Array) -> Predictions:
    """Predictions [T+1, B, ...] as the loss gets them: per action, only that of the action taken."""

    def take(values: Array) -> Array:
        return jnp.take_along_axis(now(values), action[..., None, None], -2)[..., 0, :]

    return {name: now(values) if values.ndim == 3 else take(values) for name, values in online.items()}


def toy_slow_copy(data: Recorded, rule: RuleFile, batch: Batch, state) -> Array:
    """The slow copy after one update of the stand-in."""
    learner = Learner(disco(rule.sizes), make_optimiser(Learning()), slow_decay=0.9)
    agent = ToyAgent(jnp.asarray(data["in/toy_params/toy/w"]), batch.online)
    slow = ToyAgent(jnp.asarray(data["in/toy_target_params/toy/w"]), batch.slow)
    life = init_learner_state(learner, agent, jax.random.key(0))._replace(slow=slow, rule_state=state)
    after = jax.jit(lambda network, life, experience: update(learner, network, life, experience, jax.random.key(0))[0])
    return after(rule.params, life, batch.experience).slow.toy


def meta_network_gradients(data: Recorded, rule: RuleFile, batch: Batch, line: Line) -> None:
    cotangents = {name: jnp.asarray(value) for name, value in arrays.under(data, "in/ct/").items()}
    state, targets = arrays.rule_state(data), disco(rule.sizes).targets

    def scalar(network, online):
        made, after, _ = targets(network, state, batch._replace(online=online))
        results = {"pi": made["policy"], "y": made["state_prediction"], "z": made["action_prediction"]}
        results["rnn_hidden"] = after.lifetime.hidden
        return sum(jnp.sum(cotangents[name] * result) for name, result in results.items())

    value, (of_rule, of_agent) = jax.jit(jax.value_and_grad(scalar, argnums=(0, 1)))(rule.params, batch.online)
    of_rule = renamed(to_haiku("gradient", take_apart(of_rule)), "meta_params/")
    of_agent = {f"agent_out/{name}": of_agent[arrays.HEADS[name]] for name in ("logits", "q", "y", "z")}
    data.compare(line, {"scalar": value} | of_rule | of_agent, "vjp/")


# -- 3 -----------------------------------------------------------------------------------------------------------------------


def agent_losses(data: Recorded, inputs: Recorded, rule: RuleFile, line: Line) -> None:
    """Case 3: losses and their gradient on the inputs of case 1."""

    @jax.jit
    def compute(network, state, batch):
        _, estimates, _ = run_rule(network, state, batch, rule.sizes)
        made, _, _ = disco(rule.sizes).targets(network, state, batch)
        logs, results = meta_logs_and_losses(made, batch, rule.sizes)
        of_value = value_logs(taken_of(batch.online, batch.experience.action), batch, made, estimates, rule.sizes)
        logs_of_all = logs | of_value | {"total_loss": results["total_masked_loss"]}
        return results | renamed(of_value, "agent_loss_no_meta_log/") | renamed(logs_of_all, "loss_log/")

    data.compare(line, compute(rule.params, arrays.rule_state(inputs), recorded_batch(inputs)))
    data.overlooked(line)


def losses_of_recorded_targets(data: Recorded, line: Line) -> None:
    """Case 3 of a cut folder: the same losses and gradients, of targets that were recorded too; no meta-network is needed."""
    online, made = arrays.predictions(data, "in/agent_out/"), arrays.under(data, "in/targets/")
    experience = arrays.experience(data)
    targets = {arrays.HEADS[name]: jnp.asarray(value) for name, value in made.items()} | {"next_policy": online["policy"][1:]}
    sizes = Sizes(prediction_size=online["state_prediction"].shape[-1], bins=online["value"].shape[-1])
    data.compare(line, jax.jit(lambda: meta_logs_and_losses(targets, Batch(experience, online, {}), sizes)[1])())
    data.overlooked(line)


def meta_logs_and_losses(made: Predictions, batch: Batch, sizes: Sizes) -> tuple[dict[str, Array], dict[str, Array]]:
    """Logs of the discovered losses, and what of case 3 follows from targets alone, both by the reference's names."""
    taken, back = jax.vjp(lambda online: taken_of(online, batch.experience.action), batch.online)
    terms = losses(taken, made, batch.experience, sizes)
    weights = loss_weights(Constants())
    weighted = {name: weights[name] * term for name, term in terms.items()}
    no_meta = weighted.pop("value")
    logs = meta_logs(taken, batch, made, sizes)
    slopes, metrics = gradient(disco(sizes), {}, Reading(taken, back, jnp.zeros(()), params=None), made, batch.experience)
    results = {"agent_loss": sum(weighted.values()), "agent_loss_no_meta": no_meta, "mask": batch.experience.valid}
    results |= {f"component_{TERMS[name]}": term for name, term in terms.items()}
    results |= renamed(logs, "agent_loss_log/")
    results["total_masked_loss"] = metrics["loss"]
    return logs, results | {f"grad_agent_out/{name}": slopes[ours] for name, ours in arrays.HEADS.items()}


# -- 4 -----------------------------------------------------------------------------------------------------------------------


def optimiser(data: Recorded, line: Line) -> None:
    """Case 4: the chain of Adam, clip and learning rate, and Adam's derivative."""
    rate, clip = arrays.number(data["in/learning_rate"]), arrays.number(data["in/max_abs_update"])
    chain, adam = make_optimiser(Learning(learning_rate=rate, clip_update=clip)), adam_direction()
    params, grads, cotangents = (
        {n: jnp.asarray(v) for n, v in arrays.under(data, f"in/{k}/").items()} for k in ("params", "grads", "ct")
    )
    state, steps = chain.init(params), next(iter(grads.values())).shape[0]

    def directions(grads):
        state, found = adam.init(params), []
        for step in range(steps):
            direction, state = adam.update({name: grad[step] for name, grad in grads.items()}, state)
            found.append((direction, state))
        return found

    for step, (direction, adam_state) in enumerate(directions(grads)):
        updates, state = chain.update({name: grad[step] for name, grad in grads.items()}, state, params)
        params = {name: params[name] + updates[name] for name in params}
        results = renamed(direction, "adam_direction/") | renamed(updates, "updates/") | renamed(params, "params/")
        results |= (
            {"state/count": adam_state.count} | renamed(adam_state.mean, "state/mu/") | renamed(adam_state.square, "state/nu/")
        )
        data.compare(line, results, f"out/step{step + 1}/")

    def scalar(grads):
        pairs = enumerate(directions(grads))
        return sum(jnp.sum(cotangents[name][step] * direction[name]) for step, (direction, _) in pairs for name in cotangents)

    value, slopes = jax.value_and_grad(scalar)(grads)
    data.compare(line, {"vjp_scalar": value} | renamed(slopes, "vjp_grads/"))
    data.overlooked(line)


# -- 5 -----------------------------------------------------------------------------------------------------------------------


def agent_network(data: Recorded, line: Line) -> None:
    """Case 5: the agent's predictions, in one step and over a sequence."""
    observation, sequence = jnp.asarray(data["in/obs"]), jnp.asarray(data["in/obs_seq"])
    agent = arrays.agent(arrays.under(data, "in/params/"), observation.shape[1:], Sizes())
    first = jnp.zeros(sequence.shape[:2], bool)
    nothing = jnp.zeros(())
    unrolled = agent.predict(agent.embed(Experience(sequence, nothing, nothing, nothing, first, nothing, nothing, ())))
    one_step = agent.predict(agent.heads.begin(agent.torso(observation)))
    logits, _ = agent.act(observation, first[0], ())
    for prefix, found in {"out/one_step/": one_step, "out/unroll/": unrolled}.items():
        data.compare(line, {name: found[ours] for name, ours in arrays.HEADS.items()}, prefix)
    data.compare(line, {"logits": logits}, "out/one_step/")
    data.overlooked(line)
