// The other charts: values with intervals, bars, matrices of colours, and panels of small charts.

function rowsOf(spec) {
  if (spec.names) return spec.names.map((name, i) => ({ name, value: spec.values[i], low: null, high: null, note: '' }));
  return spec.rows;
}

function drawIntervals(host, spec, shared) {
  if (shared) make('h3', '', spec.title, make('div', 'head', null, host));
  const stage = make('div', 'stage', null, host);
  const chart = { spec };
  whenResized(stage, () => paintIntervals(stage, chart.spec));
  return { update: (next) => { chart.spec = { kind: spec.kind, ...next }; paintIntervals(stage, chart.spec); } };
}

// Names on the left, the value in words on the right; on a narrow screen the words stand above their interval.
function paintIntervals(stage, spec) {
  stage.replaceChildren();
  const rows = rowsOf(spec), bars = Boolean(spec.names);
  const width = Math.max(200, stage.clientWidth), narrow = width < 460;
  const words = rows.map((row) => (known(row.low) ? `${exact(row.value)}  [${exact(row.low)}, ${exact(row.high)}]` : exact(row.value)));
  const left = narrow ? 8 : Math.min(width * 0.35, 18 + 7 * Math.max(...rows.map((row) => row.name.length), 4));
  const right = narrow ? 10 : 18 + 6.4 * Math.max(...words.map((word) => word.length), 4);
  const step = narrow ? 44 : 30, top = 8, bottom = 36, height = top + step * rows.length + bottom;
  const values = seenValues(rows).concat(bars ? [0] : [], [spec.reference]).filter(known);
  const label = `${spec.title}: ${rows.map((row, i) => `${row.name} ${words[i]}`).join('; ')}`;
  const picture = svg('svg', { width: '100%', height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label }, stage);
  if (!values.length) {
    svg('text', { x: width / 2, y: height / 2, 'text-anchor': 'middle', class: 'muted' }, picture).textContent = 'nothing measured yet';
    return;
  }
  const ticks = linearTicks(Math.min(...values), Math.max(...values), Math.max(2, Math.round((width - left - right) / 90)));
  const labels = tickLabels(ticks);
  const x = makeScale(ticks[0], ticks[ticks.length - 1], left, width - right, false);
  ticks.forEach((tick, i) => {
    svg('line', { x1: x(tick), x2: x(tick), y1: top, y2: height - bottom, class: 'grid' }, picture);
    svg('text', { x: x(tick), y: height - bottom + 16, 'text-anchor': 'middle', class: 'tick' }, picture).textContent = labels[i];
  });
  if (known(spec.reference)) svg('line', { x1: x(spec.reference), x2: x(spec.reference), y1: top, y2: height - bottom, class: 'line reference' }, picture);
  svg('text', { x: width - right, y: height - 4, 'text-anchor': 'end', class: 'label' }, picture).textContent = spec.unit;
  rows.forEach((row, i) => drawRow(picture, { row, words: words[i], x: clamped(x, left, width - right), y: top + step * (i + (narrow ? 0.72 : 0.5)), left, width, narrow, bars }));
}

// What the axis must reach: all of our own values, and published ones that would not flatten those.
function seenValues(rows) {
  const own = rows.filter((row) => !row.published).flatMap((row) => [row.value, row.low, row.high]).filter(known);
  const [low, high] = [Math.min(...own), Math.max(...own)], reach = 3 * (high - low || Math.abs(high) || 1);
  return own.concat(rows.filter((row) => row.published && known(row.value)).map((row) => row.value).filter((value) => !own.length || (value > low - reach && value < high + reach)));
}

function clamped(x, left, right) {
  return Object.assign((value) => Math.max(left, Math.min(right, x(value))), { beyond: (value) => (x(value) > right + 1 ? ' →' : x(value) < left - 1 ? ' ←' : '') });
}

