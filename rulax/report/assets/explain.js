// The part of the page where a trajectory can be edited: controls above, the targets of three rules below. Uses forward.js.

const LETTERS = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
const NAMES = { untrained: 'untrained agent', learning: 'half trained', trained: 'trained agent' };
const rule = data.weights ? { ...data.weights, arrays: Object.fromEntries(Object.entries(data.weights.arrays).map(([k, v]) => [k, unpack(v)])) } : null;
const RULE = data.rule, PEOPLE = ['actor-critic step', 'PPO as targets'];
const shownNames = rule ? [RULE, ...PEOPLE] : PEOPLE;
const colourOf = (i) => `var(--c${i + (rule ? 0 : 1)})`;

const recorded = data.scenes.map((scene) => ({
  ...scene, gate: unpack(scene.gate), logits: scene.logits && { y: unpack(scene.logits.y), z: unpack(scene.logits.z) },
}));
let place = recorded.length > 1 ? recorded.length - 2 : 0, scene = null;

function copyOf(from) {
  const rows = (part) => part && Object.fromEntries(Object.entries(part).map(([k, v]) => [k, v.map((x) => (Array.isArray(x) ? [...x] : x))]));
  return {
    ...from, action: [...from.action], reward: [...from.reward], end: [...from.end], value: [...from.value],
    policy: from.policy.map((p) => [...p]), online: rows(from.online), slow: rows(from.slow),
  };
}

// -- what a user can do -----------------------------------------------------------------------------------------------------------

const PRESETS = {
  'as recorded': () => {},
  'no reward': (s) => { s.reward.fill(0); },
  'reward in the middle': (s) => { s.reward.fill(0); s.reward[2] = 1; },
  'punished at the end': (s) => { s.reward.fill(0); s.reward[s.reward.length - 1] = -1; },
  'a lucky guess': (s) => { s.action.forEach((a, t) => setProbability(s, t, 0.1)); s.reward.fill(0); s.reward[s.reward.length - 1] = 1; },
  'no end in sight': (s) => { s.end.fill(false); },
};

function setProbability(s, t, wanted) {
  const p = s.policy[t], a = s.action[t], others = 1 - p[a];
  p.forEach((x, i) => { if (i !== a) p[i] = others > 1e-9 ? (x / others) * (1 - wanted) : (1 - wanted) / (p.length - 1); });
  p[a] = wanted;
}

function valueAt(s, t) {
  return s.online && s.online.q ? s.online.q[t][s.action[t]] : s.value[t];
}

function setValue(s, t, wanted) {
  if (!s.online || !s.online.q) { s.value[t] = wanted; return; }
  const change = wanted - s.online.q[t][s.action[t]];
  s.online.q[t][s.action[t]] += change;
  s.slow.q[t][s.action[t]] += change;
}

function el(name, attributes, text, parent) {
  const element = document.createElement(name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== null && text !== undefined) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}

const at = (name) => root.querySelector(`[data-part="${name}"]`);
const steps = recorded[0].action.length, actions = recorded[0].policy[0].length;
const letter = (i) => LETTERS[i] || String(i + 1);

function drawButtons() {
  recorded.forEach((one, i) => {
    const button = el('button', { type: 'button', class: 'quiet' }, NAMES[one.label] || one.label, at('scenes'));
    button.addEventListener('click', () => { place = i; choose('as recorded'); });
  });
  for (const name of Object.keys(PRESETS)) {
    const button = el('button', { type: 'button', class: 'quiet' }, name, at('presets'));
    button.addEventListener('click', () => choose(name));
  }
}

function choose(name) {
  scene = copyOf(recorded[place]);
  PRESETS[name](scene);
  [...at('scenes').children].forEach((b, i) => b.setAttribute('aria-pressed', String(i === place)));
  [...at('presets').children].forEach((b) => b.setAttribute('aria-pressed', String(b.textContent === name)));
  showControls();
  refresh();
  charts.say(`${recorded[place].label}, ${name}`);
}

