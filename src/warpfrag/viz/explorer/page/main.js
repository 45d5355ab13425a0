// The page: connects the state, the finder, the views and the highlights.

import { byId, moveTabStop, roving } from "./html.js";
import { VERSION, holders, isWarpgroup, ofWidth } from "./model.js";
import { change, currentInstruction, picked, pickText, readAddress, scene, state, writeAddress } from "./state.js";
import { emptyQuestion, markCurrent, showFound, startFinder } from "./finder.js";
import { drawFigure } from "./figure.js";
import { drawWarp } from "./warp.js";
import { csvText, drawTable } from "./table.js";
import { drawRelayout, swapped } from "./relayout_view.js";
import { addressesText, drawMemory, showBytes } from "./memory_view.js";
import { changedWord, drawWarpgroup, showUnit, unitsText } from "./warpgroup_view.js";
import { changedProduct, drawTensor, showRegion, tensorText } from "./tensor_view.js";
import { cellsOf, forgetCells, lightsOut, lightUp } from "./light.js";
import { isOutput, showElement, showLane, showLanes, showNothing, showRegister, startLanes } from "./details.js";
import { formulaText, showAbout } from "./about.js";
import { related } from "./products.js";
import { svgText } from "./svg.js";
import { copyText } from "./clipboard.js";
import { fitView, startFit } from "./fit.js";

const VIEW_WRITERS = {
  matrix: drawFigure,
  warp: drawWarp,
  table: drawTable,
  relayout: drawRelayout,
  memory: drawMemory,
};
const NUMBER_LISTS = new Set(["lane", "access", "row", "col"]); // fields whose lists and inputs contain numbers
const CELLS = "[data-operand], [data-bytes], [data-unit]"; // the cells that the arrow keys move over
const QUESTION = new Set(Object.keys(emptyQuestion()));

/** Change the state, and update the page. */
function set(changes) {
  const names = change(changes);
  const moved = names.includes("i");
  writeAddress({ remember: moved });
  if (names.some((name) => QUESTION.has(name))) showFound(state);
  if (moved) byId("complaint").hidden = true;
  // The view does not depend on these, except that the table may show a single lane.
  const kept = new Set([...QUESTION, "at", ...(state.view === "table" ? [] : ["lane"])]);
  if (names.some((name) => !kept.has(name))) draw();
  else {
    if (names.includes("target")) showAbout(currentInstruction(), state);
    showPicked();
  }
}

/** Draw everything about the instruction. */
function draw() {
  const instruction = currentInstruction();
  const focused = document.activeElement?.dataset ?? {};
  forgetCells();
  const isMemory = isWarpgroup(instruction) && state.view === "memory";
  document.querySelector("aside").classList.toggle("no-lanes", isMemory || Boolean(instruction.tensor));
  document.body.classList.toggle("in-tensor-memory", Boolean(instruction.tensor));
  document.body.classList.toggle("of-tensor-memory", Boolean(instruction.access));
  showLanes(scene());
  if (instruction.tensor) drawTensor(instruction, state);
  else if (isWarpgroup(instruction)) drawWarpgroup(state.view === "relayout" ? instruction : scene(), state, VIEW_WRITERS);
  else VIEW_WRITERS[state.view](instruction, state);
  showAbout(instruction, state); // the name and the badges are above the fitted part
  fitView();
  for (const button of document.querySelectorAll("#views [data-set]")) {
    button.setAttribute("aria-pressed", String(button.dataset.value === state.view));
  }
  markCurrent(state);
  showPicked();
  for (const grid of byId("view").querySelectorAll("[data-grid]")) {
    if (!grid.querySelector(`:is(${CELLS})[tabindex="0"]`)) grid.querySelector(CELLS).tabIndex = 0;
  }
  // A control that was drawn again keeps the focus, so that a selector can be changed with the keyboard.
  if (focused.set) {
    const control = document.querySelector(`[data-set="${focused.set}"]${focused.value ? `[data-value="${focused.value}"]` : ""}`);
    control?.focus();
    if (control?.matches("input")) control.setSelectionRange(control.value.length, control.value.length); // the user is typing
  }
}

/** Show the selected element, or that none is selected. */
function showPicked() {
  const element = picked();
  document.querySelector("aside").classList.toggle("with-products", Boolean(element) && isOutput(element.role, scene()));
  if (!element) {
    lightsOut();
    showNothing(scene(), state);
    return;
  }
  focusOn(element, { pinned: true });
  const cell = cellsOf(element)[0];
  if (cell) moveTabStop(cell.closest("[data-grid]").querySelector('[tabindex="0"]'), cell);
}

/** Clear the selection and the highlights. */
function clear() {
  set({ at: "" });
}

