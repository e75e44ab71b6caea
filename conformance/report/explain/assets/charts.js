// Three charts over the same events: timeline, page map, lengths. uPlot gives axes, cursor and zoom; what is drawn is drawn here.

const AXIS = 116;
const HEIGHTS = { map: 340, lengths: 220 };

// What all charts have: events across, no legend, our own way to zoom, and colours of the theme of the moment.
function frame(view, height, y, more) {
  const axis = (extra) => ({
    stroke: () => view.theme.dim,
    grid: { stroke: () => view.theme.line, width: 1 },
    ticks: { stroke: () => view.theme.line, width: 1, size: 4 },
    font: "11px system-ui, sans-serif",
    ...extra,
  });
  return {
    width: view.width(),
    height,
    padding: [more.badName === undefined ? 8 : 20, 14, 0, 0],
    legend: { show: false },
    scales: { x: { time: false, range: (u, low, high) => [low, high] }, y: { range: y, dir: more.down ? -1 : 1 } },
    cursor: {
      points: { show: false },
      drag: { x: true, y: false, setScale: false, ...more.drag },
      bind: { dblclick: () => () => { view.whole(); } },
    },
    axes: [
      axis({ size: 34, values: (u, at) => at.map((x) => (Number.isInteger(x) ? String(x) : "")), ...more.xAxis }),
      axis({ size: AXIS, ...more.yAxis }),
    ],
    series: [{}, ...(more.series ?? [{ paths: () => null, points: { show: false } }])],
    hooks: {
      draw: [more.draw, (u) => markBad(u, view.theme, view.badAt, more.badName)],
      setCursor: [(u) => view.pointed(u)],
      setSelect: [(u) => more.selected ? more.selected(u) : view.zoomTo(u)],
    },
  };
}

// ---- timeline: a line for each session and request ----

const GLYPHS = {
  begin: ["open", "create", "arrive"], match: ["match"], write: ["extend", "stash", "insert"],
  step: ["decode", "result", "verify"], end: ["finish", "close"], undo: ["retract", "ask_abort", "abort"], pool: ["evict", "window", "check"],
};
const KINDS = Object.keys(GLYPHS);
const WEIGHT = { step: 0, write: 1, match: 2, begin: 3, pool: 3, end: 4, undo: 5 };
const WAITING = 1, PREFILL = 2, RUNNING = 3;

function kindsOf(story) {
  const kind = Object.fromEntries(KINDS.flatMap((name, n) => GLYPHS[name].map((action) => [action, n])));
  return story.actions.map((action) => kind[action] ?? KINDS.indexOf("pool"));
}

function timelineChart(view) {
  const { story } = view, lines = story.lines;
  const kinds = kindsOf(story);
  const height = Math.min(360, 62 + lines.count * (lines.count > 14 ? 16 : 28));
  const y = () => [0, lines.count];
  const label = (who) => shortName(story.owners[who]);
  return {
    name: "timeline",
    across: y,
    data: () => [view.xs, view.nothing],
    options: () => frame(view, height, y, {
      badName: view.badName,
      down: true,
      yAxis: {
        splits: () => lines.holders.map((_, n) => n + 0.5),
        space: 1,
        grid: { show: false },
        ticks: { show: false },
        values: (u, at) => {
          const [low, high] = [u.scales.x.min, u.scales.x.max], room = u.bbox.height / devicePixelRatio / lines.count;
          if (room < 9) return at.map(() => "");
          return at.map((n) => {
            const shown = lines.holders[Math.floor(n)].filter((who) =>
              view.index(low) <= lines.last.get(who) && view.index(high) >= lines.first.get(who));
            return shown.length === 1 ? clipped(label(shown[0]), 17) : shown.length ? `${shown.length} in turn` : "";
          });
        },
      },
      draw: (u) => drawTimeline(u, view, kinds),
    }),
    ledgerAt: (u, x, y) => {
      const line = Math.floor(u.posToVal(y, "y")), event = view.index(x);
      const held = lines.holders[line] ?? [];
      return held.find((who) => lines.first.get(who) <= event && event <= lines.last.get(who)) ?? null;
    },
  };
}

