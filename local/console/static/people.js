// Who requests come from: a few people to begin with, and whoever is added; kept in this browser.

import { h } from "./dom.js";

const ANONYMOUS = { name: null, roles: [], tenant: null };
const FIRST = [
  { name: "carla", roles: [], tenant: null },
  { name: "dan", roles: [], tenant: null },
  { name: "sam", roles: ["supervisor"], tenant: null },
  ANONYMOUS,
];

function kept(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

let added = kept("turnkeep.people", []);
let chosen = kept("turnkeep.me", "carla");

export const people = () => [...FIRST, ...added];
export const idOf = (person) => [person.name ?? "", person.tenant ?? "", ...person.roles].join("|");
export const nameOf = (person) => {
  const more = [...person.roles, ...(person.tenant ? [`at ${person.tenant}`] : [])];
  return `${person.name ?? "anonymous"}${more.length ? ` (${more.join(", ")})` : ""}`;
};
export const me = () => people().find((person) => idOf(person) === chosen) ?? FIRST[0];
export const personOf = (id) => people().find((person) => idOf(person) === id) ?? me();
export const options = (selected) =>
  people().map((person) => h("option", { value: idOf(person), selected: idOf(person) === idOf(selected) }, nameOf(person)));

/** Who may answer an ask: somebody with its role, or the conversation's owner. */
export function answerer(audience, owner, tenant) {
  const role = audience?.startsWith("role:") ? audience.slice(5) : null;
  if (!owner) return ANONYMOUS;
  const fits = (person) =>
    (person.tenant ?? null) === (tenant ?? null) && (role ? person.roles.includes(role) : person.name === owner);
  const found = people().find(fits);
  if (found) return found;
  const made = role ? { name: `a-${role}`, roles: [role], tenant: tenant ?? null } : { name: owner, roles: [], tenant: tenant ?? null };
  add(made, false);
  return made;
}

function add(person, choose = true) {
  if (!people().some((each) => idOf(each) === idOf(person))) {
    added = [...added, person];
    localStorage.setItem("turnkeep.people", JSON.stringify(added));
  }
  if (choose) choosePerson(idOf(person));
  else draw();
}

function choosePerson(id) {
  chosen = id;
  localStorage.setItem("turnkeep.me", JSON.stringify(id));
  draw();
}

function draw() {
  document.getElementById("me").replaceChildren(...options(me()));
}

export function start() {
  if (chosen === "carla") chosen = idOf(FIRST[0]);
  draw();
  document.getElementById("me").addEventListener("change", (event) => choosePerson(event.target.value));
  const form = document.getElementById("person-form");
  const button = document.getElementById("add-person");
  button.addEventListener("click", () => {
    form.hidden = !form.hidden;
    button.setAttribute("aria-expanded", String(!form.hidden));
    if (!form.hidden) form.elements.name.focus();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const roles = form.elements.roles.value.split(/[\s,]+/).filter(Boolean);
    add({ name: form.elements.name.value.trim(), roles, tenant: form.elements.tenant.value.trim() || null });
    form.reset();
    form.hidden = true;
    button.setAttribute("aria-expanded", "false");
    document.getElementById("me").focus();
  });
}
