// The page: charts that move together, what is pointed at in words, keys, and the events as a table.

const ROWS_SHOWN = 13;
const NEAR = 60;
const FEWEST_EVENTS = 8;

class View {
  constructor(story) {
    this.story = story;
    this.root = document.documentElement;
    this.xs = Array.from({ length: story.count + 1 }, (_, i) => story.first_seq + i);
    this.nothing = new Array(story.count + 1).fill(null);
    this.badAt = story.bad.map((bad) => story.first_seq + bad.index);
    this.badSet = new Set(story.bad.map((bad) => bad.index));
    this.wrongPages = story.bad.length ? story.bad[0].pages : [];
    this.badName = story.bad.length ? `event ${this.badAt[0]}: ${story.bad[0].action}` : "";
    this.theme = themeOf(this.root);
    this.usePool("full");
    this.chosen = this.usual();
    this.focus = story.bad.length ? story.bad[0].index : story.count - 1;
    // A little room behind the last event: it is often the bad one.
    this.end = this.xs[story.count] + story.count * 0.015;
    this.range = [this.xs[0], this.end];
    this.charts = [];
    this.isMoving = false;
  }

  // ---- what is where ----

  width() { return Math.max(320, document.getElementById("charts").clientWidth); }
  index(x) { return Math.floor(x) - this.xs[0]; }
  isBad(i) { return this.badSet.has(i); }
  runAt(k, event) { return k < 0 || k >= this.runs.pages.length ? -1 : runAt(this.runs, k, event); }

  usual() {
    const bad = this.story.bad.find((one) => one.who >= FIRST_LEDGER);
    if (bad) return bad.who;
    const owner = this.wrongPages.map((page) => this.runAt(this.runs.number.get(page) ?? -1, this.story.count))
      .map((run) => (run < 0 ? FREE : this.runs.to[run])).find((who) => who >= FIRST_LEDGER);
    const busiest = [...this.story.ofLedger].filter(([who]) => who >= FIRST_LEDGER).sort((a, b) => b[1].length - a[1].length);
    return owner ?? (busiest.length ? busiest[0][0] : FREE);
  }

  usePool(pool) {
    this.pool = pool;
    this.runs = this.story[pool];
    this.pageRange = [0, Math.max(1, this.runs.pages.length)];
    this.wrongNumbers = pool === "full" ? this.wrongPages.map((page) => this.runs.number.get(page)).filter((k) => k !== undefined) : [];
  }

  // Which page a line of pixels shows: where it stands for many, a wrong one goes before the others.
  lineOfPages(from, tall) {
    if (tall > 1) {
      const wrong = this.wrongNumbers.find((k) => from <= k && k < from + tall);
      if (wrong !== undefined) return wrong;
    }
    return Math.floor(from + Math.min(tall, 1) / 2);
  }

  get longest() {
    const { events } = this.story, mine = this.story.ofLedger.get(this.chosen) ?? [];
    const expected = this.story.bad.length ? Object.values(this.story.bad[0].expected) : [];
    return mine.reduce((most, i) => Math.max(most, events.c[i], events.a[i], events.r[i], events.e[i]), Math.max(0, ...expected));
  }

  // ---- drawing ----

  build() {
    for (const make of [timelineChart, mapChart, lengthsChart]) {
      const chart = make(this), place = document.getElementById(chart.name);
      chart.plot = new uPlot(chart.options(), chart.data(), place);
      chart.plot.over.addEventListener("click", (event) => this.clicked(chart, event));
      chart.plot.over.addEventListener("mouseleave", () => this.hideTip());
      chart.plot.over.addEventListener("wheel", (event) => this.wheeled(chart, event), { passive: false });
      this.charts.push(chart);
    }
    this.show(...this.range);
  }

  chart(name) { return this.charts.find((chart) => chart.name === name); }

  show(low, high) {
    const [first, last] = [this.xs[0], this.end];
    const wide = Math.min(Math.max(high - low, FEWEST_EVENTS), Math.max(last - first, 1));
    const from = Math.min(Math.max(low, first), Math.max(first, last - wide));
    this.range = [from, from + wide];
    for (const { plot } of this.charts) plot.setScale("x", { min: from, max: from + wide });
    this.placeCursor();
  }

  showPages() {
    const [min, max] = this.pageRange;
    this.chart("map").plot.setScale("y", { min, max });
  }

