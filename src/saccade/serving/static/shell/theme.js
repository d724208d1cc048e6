// Colours as the system has them, or as they were chosen here. A plain script in the head, so that nothing flashes.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = (change) => {
    try {
      return change(localStorage);
    } catch {
      return null; // a browser that keeps nothing for this page
    }
  };
  let chosen = stored((storage) => storage.getItem("saccade.theme"));
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
      stored((storage) => storage.setItem("saccade.theme", chosen));
      show();
    });
  });
})();
