// Plays a removal order: every row is a pixel, which goes out when its row is removed. All data come with the page.

const FADE = 0.02; // of all rows: how long a row that goes stays bright
const SECONDS = 14; // from none to all rates that were measured
const GAP = 2; // pixels between two matrices

function decoded(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Uint16Array(bytes.buffer);
}

// Blocks side by side, a block's matrices one below the other, a matrix as a rectangle of its rows.
function pictured(data) {
  const blocks = new Map();
  for (const part of data.parts) {
    if (!blocks.has(part.block)) blocks.set(part.block, []);
    blocks.get(part.block).push(part);
  }
  const tallest = Math.max(...[...blocks.values()].map((some) => some.reduce((sum, part) => sum + part.count, 0)));
  // Of pixels: width of a block such that the whole is about three times as wide as it is high.
  const width = Math.max(1, Math.round(Math.sqrt((3 * tallest) / blocks.size)));
  const pixel = new Uint32Array(data.rows);
  let left = 0;
  let height = 0;
  const corners = [];
  for (const some of blocks.values()) {
    let top = 0;
    for (const part of some) {
      corners.push({ left, top, part });
      top += Math.ceil(part.count / width) + GAP;
    }
    height = Math.max(height, top - GAP);
    left += width + GAP;
  }
  const whole = left - GAP;
  for (const { left: x, top: y, part } of corners) {
    for (let i = 0; i < part.count; i++) pixel[part.start + i] = (y + Math.floor(i / width)) * whole + x + (i % width);
  }
  return { width: whole, height, pixel };
}

// Rows sorted by their place, and for every place where its rows begin.
function sorted(places, steps) {
  const first = new Uint32Array(steps + 2);
  for (const place of places) first[place + 1]++;
  for (let i = 0; i <= steps; i++) first[i + 1] += first[i];
  const next = first.slice();
  const rows = new Uint32Array(places.length);
  for (let row = 0; row < places.length; row++) rows[next[places[row]]++] = row;
  return { first, rows };
}