  redraw() {
    this.theme = themeOf(this.root);
    for (const chart of this.charts) {
      if (chart.name === "lengths") chart.plot.setData(chart.data(), false);
      const [low, high] = chart.across();
      chart.plot.setScale("y", { min: low, max: high });
      chart.plot.setScale("x", { min: this.range[0], max: this.range[1] });
      chart.plot.redraw(false, true);
    }
    this.placeCursor();
    showOwners(this);
  }

  resize() {
    for (const { plot } of this.charts) plot.setSize({ width: this.width(), height: plot.height });
    this.show(...this.range);
  }

  // ---- moving ----

  whole() {
    this.pageRange = [0, Math.max(1, this.runs.pages.length)];
    this.showPages();
    this.show(this.xs[0], this.end);
  }

  toBad() {
    if (!this.badAt.length) return;
    this.chosen = this.usual();
    this.focus = this.story.bad[0].index;
    if (this.wrongNumbers.length && this.runs.pages.length > 24) this.aroundPage(this.wrongNumbers[0]);
    this.choose(this.chosen);
    this.show(this.badAt[0] - NEAR, this.badAt[0] + 6);
    say(this.sentence(this.focus));
  }

  aroundPage(k) {
    const half = 9, low = Math.max(0, Math.min(k - half, this.runs.pages.length - 2 * half));
    this.pageRange = [low, Math.min(this.runs.pages.length, low + 2 * half)];
    this.showPages();
  }

  zoom(by, around) {
    const [low, high] = this.range, middle = around ?? Math.min(Math.max(this.xs[this.focus] ?? low, low), high);
    this.show(middle - (middle - low) * by, middle + (high - middle) * by);
  }

  pan(by) {
    const [low, high] = this.range, move = (high - low) * by;
    this.show(low + move, high + move);
  }

  zoomPagesBy(by) {
    const [low, high] = this.pageRange, middle = (low + high) / 2, half = Math.max(2, (high - low) / 2 * by);
    this.pageRange = [Math.max(0, middle - half), Math.min(Math.max(1, this.runs.pages.length), middle + half)];
    this.redraw();
  }

  panPages(by) {
    const [low, high] = this.pageRange, all = Math.max(1, this.runs.pages.length);
    const move = Math.max(-low, Math.min(all - high, (high - low) * by));
    this.pageRange = [low + move, high + move];
    this.redraw();
  }

  zoomPages(u) {
    const [a, b] = [u.posToVal(u.select.top + u.select.height, "y"), u.posToVal(u.select.top, "y")];
    if (b - a >= 1) this.pageRange = [Math.floor(a), Math.ceil(b)];
    this.showPages();
  }

