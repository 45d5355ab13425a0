// The details: a description of the highlighted element.

import { byId, escapeText, listStep, listed, moveTabStop, roving } from "./html.js";
import { elementAt, slotRun } from "./layout.js";
import {
  COORDINATE_WORDS,
  addressOf,
  bitsText,
  chosenDims,
  chosenId,
  currentCode,
  elementName,
  elementRange,
  elementText,
  holders,
  idWord,
  partWord,
} from "./model.js";
import { laneClass } from "./grid.js";
import { termsOf } from "./products.js";
import { changesLane, counterpart, placesIn } from "./relayouts.js";
import { pickText } from "./state.js";

const SLOTS_SHOWN = 8; // further slots of a register are described as ranges

let shownLane = "";

function dimWord(operand, place) {
  return COORDINATE_WORDS[operand.layout.dims[operand.plane + place]];
}

function whereText(operand, part, row, col) {
  const which = operand.parts > 1 ? `${partWord(operand)} ${part}, ` : "";
  return `${which}${dimWord(operand, 0)} ${row}, ${dimWord(operand, 1)} ${col}`;
}

function placeText(operand, [lane, reg, slot]) {
  return `lane ${lane}, register ${reg}, bits ${bitsText(operand, slot)}`;
}

/** Describe one element. */
export function showElement(instruction, element, state, { pinned }) {
  const { role, part, row, col } = element;
  const operand = instruction.operands[role];
  const places = holders(operand, part, row, col, state);
  const [lane, reg, slot] = element.place ?? places[0];
  const name = elementText(operand, part, row, col);
  const facts = [
    ["lane", "Lane", lane],
    ["register", "Register", reg],
    ["bits", "Bits", bitsText(operand, slot)],
    ["slot", "Slot", slot],
    ...(operand.prefix ? [["element", "Element", elementName(operand, reg, slot)]] : []),
  ];
  const sentence = `${operand.letter} ${whereText(operand, part, row, col)}: ${placeText(operand, [lane, reg, slot])}`;
  const notes = [
    ...(places.length > 1
      ? [
          `Held in ${places.length} places: ${places.map((place) => placeText(operand, place)).join("; ")}. The ` +
            `hardware reads the first.`,
        ]
      : []),
    ...notesOf(instruction, operand, element, state),
  ];
  mark(true);
  byId("details-title").textContent = name;
  byId("details-where").textContent = `${whereText(operand, part, row, col)} · ${operand.format}`;
  byId("details-facts").innerHTML = facts
    .map(([field, label, value]) => `<div><dt>${label}</dt><dd data-field="${field}">${value}</dd></div>`)
    .join("");
  byId("details-notes").innerHTML = notes.map((note) => `<p>${note}</p>`).join("");
  byId("details-products").innerHTML =
    pinned && isOutput(role, instruction) ? productTable(instruction, element, state) : "";
  say(sentence);
  showLane(instruction, lane);
}

/** Announce a text to screen readers. */
function say(text) {
  byId("spoken").textContent = text;
}

/** Return true if an operand is the result of a product. */
export function isOutput(role, instruction) {
  return (role === "c" || role === "d") && "a" in instruction.operands && "b" in instruction.operands;
}

/** Return the location of the element on the other side of a relayout. */
function movedText(relayout, element) {
  const other = counterpart(relayout, element);
  const operand = relayout[other.role];
  const [place] = placesIn(relayout, other);
  const direction = other.role === "target" ? "Goes to" : "Comes from";
  const name = elementText(operand, other.part, other.row, other.col);
  const change = changesLane(relayout, element) ? "It changes its lane." : "It stays in its lane.";
  return `${direction} ${name}: ${placeText(operand, place)}. ${change}`;
}

function codeText(instruction, row, chunk, state) {
  const operand = instruction.operands.metadata;
  return `the code in ${placeText(operand, holders(operand, 0, row, chunk, state)[0])}`;
}

