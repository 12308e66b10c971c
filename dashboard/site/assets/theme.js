// Light or dark: as the system has it until somebody presses the button.
"use strict";

const THEME = "selector-audit-theme";

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

try {
  const kept = localStorage.getItem(THEME);
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch {
  // a browser that keeps nothing: the system decides
}

function turnTheme() {
  const now = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = now;
  try {
    localStorage.setItem(THEME, now);
  } catch {
    // then it is not remembered
  }
}
