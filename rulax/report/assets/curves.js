// A chart of lines with their intervals as bands: hover or arrow keys read it, the legend switches lines, the axis may be a logarithm.

const MOST_BANDS = 12; // more lines than this are drawn without bands, which would hide each other; the read-out has them
const MOST_READ = 8; // lines in a read-out; of more, those nearest to the pointer

function drawCurves(host, spec, shared) {
  const state = shared || newState();
  spec = wholeCurves(spec);
  const chart = { host, spec, log: Boolean(spec.starts_log), at: null };
  const names = [...new Set(spec.lines.filter((line) => line.style === 'line').map((line) => line.name))];
  names.forEach(look);
  if (!shared) {
    const bar = make('div', names.length > 1 ? 'bar' : 'bar alone', null, host);
    if (names.length > 1) drawLegend(bar, names, state, () => paint(chart, state));
    drawTools(bar, chart, () => paint(chart, state));
  } else {
    const head = make('div', 'head', null, host);
    make('h3', '', spec.title, head);
    drawTools(head, chart, () => paint(chart, state));
  }
  chart.small = Boolean(shared);
  chart.stage = make('div', 'stage', null, host);
  chart.readout = make('div', 'readout', null, chart.stage);
  chart.readout.hidden = true;
  state.listeners.push(() => emphasise(chart, state));
  whenResized(chart.stage, () => paint(chart, state));
  return { redraw: () => paint(chart, state), update: (next) => repaint(chart, state, wholeCurves(next)) };
}

// Other numbers in the same chart: whoever is reading it goes on where they were.
function repaint(chart, state, spec) {
  const { at } = chart, focused = chart.picture && document.activeElement === chart.picture;
  chart.spec = spec;
  paint(chart, state);
  if (focused) chart.picture.focus({ preventScroll: true });
  if (at !== null && chart.xs && at < chart.xs.length) read(chart, at, null);
}

// What a script of its own may leave out.
function wholeCurves(spec) {
  const lines = spec.lines.map((line) => ({ low: [], high: [], style: 'line', ...line }));
  return { title: '', x_label: '', y_label: '', log: '', points: false, y_range: [null, null], ...spec, lines };
}

function drawTools(host, chart, redraw) {
  const tools = make('div', 'tools', null, host);
  if (chart.spec.log) {
    const button = make('button', 'quiet', `log ${chart.spec.log}`, tools);
    button.type = 'button';
    button.setAttribute('aria-pressed', String(chart.log));
    button.addEventListener('click', () => {
      chart.log = !chart.log;
      button.setAttribute('aria-pressed', String(chart.log));
      redraw();
    });
  }
  const save = make('button', 'quiet', 'csv', tools);
  save.type = 'button';
  save.setAttribute('aria-label', `Save the numbers of ${chart.spec.title} as CSV`);
  save.addEventListener('click', () => saveFile(chart.spec.title, curvesAsCsv(chart.spec)));
}

function curvesAsCsv(spec) {
  const rows = [['line', spec.x_label, spec.y_label, 'low', 'high']];
  for (const line of spec.lines) line.x.forEach((x, i) => rows.push([line.name, x, line.mean[i], line.low[i], line.high[i]]));
  return rows.map((row) => row.map(csvCell).join(',')).join('\n') + '\n';
}

// -- drawing --------------------------------------------------------------------------------------------------------------------

function extent(chart, lines) {
  const { spec } = chart;
  let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
  const logX = chart.log && spec.log === 'x', logY = chart.log && spec.log === 'y';
  for (const line of lines) {
    if (line.style === 'published') continue; // another budget: our own curves decide what is seen
    for (let i = 0; i < line.x.length; i++) {
      const x = line.x[i];
      if (!known(x) || (logX && x <= 0)) continue;
      for (const y of [line.mean[i], line.low[i], line.high[i]]) {
        if (!known(y) || (logY && y <= 0)) continue;
        if (x < x0) x0 = x;
        if (x > x1) x1 = x;
        if (y < y0) y0 = y;
        if (y > y1) y1 = y;
      }
    }
  }
  if (!logX && x0 > 0 && x0 < 0.1 * x1) x0 = 0; // a budget begins at nothing
  const reach = 1.5 * (y1 - y0); // what is further away would flatten our own curves
  const near = lines.filter((line) => line.style === 'published').map((line) => line.mean[0]).filter((y) => y > y0 - reach && y < y1 + reach);
  [y0, y1] = [Math.min(y0, ...near), Math.max(y1, ...near)];
  const [low, high] = spec.y_range || [null, null];
  if (known(low) && (!logY || low > 0)) y0 = Math.min(y0, low);
  if (known(high)) y1 = Math.max(y1, high);
  return x1 >= x0 && y1 >= y0 ? { x0, x1, y0, y1, logX, logY } : null;
}

