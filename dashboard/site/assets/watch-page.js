// Watch it break on the first page: two rankings race, and the shipped model replies at every rate that is passed.
"use strict";

const WATCH_TOKENS = 60;

// Replies of one lane, computed when they are first looked at; the last that is wanted goes first.
class LiveReplies {
  constructor() {
    this.next = new Map(); // racer -> what is wanted of it last
    this.known = new Map();
    this.busy = false;
  }

  // The lane's reply to a prompt at the last rate of its table, or of its curve for a prompt of the reader's.
  say(lane, racer, prompt, rate) {
    const [selector, order] = racer.split(" ");
    const rates = (lane.lane.said[prompt] ?? lane.lane.curve).map(([at]) => at);
    const at = rates.filter((one) => one <= rate + 5e-4).pop() ?? 0;
    const key = `${racer}|${at}|${prompt}`;
    const recorded = prompt in lane.lane.said;
    const write = (when, text) => {
      lane.reply.children[0].textContent = when;
      lane.reply.title = lane.reply.children[1].textContent = text;
    };
    const known = this.known.get(key);
    lane.asked = key;
    if (known) return write(known.when, known.text);
    write(`At ${Number((at * 100).toFixed(2))}%, computing …`, "");
    this.next.set(racer, { key, prompt, at, selector, order, recorded, lane, write });
    this.go();
  }

  async go() {
    if (this.busy) return;
    this.busy = true;
    try {
      const live = await loaded();
      while (this.next.size) {
        const [racer, wanted] = this.next.entries().next().value;
        this.next.delete(racer);
        await this.answer(live, wanted);
      }
    } catch (error) {
      for (const { lane, write, key } of this.next.values()) if (lane.asked === key) write(error.message, "");
      this.next.clear();
    }
    this.busy = false;
  }

  async answer(live, { key, prompt, at, selector, order, recorded, lane, write }) {
    const place = `At ${Number((at * 100).toFixed(2))}%`;
    const edit = { selector, order, rate: at };
    const [state, told] = at === 0 ? ["shown", ""] : effectOf(live.data, edit);
    let found = { when: `${place}:`, text: "" };
    if (state === "lowered" && !recorded) found = { when: `${place}. ${told.split(" (shipped prompts ")[0]}`, text: "" };
    else {
      const removed = at === 0 ? null : await rowsOf(edit);
      const current = () => lane.asked === key;
      await replies(live, prompt, { one: removed }, WATCH_TOKENS, (_, { text, finished }) => {
        const word = text.trim() ? ":" : ": no word.";
        const end = finished === undefined ? ", writing:" : finished ? word : `, cut off${word}`;
        found = { when: `${place}${end}`, text };
        if (current()) write(found.when, text);
      });
    }
    this.known.set(key, found);
    if (lane.asked === key) write(found.when, found.text);
  }
}

// A race that the page has a place for. live: its replies are computed here; else it has none but those of its table.
async function startRace(place) {
  const data = await value(place.dataset.race);
  const [first, second] = [place.querySelector(".first"), place.querySelector(".second")];
  const titles = data.lanes.map(({ title }) => title);
  const live = place.dataset.live ? new LiveReplies() : null;
  const root = place.querySelector(".watch");
  const mount = () => {
    const pair = first ? [first.selectedIndex, second.selectedIndex] : data.pair.map((racer) => data.racers.indexOf(racer));
    Watch.mount({ data: { ...data, lanes: pair.map((number) => data.lanes[number]), id: pair.join() }, parentElement: place });
    if (!live) return;
    root.stage.lanes.forEach((lane, i) => {
      lane.say = (prompt, rate) => live.say(lane, data.racers[pair[i]], prompt, rate);
    });
    if (place.dataset.begun) root.stage.go(root.stage.rate);
  };
  if (first) {
    for (const [i, select] of [first, second].entries()) {
      select.append(...titles.map((title) => element("option", title)));
      select.selectedIndex = data.racers.indexOf(data.pair[i]);
      select.addEventListener("change", mount);
    }
  }
  mount();
  if (!live) return;
  ownPrompt(root);
  place.dataset.begun = "1";
  root.stage.go(root.stage.rate);
}

// A prompt of the reader's own among those of the table.
function ownPrompt(root) {
  const own = element("input", undefined, { placeholder: "or ask your own", className: "own", maxLength: 400, ariaLabel: "Your own prompt" });
  own.addEventListener("change", () => {
    const text = own.value.trim();
    const select = root.querySelector(".prompt");
    if (!text) return;
    if (![...select.options].some((option) => option.value === text)) select.append(new Option(text, text));
    select.value = text;
    select.dispatchEvent(new Event("change"));
  });
  root.querySelector(".asked").append(own);
}

const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    startRace(target).catch((error) => target.append(element("p", error.message, { className: "below" })));
  }
});
for (const place of document.querySelectorAll(".race")) near.observe(place);
