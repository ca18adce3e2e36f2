// Building the page. Whatever somebody said goes in as text nodes and attributes, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, facts, children) {
  for (const [name, value] of Object.entries(facts ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (name, facts, ...children) => fill(document.createElement(name), facts, children);
export const svg = (name, facts, ...children) => fill(document.createElementNS(SVG, name), facts, children);

/** Redraws an element only where what it shows has changed; open details and the focus stay. */
export function show(element, facts, draw) {
  const seen = JSON.stringify(facts);
  if (element.seen === seen) return false;
  element.seen = seen;
  keeping(element, () => element.replaceChildren(...[draw()].flat(Infinity).filter(Boolean)));
  return true;
}

/** A list whose members are redrawn one by one, each by its key. */
export function showList(element, rows, keyOf, draw) {
  const before = new Map([...element.children].map((child) => [child.dataset.key, child]));
  const wanted = rows.map((row) => {
    const key = String(keyOf(row));
    const seen = JSON.stringify(row);
    let child = before.get(key);
    if (!child) child = h("div", { "data-key": key, class: "row" });
    if (child.seen !== seen) {
      child.seen = seen;
      keeping(child, () => child.replaceChildren(draw(row)));
    }
    return child;
  });
  if (wanted.length !== element.children.length || wanted.some((child, index) => element.children[index] !== child)) {
    keeping(element, () => element.replaceChildren(...wanted));
  }
}

function keeping(element, change) {
  const active = document.activeElement;
  const held = element.contains(active) ? active : null;
  const name = held?.dataset?.focus;
  const open = new Set([...element.querySelectorAll("details[data-keep][open]")].map((each) => each.dataset.keep));
  change();
  for (const each of element.querySelectorAll("details[data-keep]")) if (open.has(each.dataset.keep)) each.open = true;
  if (held?.isConnected) held.focus({ preventScroll: true });
  else if (name) element.querySelector(`[data-focus="${CSS.escape(name)}"]`)?.focus({ preventScroll: true });
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
export const at = (ms) => h("time", { datetime: new Date(ms).toISOString(), title: day.format(ms) }, clock.format(ms));
export const on = (ms) => h("time", { datetime: new Date(ms).toISOString() }, day.format(ms));

/** A time that counts by itself: "12 s ago", "in 3 h". */
export function ticking(ms, ended = "now") {
  const element = h("time", { "data-at": ms, "data-ended": ended, datetime: new Date(ms).toISOString(), title: day.format(ms) });
  tick(element);
  return element;
}

function tick(element) {
  const at = Number(element.dataset.at);
  const text = at > Date.now() ? `in ${span(at - Date.now())}` : element.dataset.ended === "now" ? `${span(Date.now() - at)} ago` : element.dataset.ended;
  if (element.textContent !== text) element.textContent = text;
}

setInterval(() => document.querySelectorAll("time[data-at]").forEach(tick), 1000);

export function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.round(ms / 1000);
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

export const units = (value) => (value === undefined || value === null ? "–" : String(Math.round(value * 10) / 10));
export const json = (value) => h("pre", { tabindex: 0 }, typeof value === "string" ? value : JSON.stringify(value, null, 2));
export const badge = (status) => h("span", { class: `badge is-${/^[a-z]+$/i.test(status) ? status.toLowerCase() : "other"}` }, status);
export const empty = (...text) => h("p", { class: "empty" }, ...text);
