"use strict";
(() => {
  const tip = document.getElementById("tip");

  // What a pointer, a finger or the arrow keys show.
  const showTip = (text, x, y) => {
    tip.textContent = text;
    tip.classList.add("on");
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
    tip.style.top = (y - box.height - 14 > 6 ? y - box.height - 14 : y + 20) + "px";
  };
  const hideTip = () => {
    tip.classList.remove("on");
    document.querySelectorAll(".cursor.on").forEach((line) => line.classList.remove("on"));
  };
  const seriesOf = (svg) => (svg.series ??= JSON.parse(svg.dataset.series));

  const showPoint = (svg, wanted) => {
    const series = seriesOf(svg);
    const all = series.flatMap((line) => line.points);
    if (!all.length) return;
    const near = all.reduce((best, p) => (Math.abs(p[0] - wanted) < Math.abs(best[0] - wanted) ? p : best));
    svg.at = near[0];
    const lines = series.flatMap((line) =>
      line.points.filter((p) => Math.abs(p[0] - near[0]) < 0.6).slice(0, 1).map((p) => `${line.name}: ${p[3]}`));
    const cursor = svg.querySelector(".cursor");
    cursor.setAttribute("x1", near[0]);
    cursor.setAttribute("x2", near[0]);
    cursor.classList.add("on");
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    showTip(`${svg.dataset.axis} ${near[2]}\n${lines.join("\n")}`, box.left + near[0] * scale, box.top + near[1] * scale);
  };
  const showBar = (svg, event) => {
    const box = svg.getBoundingClientRect();
    const labels = JSON.parse(svg.dataset.bars);
    const number = Math.floor(((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width / svg.dataset.step);
    if (labels[number] === undefined) hideTip(); else showTip(labels[number], event.clientX, event.clientY);
  };
  const pointed = (event) => {
    const svg = event.target.closest?.("svg[data-series], svg[data-bars]");
    if (!svg) return hideTip();
    if (svg.dataset.bars) return showBar(svg, event);
    const box = svg.getBoundingClientRect();
    showPoint(svg, ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width);
  };
  document.addEventListener("pointermove", pointed);
  document.addEventListener("pointerdown", pointed);
  document.addEventListener("scroll", hideTip, { passive: true });
  document.addEventListener("keydown", (event) => {
    const svg = document.activeElement?.closest?.("svg[data-series]");
    if (event.key === "Escape") hideTip();
    if (!svg || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    const places = [...new Set(seriesOf(svg).flatMap((line) => line.points.map((p) => p[0])))].sort((a, b) => a - b);
    const now = places.indexOf(svg.at);
    const next = now < 0 ? places.length - 1 : now + (event.key === "ArrowLeft" ? -1 : 1);
    showPoint(svg, places[Math.max(0, Math.min(places.length - 1, next))]);
  });

  // A live page: asks what has changed and exchanges those sections; folds stay as the reader left them.
  if (document.body.dataset.live === undefined) return;
  const note = document.getElementById("live-note");
  let version = document.body.dataset.live, failures = 0;
  const exchange = (name, html) => {
    const old = document.getElementById(name);
    if (!old) return;
    const opened = [...old.querySelectorAll("details")].map((fold) => fold.open);
    const holder = document.createElement("template");
    holder.innerHTML = html;
    const fresh = holder.content.firstElementChild;
    fresh.querySelectorAll("details").forEach((fold, i) => { if (i in opened) fold.open = opened[i]; });
    if (old.querySelector(".cursor.on")) hideTip();
    old.replaceWith(fresh);
  };
  const ask = async () => {
    try {
      const answer = await fetch(`changes?since=${version}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const news = await answer.json();
      for (const [name, html] of Object.entries(news.sections)) exchange(name, html);
      version = news.version;
      document.title = news.title;
      failures = 0;
      note.textContent = news.state === "running" ? "· live" : `· the run has ended; this page is saved as ${news.path}`;
      if (news.state !== "running") return;
    } catch {
      failures += 1;
      note.textContent = failures > 3 ? "· the run has ended, or cannot be reached" : "· reconnecting…";
    }
    setTimeout(ask, Math.min(1000 * 2 ** failures, 15000));
  };
  ask();
})();
