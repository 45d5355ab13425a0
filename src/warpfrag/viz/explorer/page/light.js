// Highlight the lane, the register, the element and related elements.

import { byId } from "./html.js";

let index = null;
let lit = [];

/** Forget the cells of the last view, and remove highlights outside of it. */
export function forgetCells() {
  lightsOut();
  index = null;
}

function push(map, key, cell) {
  const list = map.get(key);
  if (list) list.push(cell);
  else map.set(key, [cell]);
}

/** Return the cells by lane, register and element; computed on first use. */
function cellIndex() {
  if (index) return index;
  index = { lane: new Map(), register: new Map(), element: new Map() };
  for (const cell of byId("view").querySelectorAll("[data-operand]")) {
    const { operand, part = 0, row, col, lane, reg, owners, idle } = cell.dataset;
    if (!cell.classList.contains("micro")) push(index.lane, Number(lane), cell);
    if (idle === undefined) push(index.element, `${operand}.${part}.${row}.${col}`, cell);
    const registers = owners
      ? owners.split(" ").map((owner) => owner.split(".").slice(0, 2).join("."))
      : [`${lane}.${reg}`];
    for (const register of registers) push(index.register, `${operand}.${register}`, cell);
  }
  for (const label of byId("view").querySelectorAll("[data-register]")) {
    push(index.register, label.dataset.register, label);
    const box = label.closest(".box"); // the ring of a lane is drawn around the box, not around each small cell
    if (box) push(index.lane, Number(label.dataset.register.split(".")[1]), box);
  }
  for (const cell of document.querySelectorAll("#view [data-address], #lanes [data-lane]")) {
    push(index.lane, Number(cell.dataset.address ?? cell.dataset.lane), cell);
  }
  for (const cell of byId("view").querySelectorAll("[data-lanes]")) {
    for (const lane of cell.dataset.lanes.split(" ")) push(index.lane, Number(lane), cell);
  }
  return index;
}

/** Return the cells of the view that show an element. */
export function cellsOf({ role, part, row, col }) {
  return cellIndex().element.get(`${role}.${part}.${row}.${col}`) ?? [];
}

/** Remove all highlights. */
export function lightsOut() {
  for (const cell of lit) cell.classList.remove("is-lane", "is-reg", "is-here", "is-term");
  lit = [];
}

function light(cells = [], name) {
  for (const cell of cells) cell.classList.add(name);
  lit.push(...cells);
}

/** Highlight lanes, registers ("a.5.1"), one element and its relatives, or a cell without an element. */
export function lightUp({ lanes = [], registers = [], element = null, relatives = [], cell = null }) {
  lightsOut();
  const cells = cellIndex();
  for (const lane of lanes) light(cells.lane.get(lane), "is-lane");
  for (const register of registers) {
    light(cells.register.get(register), "is-reg");
    // The list is drawn again for each lane, so it is not in the index.
    light([...byId("registers").querySelectorAll(`[data-register="${register}"]`)], "is-reg");
  }
  for (const relative of relatives) light(cellsOf(relative), "is-term");
  if (element) light(cellsOf(element), "is-here");
  if (cell) light([cell], "is-here");
}
