"use strict";
(() => {
  const root = document.documentElement;

  // The theme: as the system is, light, or dark; remembered where the browser allows it.
  const button = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  const remembered = () => { try { return localStorage.getItem("penstock-theme"); } catch { return null; } };
  let theme = themes.includes(remembered()) ? remembered() : "auto";
  const showTheme = () => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" }[theme];
  };
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("penstock-theme", theme); } catch { /* not allowed: it lasts as long as the page */ }
    showTheme();
  });
  showTheme();

  // The links to sections: what lies beyond an edge is hinted at, and the arrow leads there.
  const links = document.querySelector("header nav"), onward = document.querySelector(".onward");
  const hint = () => {
    links.classList.toggle("before", links.scrollLeft > 1);
    links.classList.toggle("behind", links.scrollLeft + links.clientWidth < links.scrollWidth - 1);
  };
  if (links && onward) {
    links.addEventListener("scroll", hint, { passive: true });
    addEventListener("resize", hint);
    onward.addEventListener("click", () => {
      const way = links.classList.contains("behind") ? 0.7 * links.clientWidth : -links.scrollLeft;
      links.scrollBy({ left: way, behavior: "smooth" });
    });
    hint();
  }

  // Print everything that is folded.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((fold) => {
    fold.dataset.was = fold.open ? "open" : "";
    fold.open = true;
  }));
  addEventListener("afterprint", () => document.querySelectorAll("details").forEach((fold) => {
    fold.open = fold.dataset.was === "open";
  }));
})();
