// What every page has: figures, one model's results at a time, choices, search.
"use strict";

const RUN = "selector-audit-run";

function element(name, text, more = {}) {
  const made = Object.assign(document.createElement(name), more);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The look of figures in the theme of now; what a figure says of itself goes before.
function look() {
  const css = getComputedStyle(document.documentElement);
  const [text, quiet, grid, card] = ["--text", "--quiet", "--grid", "--card"].map((name) => css.getPropertyValue(name).trim());
  const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: grid, tickcolor: grid, automargin: true };
  const clear = "rgba(0,0,0,0)";
  return {
    layout: {
      paper_bgcolor: clear, plot_bgcolor: clear, font: { color: text, family: "Inter, system-ui, sans-serif" },
      xaxis: axis, yaxis: axis, hoverlabel: { bgcolor: card, bordercolor: grid, font: { color: text } },
      legend: { bgcolor: clear }, modebar: { bgcolor: clear, color: quiet, activecolor: text },
    },
  };
}

const drawn = new Set();

function draw(place) {
  const figure = SelectorAudit.data[`figures-${place.dataset.page}`][place.dataset.figure];
  const config = { displaylogo: false, responsive: true, modeBarButtons: [["toImage"]], toImageButtonOptions: { format: "svg" } };
  drawn.add(place);
  return Plotly.react(place, figure.data, { ...figure.layout, template: look(), autosize: true }, config);
}

function figures() {
  const seen = new IntersectionObserver(
    (entries) => entries.filter(({ isIntersecting }) => isIntersecting).forEach(({ target }) => drawn.has(target) || draw(target)),
    { rootMargin: "400px" },
  );
  for (const place of document.querySelectorAll(".plot")) seen.observe(place);
}

const redraw = () => drawn.forEach(draw);

// One model's results at a time, the last chosen one on every page that has it.
function runs() {
  const sections = [...document.querySelectorAll("main > section.run")];
  if (sections.length < 2) return;
  const bar = element("nav", undefined, { className: "runs", ariaLabel: "Results of" });
  const show = (section) => {
    for (const one of sections) one.hidden = one !== section;
    [...bar.children].forEach((link, i) => link.setAttribute("aria-current", sections[i] === section ? "true" : "false"));
  };
  for (const section of sections) {
    const link = element("a", section.dataset.title, { href: `#${section.id}` });
    link.addEventListener("click", (event) => {
      event.preventDefault();
      history.replaceState(null, "", `#${section.id}`);
      kept("sessionStorage", RUN, section.dataset.title);
      show(section);
    });
    bar.append(link);
  }
  sections[0].before(bar);
  const named = () => sections.find(({ id }) => `#${id}` === location.hash);
  window.addEventListener("hashchange", () => named() && show(named()));
  show(named() ?? sections.find(({ dataset }) => dataset.title === kept("sessionStorage", RUN)) ?? sections[0]);
}

function choices() {
  for (const choice of document.querySelectorAll(".choice")) {
    const shown = choice.querySelectorAll(":scope > .chosen");
    const select = choice.querySelector("select");
    const show = () => shown.forEach((one, i) => (one.hidden = i !== select.selectedIndex));
    select.addEventListener("change", show);
    show(); // a browser may have kept the choice
  }
}

const HITS = 40;
const LETTERS = 240;

// Passages with all of the words, those with most of them in their titles first.
function found(index, words) {
  const hits = [];
  for (const [href, page, title, text] of index) {
    const whole = `${page} ${title} ${text}`.toLowerCase();
    if (!words.every((word) => whole.includes(word))) continue;
    const head = `${page} ${title}`.toLowerCase();
    hits.push({ href, page, title, text, rank: words.filter((word) => head.includes(word)).length });
  }
  return hits.sort((a, b) => b.rank - a.rank);
}

// The passage around its first word, with all words marked.
function marked(text, words) {
  const at = Math.max(0, Math.min(text.toLowerCase().indexOf(words[0]) - LETTERS / 3, text.length - LETTERS));
  const part = text.slice(at, at + LETTERS);
  const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const line = element("p");
  part.split(new RegExp(`(${escaped.join("|")})`, "i")).forEach((piece, i) => line.append(i % 2 ? element("mark", piece) : piece));
  if (at > 0) line.prepend("… ");
  if (at + LETTERS < text.length) line.append(" …");
  return line;
}

function search() {
  const input = document.getElementById("search");
  const place = document.getElementById("hits");
  const close = () => {
    place.hidden = true;
  };
  input.addEventListener("input", async () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length || input.value.trim().length < 2) return close();
    const index = await value("search").catch((error) => void place.replaceChildren(element("p", error.message)));
    place.hidden = false;
    if (!index) return;
    const hits = found(index, words);
    const rest = hits.length > HITS ? `; the first ${HITS} are shown, more words narrow them` : "";
    const told = hits.length ? `${hits.length.toLocaleString("en")} places${rest}.` : "Nothing has all of these words; fewer find more.";
    place.replaceChildren(
      element("p", told, { className: "below" }),
      ...hits.slice(0, HITS).map(({ href, page, title, text }) => {
        const hit = element("a", undefined, { href, className: "hit" });
        hit.append(element("b", [page, title].filter(Boolean).join(" › ")), marked(text, words));
        hit.addEventListener("click", close);
        return hit;
      }),
    );
  });
  input.addEventListener("keydown", ({ key }) => key === "Escape" && close());
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    input.focus();
  });
}

document.getElementById("theme").addEventListener("click", () => {
  turnTheme();
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
runs();
choices();
figures();
search();
