// Capacity units over turns: a bar for what was written, a line for what was read.

import { svg, units } from "./dom.js";

const WIDE = 680;
const HIGH = 120;
const LEFT = 30;
const BOTTOM = 20;

export function plot(rows) {
  const most = Math.max(4, ...rows.map((row) => Math.max(row.read, row.write)));
  const step = Math.min(48, (WIDE - LEFT - 8) / rows.length);
  const y = (value) => HIGH - (value / most) * (HIGH - 12);
  const x = (index) => LEFT + step * index + step / 2;
  const every = Math.ceil(rows.length / 16);
  return svg(
    "svg",
    { class: "plot", viewBox: `0 0 ${WIDE} ${HIGH + BOTTOM + 14}`, role: "img", "aria-label": `Units by turn: ${rows.map((row) => `turn ${row.turn} ${units(row.write)} written, ${units(row.read)} read`).join("; ")}` },
    [0, most / 2, most].map((value) => [
      svg("line", { class: "grid", x1: LEFT, x2: WIDE, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, units(value)),
    ]),
    rows.map((row, index) =>
      svg("rect", { class: "bar", "data-turn": row.turn, x: x(index) - step * 0.3, y: y(row.write), width: step * 0.6, height: HIGH - y(row.write) }, svg("title", null, `turn ${row.turn}: ${units(row.write)} write units, ${row.store} store calls`)),
    ),
    svg("polyline", { class: "reads", points: rows.map((row, index) => `${x(index)},${y(row.read)}`).join(" ") }),
    rows.map((row, index) => svg("circle", { class: "read", cx: x(index), cy: y(row.read), r: 3 }, svg("title", null, `turn ${row.turn}: ${units(row.read)} read units`))),
    rows.map((row, index) => index % every === 0 && svg("text", { class: "tick", x: x(index), y: HIGH + 15, "text-anchor": "middle" }, row.turn)),
    svg("text", { class: "tick", x: LEFT, y: HIGH + BOTTOM + 11 }, "▮ write units   ● read units   by turn"),
  );
}
