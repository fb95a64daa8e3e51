// What charts share: elements, colours that stay with a name over the whole page, legends, read-outs.

const SVG = 'http://www.w3.org/2000/svg';
const COLOURS = 8;
const DASHES = ['', '7 4', '2 3', '10 3 2 3', '5 5', '12 4', '1 4', '8 2 2 2 2 2'];

function svg(name, attributes, parent) {
  const element = document.createElementNS(SVG, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (parent) parent.appendChild(element);
  return element;
}

// Text is always set as text: no name can become markup.
function make(name, className, text, parent) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined && text !== null) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}

const places = new Map();

// A name has one colour on the whole page; after eight names the colours return with a dash.
function look(name) {
  if (!places.has(name)) places.set(name, places.size);
  const place = places.get(name);
  return { colour: `var(--c${place % COLOURS})`, dash: DASHES[Math.floor(place / COLOURS) % DASHES.length] };
}

function diamond(x, y, r) {
  return `M${x - r},${y}L${x},${y - r}L${x + r},${y}L${x},${y + r}Z`;
}

function swatch(name, parent) {
  const { colour, dash } = look(name);
  const picture = svg('svg', { width: 18, height: 8, 'aria-hidden': 'true', class: 'swatch' }, parent);
  const line = svg('line', { x1: 1, x2: 17, y1: 4, y2: 4, 'stroke-width': 3, 'stroke-dasharray': dash }, picture);
  line.style.stroke = colour;
}

// Names that can be switched on and off; Alt-click (or double click) leaves one alone. `state.hidden` is shared by its charts.
function drawLegend(host, names, state, redraw) {
  const legend = make('div', 'legend', null, host);
  legend.setAttribute('role', 'group');
  legend.setAttribute('aria-label', 'Lines shown');
  const buttons = new Map();
  const refresh = () => {
    for (const [name, button] of buttons) button.setAttribute('aria-pressed', String(!state.hidden.has(name)));
    redraw();
  };
  const alone = (name) => {
    const already = !state.hidden.has(name) && state.hidden.size === names.length - 1;
    state.hidden.clear();
    if (!already) for (const other of names) if (other !== name) state.hidden.add(other);
    refresh();
  };
  for (const name of names) {
    const button = make('button', 'entry', null, legend);
    button.type = 'button';
    button.title = 'Click: show or hide. Alt-click: this one alone.';
    button.setAttribute('aria-pressed', 'true');
    swatch(name, button);
    make('span', '', name, button);
    button.addEventListener('click', (event) => {
      if (event.altKey) { alone(name); return; }
      if (state.hidden.has(name)) state.hidden.delete(name); else state.hidden.add(name);
      refresh();
    });
    button.addEventListener('dblclick', () => alone(name));
    const point = (value) => () => { state.pointed = value; state.emphasise(); };
    button.addEventListener('pointerenter', point(name));
    button.addEventListener('pointerleave', point(null));
    buttons.set(name, button);
  }
  if (names.length > 6) {
    for (const [label, hide] of [['all', false], ['none', true]]) {
      const button = make('button', 'quiet', label, legend);
      button.type = 'button';
      button.addEventListener('click', () => {
        state.hidden.clear();
        if (hide) for (const name of names) state.hidden.add(name);
        refresh();
      });
    }
  }
  return legend;
}

function newState() {
  return { hidden: new Set(), pointed: null, listeners: [], emphasise() { for (const listener of this.listeners) listener(); } };
}

// The size at which a chart was drawn is kept, so that a page that only grows longer does not draw everything again.
function whenResized(host, draw) {
  let width = 0;
  const redraw = () => {
    const now = Math.round(host.clientWidth);
    if (now > 0 && now !== width) { width = now; draw(); }
  };
  new ResizeObserver(redraw).observe(host);
  redraw();
}

function say(text) {
  document.getElementById('said').textContent = text;
}

function saveFile(name, text) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
  link.download = name.replace(/[^\w.-]+/g, '_') + '.csv';
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function csvCell(value) {
  const text = known(value) ? String(value) : '';
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
