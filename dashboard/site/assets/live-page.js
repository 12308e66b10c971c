// Live edit: settings of an edit, a prompt, and three cards that are written side by side.
"use strict";

const at = (id) => document.getElementById(id);
const form = at("ask");
const status = form.querySelector(".status");
const LEAST_SCALE = 2; // the needle's scale reaches so far on both sides at least
let live = null;
let running = 0;

function options(select, values, title = String, chosen = undefined) {
  select.replaceChildren(...values.map((one) => new Option(title(one), one)));
  if (values.map(String).includes(String(chosen))) select.value = chosen;
}

function setting(name, label, values, title, chosen) {
  const select = element("select", undefined, { name });
  options(select, values, title, chosen);
  const around = element("label", `${label} `);
  around.append(select);
  at("settings").append(around);
  return select;
}

// What can be chosen comes from the edits that were measured.
const offered = (refusal) => Object.keys(live.data.effects).map((name) => name.split(" ")).filter((parts) => (parts.length === 4) === refusal);
const distinct = (values) => [...new Set(values)];
const percent = (share) => `${Math.round(1000 * share) / 10}%`;
const title = (name) => live.data.titles[name];

function settings(chosen = {}) {
  const { data } = live;
  const refusal = at("mode").value === "refusal";
  at("settings").replaceChildren();
  const parts = offered(refusal);
  const selectors = data.selectors.filter((name) => parts.some(([selector]) => selector === name));
  if (refusal) {
    setting("domain", "Domain", data.domains, (name) => name[0].toUpperCase() + name.slice(1), chosen.domain);
    setting("selector", "Selector", selectors, title, chosen.selector);
    cells(chosen);
    for (const name of ["domain", "selector"]) at("settings").querySelector(`[name=${name}]`).addEventListener("change", () => cells({}));
  } else {
    setting("selector", "Selector", selectors, title, chosen.selector ?? "lrp");
    setting("order", "Order", ["lerf", "morf"], (name) => data.orders[name], chosen.order);
    const rates = distinct(parts.map(([, , rate]) => Number(rate))).sort((a, b) => a - b);
    setting("rate", "Rows removed", rates, percent, chosen.rate ?? 0.3);
  }
  describe();
}

// Lambda and k of the measured grid of this domain and selector.
function cells(chosen) {
  const { domain, selector } = edit();
  const parts = offered(true).filter(([name, of]) => name === selector && of === domain);
  for (const [name, label, place, text] of [["lambda", "λ, protection", 2, String], ["k", "k, share removed", 3, percent]]) {
    at("settings").querySelector(`[name=${name}]`)?.parentElement.remove();
    const values = distinct(parts.map((one) => Number(one[place]))).sort((a, b) => a - b);
    setting(name, label, values, text, chosen[name] ?? (name === "k" ? 0.02 : 0.8));
  }
}

function edit() {
  const found = {};
  for (const { name, value: text } of at("settings").querySelectorAll("select")) {
    found[name] = ["lambda", "k", "rate"].includes(name) ? Number(text) : text;
  }
  return found;
}

function describe() {
  const [state, told] = effectOf(live.data, edit());
  status.textContent = told;
  status.dataset.state = state;
  examples();
}

function examples() {
  const { domain } = edit();
  const shown = live.data.examples.filter(([of]) => !domain || of === domain).slice(0, 8);
  at("examples").replaceChildren(
    ...shown.map(([, kind, text]) => {
      const chip = element("button", text.length > 46 ? `${text.slice(0, 45)}…` : text, { type: "button", title: `${text} (${kind})` });
      chip.addEventListener("click", () => {
        at("prompt").value = text;
        form.requestSubmit();
      });
      return chip;
    }),
  );
  if (!at("prompt").value && shown.length) at("prompt").value = shown[0][2];
}

function card(side) {
  const find = (what) => at(side).querySelector(what);
  return { said: find(".said"), facts: find(".facts"), stamp: find(".stamp"), needle: find(".needle"), ends: find(".ends") };
}