function drawTimeline(u, view, kinds) {
  const { ctx, bbox } = u, { story, theme } = view, { events, lines } = story;
  const [low, high] = [Math.max(0, view.index(u.scales.x.min)), Math.min(story.count - 1, view.index(u.scales.x.max) + 1)];
  const each = bbox.height / lines.count, scale = devicePixelRatio, at = (i) => u.valToPos(view.xs[0] + i, "x", true);
  const wide = at(1) - at(0);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const [who, mine] of story.ofLedger) {
    if (who < FIRST_LEDGER) continue;
    const top = bbox.top + lines.of.get(who) * each, middle = top + each / 2;
    const first = Math.max(0, lastAtMost(mine, low)), last = lastAtMost(mine, high);
    if (who === view.chosen) {
      ctx.fillStyle = theme.focus;
      ctx.globalAlpha = 0.16;
      ctx.fillRect(at(lines.first.get(who)), top + 1, at(lines.last.get(who) + 1) - at(lines.first.get(who)), each - 2);
      ctx.globalAlpha = 1;
    }
    // The turn between its events: queued a frame, in prefill pale, in decode full; a slot that is held a thin line.
    const colour = ownerLook(who, theme).colour, bar = Math.max(scale, each * 0.42);
    ctx.fillStyle = ctx.strokeStyle = colour;
    ctx.lineWidth = scale;
    for (let n = first; n <= last; n++) {
      const i = mine[n], begin = at(i), end = n + 1 < mine.length ? at(mine[n + 1]) : begin + wide;
      const phase = events.phase[i];
      if (end < bbox.left) continue;
      if (phase === RUNNING || phase === PREFILL) {
        ctx.globalAlpha = phase === RUNNING ? 0.75 : 0.35;
        ctx.fillRect(begin, middle - bar / 2, end - begin, bar);
        ctx.globalAlpha = 1;
      } else if (phase === WAITING) {
        ctx.globalAlpha = 0.8;
        ctx.fillRect(begin, middle - bar / 2, end - begin, scale);
        ctx.fillRect(begin, middle + bar / 2 - scale, end - begin, scale);
        ctx.globalAlpha = 1;
      } else if (events.told_by[i]) {
        ctx.fillRect(begin, middle - scale / 2, end - begin, scale);
      }
    }
  }
  drawActions(u, view, kinds, low, high, each);
  ctx.restore();
}