const controls = [];
function slider(row, label, low, high, step, get, set) {
  const line = el('tr', {}, null, at('controls'));
  el('th', { scope: 'row' }, row, line);
  for (let t = 0; t < steps; t++) {
    const cell = el('td', {}, null, line);
    const input = el('input', { type: 'range', min: low, max: high, step, 'aria-label': `${label} at step ${t + 1}` }, null, cell);
    const shown = el('output', {}, '', cell);
    const show = () => { input.value = get(t); shown.textContent = Number(get(t)).toFixed(2).replace('-', '−'); };
    input.addEventListener('input', () => { set(t, Number(input.value)); touched(); });
    controls.push(show);
  }
}

function drawControls() {
  slider('reward', 'reward', -2, 2, 0.05, (t) => scene.reward[t], (t, x) => { scene.reward[t] = x; });
  slider('π(action)', 'probability of the action taken', 0.01, 0.99, 0.01, (t) => scene.policy[t][scene.action[t]], (t, x) => setProbability(scene, t, x));
  slider('value', 'value of the action taken', -2, 2, 0.05, (t) => valueAt(scene, t), (t, x) => setValue(scene, t, x));
  const taken = el('tr', {}, null, at('controls'));
  el('th', { scope: 'row' }, 'action taken', taken);
  for (let t = 0; t < steps; t++) {
    const cell = el('td', {}, null, taken), select = el('select', { 'aria-label': `action taken at step ${t + 1}` }, null, cell);
    for (let i = 0; i < actions; i++) el('option', { value: i }, letter(i), select);
    select.addEventListener('change', () => { scene.action[t] = Number(select.value); touched(); });
    controls.push(() => { select.value = scene.action[t]; });
  }
  const ends = el('tr', {}, null, at('controls'));
  el('th', { scope: 'row' }, 'episode ends', ends);
  for (let t = 0; t < steps; t++) {
    const box = el('input', { type: 'checkbox', 'aria-label': `the episode ends at step ${t + 1}` }, null, el('td', {}, null, ends));
    box.addEventListener('change', () => { scene.end[t] = box.checked; touched(); });
    controls.push(() => { box.checked = scene.end[t]; });
  }
}

function showControls() { controls.forEach((show) => show()); }

let waiting = false;
function touched() {
  [...at('presets').children].forEach((b) => b.setAttribute('aria-pressed', 'false'));
  showControls();
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; refresh(); });
}

// -- what the rules say -----------------------------------------------------------------------------------------------------------

function answers() {
  const value = scene.online && scene.online.q ? scene.policy.map((p, t) => dot(p, scene.online.q[t])) : scene.value;
  const people = writtenByPeople(scene, value);
  const found = { [PEOPLE[0]]: people.actorCritic, [PEOPLE[1]]: people.ppo };
  const own = rule ? discovered(rule, scene) : null;
  if (own) found[RULE] = own.policy;
  return { own, logs: Object.fromEntries(Object.entries(found).map(([name, rows]) => [name, rows.map(logSoftmax)])) };
}

// How far each rule pushes the action that was taken, up or down from the line, all steps on one scale.
function drawPush(logs) {
  const line = at('push');
  line.replaceChildren();
  const head = el('th', { scope: 'row' }, 'push on the action', line);
  el('span', { class: 'small' }, 'log target(a) − log π(a)', head);
  const pushes = shownNames.map((name) => logs[name].map((row, t) => row[scene.action[t]] - Math.log(scene.policy[t][scene.action[t]])));
  const reach = Math.max(0.5, ...pushes.flat().map(Math.abs));
  for (let t = 0; t < steps; t++) {
    const cell = el('td', {}, null, line), field = el('div', { class: 'push' }, null, cell);
    shownNames.forEach((name, i) => {
      const value = pushes[i][t], share = (50 * Math.abs(value)) / reach;
      const bar = el('i', { title: `${name}: ${value.toFixed(3)}` }, null, el('div', {}, null, field));
      bar.style.cssText = `background:${colourOf(i)};height:${share.toFixed(1)}%;${value >= 0 ? 'bottom' : 'top'}:50%`;
    });
    const words = el('span', { class: 'small' }, null, cell);
    shownNames.forEach((name, i) => { el('b', { style: `color:${colourOf(i)}` }, `${pushes[i][t] < 0 ? '−' : '+'}${Math.abs(pushes[i][t]).toFixed(2)} `, words); });
  }
}