  zoomTo(u) {
    if (u.select.width > 4) this.show(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  wheeled(chart, event) {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const x = chart.plot.posToVal(event.offsetX, "x");
    if (event.ctrlKey) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, x);
    else this.pan(Math.sign(event.deltaY || event.deltaX) * 0.1);
  }

  // One event on or back: of the chosen row, or of all.
  step(by, ofAll) {
    const mine = ofAll ? null : this.story.ofLedger.get(this.chosen);
    if (mine) {
      const at = lastAtMost(mine, by > 0 ? this.focus : this.focus - 1) + (by > 0 ? 1 : 0);
      if (at < 0 || at >= mine.length) return;
      this.focus = mine[at];
    } else {
      this.focus = Math.min(this.story.count - 1, Math.max(0, this.focus + by));
    }
    this.focused();
  }

  showNow() {
    const mine = this.story.ofLedger.get(this.chosen) ?? [], i = mine[lastAtMost(mine, this.focus)];
    for (const name of LENGTHS) {
      const has = i !== undefined && this.story.events.told_by[i];
      document.getElementById(`now-${name}`).textContent = has ? String(this.story.events[name][i]) : "";
    }
  }

  focused() {
    const x = this.xs[this.focus];
    if (x < this.range[0] || x > this.range[1]) this.show(x - (this.range[1] - this.range[0]) / 2, x + (this.range[1] - this.range[0]) / 2);
    this.placeCursor();
    showTable(this);
    say(this.sentence(this.focus));
  }

  choose(who) {
    if (who === null || who < FIRST_LEDGER) return;
    this.chosen = who;
    document.getElementById("ledger").value = String(who);
    this.redraw();
    showTable(this);
    showLengthsName(this);
  }

  // ---- the cursor ----

  placeCursor() {
    this.isMoving = true;
    for (const { plot } of this.charts) {
      const left = plot.valToPos((this.xs[this.focus] ?? this.xs[0]) + 0.5, "x");
      plot.setCursor(left >= 0 && left <= plot.over.clientWidth ? { left, top: -10 } : { left: -10, top: -10 });
    }
    this.isMoving = false;
    this.showNow();
  }

  pointed(u) {
    if (this.isMoving || !this.charts.length) return;
    const { left, top } = u.cursor;
    if (left === undefined || left < 0) return;
    const x = u.posToVal(left, "x");
    this.isMoving = true;
    for (const { plot } of this.charts) if (plot !== u) plot.setCursor({ left, top: -10 });
    this.isMoving = false;
    const chart = this.charts.find(({ plot }) => plot === u);
    const lines = chart.name === "map" ? this.pageWords(u, x, top) : this.eventWords(chart, u, x, top);
    if (lines) this.showTip(u, left, top, lines);
    else this.hideTip();
  }

  clicked(chart, event) {
    const x = chart.plot.posToVal(event.offsetX, "x");
    this.focus = Math.min(this.story.count - 1, Math.max(0, this.index(x)));
    const who = chart.ledgerAt(chart.plot, x, event.offsetY);
    if (chart.name === "timeline" && who !== null) {
      const mine = this.story.ofLedger.get(who), at = lastAtMost(mine, this.index(x + 0.5));
      if (at >= 0) this.focus = mine[at];
    }
    this.choose(who);
    this.focused();
  }

  // ---- in words ----

  eventName(i) { return i < 0 ? "before the first event" : `event ${this.xs[i]}`; }

  who(i) {
    const { events, owners, turns } = this.story;
    const turn = events.turn[i] >= 0 ? `, turn ${turns[events.turn[i]]}` : "";
    const row = events.row[i] >= 0 ? `, row ${events.row[i]}` : "";
    return `${owners[events.who[i]]}${turn}${row}`;
  }

  lengths(i) {
    const { events } = this.story;
    const shown = LENGTHS.filter((name) => name !== "e" || events[name][i]);
    return events.told_by[i] ? shown.map((name) => `${LENGTH_WORDS[name]} ${events[name][i]}`).join(", ") : "no row";
  }

  sentence(i) {
    if (i < 0) return "";
    const { events, actions, phases } = this.story, step = events.step[i] >= 0 ? `, step ${events.step[i]}` : "";
    const bad = this.isBad(i) ? " This is the bad event." : "";
    return `${this.eventName(i)}${step}: ${actions[events.action[i]]} of ${this.who(i)}; ${phases[events.phase[i]]}; ${this.lengths(i)}.${bad}`;
  }

  pageWords(u, x, top) {
    const k = this.lineOfPages(u.posToVal(top, "y"), (this.pageRange[1] - this.pageRange[0]) / u.over.clientHeight), event = this.index(x);
    if (k < 0 || k >= this.runs.pages.length || event < 0 || event >= this.story.count) return null;
    const { story, runs } = this, run = this.runAt(k, event), pool = this.pool === "full" ? "" : "window ";
    const lines = [[`${pool}page ${runs.pages[k]}`, "strong"]];
    if (run < 0) return [...lines, ["free list, as from the beginning"]];
    const since = runs.from[run], stop = run + 1 < runs.at[k + 1] ? runs.from[run + 1] : -1;
    lines.push([story.owners[runs.to[run]], "owner", runs.to[run]]);
    if (this.pool === "window" && runs.behind[run]) lines.push([`behind page ${runs.behind[run]}`]);
    if (since >= 0) lines.push([`since ${this.eventName(since)}: ${story.actions[story.events.action[since]]} of ${this.who(since)}`]);
    else lines.push(["since before the first event shown"]);
    if (stop >= 0) lines.push([`until ${this.eventName(stop)}: ${story.actions[story.events.action[stop]]} of ${this.who(stop)}`]);
    lines.push([`at ${this.eventName(Math.min(event, story.count - 1))}`, "dim"]);
    if (this.pool === "full" && this.wrongPages.includes(runs.pages[k])) lines.push(["moved wrongly by the bad event", "bad"]);
    return lines;
  }

  eventWords(chart, u, x, top) {
    const who = chart.ledgerAt(u, x, top);
    if (who === null) return null;
    const mine = this.story.ofLedger.get(who) ?? [], at = lastAtMost(mine, this.index(x + 0.5));
    if (at < 0) return null;
    const i = mine[at], { story } = this, { events } = story;
    const moved = [events.taken[i] ? `${events.taken[i]} pages taken` : "", events.freed[i] ? `${events.freed[i]} freed` : ""].filter(Boolean);
    const lines = [[`${this.eventName(i)}: ${story.actions[events.action[i]]}`, "strong"], [this.who(i)]];
    const rule = story.rules[events.rule[i]];
    if (rule !== story.actions[events.action[i]]) lines.push([`rule ${rule}`, "dim"]);
    if (who >= FIRST_LEDGER) lines.push([`${story.phases[events.phase[i]]}; ${this.lengths(i)}`]);
    if (moved.length) lines.push([moved.join(", ")]);
    if (this.isBad(i)) lines.push(["the bad event", "bad"]);
    return lines;
  }

  showTip(u, left, top, lines) {
    const tip = document.getElementById("tip"), box = u.over.getBoundingClientRect(), page = document.body.getBoundingClientRect();
    tip.replaceChildren(...lines.map(([text, kind, owner]) => {
      const line = document.createElement("div");
      if (kind) line.className = kind;
      if (owner !== undefined) line.append(swatch(owner, this.theme), " ");
      line.append(text);
      return line;
    }));
    tip.hidden = false;
    const isRight = left > box.width * 0.6;
    tip.style.left = `${box.left - page.left + left + (isRight ? -14 - tip.offsetWidth : 14)}px`;
    tip.style.top = `${box.top - page.top + Math.max(0, top) + 12}px`;
  }

  hideTip() { document.getElementById("tip").hidden = true; }
}

// ---- around the charts ----

function say(sentence) { document.getElementById("said").textContent = sentence; }

function showLengthsName(view) {
  const { story } = view, mine = story.ofLedger.get(view.chosen) ?? [];
  const rows = [...new Set(mine.map((i) => story.events.row[i]).filter((row) => row >= 0))];
  const named = rows.length ? `, row ${rows.join(", ")} of req_to_token` : ", no row";
  document.getElementById("lengths-of").textContent = mine.length ? `${story.owners[view.chosen]}${named}` : "none";
}

function showLegend() {
  const place = document.getElementById("lengths-legend");
  place.replaceChildren(...LENGTHS.map((name) => {
    const item = document.createElement("span"), line = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    line.setAttribute("width", "34");
    line.setAttribute("height", "10");
    line.setAttribute("aria-hidden", "true");
    const stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [key, value] of Object.entries({ x1: 0, x2: 34, y1: 5, y2: 5, "stroke-width": WIDTHS[name], "stroke-dasharray": DASHES[name].join(" ") || "none" })) {
      stroke.setAttribute(key, String(value));
    }
    stroke.classList.add(`len-${name}`);
    line.append(stroke);
    const value = document.createElement("strong");
    value.id = `now-${name}`;
    item.append(line, ` ${LENGTH_NAMES[name]} `, value);
    return item;
  }));
}