// A glyph for each action; where they stand too close the weightiest of a pixel is kept.
function drawActions(u, view, kinds, low, high, each) {
  const { ctx, bbox } = u, { story, theme } = view, { events, lines } = story, scale = devicePixelRatio;
  const wide = u.valToPos(view.xs[0] + 1, "x", true) - u.valToPos(view.xs[0], "x", true);
  const size = Math.min(each * 0.36, 5 * scale, Math.max(2.8 * scale, wide * 0.42));
  const step = Math.max(1, Math.round(size)), best = new Map();
  for (let i = low; i <= high; i++) {
    const column = Math.round(u.valToPos(view.xs[0] + i, "x", true) / step), line = lines.of.get(events.who[i]);
    const place = line * 65536 + column, was = best.get(place);
    const weight = WEIGHT[KINDS[kinds[events.action[i]]]];
    if (was === undefined || weight >= WEIGHT[KINDS[kinds[events.action[was]]]]) best.set(place, i);
  }
  const isNamed = wide > 46 * scale && each > 16 * scale;
  ctx.lineWidth = 1.5 * scale;
  ctx.font = `${10 * scale}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (const i of best.values()) {
    const x = u.valToPos(view.xs[0] + i, "x", true), y = bbox.top + (lines.of.get(events.who[i]) + 0.5) * each;
    const isBad = view.isBad(i);
    ctx.fillStyle = ctx.strokeStyle = isBad ? theme.bad : theme.text;
    glyph(ctx, KINDS[kinds[events.action[i]]], x, y, isBad ? size * 1.5 : size);
    if (isNamed) {
      const name = story.actions[events.action[i]], room = ctx.measureText(name).width;
      ctx.fillStyle = theme.panel;
      ctx.globalAlpha = 0.8;
      ctx.fillRect(x + size + 2 * scale, y - 6 * scale, room + 3 * scale, 12 * scale);
      ctx.globalAlpha = 1;
      ctx.fillStyle = isBad ? theme.bad : theme.text;
      ctx.fillText(name, x + size + 3 * scale, y);
    }
  }
}

function glyph(ctx, kind, x, y, s) {
  ctx.beginPath();
  switch (kind) {
    case "begin": ctx.moveTo(x - s, y - s); ctx.lineTo(x + s, y); ctx.lineTo(x - s, y + s); ctx.closePath(); return ctx.fill();
    case "match": ctx.moveTo(x, y - s); ctx.lineTo(x + s, y); ctx.lineTo(x, y + s); ctx.lineTo(x - s, y); ctx.closePath(); return ctx.stroke();
    case "write": return ctx.fillRect(x - s, y - s, 2 * s, 2 * s);
    case "step": return ctx.fillRect(x - s * 0.25, y - s, Math.max(1, s * 0.5), 2 * s);
    case "end": ctx.arc(x, y, s, 0, 7); return ctx.fill();
    case "undo": ctx.moveTo(x - s, y - s); ctx.lineTo(x + s, y + s); ctx.moveTo(x + s, y - s); ctx.lineTo(x - s, y + s); return ctx.stroke();
    default: ctx.arc(x, y, s, 0, 7); return ctx.stroke();
  }
}

// ---- page map: pages by events, coloured by owner ----

function mapChart(view) {
  const range = () => view.pageRange;
  return {
    name: "map",
    across: range,
    data: () => [view.xs, view.nothing],
    options: () => frame(view, HEIGHTS.map, range, {
      drag: { y: true, uni: 24 },
      yAxis: {
        splits: (u) => pageTicks(view, u),
        grid: { show: false },
        values: (u, at) => at.map((k) => `page ${view.runs.pages[Math.floor(k)]}`),
      },
      draw: (u) => drawMap(u, view),
      selected: (u) => {
        if (u.select.height > 0 && u.select.height < u.over.clientHeight) view.zoomPages(u);
        view.zoomTo(u);
      },
    }),
    ledgerAt: (u, x, y) => {
      const run = view.runAt(Math.floor(u.posToVal(y, "y")), view.index(x));
      return run < 0 ? null : view.runs.to[run];
    },
  };
}

function pageTicks(view, u) {
  const [low, high] = [Math.max(0, Math.floor(view.pageRange[0])), Math.min(view.runs.pages.length, Math.ceil(view.pageRange[1]))];
  const most = Math.max(1, Math.floor(u.bbox.height / devicePixelRatio / 22)), step = Math.ceil((high - low) / most);
  const ticks = [];
  for (let k = low; k < high; k += step) ticks.push(k + 0.5);
  return ticks;
}

function drawMap(u, view) {
  const { ctx, bbox } = u, { runs, theme, story } = view;
  const W = Math.round(bbox.width), H = Math.round(bbox.height);
  if (W < 2 || H < 2 || !runs.pages.length) return;
  const image = ctx.createImageData(W, H), pixels = new Int32Array(image.data.buffer);
  const look = inks(story.owners.length, theme), [bottom, top] = view.pageRange, [low, high] = [u.scales.x.min, u.scales.x.max];
  const owners = new Int32Array(W), perPixel = (high - low) / W, tall = H / (top - bottom);
  let painted = -1;
  for (let y = 0; y < H; y++) {
    const k = view.lineOfPages(bottom + (H - 1 - y) * (top - bottom) / H, 1 / tall);
    if (k < 0 || k >= runs.pages.length) continue;
    if (k !== painted) {
      fillOwners(owners, runs, k, low - view.xs[0], perPixel);
      painted = k;
    }
    // A thin gap between pages where there is room for one.
    if (tall >= 7 && Math.floor(bottom + (H - y) * (top - bottom) / H) !== Math.floor(bottom + (H - 1 - y) * (top - bottom) / H)) continue;
    for (let x = 0, at = y * W; x < W; x++, at++) {
      const owner = owners[x];
      if (owner > FREE) pixels[at] = isInk(look.texture[owner], x, y) ? look.ink[owner] : look.ground[owner];
    }
  }
  const canvas = document.createElement("canvas");
  canvas.width = W;
  canvas.height = H;
  canvas.getContext("2d").putImageData(image, 0, 0);
  ctx.drawImage(canvas, Math.round(bbox.left), Math.round(bbox.top));
  nameRuns(u, view, tall);
  markWrongPages(u, view, tall);
}

function fillOwners(owners, runs, k, first, perPixel) {
  owners.fill(FREE);
  const begin = Math.max(runs.at[k], runAt(runs, k, Math.ceil(first)));
  for (let r = begin; r < runs.at[k + 1]; r++) {
    const from = Math.max(0, Math.floor((runs.from[r] - first) / perPixel));
    if (from >= owners.length) return;
    const stop = r + 1 < runs.at[k + 1] ? runs.from[r + 1] : runs.end;
    owners.fill(runs.to[r], from, Math.max(from + 1, Math.floor((stop - first) / perPixel)));
  }
}

function nameRuns(u, view, tall) {
  const { ctx, bbox } = u, { runs, story } = view, scale = devicePixelRatio;
  if (tall < 12 * scale) return;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.font = `${10 * scale}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const [low, high] = [u.scales.x.min - view.xs[0], u.scales.x.max - view.xs[0]];
  for (let k = Math.max(0, Math.floor(view.pageRange[0])); k < Math.min(runs.pages.length, view.pageRange[1]); k++) {
    const y = u.valToPos(k + 0.5, "y", true);
    for (let r = Math.max(runs.at[k], runAt(runs, k, Math.floor(low))); r < runs.at[k + 1] && runs.from[r] <= high; r++) {
      if (runs.to[r] === FREE) continue;
      const stop = r + 1 < runs.at[k + 1] ? runs.from[r + 1] : runs.end;
      const left = Math.max(bbox.left, u.valToPos(view.xs[0] + runs.from[r], "x", true));
      const right = Math.min(bbox.left + bbox.width, u.valToPos(view.xs[0] + stop, "x", true));
      const name = shortName(story.owners[runs.to[r]]), wide = ctx.measureText(name).width + 8 * scale;
      if (right - left < wide + 4 * scale) continue;
      ctx.fillStyle = "#ffffff";
      ctx.globalAlpha = 0.82;
      ctx.fillRect(left + 3 * scale, y - 6.5 * scale, wide, 13 * scale);
      ctx.globalAlpha = 1;
      ctx.fillStyle = "#111417";
      ctx.fillText(name, left + 7 * scale, y + 0.5 * scale);
    }
  }
  ctx.restore();
}

