// Light or dark: as the system has it until somebody presses the button.
"use strict";

const THEME = "selector-audit-theme";

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// What a browser keeps under a name, and keeps of a value; null where it keeps nothing.
function kept(storage, name, value) {
  try {
    if (value !== undefined) window[storage].setItem(name, value);
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

const theme = kept("localStorage", THEME);
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;

function turnTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  kept("localStorage", THEME, document.documentElement.dataset.theme);
}
