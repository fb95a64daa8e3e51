// The page: theme, tables that sort, lines that copy, and every chart in its place.

const data = JSON.parse(document.getElementById('data').textContent);

function startTheme() {
  const root = document.documentElement, button = document.getElementById('theme');
  const dark = () => (root.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
  button.addEventListener('click', () => {
    root.dataset.theme = dark() ? 'light' : 'dark';
    say(`${root.dataset.theme} theme`);
    try { localStorage.setItem('rulax-theme', root.dataset.theme); } catch (error) { /* a browser that stores nothing */ }
  });
}

// A first click on a column of numbers puts the largest on top, a second one turns it round; what was not measured stays below.
function startSorting(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector('button').addEventListener('click', () => {
    const before = head.getAttribute('aria-sort');
    const down = before === 'none' ? head.classList.contains('number') : before === 'ascending';
    sortTable(table, column, down);
    say(`sorted by ${head.textContent}, ${down ? 'largest first' : 'smallest first'}`);
  }));
}

function sortTable(table, column, down) {
  const heads = [...table.tHead.rows[0].cells], head = heads[column], number = head.classList.contains('number');
  heads.forEach((other) => other.setAttribute('aria-sort', 'none'));
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  const rows = [...table.tBodies[0].rows].sort((one, other) => {
    const [a, b] = [one, other].map((row) => row.cells[column].dataset.value);
    if (a === '' || b === '') return (a === '') - (b === '');
    const order = number ? Number(a) - Number(b) : a.localeCompare(b, 'en', { numeric: true });
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
}

function startCopying(button) {
  button.addEventListener('click', async () => {
    const text = button.parentElement.querySelector('code').textContent;
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch (error) {
      done = copyOldWay(text); // a page opened as a file may not use the clipboard
    }
    button.textContent = done ? 'copied' : 'select it';
    say(done ? 'copied' : 'could not copy');
    setTimeout(() => { button.textContent = 'copy'; }, 1500);
  });
}

function copyOldWay(text) {
  const area = make('textarea', 'unseen', null, document.body);
  area.value = text;
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  return done;
}

function attempt(host, draw) {
  try {
    draw();
  } catch (error) {
    console.error(error);
    make('p', 'notice', `This chart could not be drawn: ${error.message}`, host);
  }
}

function startOwn(number, script) {
  const index = data.findIndex((item) => item.kind === 'interactive' && item.own === number);
  const root = document.querySelector(`[data-chart="${index}"]`);
  const charts = { curves: drawCurves, intervals: drawIntervals, bars: drawIntervals, heatmap: drawHeatmap, panels: drawPanels, exact, short, say, look };
  attempt(root, () => script(root, data[index].data, charts));
}

const drawn = new WeakMap(); // by place: what was drawn there, and the handle that draws it anew

function drawChart(host, spec) {
  attempt(host, () => drawn.set(host, { spec, handle: DRAW[spec.kind](host, spec) }));
}

// Everything in a part of the page that answers or has to be drawn.
function start(part, specs) {
  part.querySelectorAll('table.sortable').forEach(startSorting);
  part.querySelectorAll('button.copy').forEach(startCopying);
  part.querySelectorAll('.chart').forEach((host) => drawChart(host, specs[Number(host.dataset.chart)]));
}

startTheme();
start(document, data);
document.documentElement.dataset.drawn = Math.round(performance.now());
// After the next picture is on the screen: how long it took to open the page.
requestAnimationFrame(() => setTimeout(() => { document.documentElement.dataset.shown = Math.round(performance.now()); }));