function rgb(colour) {
  const number = parseInt(colour.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

// Nats at a rate, on a straight line between the two measured ones.
function natsAt(curve, rate) {
  if (!curve.length) return null;
  for (let i = 1; i < curve.length; i++) {
    const [r1, n1] = curve[i];
    if (rate <= r1) {
      const [r0, n0] = curve[i - 1];
      return n0 + ((n1 - n0) * (rate - r0)) / (r1 - r0);
    }
  }
  return curve[curve.length - 1][1];
}

const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";
export function perplexity(nats) {
  if (nats === null || !isFinite(nats)) return "–";
  const log10 = nats / Math.LN10;
  if (log10 < 4) {
    const value = Math.exp(nats);
    return value >= 1000 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
  }
  const exponent = Math.floor(log10);
  const raised = [...String(exponent)].map((digit) => SUPERSCRIPT[Number(digit)]).join("");
  return `${(10 ** (log10 - exponent)).toFixed(1)}×10${raised}`;
}

function lastAt(line, rate) {
  let found = "";
  for (const [at, text] of line) if (at <= rate + 1e-9) found = text;
  return found;
}

class Lane {
  constructor(lane, picture, steps, parent) {
    this.lane = lane;
    this.picture = picture;
    this.steps = steps;
    Object.assign(this, sorted(decoded(lane.places), steps));
    this.colour = rgb(lane.colour);
    const element = document.createElement("section");
    element.className = "lane";
    element.innerHTML =
      '<div class="head"><span class="title"></span>' +
      '<span class="perplexity"><small>perplexity </small><b></b></span></div><canvas role="img"></canvas><p class="reply"></p>';
    element.querySelector(".title").textContent = lane.title;
    this.number = element.querySelector(".perplexity b");
    this.reply = element.querySelector(".reply");
    this.canvas = element.querySelector("canvas");
    this.canvas.width = picture.width;
    this.canvas.height = picture.height;
    this.context = this.canvas.getContext("2d");
    this.image = this.context.createImageData(picture.width, picture.height);
    this.words = new Uint32Array(this.image.data.buffer);
    this.palette = this.shades();
    parent.appendChild(element);
    this.at = null;
  }

  // What comes late is bright: the brightness of a row that is left is its place in the order.
  shades() {
    const shades = new Uint32Array(256);
    for (let i = 0; i < 256; i++) {
      const share = 0.35 + (0.65 * i) / 255;
      const [r, g, b] = this.colour.map((value) => Math.round(value * share + 255 * (1 - share) * 0.12));
      shades[i] = (255 << 24) | (b << 16) | (g << 8) | r;
    }
    return shades;
  }

  paint(from, to, rate) {
    const { first, rows, words, picture, steps } = this;
    for (let place = Math.max(0, from); place <= Math.min(steps, to); place++) {
      const age = rate - place / steps;
      let word;
      if (age <= 0) word = this.palette[(place * 255) / steps | 0];
      else if (age >= FADE) word = 0x10808080;
      else {
        const left = 1 - age / FADE;
        const alpha = Math.round(16 + 239 * left);
        word = ((alpha << 24) | (60 << 16) | (90 << 8) | 255) >>> 0;
      }
      for (let i = first[place]; i < first[place + 1]; i++) words[picture.pixel[rows[i]]] = word;
    }
  }

  draw(rate) {
    const fading = Math.ceil(FADE * this.steps);
    const here = Math.ceil(rate * this.steps);
    if (this.at === null) this.paint(0, this.steps, rate);
    else {
      const there = Math.ceil(this.at * this.steps);
      this.paint(Math.min(here, there) - fading - 1, Math.max(here, there) + 1, rate);
    }
    this.at = rate;
    this.context.putImageData(this.image, 0, 0);
    this.number.textContent = perplexity(natsAt(this.lane.curve, rate));
  }

  say(prompt, rate) {
    const line = this.lane.said[prompt];
    const text = line ? lastAt(line, rate) : "";
    if (this.reply.textContent !== text) this.reply.textContent = text;
  }

  describe(rate) {
    return `${this.lane.title}: perplexity ${perplexity(natsAt(this.lane.curve, rate))} with ${Math.round(rate * 100)}% of the rows removed`;
  }
}

class Stage {
  constructor(root, data) {
    this.data = data;
    this.root = root;
    const find = (name) => root.querySelector(name);
    this.button = find(".play");
    this.slider = find(".rate");
    this.removed = find(".removed");
    this.told = find(".told");
    this.prompt = find(".prompt");
    find(".lanes").replaceChildren();
    const picture = pictured(data);
    this.lanes = data.lanes.map((lane) => new Lane(lane, picture, data.steps, find(".lanes")));
    this.prompt.replaceChildren(...data.prompts.map((text) => new Option(text, text)));
    find(".asked").hidden = data.prompts.length === 0;
    this.slider.max = Math.round(data.last * 1000);
    this.rate = 0;
    this.frame = null;
    this.frames = 0;
    this.calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.events = new AbortController();
    const on = (target, name, what) => target.addEventListener(name, what, { signal: this.events.signal });
    on(this.button, "click", () => (this.playing ? this.pause() : this.play()));
    on(this.slider, "input", () => {
      this.pause();
      this.go(Number(this.slider.value) / 1000);
      this.tell();
    });
    on(this.prompt, "change", () => this.go(this.rate));
    this.go(0);
    this.tell();
  }

  get playing() {
    return this.frame !== null;
  }

  go(rate) {
    this.rate = Math.min(this.data.last, Math.max(0, rate));
    for (const lane of this.lanes) {
      lane.draw(this.rate);
      lane.say(this.prompt.value, this.rate);
    }
    this.slider.value = Math.round(this.rate * 1000);
    this.removed.textContent = `${Math.round(this.rate * 100)}% removed`;
  }

  tell() {
    const said = this.lanes.map((lane) => lane.describe(this.rate));
    this.lanes.forEach((lane, i) => lane.canvas.setAttribute("aria-label", said[i]));
    this.told.textContent = `${said.join(". ")}.`;
  }

  // Who asked for little motion sees the measured rates one after another instead.
  play() {
    if (this.rate >= this.data.last) this.go(0);
    this.button.textContent = "❚❚ Pause";
    this.button.setAttribute("aria-label", "Pause");
    const begun = performance.now() - (this.rate / this.data.last) * SECONDS * 1000;
    const stops = this.calm ? this.lanes[0].lane.curve.map(([rate]) => rate) : null;
    const step = (now) => {
      let rate = (this.data.last * (now - begun)) / (SECONDS * 1000);
      if (stops) rate = stops.filter((stop) => stop <= rate + 1e-9).pop() ?? 0;
      if (!stops || rate !== this.rate) this.go(rate);
      this.frames++;
      if (now - begun >= SECONDS * 1000) {
        this.go(this.data.last);
        this.pause();
      } else this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  pause() {
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.frame = null;
    this.button.textContent = "▶ Play";
    this.button.setAttribute("aria-label", "Play");
    this.tell();
  }

  end() {
    this.pause();
    this.events.abort();
  }
}

const stages = new WeakMap();

export default function (component) {
  const { data, parentElement } = component;
  const root = parentElement.querySelector(".watch");
  const before = stages.get(parentElement);
  if (before && before.data.id === data.id) return;
  if (before) before.end();
  const stage = new Stage(root, data);
  stages.set(parentElement, stage);
  root.stage = stage;
  return () => {
    stage.end();
    stages.delete(parentElement);
  };
}