function paint(chart, state) {
  const { stage, spec, small } = chart;
  const lines = spec.lines.filter((line) => !state.hidden.has(line.name));
  if (chart.picture) chart.picture.remove();
  chart.readout.hidden = true;
  chart.at = null;
  const width = Math.max(200, stage.clientWidth);
  const height = small ? Math.min(230, Math.max(170, width * 0.55)) : Math.min(400, Math.max(240, width * 0.42));
  const range = extent(chart, lines);
  const picture = svg('svg', { width: '100%', height, viewBox: `0 0 ${width} ${height}`, role: 'img', tabindex: 0 });
  picture.setAttribute('aria-label', describe(spec, lines));
  stage.insertBefore(picture, chart.readout);
  chart.picture = picture;
  if (!range) {
    svg('text', { x: width / 2, y: height / 2, 'text-anchor': 'middle', class: 'muted' }, picture).textContent = 'nothing measured yet';
    return;
  }
  frame(chart, range, width, height);
  chart.drawn = [];
  chart.labels = []; // heights of what is written at reference lines
  const crowded = lines.filter((line) => line.style === 'line').length > MOST_BANDS;
  for (const line of lines) if (line.style !== 'reference' && line.style !== 'published' && !crowded) drawBand(chart, line);
  for (const line of lines) (line.style === 'published' ? drawPublished : drawLine)(chart, line, width);
  chart.lines = lines.filter((line) => line.style === 'line' && line.x.length);
  listen(chart);
}

function frame(chart, range, width, height) {
  const { spec, picture } = chart;
  const yTicks = range.logY ? logTicks(range.y0, range.y1) : linearTicks(range.y0, range.y1, height > 260 ? 5 : 4);
  const yLabels = range.logY ? yTicks.map(short) : tickLabels(yTicks);
  const left = 14 + 6.6 * Math.max(...yLabels.map((label) => label.length));
  const [top, right, bottom] = [spec.y_label ? 28 : 8, 14, 38];
  const xCount = Math.max(2, Math.round((width - left) / 110));
  const xTicks = (range.logX ? logTicks(range.x0, range.x1) : linearTicks(range.x0, range.x1, xCount)).filter(
    (t) => t >= range.x0 - 1e-9 * Math.abs(range.x0) && t <= range.x1 * (1 + 1e-9));
  const yLow = Math.min(range.y0, yTicks[0]), yHigh = Math.max(range.y1, yTicks[yTicks.length - 1]);
  chart.x = makeScale(range.x0, range.x1, left, width - right, range.logX);
  chart.y = makeScale(yLow, yHigh, height - bottom, top, range.logY);
  chart.box = { left, right: width - right, top, bottom: height - bottom };
  chart.legal = (x, y) => known(x) && known(y) && !(range.logX && x <= 0) && !(range.logY && y <= 0);
  yTicks.forEach((tick, i) => {
    const y = chart.y(tick);
    svg('line', { x1: left, x2: width - right, y1: y, y2: y, class: tick === 0 ? 'grid zero' : 'grid' }, picture);
    svg('text', { x: left - 8, y: y + 4, 'text-anchor': 'end', class: 'tick y' }, picture).textContent = yLabels[i];
  });
  const xLabels = range.logX || xTicks.length < 2 ? xTicks.map(short) : tickLabels(xTicks);
  xTicks.forEach((tick, i) => {
    const x = chart.x(tick);
    const anchor = x > width - right - 16 ? 'end' : 'middle';
    svg('line', { x1: x, x2: x, y1: height - bottom, y2: height - bottom + 4, class: 'grid zero' }, picture);
    svg('text', { x: anchor === 'end' ? x + 8 : x, y: height - bottom + 17, 'text-anchor': anchor, class: 'tick' }, picture).textContent = xLabels[i];
  });
  svg('text', { x: 0, y: 12, class: 'label' }, picture).textContent = spec.y_label;
  svg('text', { x: width - right, y: height - 5, 'text-anchor': 'end', class: 'label' }, picture).textContent = spec.x_label;
}