// The owners that the page map shows now, most pages first.
const OWNERS_NAMED = 14;
function showOwners(view) {
  const { runs, story } = view, held = new Map();
  for (let r = 0; r < runs.to.length; r++) held.set(runs.to[r], (held.get(runs.to[r]) ?? 0) + 1);
  held.delete(FREE);
  const order = [...held.keys()].sort((a, b) => (b === TREE) - (a === TREE) || held.get(b) - held.get(a));
  const items = [FREE, ...order.slice(0, OWNERS_NAMED)].map((owner) => {
    const item = document.createElement("span");
    item.append(swatch(owner, view.theme), ` ${story.owners[owner]}`);
    return item;
  });
  if (order.length > OWNERS_NAMED) items.push(`and ${order.length - OWNERS_NAMED} more: point at a page`);
  document.getElementById("owners").replaceChildren(...items);
  const left = story.config[view.pool === "full" ? "pool_pages" : "window_pages"] - runs.pages.length;
  document.getElementById("untouched").textContent =
    `${runs.pages.length} pages that were ever used${left > 0 ? `; ${left} that never were are left out` : ""}`;
}

function showTable(view) {
  const { story } = view, { events } = story, mine = story.ofLedger.get(view.chosen) ?? [];
  const middle = lastAtMost(mine, view.focus), first = Math.max(0, Math.min(middle - (ROWS_SHOWN >> 1), mine.length - ROWS_SHOWN));
  const body = document.getElementById("rows");
  body.replaceChildren(...mine.slice(first, first + ROWS_SHOWN).map((i) => {
    const row = document.createElement("tr");
    const lengths = LENGTHS.map((name) => (events.told_by[i] ? events[name][i] : "–"));
    const cells = [view.xs[i], events.step[i] < 0 ? "" : events.step[i], story.actions[events.action[i]], story.rules[events.rule[i]],
      events.turn[i] < 0 ? "" : story.turns[events.turn[i]], events.row[i] < 0 ? "" : events.row[i], story.phases[events.phase[i]],
      ...lengths, events.taken[i] || "", events.freed[i] || ""];
    row.append(...cells.map((text) => {
      const cell = document.createElement("td");
      cell.textContent = String(text);
      return cell;
    }));
    if (view.isBad(i)) row.className = "bad";
    if (i === view.focus) row.setAttribute("aria-current", "true");
    row.addEventListener("click", () => { view.focus = i; view.focused(); });
    return row;
  }));
}

