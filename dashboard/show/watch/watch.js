// Plays a removal order: pixels are rows, or groups of rows, and go out as they are removed. All data come with the page.

const FADE = 0.02; // of all rows: how long a row that goes glows
const SECONDS = 14; // from none to all rates that were measured
const GONE = 0x10808080; // a row that is removed: hardly there, in light and in dark

function decoded(text, steps) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return steps > 256 ? new Uint16Array(bytes.buffer) : bytes;
}

// The pixel of every row; see dashboard/charts/row_picture.py.
function pixelOfRow(picture) {
  const { rows, group, wide, width, parts } = picture;
  const pixel = new Uint32Array(rows);
  for (const [, , start, count, left, offset] of parts) {
    for (let i = 0; i < count; i++) {
      const inside = offset + Math.floor(i / group);
      pixel[start + i] = Math.floor(inside / wide) * width + left + (inside % wide);
    }
  }
  return pixel;
}

// Pixels of the rows in the order in which the rows go, and for every step where its rows begin.
function sorted(places, pixel, steps) {
  const first = new Uint32Array(steps + 2);
  for (const place of places) first[place + 1]++;
  for (let i = 0; i <= steps; i++) first[i + 1] += first[i];
  const next = first.slice();
  const pixels = new Uint32Array(places.length);
  for (let row = 0; row < places.length; row++) pixels[next[places[row]]++] = pixel[row];
  return { first, pixels };
}

