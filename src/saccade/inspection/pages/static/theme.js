// Colours of the system, or those chosen here. A plain script in the head, so that the page is never drawn in the others.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const withStorage = (change) => {
    try {
      return change(localStorage);
    } catch {
      return null; // this browser stores nothing for the page
    }
  };
  let chosen = withStorage((storage) => storage.getItem("saccade.theme"));
  const show = () => {
    root.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    document.getElementById("theme")?.setAttribute("aria-pressed", String(root.dataset.theme === "dark"));
  };
  show();
  system.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", () => {
      chosen = root.dataset.theme === "dark" ? "light" : "dark";
      withStorage((storage) => storage.setItem("saccade.theme", chosen));
      show();
    });
  });
})();