// The pages that the bad event moved wrongly: a frame and a cross at the event, however small a page is drawn.
function markWrongPages(u, view, tall) {
  if (view.pool !== "full") return;
  const { ctx, bbox } = u, { theme, runs } = view, scale = devicePixelRatio, last = view.badAt[0];
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left - 4, bbox.top - 4, bbox.width + 8, bbox.height + 8);
  ctx.clip();
  const named = [];
  for (const page of view.wrongPages) {
    const k = runs.number.get(page);
    if (k === undefined) continue;
    const x = u.valToPos(last, "x", true), y = u.valToPos(k + 0.5, "y", true), s = Math.min(7 * scale, Math.max(3.5 * scale, tall * 0.4));
    if (y < bbox.top || y > bbox.top + bbox.height) continue;
    for (const [width, colour] of [[5.5 * scale, theme.panel], [2.5 * scale, theme.bad]]) {
      ctx.lineWidth = width;
      ctx.strokeStyle = colour;
      ctx.beginPath();
      ctx.moveTo(x - s, y - s); ctx.lineTo(x + s, y + s);
      ctx.moveTo(x + s, y - s); ctx.lineTo(x - s, y + s);
      ctx.stroke();
    }
    const name = `page ${page}`;
    ctx.font = `600 ${11 * scale}px system-ui, sans-serif`;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    const wide = ctx.measureText(name).width;
    if (named.some((taken) => Math.abs(taken - y) < 15 * scale)) continue;
    named.push(y);
    ctx.fillStyle = theme.panel;
    ctx.fillRect(x - s - wide - 12 * scale, y - 7.5 * scale, wide + 8 * scale, 15 * scale);
    ctx.fillStyle = theme.bad;
    ctx.fillText(name, x - s - 8 * scale, y + 0.5 * scale);
  }
  ctx.restore();
}

