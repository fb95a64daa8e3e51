// A rule's targets for one short trajectory, computed in the page. The arithmetic is that of rulax/metanet/ and rulax/rules/.

function unpack(packed) {
  if (!packed) return null;
  const text = atob(packed.data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return { shape: packed.shape, data: new Float32Array(bytes.buffer) };
}

const signLog = (x) => Math.sign(x) * Math.log1p(Math.abs(x));
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const sum = (values) => values.reduce((total, value) => total + value, 0);
const dot = (one, other) => sum(one.map((value, i) => value * other[i]));

function logSoftmax(logits) {
  const top = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  let total = 0;
  for (const x of logits) total += Math.exp(x - top);
  const shift = top + Math.log(total);
  return Float64Array.from(logits, (x) => x - shift);
}

// out += x W, row by row; `from` is the first row of W that x is multiplied with.
function multiply(out, x, matrix, from = 0) {
  const width = matrix.shape[1], data = matrix.data;
  for (let i = 0; i < x.length; i++) {
    const value = x[i];
    if (value === 0) continue;
    const row = (from + i) * width;
    for (let j = 0; j < width; j++) out[j] += value * data[row + j];
  }
  return out;
}

// Backwards in time: total_t = e_t + decay_t total_{t+1}.
function accumulate(errors, decays) {
  const totals = new Array(errors.length);
  let total = 0;
  for (let t = errors.length - 1; t >= 0; t--) { total = errors[t] + decays[t] * total; totals[t] = total; }
  return totals;
}

// One layer over a set of actions: own weights for each, and the mean over all; `shared` is the same for every action.
function actionSet(perAction, shared, own, mean, bias) {
  const width = bias.shape[0], depth = shared ? shared.length : 0, channels = perAction[0].length;
  const average = new Array(channels).fill(0);
  for (const row of perAction) row.forEach((value, i) => { average[i] += value / perAction.length; });
  const base = multiply(Float64Array.from(bias.data), average, mean, depth);
  if (shared) { multiply(base, shared, own); multiply(base, shared, mean); }
  return perAction.map((row) => {
    const out = multiply(Float64Array.from(base), row, own, depth);
    for (let i = 0; i < width; i++) out[i] = Math.max(0, out[i]);
    return Array.from(out);
  });
}

function actionSets(rule, name, count, perAction, shared) {
  let rows = perAction;
  for (let i = 0; i < count; i++) {
    const part = (what) => rule.arrays[`${name}.${i}.${what}`];
    rows = actionSet(rows, i === 0 ? shared : null, part('own'), part('mean'), part('bias'));
  }
  return rows;
}

// The advantages that a discovered rule reads: Retrace from the slow copy, normalised by moving averages over the agent's life.
function estimates(rule, scene) {
  const { policy, action, reward, end } = scene, steps = action.length;
  const slow = scene.slow.q, own = scene.online.q;
  const value = policy.map((p, t) => dot(p, own[t])), slowValue = policy.map((p, t) => dot(p, slow[t]));
  const discount = end.map((e) => (e ? 0 : rule.discount));
  const taken = action.map((a, t) => slow[t][a]);
  const errors = reward.map((r, t) => r + discount[t] * slowValue[t + 1] - taken[t]);
  const decays = discount.map((d, t) => (t + 1 < steps ? d * rule.trace : 0));
  const advantage = accumulate(errors, decays).map((total, t) => total + taken[t] - slowValue[t]);
  const [m1, m2, product] = scene.moments;
  const first = rule.decay * m1 + (1 - rule.decay) * (sum(advantage) / steps);
  const second = rule.decay * m2 + (1 - rule.decay) * (sum(advantage.map((a) => a * a)) / steps);
  const weight = 1 / (1 - rule.decay * product), mean = first * weight;
  const scale = Math.sqrt(Math.max(0, second * weight - mean * mean) + 1e-12) + 1e-6;
  const normalise = (x) => (x - mean) / scale;
  return { value, advantage, normalise, slowValue };
}

// What the meta-network reads of each step, and of each action.
function inputsOf(rule, scene) {
  const { policy, action, reward, end } = scene;
  const known = rule.value ? estimates(rule, scene) : null;
  const later = (values, t) => (rule.bootstrap ? values[t + 1] : 0);
  const mean = (values, t) => dot(policy[t], values[t]), top = (values, t) => Math.max(...values[t]);
  return action.map((a, t) => {
    const p = policy[t][a];
    const scalars = [p, p, signLog(reward[t]), end[t] ? 0 : 1], kept = [1, 1, 1, 1];
    if (known) {
      const values = known.value.map(signLog);
      scalars.push(values[t], later(values, t), signLog(known.advantage[t]), known.normalise(known.advantage[t]));
      kept.push(0, 0, 1, 1);
    }
    scalars.push(p);
    kept.push(1);
    const channels = policy[t].map((x, i) => {
      const row = [x, x, x];
      if (rule.predictions) row.push(scene.online.z[t][i], scene.slow.z[t][i]);
      if (known) {
        const q = scene.slow.q[t][i], gain = q - known.slowValue[t];
        row.push(signLog(q), signLog(gain), known.normalise(gain));
      }
      return [...row, i === a ? 1 : 0];
    });
    const encoded = actionSets(rule, 'actions', rule.actions, channels, null);
    const others = [];
    if (rule.predictions) {
      for (const read of [scene.online, scene.slow]) others.push(read.y[t], later(read.y, t));
      for (const { z } of [scene.online, scene.slow]) {
        others.push(z[t][a], mean(z, t), rule.bootstrap ? mean(z, t + 1) : 0, top(z, t), rule.bootstrap ? top(z, t + 1) : 0);
      }
    }
    for (let i = 0; i < encoded[0].length; i++) others.push(sum(encoded.map((row) => row[i])) / encoded.length);
    others.push(...encoded[a]);
    const handedOn = rule.bootstrap ? null : [...scalars.map((x, i) => x * kept[i]), ...others.map(() => 0)];
    return { shown: [...scalars, ...others], handedOn, encoded };
  });
}

function gates(rule, inputs, hidden, cell) {
  const size = rule.hidden;
  const out = Float64Array.from(rule.arrays['lstm.bias'].data);
  multiply(out, inputs, rule.arrays['lstm.input']);
  multiply(out, hidden, rule.arrays['lstm.hidden']);
  const state = { hidden: new Float64Array(size), cell: new Float64Array(size) };
  for (let i = 0; i < size; i++) { // in the order input, candidate, forget, output
    state.cell[i] = sigmoid(out[2 * size + i] + 1) * cell[i] + sigmoid(out[i]) * Math.tanh(out[size + i]);
    state.hidden[i] = sigmoid(out[3 * size + i]) * Math.tanh(state.cell[i]);
  }
  return state;
}

// A discovered rule: logits of the targets for the policy [T][A], and for y and z [T][N].
function discovered(rule, scene) {
  const inputs = inputsOf(rule, scene), steps = inputs.length, nothing = new Float64Array(rule.hidden);
  const policy = new Array(steps), y = new Array(steps), z = new Array(steps);
  let state = { hidden: nothing, cell: nothing };
  for (let t = steps - 1; t >= 0; t--) {
    const { hidden, cell } = scene.end[t] ? { hidden: nothing, cell: nothing } : state;
    const shown = gates(rule, inputs[t].shown, hidden, cell);
    state = inputs[t].handedOn ? gates(rule, inputs[t].handedOn, hidden, cell) : shown;
    const features = scene.gate ? shown.hidden.map((x, i) => x * scene.gate.data[i]) : shown.hidden;
    const rows = actionSets(rule, 'policy_set', rule.policy_set, inputs[t].encoded, features);
    policy[t] = rows.map((row) => rule.arrays['policy.bias'].data[0] + sum(row.map((x, i) => x * rule.arrays['policy.weight'].data[i])));
    if (!rule.predictions) continue;
    y[t] = multiply(Float64Array.from(rule.arrays['y.bias'].data), features, rule.arrays['y.weight']);
    z[t] = multiply(Float64Array.from(rule.arrays['z.bias'].data), features, rule.arrays['z.weight']);
  }
  return { policy, y, z };
}

// Rules that people wrote: advantages from the agent's value, discount 0.99 and lambda 0.95 as in rulax/rules/. PPO standardises them
// over a batch: by the mean and deviation over all that was recorded, since those of so few steps would make a storm of any ripple.
function writtenByPeople(scene, value) {
  const { policy, action, reward, end } = scene;
  const discount = end.map((e) => (e ? 0 : 0.99));
  const advantage = accumulate(reward.map((r, t) => r + discount[t] * value[t + 1] - value[t]), discount.map((d) => 0.95 * d));
  const [mean, deviation] = scene.advantages || [0, 1]; // recordings of earlier versions have none
  const logs = policy.map((p) => p.map((x) => Math.log(x)));
  const push = advantage.map((a) => Math.max(-2, Math.min(2, (a - mean) / (deviation + 1e-8))));
  return {
    advantage,
    // One step of size one down the slope of -A log pi(a) in the logits: A (1 - pi) on the action taken, -A pi on the others.
    actorCritic: action.map((a, t) => logs[t].map((x, i) => x + advantage[t] * ((i === a ? 1 : 0) - policy[t][i]))),
    ppo: action.map((a, t) => logs[t].map((x, i) => (1 - 0.001) * x + (i === a ? push[t] : 0))),
  };
}
