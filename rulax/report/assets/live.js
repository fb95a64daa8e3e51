// A page that is served while its run goes on: it asks for itself again and again, and takes over what has changed.

const EVERY = 1000; // milliseconds between two questions
const QUIET = 300; // seconds without a line after which a run may have been killed
const sent = new WeakMap(); // sections as the server sent them, before anything was drawn or sorted
let tag = '';

// The numbers of charts shift when one appears above them, and say nothing about what a section shows.
function sourceOf(section) {
  return section.outerHTML.replace(/data-chart="\d+"/g, '');
}

function nameOf(section) {
  const title = section.querySelector('h2, strong');
  return title ? title.textContent : section.className;
}

async function follow() {
  try {
    const answer = await fetch(location.href, { headers: { 'If-None-Match': tag }, cache: 'no-store' });
    if (answer.status === 200) {
      tag = answer.headers.get('ETag');
      takeOver(new DOMParser().parseFromString(await answer.text(), 'text/html'));
    }
    tell(Number(answer.headers.get('Age')));
  } catch (error) {
    tell(null);
  }
  setTimeout(follow, EVERY);
}

// Said in full only when it changes: a counter of seconds would be read out again and again.
function tell(age) {
  const line = document.getElementById('live');
  const long = age < 90 ? `${age} s` : `${Math.round(age / 60)} min`;
  const words = {
    waiting: 'Waiting for the first numbers: the program is being compiled.',
    running: age < QUIET ? 'Live.' : `Nothing was written for ${long}: it is compiling, or it was stopped.`,
    stopped: 'Stopped: it can go on, and this page will follow.',
    finished: 'Finished. report.html in its folder is this page as one file.',
  };
  const said = age === null ? 'Nobody answers any more: the last numbers stay.' : words[line.className];
  if (line.firstChild.data !== said) line.firstChild.data = said;
  line.lastChild.textContent = age !== null && line.className === 'running' && age < QUIET ? ` Last written ${long} ago.` : '';
  line.classList.toggle('lost', age === null);
}

function takeOver(next) {
  const code = (page) => page.querySelector('body > script:last-of-type').textContent;
  if (code(next) !== code(document)) { location.reload(); return; } // another version, or a part with a script of its own
  document.title = next.title;
  document.getElementById('live').className = next.getElementById('live').className;
  for (const name of ['h1', '.subtitle', 'nav']) {
    const [now, then] = [document, next].map((page) => page.querySelector(name));
    if (!now && then) document.querySelector('main').before(then); else if (now && !then) now.remove();
    else if (now && now.innerHTML !== then.innerHTML) now.innerHTML = then.innerHTML;
  }
  takeSections(document.querySelector('main'), next.querySelector('main'), JSON.parse(next.getElementById('data').textContent));
}

// Sections of the same text stay, with their charts; the others are replaced, as the reader had arranged them.
function takeSections(main, incoming, specs) {
  const before = new Map([...main.children].map((section) => [nameOf(section), section]));
  const top = scrollY, fresh = new Map();
  const wanted = [...incoming.children].map((section) => {
    const old = before.get(nameOf(section)), source = sourceOf(section);
    before.delete(nameOf(section));
    if (old && sent.get(old) === source) { takeCharts(old, section, specs); return old; }
    sent.set(section, source);
    fresh.set(section, old);
    return section;
  });
  for (const section of [...main.children]) if (!wanted.includes(section)) section.remove();
  wanted.forEach((section, i) => { if (main.children[i] !== section) main.insertBefore(section, main.children[i] || null); });
  for (const [section, old] of fresh) {
    start(section, specs);
    if (old) arrangeAs(section, old);
  }
  if (scrollY < top) scrollTo({ top, behavior: 'instant' }); // the page was shorter for a moment
}

function takeCharts(section, incoming, specs) {
  const hosts = [...section.querySelectorAll('.chart')];
  [...incoming.querySelectorAll('.chart')].forEach((place, i) => {
    const spec = specs[Number(place.dataset.chart)], was = drawn.get(hosts[i]);
    hosts[i].dataset.chart = place.dataset.chart;
    if (was && JSON.stringify(was.spec) === JSON.stringify(spec)) return;
    if (was && was.handle && shapeOf(was.spec) === shapeOf(spec)) {
      was.spec = spec;
      attempt(hosts[i], () => was.handle.update(spec));
    } else {
      hosts[i].replaceChildren();
      drawChart(hosts[i], spec);
    }
  });
}

// What a legend and a grid of panels are made of: where it is the same, only numbers have changed.
function shapeOf(spec) {
  if (spec.panels) return spec.panels.map(shapeOf).join('|');
  const names = (spec.lines || []).filter((line) => line.style === 'line').map((line) => line.name);
  return JSON.stringify([spec.kind, spec.title, spec.log, [...new Set(names)]]);
}

function arrangeAs(section, old) {
  const [now, then] = [section, old].map((part) => part.querySelector('details'));
  if (now && then) now.open = then.open;
  const [table, was] = [section, old].map((part) => part.querySelector('table.sortable'));
  const column = was ? [...was.tHead.rows[0].cells].findIndex((head) => head.getAttribute('aria-sort') !== 'none') : -1;
  if (table && column >= 0) sortTable(table, column, was.tHead.rows[0].cells[column].getAttribute('aria-sort') === 'descending');
}

for (const section of document.querySelector('main').children) sent.set(section, sourceOf(section));
document.getElementById('live').append(document.createTextNode(''), document.createElement('span'));
document.querySelector('#live span').setAttribute('aria-hidden', 'true');
follow();
