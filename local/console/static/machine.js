// The state machine as SVG, from the deployed definition.

import { svg } from "./dom.js";

const MARGIN = 12;

export function drawMachine(drawing, execution) {
  const path = execution?.path ?? [];
  const taken = new Set(path.slice(1).map((state, index) => `${path[index]}\n${state}`));
  const visits = (name) => path.filter((each) => each === name).length;
  const active = execution?.active ?? null;
  const said = execution ? (active ? `The active state is ${active}.` : `It has ended: ${execution.status}.`) : "";
  const box = [-MARGIN, -MARGIN, drawing.width + 2 * MARGIN, drawing.height + 2 * MARGIN];
  return svg(
    "svg",
    { viewBox: box.join(" "), class: "drawing", role: "img", "aria-label": `The state machine. ${said} Path: ${path.join(", ") || "none"}.` },
    svg("defs", null, marker("arrow"), marker("arrow-taken")),
    [...drawing.transitions]
      .sort((a, b) => taken.has(keyOf(a)) - taken.has(keyOf(b)))
      .map((each) => {
        const is = taken.has(keyOf(each));
        const kind = each.kinds.includes("catch") ? "catch" : "next";
        return svg(
          "path",
          { d: each.back ? around(each.points) : down(each.points), class: `transition ${kind}${is ? " taken" : ""}`, "marker-end": `url(#${is ? "arrow-taken" : "arrow"})`, "data-from": each.source, "data-to": each.target },
          svg("title", null, `${each.source} to ${each.target}${each.label ? `: ${each.label}` : ""}`),
        );
      }),
    drawing.states.map((state) => {
      const count = visits(state.name);
      const is = state.name === active ? "active" : count ? "visited" : "";
      return svg(
        "g",
        { class: `state ${state.type.toLowerCase()} ${is}`, "data-state": state.name, "data-visits": count },
        svg("title", null, `${state.name}: ${state.comment}`),
        svg("rect", { x: state.x, y: state.y, width: state.width, height: state.height, rx: state.type === "Choice" ? 20 : state.type === "Task" ? 6 : 14 }),
        svg("text", { x: state.x + state.width / 2, y: state.y + state.height / 2 + 5 }, state.name + (count > 1 ? ` ×${count}` : "")),
      );
    }),
  );
}

const keyOf = (each) => `${each.source}\n${each.target}`;

function marker(id) {
  return svg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, svg("path", { d: "M0 0 8 4 0 8z" }));
}

function down(points) {
  let path = `M${points[0].join(" ")}`;
  for (let index = 1; index < points.length; index += 1) {
    const [x0, y0] = points[index - 1];
    const [x, y] = points[index];
    const bend = (y - y0) / 2;
    path += x === x0 ? ` L${x} ${y}` : ` C${x0} ${y0 + bend} ${x} ${y - bend} ${x} ${y}`;
  }
  return path;
}

function around(points) {
  const [[x0, y0], [x1], [, y2], [x3, y3]] = points;
  const r = 10;
  const turn = y2 > y0 ? r : -r;
  return `M${x0} ${y0} L${x1 - r} ${y0} Q${x1} ${y0} ${x1} ${y0 + turn} L${x1} ${y2 - turn} Q${x1} ${y2} ${x1 - r} ${y2} L${x3} ${y3}`;
}