function notesOf(instruction, operand, { part, row, col, role }, state) {
  const { pattern, operands, addresses, extents, relayout } = instruction;
  const notes = relayout ? [movedText(relayout, { role, part, row, col })] : [];
  if (isOutput(role, instruction)) {
    const product = instruction.bitop
      ? `${elementText(operands.c, part, row, col)} plus the number of ones in A[${row}][k] ${instruction.bitop} B[k][${col}]`
      : `${elementText(operands.c, part, row, col)} plus the sum of A[${row}][k] · B[k][${col}]`;
    notes.push(
      `${elementText(operands.d, part, row, col)} is ${product}, k from 0 ` +
        `to ${extents.k - 1}. ${pinHint(state, operand, part, row, col)}`,
    );
  }
  if (role === "a" && pattern) {
    const chunk = Math.floor(col / pattern.kept);
    const first = chunk * pattern.chunk;
    const [code, columns] = currentCode(instruction, state);
    notes.push(
      `Stored element ${col} of row ${row}: one of the logical columns ${first} to ${first + pattern.chunk - 1}, ` +
        `selected by ${codeText(instruction, row, chunk, state)}; with ${code} it is ` +
        `column ${first + columns[col % pattern.kept]}.`,
    );
  }
  if (role === "metadata") {
    const first = col * pattern.chunk;
    notes.push(
      `The code of logical columns ${first} to ${first + pattern.chunk - 1} of row ${row} of A, read with ` +
        `selector ${state.selector}.`,
    );
  }
  const scales = operands.scale_a?.cols;
  if (role.startsWith("scale")) {
    const number = role === "scale_a" ? col : row;
    const width = extents.k / scales;
    const what = role === "scale_a" ? `row ${row} of A` : `column ${col} of B`;
    notes.push(`Scales ${what}, k from ${number * width} to ${(number + 1) * width - 1}.`);
  }
  if (addresses) notes.push(addressOf(addresses, part, addresses.dims[1] === "row" ? row : col).sentence);
  if (operand.bits < operand.container)
    notes.push(
      `${operand.format} takes ${operand.bits} of the ${operand.container} bits of its container; the others are padding.`,
    );
  return notes.map(escapeText);
}

function pinHint(state, operand, part, row, col) {
  return state.at === pickText(operand, part, row, col) ? "" : "Click to list the products.";
}

/** Return the terms of an output, one per line. */
function productTable(instruction, { part, row, col }, state) {
  const { a, b, metadata, scale_a: scaled } = instruction.operands;
  const place = (operand, [lane, reg, slot]) => `T${lane} ${elementName(operand, reg, slot)}`;
  const sparse = instruction.pattern ? `, with code ${currentCode(instruction, state)[0]} in every chunk` : "";
  const lines = termsOf(instruction, part, row, col, state).map((term) => {
    const cells = [
      term.k,
      ...(metadata ? [term.stored] : []),
      place(a, term.a),
      place(b, term.b),
      ...(metadata ? [term.chunk] : []),
      ...(scaled ? [term.scale] : []),
    ];
    return `<tr>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`;
  });
  const heads = [
    "k",
    ...(metadata ? ["stored"] : []),
    `A[${row}]`,
    `B[k][${col}]`,
    ...(metadata ? ["chunk"] : []),
    ...(scaled ? ["scale"] : []),
  ];
  return (
    `<h3>Products</h3><p>${lines.length} products${sparse}.</p>` +
    `<div class="term-scroll" tabindex="0" role="region" aria-label="products"><table class="terms"><thead><tr>` +
    `${heads.map((head) => `<th scope="col">${head}</th>`).join("")}</tr></thead><tbody>${lines.join("")}</tbody>` +
    `</table></div>`
  );
}

/** Describe one register. */
export function showRegister(instruction, role, lane, reg) {
  const operand = instruction.operands[role];
  const slots = slotsOf(operand);
  const ofAll = choiceWords(operand, lane, reg, slots);
  const ofEach = slots.map((slot) => choiceWords(operand, lane, reg, [slot]));
  const shared = ofAll.filter((words) => ofEach[0].includes(words));
  mark(true);
  byId("details-title").textContent = `${operand.letter} register ${reg} of lane ${lane}`;
  const size = `${operand.slots} × ${operand.format} in ${operand.ptx_type}`;
  byId("details-where").textContent = [size, ...shared].join(" · ");
  const facts = slots.slice(0, SLOTS_SHOWN).map((slot) => {
    const coordinates = elementAt(operand.layout, lane, reg, slot);
    const [row, col] = coordinates.slice(operand.plane);
    const part = operand.parts > 1 ? coordinates[0] : 0;
    const own = ofEach[slot].filter((words) => !shared.includes(words));
    const label = [`${operand.bits > 1 ? "bits" : "bit"} ${bitsText(operand, slot)}`, ...own].join(", ");
    return `<div><dt>${label}</dt><dd>${elementText(operand, part, row, col)}</dd></div>`;
  });
  byId("details-facts").innerHTML = facts.join("");
  const isWhole = facts.length === slots.length;
  byId("details-notes").innerHTML = isWhole ? "" : `<p>The whole register: ${contents(operand, lane, reg)}.</p>`;
  byId("details-products").innerHTML = "";
  say(`${operand.letter} register ${reg} of lane ${lane}: ${contents(operand, lane, reg)}`);
}