// ---- lengths of the chosen row ----

const LENGTH_NAMES = {
  c: "kv_committed_len", a: "kv_allocated_len", r: "cache_protected_len", e: "swa_evicted_seqlen",
};
const DASHES = { c: [], a: [8, 4], r: [2, 3], e: [10, 3, 2, 3] };
const WIDTHS = { c: 2.5, a: 2, r: 2.5, e: 2 };

function lengthsChart(view) {
  const range = () => [0, Math.max(1, view.longest * 1.12)];
  return {
    name: "lengths",
    across: range,
    data: () => {
      const mine = view.story.ofLedger.get(view.chosen) ?? [];
      const { events, count } = view.story, xs = [], columns = LENGTHS.map(() => []);
      const put = (x, i) => {
        xs.push(x);
        LENGTHS.forEach((name, n) => columns[n].push(events.told_by[i] ? events[name][i] : null));
      };
      mine.forEach((i, n) => {
        // A step is drawn towards the next value: where there is none any more, the last one holds until then.
        if (n && events.told_by[mine[n - 1]] && !events.told_by[i]) put(view.xs[i] - 0.01, mine[n - 1]);
        put(view.xs[i], i);
      });
      if (mine.length) put(view.xs[count], mine[mine.length - 1]);
      return [xs, ...columns];
    },
    options: () => frame(view, HEIGHTS.lengths, range, {
      xAxis: { label: "event", labelSize: 18, size: 34, labelFont: "11px system-ui, sans-serif" },
      yAxis: { values: (u, at) => at.map((v) => (Number.isInteger(v) ? `${v} tokens` : "")) },
      series: LENGTHS.map((name) => ({
        stroke: () => view.theme[name], width: WIDTHS[name], dash: DASHES[name], points: { show: false },
        paths: uPlot.paths.stepped({ align: 1 }),
      })),
      draw: (u) => drawExpected(u, view),
    }),
    ledgerAt: () => view.chosen,
  };
}

// What the rule says in place of what was seen: a hollow diamond, and its value.
function drawExpected(u, view) {
  const bad = view.story.bad[0];
  if (!bad || bad.who !== view.chosen) return;
  const { ctx } = u, scale = devicePixelRatio;
  ctx.save();
  ctx.lineWidth = 2 * scale;
  ctx.font = `${11 * scale}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  for (const name of LENGTHS) {
    if (!(name in bad.expected)) continue;
    const x = u.valToPos(view.badAt[0], "x", true), y = u.valToPos(bad.expected[name], "y", true), s = 5 * scale;
    ctx.strokeStyle = ctx.fillStyle = view.theme[name];
    ctx.beginPath();
    ctx.moveTo(x, y - s); ctx.lineTo(x + s, y); ctx.lineTo(x, y + s); ctx.lineTo(x - s, y); ctx.closePath();
    ctx.stroke();
    ctx.fillText(`${LENGTH_NAMES[name]} ${bad.expected[name]} by the rule`, x - 2 * s, y);
  }
  ctx.restore();
}

function shortName(owner) {
  return owner.replace(/^(session|request) /, "");
}

function clipped(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