/** Highlight an element and describe it. */
function focusOn(element, { pinned = false } = {}) {
  const instruction = scene();
  const operand = instruction.operands[element.role];
  const places = holders(operand, element.part, element.row, element.col, state);
  showElement(instruction, element, state, { pinned });
  lightUp({
    lanes: [...new Set(places.map(([lane]) => lane))],
    registers: places.map(([lane, reg]) => `${element.role}.${lane}.${reg}`),
    element,
    relatives: related(instruction, element, state),
  });
}

function elementOf(cell) {
  const { operand, part = 0, row, col, lane, reg, slot } = cell.dataset;
  return {
    role: operand,
    part: Number(part),
    row: Number(row),
    col: Number(col),
    place: [lane, reg, slot].map(Number),
  };
}

/** Follow the pointer or the focus. */
function follow({ target }) {
  const cell = target.closest("[data-operand]");
  if (cell) {
    if (cell.dataset.idle === undefined) focusOn(elementOf(cell), { pinned: state.at === pickOf(cell) });
    return;
  }
  const register = target.closest("[data-register]");
  if (register) {
    const [role, lane, reg] = register.dataset.register.split(".");
    showRegister(scene(), role, Number(lane), Number(reg));
    showLane(scene(), Number(lane));
    lightUp({ lanes: [Number(lane)], registers: [register.dataset.register] });
    return;
  }
  const unit = target.closest("[data-unit]");
  if (unit) {
    if (scene().tensor) showRegion(unit);
    else showUnit(unit);
    lightUp({ cell: unit });
    return;
  }
  const bytes = target.closest("[data-bytes]");
  if (bytes) {
    lightUp({ lanes: showBytes(bytes, scene(), state), cell: bytes });
    return;
  }
  const lane = target.closest("[data-address], #lanes [data-lane]");
  if (lane) {
    const number = Number(lane.dataset.address ?? lane.dataset.lane);
    showLane(scene(), number);
    lightUp({ lanes: [number] });
  }
}

function pickOf(cell) {
  const { role, part, row, col } = elementOf(cell);
  return pickText(scene().operands[role], part, row, col);
}

/** Return the cell that an arrow key leads to. */
function neighbour(cell, key) {
  const grid = cell.closest("[data-grid]");
  if (grid.dataset.grid === "memory") return memoryStep(grid, cell, key);
  if (grid.dataset.grid === "warp" || grid.dataset.grid === "table") return neighbourPlace(grid, cell, key);
  const { row, col } = elementOf(cell);
  const { first, rows, cols } = scene().operands[cell.dataset.operand];
  const steps = {
    ArrowUp: [row - 1, col],
    ArrowDown: [row + 1, col],
    ArrowLeft: [row, col - 1],
    ArrowRight: [row, col + 1],
    Home: [row, 0],
    End: [row, cols - 1],
    PageUp: [first, col],
    PageDown: [first + rows - 1, col],
  };
  if (!(key in steps)) return null;
  const [nextRow, nextCol] = steps[key];
  return grid.querySelector(`[data-row="${nextRow}"][data-col="${nextCol}"]`);
}

/** Return the next cell in shared memory: up and down change the line, left and right move along it. */
function memoryStep(grid, cell, key) {
  const cells = [...grid.querySelectorAll("[data-bytes], [data-unit]")];
  const line = cell.parentElement.querySelectorAll("[data-bytes], [data-unit]").length;
  const steps = { ArrowUp: -line, ArrowDown: line, ArrowLeft: -1, ArrowRight: 1 };
  return key in steps ? cells[cells.indexOf(cell) + steps[key]] : null;
}

/** Return the next cell in the warp view and the table, where adjacent places are neighbours. */
function neighbourPlace(grid, cell, key) {
  const cells = [...grid.querySelectorAll("[data-operand]")];
  const operand = scene().operands[cell.dataset.operand];
  const line = grid.dataset.grid === "table" ? 1 : operand.regs * operand.slots;
  const steps = { ArrowUp: -line, ArrowDown: line, ...(line > 1 ? { ArrowLeft: -1, ArrowRight: 1 } : {}) };
  return key in steps ? cells[cells.indexOf(cell) + steps[key]] : null;
}

function copy(button) {
  const instruction = currentInstruction();
  const { operands } = isWarpgroup(instruction) ? scene() : instruction; // for a warpgroup, those of the current warp
  const all = Object.values(operands).filter((operand) => !operand.unknown);
  const here = state.view === "matrix" ? all : all.filter((operand) => operand.role === state.operand);
  const { copy: what, role } = button.dataset;
  const texts = {
    ptx: () => [instruction.name, "the PTX text"],
    formula: () => [formulaText(role ? [instruction.operands[role]] : here), "the formulas"],
    csv: () =>
      instruction.tensor ? [tensorText(instruction, state), "the table as CSV"] :
      state.view === "memory" ? [memoryText(instruction), "the addresses as CSV"] : [csvText(here), "the table as CSV"],
    svg: () => [svgText(byId("view")), "the figure as SVG"],
    link: () => [linkHere(), "the link"],
    markdown: () => [`[${pictured(instruction)}](${linkHere()})`, "the link as Markdown"],
    command: () => [button.closest(".command").querySelector("code").textContent, button.closest("#called") ? "the name" : "the command"],
  };
  copyText(...texts[what]());
}

