// Streamlit adds entries to the browser's history when a page is left (its address without the settings) and when the
// next one writes its own: Back then shows a page without what was chosen on it, and takes three steps. Only another
// page is an entry of its own here, and the address of the one that is left stays as it was.
if (!window.selectorAuditHistory) {
  window.selectorAuditHistory = true;
  const push = history.pushState.bind(history), replace = history.replaceState.bind(history);
  let leaving = 0;
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-testid=stPageLink-NavLink]")) leaving = Date.now();
  }, true);
  window.addEventListener("popstate", () => { leaving = 0; });
  history.pushState = (state, title, url) => {
    const other = new URL(url, location.href).pathname !== location.pathname;
    if (!other && Date.now() - leaving < 5000) return;
    leaving = 0;
    (other ? push : replace)(state, title, url);
  };
}

// Who folds the sidebar finds it folded the next time. (Streamlit remembers its width only.)
if (!window.selectorAuditSidebar) {
  window.selectorAuditSidebar = true;
  const folded = "selector-audit-sidebar-folded", fold = "[data-testid=stSidebarCollapseButton] button";
  document.addEventListener("click", (event) => {
    if (event.target.closest?.(fold)) localStorage.setItem(folded, "yes");
    else if (event.target.closest?.("[data-testid=stExpandSidebarButton]")) localStorage.removeItem(folded);
  }, true);
  const open = document.querySelector("[data-testid=stSidebar][data-collapsed=false]");
  if (open && localStorage.getItem(folded) && innerWidth > 768) document.querySelector(fold)?.click();
}