/** Describe anything that is neither an element nor a register; facts are pairs of a label and a text. */
export function showFacts({ title, where, facts, notes }) {
  mark(true);
  byId("details-title").textContent = title;
  byId("details-where").textContent = where;
  byId("details-facts").innerHTML = facts
    .map(([label, value]) => `<div><dt>${escapeText(label)}</dt><dd>${escapeText(value)}</dd></div>`)
    .join("");
  byId("details-notes").innerHTML = notes.map((note) => `<p>${escapeText(note)}</p>`).join("");
  byId("details-products").innerHTML = "";
  say([title, where, ...notes].join(". "));
}

/** Show or hide the details: on a phone they take space only if they are not empty. */
function mark(described) {
  byId("details").classList.toggle("described", described);
  byId("unpick").hidden = !described;
}

/** Show a hint if nothing is highlighted. */
export function showNothing(instruction, state) {
  mark(false);
  byId("details-title").textContent = "Select a cell";
  byId("details-where").textContent =
    "Point at a cell, a lane or a register, or use the arrow keys. Click or press Enter to keep the selection.";
  for (const part of ["details-facts", "details-notes", "details-products"]) byId(part).innerHTML = "";
  say("");
  showLane(instruction, state.lane);
}

function slotsOf(operand) {
  return Array.from({ length: operand.slots }, (_, slot) => slot);
}

/** Return the choice with which an instruction reads some slots of a register: selector 1, byte-id 0 or 2. */
function choiceWords(operand, lane, reg, slots) {
  const elements = slots.map((slot) => elementAt(operand.layout, lane, reg, slot));
  return chosenDims(operand).map((dim) => {
    const place = operand.layout.dims.indexOf(dim);
    const ids = new Set(elements.map((coordinates) => chosenId(operand, dim, coordinates[place])));
    return `${idWord(dim)} ${listed([...ids], "or")}`;
  });
}

/** Return the contents of a register as ranges, and when they are read: SA[1][0], read with byte-id 0 or 2. */
function contents(operand, lane, reg) {
  const { dim, length } = slotRun(operand.layout);
  const run = dim < operand.plane ? 1 : length; // bytes that differ only in their id are not a range of elements
  const texts = new Set();
  for (let slot = 0; slot < operand.slots; slot += run) {
    const first = elementAt(operand.layout, lane, reg, slot);
    const last = elementAt(operand.layout, lane, reg, slot + run - 1);
    const [rows, cols] = [operand.plane, operand.plane + 1].map((dim) =>
      first[dim] === last[dim] ? first[dim] : `${first[dim]}–${last[dim]}`,
    );
    texts.add(`${operand.letter}${operand.parts > 1 ? first[0] : ""}[${rows}][${cols}]`);
  }
  const choice = choiceWords(operand, lane, reg, slotsOf(operand));
  return listed([...texts]) + (choice.length ? `, read with ${listed(choice)}` : "");
}

/** Return the registers of one lane, for every operand. */
export function showLane(instruction, lane) {
  const key = `${instruction.asked ?? instruction.name} ${lane}`;
  if (key === shownLane) return;
  shownLane = key;
  byId("lane-title").textContent = `Registers of lane ${lane}`;
  byId("registers").innerHTML = Object.values(instruction.operands)
    .filter((operand) => !operand.unknown && lane < operand.lanes)
    .map((operand) => {
      const registers = Array.from(
        { length: operand.regs },
        (_, reg) =>
          `<li tabindex="-1" data-register="${operand.role}.${lane}.${reg}"><b>reg ${reg}</b> ` +
          `<small>${operand.prefix ? elementRange(operand, reg, 0, operand.slots) : operand.letter}</small> ` +
          `<span>${contents(operand, lane, reg)}</span></li>`,
      );
      return `<ul aria-label="registers of ${operand.letter}">${registers.join("")}</ul>`;
    })
    .join("");
  const first = byId("registers").querySelector("li");
  if (first) first.tabIndex = 0;
}

/** Return the lanes of an instruction as chips. */
export function showLanes({ lanes }) {
  if (byId("lanes").children.length === lanes) return;
  byId("lanes").innerHTML = Array.from(
    { length: lanes },
    (_, lane) =>
      `<button type="button" class="${laneClass(lane)}" data-lane="${lane}" tabindex="${lane ? -1 : 0}" ` +
      `aria-label="lane ${lane}">T${lane}</button>`,
  ).join("");
}

/** Let the arrow keys move over lanes and registers. */
export function startLanes() {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -8, ArrowDown: 8 };
  roving(
    byId("lanes"),
    "button",
    (chip, key) => byId("lanes").children[Number(chip.dataset.lane) + (step[key] ?? NaN)],
  );
  roving(byId("registers"), "li", (item, key) => listStep([...byId("registers").querySelectorAll("li")], item, key));
  byId("registers").addEventListener("focusin", ({ target }) => {
    moveTabStop(byId("registers").querySelector('li[tabindex="0"]'), target);
  });
}
