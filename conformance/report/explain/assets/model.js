// The story as it is drawn: what was packed by explain/page.py, unpacked and put in order.

const FREE = 0, TREE = 1, CHECKS = 2;
const FIRST_LEDGER = 3;
const LENGTHS = ["c", "a", "r", "e"];
const LENGTH_WORDS = { c: "committed", a: "allocated", r: "protected", e: "evicted" };

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(unpacked).text());
}

// Columns are written as differences: small numbers pack well.
function summed(column) {
  const out = new Int32Array(column.length);
  let value = 0;
  for (let i = 0; i < column.length; i++) out[i] = value += column[i];
  return out;
}

// Changes of hands, page by page: pages[k] has the runs from[at[k]] .. from[at[k + 1] - 1], each until the next begins.
function runsOf(changes, end) {
  const pages = [...new Set(changes.page)].sort((a, b) => a - b);
  const number = new Map(pages.map((page, k) => [page, k]));
  const at = new Int32Array(pages.length + 1);
  for (const page of changes.page) at[number.get(page) + 1]++;
  for (let k = 0; k < pages.length; k++) at[k + 1] += at[k];
  const next = at.slice(0, pages.length), from = new Int32Array(changes.page.length), to = from.slice();
  for (let i = 0; i < changes.page.length; i++) {
    const place = next[number.get(changes.page[i])]++;
    from[place] = changes.event[i];
    to[place] = changes.to[i];
  }
  return { pages, number, at, from, to, end };
}

// The run of page number k that holds at an event; -1: the page was not touched before.
function runAt(runs, k, event) {
  let low = runs.at[k], high = runs.at[k + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (runs.from[middle] <= event) low = middle + 1;
    else high = middle;
  }
  return low > runs.at[k] ? low - 1 : -1;
}

// A page of the window pool belongs to whoever owns the page of the full pool that names it: its runs, by owner.
function windowOwners(changes, full, end) {
  const named = runsOf(changes, end), by = { event: [], page: [], to: [], behind: [] };
  named.pages.forEach((window, k) => {
    for (let r = named.at[k]; r < named.at[k + 1]; r++) {
      const begin = named.from[r], stop = r + 1 < named.at[k + 1] ? named.from[r + 1] : end;
      const number = named.to[r] ? full.number.get(named.to[r]) : undefined;
      let run = number === undefined ? -1 : runAt(full, number, begin);
      let since = begin;
      do {
        by.event.push(since);
        by.page.push(window);
        by.to.push(run < 0 ? FREE : full.to[run]);
        by.behind.push(named.to[r]);
        run = run >= 0 && run + 1 < full.at[number + 1] ? run + 1 : -1;
        since = run < 0 ? stop : full.from[run];
      } while (since < stop);
    }
  });
  // Runs of one page follow each other, so what was pushed stands where runsOf puts it.
  return { ...runsOf(by, end), behind: by.behind };
}

// Who stands in which line of the timeline. Few ledgers have a line each; many share lines, one after the other.
const LINES_EACH = 24;
function linesOf(story) {
  const first = new Map(), last = new Map();
  story.events.who.forEach((who, i) => {
    if (!first.has(who)) first.set(who, i);
    last.set(who, i);
  });
  const order = [...first.keys()].sort((a, b) => (a < FIRST_LEDGER) - (b < FIRST_LEDGER) || first.get(a) - first.get(b));
  const line = new Map(), busy = [];
  for (const who of order) {
    let free = order.length <= LINES_EACH || who < FIRST_LEDGER ? -1 : busy.findIndex((until) => until < first.get(who));
    if (free < 0) free = busy.push(-1) - 1;
    busy[free] = who < FIRST_LEDGER ? Infinity : last.get(who);
    line.set(who, free);
  }
  const holders = busy.map(() => []);
  for (const who of order) holders[line.get(who)].push(who);
  return { count: busy.length, of: line, holders, first, last };
}

function readStory(packed) {
  const events = Object.fromEntries(Object.entries(packed.events).map(([name, column]) => [name, summed(column)]));
  const story = { ...packed, events, count: events.who.length };
  const changes = (told) => ({ event: summed(told.event), page: summed(told.page), to: summed(told.to) });
  story.full = runsOf(changes(packed.pages), story.count);
  story.window = packed.window_pages.event.length
    ? windowOwners(changes(packed.window_pages), story.full, story.count) : null;
  story.lines = linesOf(story);
  story.ofLedger = new Map();
  events.who.forEach((who, i) => {
    if (!story.ofLedger.has(who)) story.ofLedger.set(who, []);
    story.ofLedger.get(who).push(i);
  });
  return story;
}

// The last of some ascending numbers that is at most `value`, as an index; -1: none.
function lastAtMost(numbers, value) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