function rgb(colour) {
  const number = parseInt(colour.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

function word([r, g, b], alpha = 255) {
  return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

// A colour from dark, 0, to bright, 1.
function lit(colour, part) {
  const share = 0.35 + 0.65 * part;
  return colour.map((value) => Math.round(value * share + 255 * (1 - share) * 0.12));
}

// A pixel for each row: bright ones go last, and one that goes glows for a while.
class Rows {
  constructor({ first, pixels }, steps, words, colour, glow) {
    Object.assign(this, { first, pixels, steps, words, glow });
    this.shades = Array.from({ length: 256 }, (_, i) => word(lit(colour, i / 255)));
    this.at = null;
  }

  paint(at) {
    const { first, pixels, steps, words } = this;
    const fade = this.glow ? FADE * steps : 0;
    const low = this.at === null ? 0 : Math.floor(Math.min(at, this.at) - fade) - 1;
    const high = this.at === null ? steps : Math.ceil(Math.max(at, this.at)) + 1;
    for (let place = Math.max(0, low); place <= Math.min(steps, high); place++) {
      const age = at - place;
      let shade = GONE;
      if (age <= 0) shade = this.shades[Math.floor((place * 255) / steps)];
      else if (age < fade) shade = word([255, 90, 60], Math.round(16 + 239 * (1 - age / fade)));
      for (let i = first[place]; i < first[place + 1]; i++) words[pixels[i]] = shade;
    }
    this.at = at;
  }
}

const BRIGHT = 32; // shades of a group, bright ones go last in the mean of their rows

// A pixel for each group of rows, which fades with the share of them that is gone. The rows of a step go evenly within it.
class Groups {
  constructor({ first, pixels }, steps, words, colour) {
    Object.assign(this, { first, pixels, steps, words });
    this.size = new Uint32Array(words.length);
    const sum = new Float64Array(words.length);
    for (let step = 0; step <= steps; step++) {
      for (let i = first[step]; i < first[step + 1]; i++) {
        this.size[pixels[i]]++;
        sum[pixels[i]] += step;
      }
    }
    this.row = Uint32Array.from(sum, (value, i) => 256 * Math.floor(((BRIGHT - 1) * value) / (this.size[i] * steps || 1)));
    this.gone = new Uint32Array(words.length);
    this.going = new Uint32Array(words.length);
    const end = [128, 128, 128];
    this.shades = Array.from({ length: BRIGHT * 256 }, (_, at) => {
      const i = at % 256;
      const start = lit(colour, Math.floor(at / 256) / (BRIGHT - 1));
      return word(start.map((value, c) => Math.round(value + ((end[c] - value) * i) / 255)), Math.round(255 - (239 * i) / 255));
    });
    this.whole = 0;
    this.at = null;
    this.count(this.going, 0, 1);
  }

  count(counts, step, change) {
    for (let i = this.first[step]; i < this.first[step + 1]; i++) counts[this.pixels[i]] += change;
  }

  paint(at) {
    const { first, pixels, words, size, row, gone, going, shades } = this;
    const whole = Math.min(Math.floor(at), this.steps);
    const part = at - whole;
    const before = this.whole;
    if (whole !== before) {
      this.count(going, before, -1);
      for (let step = before; step < whole; step++) this.count(gone, step, 1);
      for (let step = whole; step < before; step++) this.count(gone, step, -1);
      this.count(going, whole, 1);
      this.whole = whole;
    }
    const all = this.at === null;
    const from = all ? 0 : first[Math.min(before, whole)];
    const to = all ? pixels.length : first[Math.max(before, whole) + 1];
    for (let i = from; i < to; i++) {
      const pixel = pixels[i];
      words[pixel] = shades[row[pixel] + Math.round((255 * (gone[pixel] + part * going[pixel])) / size[pixel])];
    }
    this.at = at;
  }
}

const EPSILON = 5e-4; // half a step of the slider

function isMeasured(curve, rate) {
  return curve.some(([at]) => Math.abs(at - rate) < EPSILON);
}

// Nats at a rate: as measured, or on a straight line between the two measured ones.
export function natsAt(curve, rate) {
  const i = curve.findIndex(([at]) => at > rate - EPSILON);
  if (i < 0) return NaN;
  const [r1, n1] = curve[i];
  if (r1 - rate < EPSILON) return n1;
  const [r0, n0] = curve[i - 1] ?? [NaN, NaN];
  return n0 + ((n1 - n0) * (rate - r0)) / (r1 - r0);
}

const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";
export function perplexity(nats) {
  if (Number.isNaN(nats)) return "–";
  if (!isFinite(nats)) return "∞";
  const log10 = nats / Math.LN10;
  if (log10 < 4) {
    const value = Math.exp(nats);
    return value >= 1000 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
  }
  const exponent = Math.floor(log10);
  const raised = [...String(exponent)].map((digit) => SUPERSCRIPT[Number(digit)]).join("");
  return `${(10 ** (log10 - exponent)).toFixed(2)}×10${raised}`;
}

const percent = (share) => `${share > 0 && share < 0.01 ? Number((share * 100).toFixed(2)) : Math.round(share * 100)}%`;

const LANE = `
  <div class="head"><span class="title"></span>
    <span class="perplexity"><small>perplexity </small><b></b></span></div>
  <p class="reply"><small class="when"></small><span class="text"></span></p>
  <div class="picture"><canvas role="img"></canvas><p class="pointed" hidden></p></div>`;

class Lane {
  // first: of the lanes; one without places loses its rows from the first one's end
  constructor(lane, data, pixel, calm, parent, first) {
    const { picture, steps } = data;
    this.lane = lane;
    this.picture = picture;
    this.steps = steps;
    this.curve = lane.curve.map(([rate, nats]) => [rate, nats === null ? NaN : Number(nats)]);
    const element = document.createElement("section");
    element.className = "lane";
    element.innerHTML = LANE;
    element.querySelector(".title").textContent = lane.title;
    this.number = element.querySelector(".perplexity b");
    this.reply = element.querySelector(".reply");
    this.reply.hidden = data.prompts.length === 0;
    this.canvas = element.querySelector("canvas");
    this.pointed = element.querySelector(".pointed");
    this.canvas.width = picture.width;
    this.canvas.height = picture.height;
    this.context = this.canvas.getContext("2d");
    this.image = this.context.createImageData(picture.width, picture.height);
    const words = new Uint32Array(this.image.data.buffer);
    this.places = lane.places ? decoded(lane.places, steps) : first.places.map((place) => steps - 1 - place);
    const order = sorted(this.places, pixel, steps);
    const Painter = picture.group === 1 ? Rows : Groups;
    this.painter = new Painter(order, steps, words, rgb(lane.colour), !calm);
    this.pointer = null; // where it is on the picture
    this.canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => {
      this.pointer = [offsetX / this.canvas.clientWidth, offsetY / this.canvas.clientHeight];
      this.point();
    });
    this.canvas.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.point();
    });
    this.rate = 0;
    parent.appendChild(element);
  }

  draw(rate) {
    this.rate = rate;
    this.painter.paint(this.stepsAt(rate));
    this.context.putImageData(this.image, 0, 0);
    this.number.textContent = this.perplexity(rate, "≈ ");
  }

  stepsAt(rate) {
    return Math.round(rate * this.steps * 1e6) / 1e6; // 0.57 * 200 is no whole number
  }

  perplexity(rate, about) {
    const nats = natsAt(this.curve, rate);
    return (isMeasured(this.curve, rate) || Number.isNaN(nats) ? "" : about) + perplexity(nats);
  }

  // The last reply that the model was asked for.
  say(prompt, rate) {
    const line = this.lane.said[prompt] ?? [];
    const [at, text, finished] = line.filter(([asked]) => asked <= rate + EPSILON).pop() ?? [];
    const when =
      at === undefined
        ? "No reply was kept."
        : `At ${percent(at)}${text.trim() ? (finished ? ":" : ", cut off:") : finished ? ": no word." : ", cut off: no word yet."}`;
    const [written, reply] = this.reply.children;
    if (written.textContent !== when) written.textContent = when;
    const shown = text?.trim() ?? "";
    if (reply.textContent !== shown) this.reply.title = reply.textContent = shown;
  }

  describe(rate) {
    const { rows, group, parts } = this.picture;
    const blocks = new Set(parts.map(([block]) => block)).size;
    const pixel = group === 1 ? "a pixel each" : `up to ${group} neighbouring ones a pixel`;
    return (
      `${this.lane.title}: perplexity ${this.perplexity(rate, "about ")} with ${percent(rate)} of the rows removed; ` +
      `${rows.toLocaleString("en")} rows in ${blocks} block${blocks === 1 ? "" : "s"}, ${pixel}`
    );
  }

  // What lies under the pointer: the projection, and how many of its rows are gone.
  point() {
    const { wide, width, height, group, parts } = this.picture;
    const [x, y] = this.pointer ? [Math.floor(this.pointer[0] * width), Math.floor(this.pointer[1] * height)] : [-1, -1];
    const part = parts.find(([, , , count, left, offset]) => {
      const inside = y * wide + (x - left) - offset;
      return x >= left && x < left + wide && inside >= 0 && inside < Math.ceil(count / group);
    });
    this.pointed.hidden = !part;
    if (!part) return;
    const [block, projection, start, count] = part;
    const at = this.stepsAt(this.rate);
    let gone = 0;
    for (let row = start; row < start + count; row++) gone += this.places[row] < at;
    this.pointed.textContent = `block ${block}, ${projection}: ${percent(gone / count)} of ${count.toLocaleString("en")} rows removed`;
  }
}

