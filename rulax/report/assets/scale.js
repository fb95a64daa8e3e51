// Numbers: ticks that a person would choose, short labels, and scales from data to pixels.

const STEPS = [1, 2, 5, 10];

function tickStep(span, count) {
  const rough = span / Math.max(1, count);
  const size = 10 ** Math.floor(Math.log10(rough));
  return size * STEPS.find((step) => step * size >= rough * (1 - 1e-9));
}

// Multiples of a round step that cover [low, high]; the axis ends at the outer ones.
function linearTicks(low, high, count) {
  if (!(high > low)) {
    const room = Math.abs(low) > 0 ? Math.abs(low) / 5 : 1;
    low -= room; high += room;
  }
  const step = tickStep(high - low, count);
  const first = Math.floor(low / step + 1e-9), last = Math.ceil(high / step - 1e-9);
  const ticks = [];
  for (let k = first; k <= last; k++) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

// Powers of ten; where there are few of them, 2 and 5 between as well.
function logTicks(low, high) {
  const first = Math.floor(Math.log10(low) + 1e-9), last = Math.ceil(Math.log10(high) - 1e-9);
  const between = last - first <= 2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((last - first) / 6));
  const ticks = [];
  for (let k = first; k <= last; k += every) {
    for (const m of between) ticks.push(Number((m * 10 ** k).toPrecision(12)));
  }
  const inside = ticks.filter((t) => t >= low / 1.001 && t <= high * 1.001);
  return inside.length > 1 ? inside : [low, high];
}

function short(value) {
  const size = Math.abs(value);
  for (const [unit, name] of [[1e9, 'B'], [1e6, 'M'], [1e3, 'k']]) {
    if (size >= unit) return trim(value / unit) + name;
  }
  if (size > 0 && size < 1e-3) return value.toExponential(1).replace('.0e', 'e').replace('-', '−');
  return trim(value);
}

// All labels of an axis alike: one unit, and as many decimals as tell neighbours apart.
function tickLabels(ticks) {
  const largest = Math.max(...ticks.map(Math.abs)), step = Math.min(...ticks.slice(1).map((t, i) => Math.abs(t - ticks[i])));
  if (largest > 0 && largest < 1e-3) return ticks.map((t) => (t === 0 ? '0' : short(t)));
  const [unit, name] = [[1e9, 'B'], [1e6, 'M'], [1e3, 'k']].find(([size]) => largest >= size && step >= size / 1000) || [1, ''];
  const decimals = Number.isFinite(step) ? Math.max(0, Math.min(9, -Math.floor(Math.log10(step / unit) + 1e-9))) : 3;
  return ticks.map((t) => (t === 0 ? '0' : String(Number((t / unit).toFixed(decimals))).replace('-', '−') + name));
}

function trim(value) {
  const text = String(Number(value.toPrecision(4)));
  return text.replace('-', '−');
}

// A value as it is read off: a few digits more than on an axis.
function exact(value) {
  if (value === null || value === undefined) return '–';
  const size = Math.abs(value);
  if (size >= 1e6) return short(value);
  if (size >= 1000) return Math.round(value).toLocaleString('en').replace('-', '−');
  if (size > 0 && size < 1e-3) return short(value);
  const text = size >= 100 ? value.toFixed(1) : value.toFixed(3);
  return text.replace('-', '−');
}

function makeScale(low, high, from, to, log) {
  const f = log ? Math.log : (v) => v;
  const a = f(low), b = f(high);
  return (value) => from + (to - from) * (b > a ? (f(value) - a) / (b - a) : 0.5);
}

function known(value) {
  return value !== null && value !== undefined;
}

// Index of the entry of a rising list that is nearest to a value.
function nearestIndex(list, value) {
  let low = 0, high = list.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle; else high = middle;
  }
  return Math.abs(list[low] - value) <= Math.abs(list[high] - value) ? low : high;
}