function clear(side, text = "") {
  const { said, facts, stamp, needle, ends } = card(side);
  said.textContent = text;
  facts.textContent = "";
  for (const one of [stamp, needle, ends]) one.hidden = true;
}

function write(side, { text, margin: lean, tokens, finished }) {
  const { said, facts, needle, ends } = card(side);
  said.textContent = text;
  if (lean !== undefined) {
    const scale = Math.max(LEAST_SCALE, Math.abs(lean));
    const number = `${lean < 0 ? "−" : "+"}${Math.abs(lean).toFixed(2)}`;
    needle.hidden = ends.hidden = false;
    needle.querySelector(".hand").style.left = `${50 + (50 * lean) / scale}%`;
    needle.setAttribute("aria-label", `margin ${number} on a scale from −${scale.toFixed(1)}, answers, to +${scale.toFixed(1)}, refuses`);
    ends.querySelector("b").textContent = `margin ${number}`;
  }
  const end = finished === undefined ? "writing" : finished ? (text.trim() ? "ended by itself" : "no word") : "cut off";
  facts.textContent = `${tokens} tokens · ${end}`;
}

function bars(removed) {
  const all = removed.reduce((sum, one) => sum + one, 0);
  const lines = [["all rows", [all, removed.length]], ...perProjection(removed, live.data.layers)].map(([name, [gone, rows]]) => {
    const line = element("div", undefined, { className: "bar-line" });
    const full = element("span", undefined, { className: "meter" });
    const part = element("span");
    part.style.width = `${(100 * gone) / rows}%`;
    full.append(part);
    line.append(element("span", name), full, element("span", `${gone.toLocaleString("en")} of ${rows.toLocaleString("en")}`));
    return line;
  });
  at("rows-removed").hidden = false;
  at("rows-removed").querySelector(".bars").replaceChildren(...lines);
}

async function run() {
  const prompt = at("prompt").value.trim();
  if (!live || !prompt) return;
  const mine = ++running;
  const chosen = edit();
  const [state, told] = effectOf(live.data, chosen);
  history.replaceState(null, "", `#${new URLSearchParams({ ...chosen, prompt })}`); // so that they can be handed on
  at("stop").hidden = false;
  const removed = await rowsOf(chosen);
  bars(removed);
  const sides = { before: null };
  for (const side of ["before", "after", "control"]) clear(side, state === "lowered" && side !== "before" ? "Not answered." : "");
  if (state !== "lowered") {
    sides.after = removed;
    sides.control = layerMatched(removed, live.data.layers, Number(at("seed").value));
  }
  if (state === "broken") {
    const { stamp } = card("after");
    const [icon, colour] = live.data.looks.BROKEN;
    Object.assign(stamp, { textContent: `${icon} BROKEN`, hidden: false });
    stamp.style.background = colour;
  }
  status.textContent = told;
  status.dataset.state = state;
  const speed = await replies(live, prompt, sides, Number(at("most").value), write, () => mine !== running);
  if (mine !== running) return;
  at("stop").hidden = true;
  if (speed) status.textContent = `${told} ${Math.round(speed)} tokens a second in this browser, all replies together.`;
}

function fail(error) {
  status.textContent = error.message;
  at("stop").hidden = true;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  run().catch(fail);
});
at("stop").addEventListener("click", () => {
  running++;
  at("stop").hidden = true;
});
at("mode").addEventListener("change", () => settings());
at("settings").addEventListener("change", describe);

async function begin() {
  live = await loaded();
  options(at("seed"), live.data.seeds);
  const asked = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const [selector, domain, lambda, k] = (live.data.opening ?? "").split(" ");
  const chosen = asked.selector ? asked : { selector, domain, lambda, k };
  at("mode").value = asked.rate ? "rate" : "refusal";
  at("prompt").value = asked.prompt ?? "";
  settings(chosen);
  at("run").disabled = false;
  await run();
}
begin().catch(fail);
