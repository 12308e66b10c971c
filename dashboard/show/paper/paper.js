// Draws the figure, gives a long legend its room, writes the caption below, and saves all of it as one image.

const told = JSON.parse(document.getElementById("data").textContent);
const NS = "http://www.w3.org/2000/svg";
const DPI = 600;
const EDGE = 4; // pixels between what is drawn and the image's edge
const face = told.font
  ? `@font-face{font-family:"Source Sans for figures";font-weight:200 900;` +
    `src:url(data:font/woff2;base64,${told.font}) format("woff2")}`
  : "";

// What stands out above or below gets the room that it needs; the plot stays as large.
async function fit(drawing) {
  for (let round = 0; round < 3; round++) {
    const frame = drawing.getBoundingClientRect();
    let top = EDGE;
    let bottom = 0;
    for (const part of drawing.querySelectorAll("text, .legend, .colorbar")) {
      const box = part.getBoundingClientRect();
      if (!box.width || !box.height) continue;
      top = Math.min(top, box.top - frame.top);
      bottom = Math.max(bottom, box.bottom - frame.top);
    }
    const above = Math.ceil(EDGE - top);
    const below = Math.ceil(bottom + EDGE - frame.height);
    if (above <= 0 && below === 0) return;
    const margin = drawing.layout.margin;
    await Plotly.relayout(drawing, {
      height: drawing.layout.height + Math.max(above, 0) + below,
      "margin.t": margin.t + Math.max(above, 0),
      "margin.b": margin.b + below,
    });
  }
}

function wrapped(text, width, font) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = font;
  const lines = [];
  let line = "";
  for (const word of text.split(" ")) {
    const longer = line ? `${line} ${word}` : word;
    if (line && context.measureText(longer).width > width) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  return line ? [...lines, line] : lines;
}

function svg(name, attributes, text = "") {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

async function composed() {
  const style = document.createElement("style");
  style.textContent = face;
  document.head.append(style);
  const family = told.family.split(", ").map((name) => `"${name}"`).join(", ").replace('"sans-serif"', "sans-serif");
  if (told.font) await document.fonts.load(`12px ${family}`);
  const drawing = document.getElementById("drawing");
  const { data, layout } = told.figure;
  layout.font.family = family;
  await Plotly.newPlot(drawing, data, layout, { staticPlot: true });
  await fit(drawing);
  const width = drawing.layout.width;
  const height = drawing.layout.height;
  const address = await Plotly.toImage(drawing, { format: "svg", width, height });
  Plotly.purge(drawing);
  drawing.remove();
  const source = decodeURIComponent(address.slice(address.indexOf(",") + 1));
  const plot = new DOMParser().parseFromString(source, "image/svg+xml").documentElement;

  const lines = wrapped(told.caption, width - 2 * EDGE, `${told.caption_px}px ${family}`);
  const step = 1.3 * told.caption_px;
  const whole = Math.ceil(height + lines.length * step + 2 * EDGE);
  const image = svg("svg", {
    xmlns: NS, width: `${width / told.css_px}in`, height: `${whole / told.css_px}in`, viewBox: `0 0 ${width} ${whole}`,
    role: "img",
  });
  const fonts = svg("style", {}, face);
  const paper = svg("rect", { width, height: whole, fill: "#fff" });
  const caption = svg("text", {
    style: `font-family:${family.replaceAll('"', "'")};font-size:${told.caption_px}px;fill:#000`,
  });
  caption.append(...lines.map((text, place) => svg("tspan", { x: EDGE, y: height + EDGE + (place + 0.8) * step }, text)));
  image.append(fonts, paper, document.importNode(plot, true), caption);
  document.getElementById("picture").append(image);
  const page = document.createElement("style");
  page.textContent = `@page { size: ${width / told.css_px}in ${whole / told.css_px}in; margin: 0 }`;
  document.head.append(page);
  return { text: new XMLSerializer().serializeToString(image), width, height: whole };
}

function save(blob, ending) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${told.name}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function pixels(image) {
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(image.text)}`;
  await picture.decode();
  await new Promise((resolve) => setTimeout(resolve, 200)); // the typeface inside the image loads after it
  const scale = DPI / told.css_px;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(image.width * scale);
  canvas.height = Math.round(image.height * scale);
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  const plain = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  return new Blob([withDensity(new Uint8Array(await plain.arrayBuffer()))], { type: "image/png" });
}

// PNG says how large it is by its chunk pHYs, which canvases do not write: it belongs right after the first chunk.
function withDensity(bytes) {
  const chunk = new Uint8Array(21);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, 9);
  chunk.set([112, 72, 89, 115], 4);
  const perMetre = Math.round(DPI / 0.0254);
  view.setUint32(8, perMetre);
  view.setUint32(12, perMetre);
  chunk[16] = 1;
  view.setUint32(17, crc(chunk.subarray(4, 17)));
  const whole = new Uint8Array(bytes.length + chunk.length);
  whole.set(bytes.subarray(0, 33));
  whole.set(chunk, 33);
  whole.set(bytes.subarray(33), 33 + chunk.length);
  return whole;
}

function crc(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) {
    value ^= byte;
    for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  }
  return (value ^ 0xffffffff) >>> 0;
}

composed().then((image) => {
  const actions = {
    svg: async () => save(new Blob([image.text], { type: "image/svg+xml" }), "svg"),
    png: async () => save(await pixels(image), "png"),
    pdf: async () => window.print(),
  };
  for (const [name, act] of Object.entries(actions)) {
    const button = document.getElementById(name);
    button.disabled = false;
    button.addEventListener("click", act);
  }
});