/** Return the address of the current view, on the hosted page if this one was opened from disk. */
function linkHere() {
  const hosted = document.querySelector('link[rel="canonical"]')?.href;
  return hosted && location.protocol === "file:" ? hosted + location.hash : location.href;
}

/** Return the link text: the instruction and the selected cell. */
function pictured(instruction) {
  const [role, row, col] = state.at.split(".");
  const operand = role && instruction.operands[role];
  return operand ? `${instruction.name}: ${operand.letter}[${row}][${col}]` : instruction.name;
}

/** Return the contents of the memory view as CSV. */
function memoryText(instruction) {
  return isWarpgroup(instruction) ? unitsText(scene(), state) : addressesText(scene(), state);
}

function start() {
  byId("version").textContent = VERSION;
  byId("query").placeholder = "Search: e4m3 sm_90 k32"; // fits on a phone
  startFinder(set);
  startLanes();
  startFit();
  const view = byId("view");
  for (const region of [view, byId("registers"), byId("lanes")]) {
    region.addEventListener("pointerover", follow);
    region.addEventListener("focusin", follow);
  }
  view.addEventListener("focusin", ({ target }) => {
    const cell = target.closest(CELLS);
    if (cell) moveTabStop(cell.closest("[data-grid]").querySelector('[tabindex="0"]'), cell);
  });
  view.addEventListener("pointerleave", () => state.at && showPicked());
  roving(view, CELLS, neighbour);
  const pick = (cell) => set({ at: state.at === pickOf(cell) ? "" : pickOf(cell), lane: Number(cell.dataset.lane) });
  view.addEventListener("click", ({ target }) => {
    const cell = target.closest("[data-operand]:not([data-idle])");
    if (cell) pick(cell);
  });
  byId("unpick").addEventListener("click", clear);
  byId("lanes").addEventListener("click", ({ target }) => {
    if (!target.dataset.lane) return;
    set({ lane: Number(target.dataset.lane), at: "" });
    follow({ target }); // clearing the selection removed the highlight of this lane
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the fragment of the address is the state
    view.focus();
  });
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-copy]");
    if (button) copy(button);
    const link = target.closest("[data-jump]");
    if (link) jump(link.dataset.jump);
    const choice = target.closest("button[data-set]");
    if (target.closest("[data-swap]")) set(swapped(state));
    if (choice) set({ [choice.dataset.set]: numberIfOne(choice.dataset.value) });
  });
  document.addEventListener("change", ({ target }) => {
    if (target.matches("[data-descriptor-field]")) set({ word: changedWord(scene(), state, target) });
    if (target.matches("select[data-product]")) set({ i: changedProduct(currentInstruction(), target).name });
    if (target.matches("select[data-width]")) set({ i: ofWidth(currentInstruction(), target.value).name });
    if (target.matches("select[data-set], input[data-set]"))
      set({ [target.dataset.set]: NUMBER_LISTS.has(target.dataset.set) ? Number(target.value) : target.value });
  });
  document.addEventListener("input", ({ target }) => {
    if (target.matches('input[data-set="pitch"]')) set({ pitch: target.value });
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && !typing) {
      event.preventDefault();
      byId("query").focus();
      byId("query").select();
    } else if (event.key === "Escape") {
      if (event.target === byId("query")) set({ q: "" });
      else clear();
    } else if (
      (event.key === "Enter" || event.key === " ") &&
      event.target.matches("[data-operand]:not([data-idle])")
    ) {
      event.preventDefault();
      pick(event.target);
    }
  });
  addEventListener("hashchange", load); // also when the user navigates back
  load();
}

/** Scroll to a grid, and let Tab continue from there. */
function jump(grid) {
  const operand = byId("view").querySelector(`[data-grid="${grid}"]`).closest(".operand");
  operand.focus({ preventScroll: true });
  (operand.closest(".products .product-block") ?? operand).scrollIntoView({ block: "start" });
}

function numberIfOne(text) {
  return /^\d+$/.test(text) ? Number(text) : text;
}

/** Read the state from the address, and show it. */
function load() {
  const complaint = readAddress();
  byId("complaint").textContent = complaint;
  byId("complaint").hidden = !complaint;
  draw();
  showFound(state);
  const element = picked();
  const cell = element && cellsOf(element)[0];
  if (cell && !isWhollyShown(cell)) cell.scrollIntoView({ block: "center", inline: "nearest" });
}

/** Return true if a cell is visible without scrolling its figure. */
function isWhollyShown(cell) {
  const [box, main] = [cell, cell.closest("main")].map((part) => part.getBoundingClientRect());
  return main.bottom <= innerHeight && box.top > main.top && box.bottom < main.bottom && box.right < main.right;
}

start();