const KEYS = {
  ArrowRight: (view, all) => view.step(1, all), ArrowLeft: (view, all) => view.step(-1, all),
  ArrowUp: (view) => view.panPages(0.25), ArrowDown: (view) => view.panPages(-0.25),
  "+": (view) => view.zoom(0.5), "=": (view) => view.zoom(0.5), "-": (view) => view.zoom(2), "_": (view) => view.zoom(2),
  "]": (view) => view.zoomPagesBy(0.5), "[": (view) => view.zoomPagesBy(2),
  PageDown: (view) => view.pan(0.8), PageUp: (view) => view.pan(-0.8),
  Home: (view) => view.whole(), b: (view) => view.toBad(), n: (view) => nextLedger(view, 1), p: (view) => nextLedger(view, -1),
};

function nextLedger(view, by) {
  const all = [...view.story.lines.of.keys()].filter((who) => who >= FIRST_LEDGER);
  view.choose(all[(all.indexOf(view.chosen) + by + all.length) % all.length]);
  say(`${view.story.owners[view.chosen]} is chosen`);
}

function listen(view) {
  const charts = document.getElementById("charts");
  charts.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLSelectElement) return;
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act(view, event.shiftKey);
  });
  const buttons = {
    "to-bad": () => view.toBad(), whole: () => view.whole(), "zoom-in": () => view.zoom(0.5), "zoom-out": () => view.zoom(2),
    "pages-in": () => view.zoomPagesBy(0.5), "pages-out": () => view.zoomPagesBy(2),
    theme: () => setTheme(view, view.root.dataset.theme === "dark" ? "light" : "dark"),
  };
  for (const [id, act] of Object.entries(buttons)) document.getElementById(id).addEventListener("click", act);
  document.getElementById("ledger").addEventListener("change", (event) => view.choose(Number(event.target.value)));
  document.getElementById("pool").addEventListener("change", (event) => {
    view.usePool(event.target.value);
    view.redraw();
  });
  let wait = 0;
  addEventListener("resize", () => { clearTimeout(wait); wait = setTimeout(() => view.resize(), 120); });
  // Paper is white and has no cursor: while it is printed the page is light and as wide as paper.
  let before = null;
  matchMedia("print").addEventListener("change", ({ matches }) => {
    if (matches) {
      before = view.root.dataset.theme;
      setTheme(view, "light");
    } else if (before) {
      setTheme(view, before);
    }
    view.resize();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ({ matches }) => setTheme(view, matches ? "dark" : "light"));
}

function setTheme(view, theme) {
  view.root.dataset.theme = theme;
  view.redraw();
}

function fillChoices(view) {
  const ledger = document.getElementById("ledger"), { story } = view;
  for (const who of story.lines.of.keys()) {
    if (who >= FIRST_LEDGER) ledger.append(new Option(story.owners[who], String(who), false, who === view.chosen));
  }
  document.getElementById("pool").append(new Option("full pool", "full"), ...(story.window ? [new Option("window pool", "window")] : []));
  document.getElementById("pool-choice").hidden = !story.window;
  document.getElementById("to-bad").disabled = !story.bad.length;
}

function copying() {
  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code"), chosen = getSelection();
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
      } catch {
        // A page that was opened as a file may not write to the clipboard: the command is marked instead.
        chosen.selectAllChildren(code);
        button.textContent = "marked";
      }
    });
  }
}

async function begin() {
  const root = document.documentElement;
  root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  copying();
  const story = readStory(await unpack(document.getElementById("story").textContent.trim()));
  if (!story.count) {
    document.getElementById("charts").hidden = true;
    root.dataset.ready = "empty";
    return;
  }
  const view = new View(story);
  window.kvproofView = view;
  fillChoices(view);
  showLegend();
  view.build();
  showOwners(view);
  showTable(view);
  showLengthsName(view);
  listen(view);
  if (story.count > 2000 && view.badAt.length) view.toBad();
  say(view.sentence(view.focus));
  root.dataset.ready = String(Math.round(performance.now()));
}

begin();