function drawBand(chart, line) {
  if (!line.low.length) return;
  let forward = '', back = [], path = '';
  const close = () => {
    if (back.length) path += forward + back.reverse().map((p) => `L${p}`).join('') + 'Z';
    forward = ''; back = [];
  };
  line.x.forEach((x, i) => {
    if (!chart.legal(x, line.low[i]) || !chart.legal(x, line.high[i])) { close(); return; }
    const px = chart.x(x).toFixed(1);
    forward += `${forward ? 'L' : 'M'}${px},${chart.y(line.high[i]).toFixed(1)}`;
    back.push(`${px},${chart.y(line.low[i]).toFixed(1)}`);
  });
  close();
  const band = svg('path', { d: path, class: 'band' }, chart.picture);
  band.style.fill = look(line.name).colour;
  chart.drawn.push([line.name, band]);
}

function drawLine(chart, line, width) {
  let path = '', pen = false;
  const points = [];
  line.x.forEach((x, i) => {
    if (!chart.legal(x, line.mean[i])) { pen = false; return; }
    const [px, py] = [chart.x(x).toFixed(1), chart.y(line.mean[i]).toFixed(1)];
    path += `${pen ? 'L' : 'M'}${px},${py}`;
    pen = true;
    points.push([px, py]);
  });
  if (!points.length) return;
  if (line.style === 'reference' && points.every((point) => point[1] === points[0][1])) { // a level holds everywhere
    path = `M${chart.box.left},${points[0][1]}L${chart.box.right},${points[0][1]}`;
    points.push([chart.box.right, points[0][1]]);
  }
  const group = svg('g', {}, chart.picture);
  const drawn = svg('path', { d: path, class: `line ${line.style}` }, group);
  chart.drawn.push([line.name, group]);
  if (line.style === 'reference') {
    const [px, py] = points[points.length - 1];
    const last = Math.min(Number(px), width - 14);
    const free = [-5, 14, -19, 28].map((shift) => Number(py) + shift).filter((y) => y > chart.box.top - 4 && y < chart.box.bottom + 2);
    const y = free.find((wanted) => chart.labels.every((taken) => Math.abs(taken - wanted) > 13)) || free[0];
    chart.labels.push(y);
    svg('text', { x: last, y, 'text-anchor': 'end', class: 'reference' }, group).textContent = line.name;
    return;
  }
  const { colour, dash } = look(line.name);
  drawn.style.stroke = colour;
  if (dash) drawn.setAttribute('stroke-dasharray', dash);
  if (line.style === 'line' && (chart.spec.points || points.length === 1)) {
    for (const [px, py] of points) svg('circle', { cx: px, cy: py, r: chart.small ? 2.2 : 3 }, group).style.fill = colour;
  }
}

// A figure of others: a diamond at the budget it had, or at the edge that it is beyond, with an arrow.
function drawPublished(chart, line) {
  const { box } = chart, [x, y] = [line.x[0], line.mean[0]];
  if (!chart.legal(x, y)) return;
  const [px, py] = [Math.min(chart.x(x), box.right), Math.max(box.top, Math.min(chart.y(y), box.bottom))];
  const arrow = (chart.x(x) > box.right + 1 ? ' →' : '') + (chart.y(y) < box.top - 1 ? ' ↑' : chart.y(y) > box.bottom + 1 ? ' ↓' : '');
  const group = svg('g', {}, chart.picture);
  chart.drawn.push([line.name, group]);
  svg('path', { d: diamond(px, py, 5), class: 'published' }, group);
  const inside = [4, 17, -9, 30, -22, 43, -35, 56, -48].map((shift) => py + shift).filter((wanted) => wanted > box.top - 4 && wanted < box.bottom + 2);
  const level = inside.find((wanted) => chart.labels.every((taken) => Math.abs(taken - wanted) > 12)) || inside[0];
  chart.labels.push(level);
  const left = px > (box.left + box.right) / 2;
  svg('text', { x: left ? px - 9 : px + 9, y: level, 'text-anchor': left ? 'end' : 'start', class: 'reference' }, group).textContent = line.name + arrow;
}

function emphasise(chart, state) {
  for (const [name, element] of chart.drawn || []) element.classList.toggle('aside', state.pointed !== null && name !== state.pointed);
}