class Stage {
  constructor(root, data, before) {
    this.data = data;
    this.root = root;
    const find = (name) => root.querySelector(name);
    this.button = find(".play");
    this.slider = find(".rate");
    this.removed = find(".removed");
    this.told = find(".told");
    this.prompt = find(".prompt");
    find(".lanes").replaceChildren();
    this.calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const pixel = pixelOfRow(data.picture);
    this.lanes = [];
    for (const lane of data.lanes)
      this.lanes.push(new Lane(lane, data, pixel, this.calm, find(".lanes"), this.lanes[0]));
    this.measured = [...new Set(this.lanes.flatMap((lane) => lane.curve.map(([rate]) => rate)))].sort((a, b) => a - b);
    this.prompt.replaceChildren(...data.prompts.map((text) => new Option(text, text)));
    if (before && data.prompts.includes(before.prompt)) this.prompt.value = before.prompt;
    find(".asked").hidden = data.prompts.length === 0;
    this.slider.max = Math.round(data.last * 1000);
    this.button.disabled = !(data.last > 0);
    this.rate = 0;
    this.opened = before?.opened ?? true; // nobody has moved it: it plays from its beginning
    this.frame = null;
    this.frames = 0; // of the browser while it played
    this.drawn = 0; // of them those in which something was drawn
    this.events = new AbortController();
    const on = (target, name, what) => target.addEventListener(name, what, { signal: this.events.signal });
    on(this.button, "click", () => this.toggle());
    on(this.slider, "input", () => this.jump(Number(this.slider.value) / 1000));
    on(this.slider, "keydown", (event) => this.key(event));
    on(this.prompt, "change", () => this.go(this.rate));
    const [a, b = a] = this.lanes; // it opens where only one side's perplexity has doubled, as late as that is so
    const grown = (lane, rate) => natsAt(lane.curve, rate) - natsAt(lane.curve, 0) > Math.LN2;
    const apart = (rate) => grown(a, rate) !== grown(b, rate);
    this.go(this.opened ? (this.measured.findLast(apart) ?? 0) : before.rate);
    this.tell();
  }