function refresh() {
  const began = performance.now();
  const { own, logs } = answers();
  const spent = performance.now() - began;
  drawPush(logs);
  drawPolicies(logs);
  if (own && rule.predictions) { drawStrips('y', own.y); drawStrips('z', own.z); }
  root.dataset.milliseconds = (performance.now() - began).toFixed(1);
  at('time').textContent = `Computed in this page in ${spent.toFixed(0)} ms.`;
}

// Groups of bars: the policy first, then what each rule would make of it.
function drawPolicies(logs) {
  const line = at('policies');
  line.replaceChildren();
  el('th', { scope: 'row' }, 'policy → targets', line);
  for (let t = 0; t < steps; t++) {
    const cell = el('td', {}, null, line), bars = el('div', { class: 'bars' }, null, cell);
    const words = [];
    for (let i = 0; i < actions; i++) {
      const group = el('div', { class: i === scene.action[t] ? 'group taken' : 'group' }, null, bars);
      const rows = [['now', scene.policy[t][i], 'var(--zero)'], ...shownNames.map((name, n) => [name, Math.exp(logs[name][t][i]), colourOf(n)])];
      for (const [name, share, colour] of rows) {
        const bar = el('i', {}, null, group);
        bar.style.height = `${Math.max(1, 100 * share).toFixed(1)}%`;
        bar.style.background = colour;
        words.push(`${letter(i)} ${name} ${share.toFixed(2)}`);
      }
      el('span', {}, letter(i), group);
    }
    bars.title = words.join('\n');
  }
}

// Shares as stripes of one background: an element for each would cost more time than all that is computed.
function stripes(host, shares, top, colour) {
  const edge = (g) => `${((100 * g) / shares.length).toFixed(2)}%`;
  const parts = shares.map((share, g) => {
    return `color-mix(in oklab, ${colour} ${(100 * Math.sqrt(share / top)).toFixed(0)}%, var(--paper)) ${edge(g)} ${edge(g + 1)}`;
  });
  el('i', {}, null, host).style.background = `linear-gradient(to right, ${parts.join()})`;
}

const GROUPS = 60;
function drawStrips(name, rows) {
  const line = at(name);
  line.replaceChildren();
  el('th', { scope: 'row' }, name === 'y' ? 'ŷ (state)' : 'ẑ (action)', line);
  const logits = scene.logits[name], size = rows[0].length;
  for (let t = 0; t < steps; t++) {
    const from = (name === 'y' ? t : t * actions + scene.action[t]) * size;
    const target = logSoftmax(rows[t]), before = logSoftmax(logits.data.subarray(from, from + size));
    let distance = 0, randomness = 0;
    const groups = new Array(Math.min(GROUPS, size)).fill(0), old = groups.slice();
    for (let i = 0; i < size; i++) {
      const p = Math.exp(target[i]), g = Math.floor((i * groups.length) / size);
      distance += p * (target[i] - before[i]);
      randomness -= p * target[i];
      groups[g] += p;
      old[g] += Math.exp(before[i]);
    }
    const cell = el('td', {}, null, line), strip = el('div', { class: 'strip', 'aria-hidden': 'true' }, null, cell);
    const top = Math.max(...groups, ...old);
    stripes(strip, old, top, 'var(--faint)');
    stripes(strip, groups, top, colourOf(0));
    el('span', { class: 'small' }, `moves ${distance.toFixed(2)} nats, spread over ${Math.exp(randomness).toFixed(0)} of ${size}`, cell);
  }
}

function drawHead() {
  const head = at('head');
  el('td', {}, '', head);
  for (let t = 0; t < steps; t++) el('th', { scope: 'col' }, `step ${t + 1}`, head);
}

function drawKey() {
  const entry = (name, colour) => {
    const item = el('span', {}, null, at('key'));
    el('i', { style: `background:${colour}` }, null, item);
    item.append(name);
  };
  entry('the policy now', 'var(--zero)');
  shownNames.forEach((name, i) => entry(name, colourOf(i)));
}

drawHead();
drawKey();
drawButtons();
drawControls();
choose('as recorded');
