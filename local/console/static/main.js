// The frame: which view is shown, and the loop that keeps it up to date.

import { read } from "./api.js";
import { chat } from "./chat.js";
import { h } from "./dom.js";
import { ledger } from "./ledger.js";
import { paused } from "./paused.js";
import { start } from "./people.js";
import { why } from "./why.js";

const VIEWS = { chat, paused, ledger, why };
const EVERY_MS = 1000;
const main = document.getElementById("main");

export function route() {
  const [view, query] = location.hash.slice(1).split("?");
  return { view: view in VIEWS ? view : "chat", query: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

let shown = null;
let running = false;
let again = false;

function enter() {
  const { view, query } = route();
  for (const link of document.querySelectorAll("nav a")) {
    const target = link.dataset.view;
    link.toggleAttribute("aria-current", target === view);
    if (target === view) link.setAttribute("aria-current", "page");
    // The conversation that is looked at goes along from view to view.
    link.href = `#${target}${query.c ? `?${new URLSearchParams({ c: query.c })}` : ""}`;
  }
  if (shown !== view) {
    shown = view;
    document.title = `${view[0].toUpperCase()}${view.slice(1)} · turnkeep`;
    main.replaceChildren(VIEWS[view].build(refresh));
  }
  VIEWS[view].enter?.(query);
  refresh();
}

/** Reads and draws now; while that runs, asks for it are one more round behind it. */
export async function refresh() {
  if (running) {
    again = true;
    return;
  }
  running = true;
  try {
    const { view, query } = route();
    await VIEWS[view].refresh(query);
    await count();
    if (!document.getElementById("where").textContent) await where();
  } catch (error) {
    if (error.constructor.name !== "Refused") console.error(error);
    else VIEWS[shown]?.refused?.(error);
  } finally {
    running = false;
    if (again) {
      again = false;
      refresh();
    }
  }
}

async function count() {
  const { waiting } = await read("executions");
  const element = document.getElementById("waiting-count");
  element.hidden = waiting.length === 0;
  element.textContent = String(waiting.length);
}

async function where() {
  const found = await read("where");
  document.getElementById("where").replaceChildren(h("span", null, `API ${found.api} · AWS endpoint ${found.aws} · agent ${found.agent}`));
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select, [contenteditable]") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key >= "1" && event.key <= "4") document.querySelectorAll("nav a")[Number(event.key) - 1].click();
  else if (event.key === "/") {
    event.preventDefault();
    const box = document.getElementById("message");
    if (box) box.focus();
    else location.hash = document.querySelector("nav a").getAttribute("href");
  }
});
window.addEventListener("hashchange", enter);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
setInterval(() => document.hidden || refresh(), EVERY_MS);
start();
enter();