  get playing() {
    return this.frame !== null;
  }

  toggle() {
    if (this.playing) this.pause();
    else if (this.data.last > 0) this.play();
  }

  name(sign, word) {
    this.button.textContent = `${sign} ${word}`;
    this.button.setAttribute("aria-label", word);
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const whole = Math.round(this.rate * 1000) / 10; // percent
    const [more, less] = [(Math.floor(whole) + 1) / 100, (Math.ceil(whole) - 1) / 100];
    const to = {
      ArrowRight: more, ArrowUp: more, ArrowLeft: less, ArrowDown: less, Home: 0, End: this.data.last,
      PageUp: this.measured.find((rate) => rate > this.rate + EPSILON) ?? this.data.last,
      PageDown: this.measured.findLast((rate) => rate < this.rate - EPSILON) ?? 0,
    }[event.key];
    if (event.key === " ") this.toggle();
    else if (to !== undefined) this.jump(to);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  jump(rate) {
    this.opened = false;
    this.pause();
    this.go(rate);
    this.tell();
  }

  go(rate) {
    this.rate = Math.min(this.data.last, Math.max(0, rate));
    for (const lane of this.lanes) {
      lane.draw(this.rate);
      lane.say(this.prompt.value, this.rate);
    }
    this.drawn++;
    this.slider.value = Math.round(this.rate * 1000);
    const removed = `${percent(this.rate)} removed`;
    if (this.removed.textContent === removed && this.described) return;
    this.removed.textContent = removed;
    this.slider.setAttribute("aria-valuetext", removed);
    this.describe();
  }

  describe() {
    for (const lane of this.lanes) lane.point();
    this.described = this.lanes.map((lane) => lane.describe(this.rate));
    this.lanes.forEach((lane, i) => lane.canvas.setAttribute("aria-label", this.described[i]));
  }

  tell() {
    this.describe();
    this.told.textContent = `${this.described.join(". ")}.`;
  }

  // Who asked for little motion sees the measured rates one after another instead.
  play() {
    if (this.opened || this.rate >= this.data.last) this.go(0);
    this.opened = false;
    this.name("❚❚", "Pause");
    const begun = performance.now() - (this.rate / this.data.last) * SECONDS * 1000;
    const step = (now) => {
      this.frames++;
      let rate = (this.data.last * (now - begun)) / (SECONDS * 1000);
      if (this.calm) rate = Math.max(0, ...this.measured.filter((stop) => stop <= rate + EPSILON));
      if (now - begun >= SECONDS * 1000) {
        this.go(this.data.last);
        this.pause();
        return;
      }
      if (rate !== this.rate && (rate > this.rate || !this.calm)) this.go(rate);
      this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  pause() {
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.frame = null;
    this.name("▶", "Play");
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
  const before = stages.get(parentElement);
  if (before?.data.id !== data.id) {
    const root = parentElement.querySelector(".watch");
    before?.end();
    const stage = new Stage(root, data, before && { rate: before.rate, opened: before.opened, prompt: before.prompt.value });
    stages.set(parentElement, stage);
    root.stage = stage;
  }
  return () => {
    // also where the last call had nothing to do: Streamlit keeps what it returned
    stages.get(parentElement)?.end();
    stages.delete(parentElement);
  };
}
