// On stage: keys and buttons for the page or step before and after, the drawer, the whole screen, and the way out.

const KEYS = { ArrowRight: "next", PageDown: "next", ArrowLeft: "back", PageUp: "back" };
const STEPS = { next: ".st-key-learn-next button", back: ".st-key-learn-back button" };
const LINKS = { next: ".st-key-stage-next a", back: ".st-key-stage-back a" };
// What uses these keys itself: text, numbers, sliders, lists, tables.
const OWN = [
  "input:not([type=checkbox]):not([type=button])", "textarea", "select", "[contenteditable]", "canvas",
  ...["textbox", "combobox", "listbox", "option", "slider", "spinbutton", "radiogroup", "tablist", "menu", "grid"].map(
    (role) => `[role=${role}]`,
  ),
].join(",");
const DRAWER = "data-stage-drawer";
const SETTINGS = ".st-key-bar";

// steps: does this page have steps? Until they are drawn, a key leads nowhere.
function target(way, steps) {
  const step = document.querySelector(STEPS[way]);
  if (steps && !step) return null;
  return step && !step.disabled ? step : document.querySelector(LINKS[way]);
}

class Strip {
  constructor(root, component) {
    this.root = root;
    this.events = new AbortController();
    const on = (what, name, act) => what.addEventListener(name, act, { signal: this.events.signal });
    const press = (name, act) => on(root.querySelector(`.${name}`), "click", act);
    press("back", () => this.lead("back"));
    press("next", () => this.lead("next"));
    press("settings", () => this.drawer(!document.documentElement.hasAttribute(DRAWER)));
    press("whole", () => {
      if (document.fullscreenElement) document.exitFullscreen();
      else document.documentElement.requestFullscreen?.().catch(() => {});
    });
    press("leave", () => component.setTriggerValue("leave", true));
    on(document, "keydown", (event) => this.key(event));
    this.told(component.data);
    this.drawer(document.documentElement.hasAttribute(DRAWER));
  }

  // data: the titles of the pages before and after, empty where there is none; steps.
  told(data) {
    this.steps = data.steps;
    for (const [way, word] of [["back", "Back"], ["next", "Next"]]) {
      const button = this.root.querySelector(`.${way}`);
      const said = data[way] ? `${word}: ${data[way]}` : word;
      button.setAttribute("aria-label", said);
      button.title = said;
      button.disabled = !data[way];
    }
  }

  key(event) {
    if (event.key === "Escape" && document.documentElement.hasAttribute(DRAWER)) this.drawer(false);
    const way = KEYS[event.key];
    const plain = !event.defaultPrevented && !event.repeat && !(event.ctrlKey || event.altKey || event.metaKey || event.shiftKey);
    if (!way || !plain || event.composedPath().some((one) => one.matches?.(OWN))) return;
    event.preventDefault();
    this.lead(way);
  }

  lead(way) {
    const found = target(way, this.steps);
    if (!found) return;
    this.drawer(false);
    found.click();
  }

  drawer(open) {
    const focused = document.activeElement;
    if (!open && focused?.closest?.(SETTINGS)) focused.blur(); // or the keys would go on changing what is out of sight
    document.documentElement.toggleAttribute(DRAWER, open);
    this.root.querySelector(".settings").setAttribute("aria-expanded", String(open));
  }

  end() {
    this.events.abort();
  }
}

const strips = new WeakMap();

export default function (component) {
  const { parentElement } = component;
  strips.get(parentElement)?.end();
  const strip = new Strip(parentElement.querySelector(".strip"), component);
  strips.set(parentElement, strip);
  return () => {
    strip.end();
    setTimeout(() => {
      if (!strip.root.isConnected) document.documentElement.removeAttribute(DRAWER); // else another one has taken over
    });
  };
}