function drawRow(picture, { row, words, x, y, left, width, narrow, bars }) {
  const colour = look(row.name).colour;
  const group = svg('g', {}, picture);
  const most = Math.floor((narrow ? width * 0.6 : left - 14) / 6.8);
  const shown = row.name.length > most ? row.name.slice(0, Math.max(1, most - 1)) + '…' : row.name;
  svg('title', {}, group).textContent = row.note ? `${row.name}: ${words} (${row.note})` : `${row.name}: ${words}`;
  svg('text', narrow ? { x: 0, y: y - 15, class: 'name' } : { x: left - 12, y: y + 4, 'text-anchor': 'end', class: 'name' }, group).textContent = shown;
  svg('text', { x: width, y: narrow ? y - 15 : y + 4, 'text-anchor': 'end', class: 'words' }, group).textContent = words + (row.published && known(row.value) ? x.beyond(row.value) : '');
  if (!known(row.value)) return;
  if (bars) {
    const [from, to] = [x(0), x(row.value)].sort((a, b) => a - b);
    svg('rect', { x: from, y: y - 7, width: Math.max(1, to - from), height: 14, rx: 2 }, group).style.fill = colour;
    return;
  }
  if (known(row.low)) {
    const bar = svg('rect', { x: x(row.low), y: y - 5, width: Math.max(1, x(row.high) - x(row.low)), height: 10, rx: 5, class: 'interval' }, group);
    bar.style.fill = colour;
  }
  if (row.published) svg('path', { d: diamond(x(row.value), y, 6), class: 'published' }, group);
  else svg('circle', { cx: x(row.value), cy: y, r: 5, class: 'dot' }, group).style.fill = colour;
}

// A matrix as a table of coloured cells, so that it can be read without seeing the colours.
const MOST_WRITTEN = 14; // columns up to which the numbers are written in
const STRONGEST = 55; // per cent of colour in a cell: ink stays readable on it

function drawHeatmap(host, spec, shared) {
  if (shared) make('h3', '', spec.title, make('div', 'head', null, host));
  spec = { title: '', centre: null, limits: [null, null], ...spec };
  const values = spec.values.flat().filter(known);
  const low = known(spec.limits[0]) ? spec.limits[0] : Math.min(...values);
  const high = known(spec.limits[1]) ? spec.limits[1] : Math.max(...values);
  const written = spec.x_labels.length <= MOST_WRITTEN;
  const scroll = make('div', 'scroll', null, host);
  const table = make('table', written ? 'heat' : 'heat dense', null, scroll);
  make('caption', 'unseen', spec.title, table);
  const head = make('tr', '', null, make('thead', '', null, table));
  make('td', '', '', head);
  spec.x_labels.forEach((label) => { make('th', '', label, head).scope = 'col'; });
  const body = make('tbody', '', null, table);
  spec.values.forEach((row, i) => {
    const line = make('tr', '', null, body);
    make('th', '', spec.y_labels[i], line).scope = 'row';
    row.forEach((value, j) => {
      const cell = make('td', '', written ? (known(value) ? Number(value).toFixed(2).replace('-', '−') : '') : '', line);
      cell.title = `${spec.y_labels[i]}, ${spec.x_labels[j]}: ${exact(value)}`;
      if (known(value)) cell.style.background = shade(value, low, high, spec.centre);
    });
  });
  if (values.length) drawKey(host, low, high, spec.centre);
  return { update: (next) => { host.replaceChildren(); drawHeatmap(host, { ...spec, ...next }, shared); } };
}

function shade(value, low, high, centre) {
  const mix = (colour, part) => `color-mix(in oklab, ${colour} ${(STRONGEST * Math.max(0, Math.min(1, part))).toFixed(1)}%, var(--paper))`;
  if (!known(centre)) return mix('var(--c0)', high > low ? (value - low) / (high - low) : 0.5);
  const reach = Math.max(high - centre, centre - low) || 1;
  return value >= centre ? mix('var(--c0)', (value - centre) / reach) : mix('var(--c1)', (centre - value) / reach);
}

function drawKey(host, low, high, centre) {
  const key = make('div', 'key', null, host);
  make('span', '', short(low), key);
  const ramp = make('span', 'ramp', null, key);
  for (let i = 0; i < 24; i++) make('i', '', null, ramp).style.background = shade(low + ((high - low) * i) / 23, low, high, centre);
  make('span', '', short(high), key);
}

function drawPanels(host, spec) {
  const state = newState();
  const lines = spec.panels.flatMap((panel) => (panel.kind === 'curves' ? panel.lines : []));
  const names = [...new Set(lines.filter((line) => line.style === 'line').map((line) => line.name))];
  const drawn = [];
  if (names.length > 1) drawLegend(make('div', 'bar', null, host), names, state, () => drawn.forEach((chart) => chart && chart.redraw && chart.redraw()));
  const grid = make('div', 'many', null, host);
  grid.dataset.count = spec.panels.length;
  for (const panel of spec.panels) drawn.push(DRAW[panel.kind](make('div', `panel ${panel.kind}`, null, grid), panel, state));
  return { update: (next) => next.panels.forEach((panel, i) => drawn[i].update(panel)) };
}

const DRAW = { curves: drawCurves, intervals: drawIntervals, bars: drawIntervals, heatmap: drawHeatmap, panels: drawPanels };