function describe(spec, lines) {
  const ends = lines.filter((line) => line.style === 'line').slice(0, MOST_READ).map((line) => {
    const values = line.mean.filter(known);
    return values.length ? `${line.name} ends at ${exact(values[values.length - 1])}` : `${line.name} has no value`;
  });
  return `${spec.title}: ${spec.y_label} over ${spec.x_label}. ${ends.join('; ')}. Arrow keys read values.`;
}

// -- reading --------------------------------------------------------------------------------------------------------------------

function listen(chart) {
  const { picture, box } = chart;
  chart.cross = svg('g', { class: 'cross' }, picture);
  const area = svg('rect', { x: box.left, y: box.top - 8, width: box.right - box.left, height: box.bottom - box.top + 8, class: 'area' }, picture);
  const xs = [...new Set(chart.lines.flatMap((line) => line.x))].filter((x) => known(x) && Number.isFinite(chart.x(x))).sort((a, b) => a - b);
  chart.pixels = xs.map(chart.x);
  chart.xs = xs;
  if (!xs.length) return;
  area.addEventListener('pointermove', (event) => {
    const rect = picture.getBoundingClientRect();
    const scale = picture.viewBox.baseVal.width / rect.width;
    read(chart, nearestIndex(chart.pixels, (event.clientX - rect.left) * scale), (event.clientY - rect.top) * scale);
  });
  area.addEventListener('pointerleave', () => quietReadout(chart));
  picture.addEventListener('blur', () => quietReadout(chart));
  picture.addEventListener('keydown', (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -1e9, End: 1e9 }[event.key];
    if (event.key === 'Escape') quietReadout(chart);
    if (!move) return;
    event.preventDefault();
    const from = chart.at === null ? (move > 0 ? -1 : xs.length) : chart.at;
    read(chart, Math.max(0, Math.min(xs.length - 1, from + move)), null);
    say(chart.readout.innerText.replace(/\s*\n\s*/g, ', '));
  });
}

function quietReadout(chart) {
  chart.readout.hidden = true;
  chart.cross.replaceChildren();
  chart.at = null;
}

function read(chart, index, pointerY) {
  const x = chart.xs[index], px = chart.x(x);
  chart.at = index;
  let found = [];
  for (const line of chart.lines) {
    const i = nearestIndex(line.x, x);
    const gap = Math.abs(chart.x(line.x[i]) - px);
    if (gap > 12 || !chart.legal(line.x[i], line.mean[i])) continue;
    found.push({ line, i, y: chart.y(line.mean[i]), px: chart.x(line.x[i]) });
  }
  const more = found.length - MOST_READ;
  if (more > 0 && pointerY !== null) found.sort((a, b) => Math.abs(a.y - pointerY) - Math.abs(b.y - pointerY));
  found = found.slice(0, MOST_READ).sort((a, b) => a.y - b.y);
  chart.cross.replaceChildren();
  svg('line', { x1: px, x2: px, y1: chart.box.top - 4, y2: chart.box.bottom }, chart.cross);
  for (const { line, y, px: dot } of found) svg('circle', { cx: dot, cy: y, r: 4 }, chart.cross).style.fill = look(line.name).colour;
  chart.readout.replaceChildren();
  make('div', 'where', `${exactX(x)} ${chart.spec.x_label}`, chart.readout);
  for (const { line, i } of found) {
    const row = make('div', 'row', null, chart.readout);
    swatch(line.name, row);
    make('span', 'name', line.name, row);
    make('b', '', exact(line.mean[i]), row);
    if (line.low.length && known(line.low[i]) && line.low[i] < line.high[i]) make('span', 'range', `${exact(line.low[i])} to ${exact(line.high[i])}`, row);
  }
  if (more > 0) make('div', 'where', `${more} more lines`, chart.readout);
  if (!found.length) make('div', 'row', 'no value here', chart.readout);
  chart.readout.hidden = false;
  placeReadout(chart, px);
}

function exactX(x) {
  return Number.isInteger(x) ? x.toLocaleString('en') : exact(x);
}

function placeReadout(chart, px) {
  const room = chart.stage.clientWidth, width = chart.readout.offsetWidth;
  const right = px + 14 + width <= room, left = px - 14 - width >= 0;
  chart.readout.style.left = `${right ? px + 14 : left ? px - 14 - width : Math.max(0, Math.min(px - width / 2, room - width))}px`;
  chart.readout.style.top = `${right || left ? 22 : 20 - chart.readout.offsetHeight}px`; // where no side has room, above the chart
}
