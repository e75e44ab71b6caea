// Colours and textures. Owners differ by both, so that no one has to tell two colours apart; the palette is Okabe and Ito's.

const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#f0e442", "#d55e00"];
const TEXTURES = ["plain", "rising", "falling", "dotted", "crossed"];
const TREE_COLOUR = { light: "#a7adb4", dark: "#6d747c" };

function themeOf(root) {
  const style = getComputedStyle(root);
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    isDark: root.dataset.theme === "dark",
    text: named("text"), dim: named("dim"), line: named("line"), panel: named("panel"), bad: named("bad"),
    c: named("len-c"), a: named("len-a"), r: named("len-r"), e: named("len-e"), focus: named("focus"),
  };
}

function ownerLook(owner, theme) {
  if (owner === TREE) return { colour: TREE_COLOUR[theme.isDark ? "dark" : "light"], texture: "crossed" };
  const number = Math.max(0, owner - FIRST_LEDGER);
  return { colour: PALETTE[number % PALETTE.length], texture: TEXTURES[Math.floor(number / PALETTE.length) % 4] };
}

function isInk(texture, x, y) {
  switch (texture) {
    case "rising": return ((x + y) & 7) < 2;
    case "falling": return ((x - y) & 7) < 2;
    case "dotted": return (x & 3) < 2 && (y & 3) < 2;
    case "crossed": return ((x + y) & 7) < 1 || ((x - y) & 7) < 1;
    default: return false;
  }
}

function rgb(colour) {
  const n = parseInt(colour.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

const packedColour = ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;
const mixed = (a, b, share) => a.map((part, i) => Math.round(part + (b[i] - part) * share));

// For each owner the colour of its ground and of its ink, as pixels of an ImageData; 0 is nothing.
function inks(owners, theme) {
  const ground = new Int32Array(owners), ink = new Int32Array(owners), texture = [];
  for (let owner = 0; owner < owners; owner++) {
    const look = ownerLook(owner, theme), colour = rgb(look.colour);
    const other = rgb(theme.panel);
    ground[owner] = owner === FREE ? 0 : packedColour(colour);
    ink[owner] = owner === FREE ? 0 : packedColour(mixed(colour, other, 0.5));
    texture.push(look.texture);
  }
  return { ground, ink, texture };
}

// A small piece of an owner's look, for legends and tooltips.
function swatch(owner, theme) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 14;
  canvas.className = "swatch";
  canvas.setAttribute("aria-hidden", "true");
  if (owner === FREE) return canvas;
  const ctx = canvas.getContext("2d"), image = ctx.createImageData(14, 14), pixels = new Int32Array(image.data.buffer);
  const look = inks(owner + 1, theme);
  for (let y = 0; y < 14; y++) {
    for (let x = 0; x < 14; x++) pixels[y * 14 + x] = (isInk(look.texture[owner], x, y) ? look.ink : look.ground)[owner];
  }
  ctx.putImageData(image, 0, 0);
  return canvas;
}

// The bad event, in every chart the same: a dashed line with its name.
function markBad(u, theme, badEvents, name) {
  const { ctx, bbox } = u, scale = devicePixelRatio;
  for (const [number, x] of badEvents.entries()) {
    const left = u.valToPos(x, "x", true);
    if (left < bbox.left - 1 || left > bbox.left + bbox.width + 1) continue;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = theme.bad;
    ctx.lineWidth = 2 * scale;
    ctx.setLineDash([5 * scale, 3 * scale]);
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    if (number === 0 && name) {
      ctx.font = `600 ${11 * scale}px system-ui, sans-serif`;
      const isRight = left > bbox.left + bbox.width * 0.7;
      ctx.textAlign = isRight ? "right" : "left";
      ctx.textBaseline = "bottom";
      ctx.fillText(name, left + (isRight ? 6 : -6) * scale, bbox.top - 4 * scale);
    }
    ctx.restore();
  }
}
