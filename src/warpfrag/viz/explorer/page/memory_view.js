// The memory view: an operand in shared memory, the lanes at their addresses, and the words that each bank supplies.

import { byId, choices, escapeText, ranges } from "./html.js";
import { placesOf } from "./layout.js";
import { BY_NAME, TARGETS } from "./model.js";
import { laneClass } from "./grid.js";
import { operandChoices } from "./warp.js";
import { showFacts, showLane } from "./details.js";
import { MORE } from "./fit.js";
import { BANKS, BANK_BYTES, ROW_BYTES, SWIZZLES, UNIT, addressIn, bankLoads, pitchOf } from "./memory.js";
import { accessPlansOf, requestsOf } from "./access_plans.js";
import { commandLine, tilesText } from "./relayout_view.js";
import { scene } from "./state.js";
import { TILES, isSingle } from "./scene.js";

const CELL_SIZES = {
  4: { width: 27, least: 25, height: 24 },
  8: { width: 52, least: 30, height: 30 },
  16: { width: 104, least: 32, height: 30 },
};
export const SMALL_LETTER = 5.45; // width of a letter of the elements in a cell, in pixels
export const LANE_LETTER = 6.65; // width of a letter of the lane
const MAX_BUTTONS = 4; // more accesses are shown as a list
const TILE_WORDS = { "": "1", "row=2": "2 rows", "col=2": "2 cols" };

/** Return the ldmatrix of one matrix, from which plans are built. */
function mover(trans) {
  const { operands, addresses } = BY_NAME.get(`ldmatrix.sync.aligned.m8n8.x1${trans}.shared.b16`);
  return { ...operands.d, addresses };
}

function memoryOf({ order, pitch, swizzle }) {
  return { order, pitch: pitch ? Number(pitch) : null, swizzle };
}

let lastPlans = { asked: "", plans: [] };

/** Return the plans for the current state; computed once. */
function currentPlans({ asked, operands }, state) {
  const question = [asked, state.order, state.pitch, state.swizzle, state.verb].join(" ");
  if (question !== lastPlans.asked) {
    const movers = { plain: mover(""), trans: mover(".trans") };
    lastPlans = { asked: question, plans: accessPlansOf(operands[state.operand], memoryOf(state), state.verb, movers) };
  }
  return lastPlans.plans;
}

/** Return the current plan and access; a number that is too large selects the last. */
function chosen(plans, state) {
  const plan = Math.min(Math.max(state.way, 1), plans.length) - 1;
  const access = Math.min(Math.max(state.access, 1), plans[plan].accesses.length) - 1;
  return { plan, access };
}

/** Draw the current operand in shared memory. */
export function drawMemory(instruction, state) {
  const operand = instruction.operands[state.operand];
  const bar = `<div class="view-bar memory-bar">${controls(instruction, state)}</div>`;
  if (!isSingle(operand)) {
    const choice = operandChoices(instruction, state, isSingle);
    const why = operand.unknown ?? `${operand.letter} of this instruction consists of several matrices; the memory view shows only a single one`;
    byId("view").innerHTML = `${choice ? bar : ""}<p class="empty">${escapeText(why)}.</p>`;
    return;
  }
  const whole = scene().operands[state.operand];
  const plans = currentPlans(scene(), state);
  byId("view").innerHTML = plans.length
    ? bar + planTable(plans, state) + accessFigure(whole, plans, state) + commands(instruction, whole, plans, state)
    : `${bar}<p class="empty">${escapeText(noPlanText(whole, state))}</p>`;
}

function noPlanText({ letter, format }, { order }) {
  const other = order === "row" ? "col" : "row";
  return `No instruction moves ${letter} in ${order} order: ${format} is smaller than a byte. Try ${other} order.`;
}

function controls(instruction, state) {
  const plain = (values) => values.map((value) => [value, String(value)]);
  const operand = operandChoices(instruction, state, isSingle);
  return [
    operand,
    choices("load or store", "verb", plain(["load", "store"]), state.verb),
    `<span>tiles ${choices("tiles", "tiles", Object.entries(TILE_WORDS), state.tiles)}</span>`,
    `<span>order ${choices("order", "order", plain(["row", "col"]), state.order)}</span>`,
    `<label>pitch <input data-set="pitch" inputmode="numeric" maxlength="5" autocomplete="off" ` +
      `placeholder="no gaps" value="${escapeText(state.pitch)}"></label>`,
    `<span>swizzle ${choices("swizzle", "swizzle", plain(Object.keys(SWIZZLES)), state.swizzle)}</span>`,
  ].join("");
}

function short(name) {
  return name.replaceAll(".sync.aligned", "");
}

/** Return the first target with every instruction of a plan; all targets have plain loads and stores. */
function legalFrom({ name }) {
  const targets = name.split(" + ").map((part) => BY_NAME.get(part)?.targets ?? TARGETS);
  return TARGETS.find((target) => targets.every((some) => some.includes(target)));
}

/** Return the list of plans, one of which can be selected. */
function planTable(plans, state) {
  const { plan: current } = chosen(plans, state);
  const heads = ["plan", "legal from", "instructions", "passes", "conflicts", "cost"];
  const lines = plans.map((plan, place) => {
    const { instructions, passes, conflicts, cost } = plan;
    const button =
      `<button type="button" data-set="way" data-value="${place + 1}" aria-pressed="${place === current}">` +
      `${escapeText(short(plan.name))}</button>`;
    const clash = `<td class="${conflicts ? "warning" : "fine"}">${conflicts}</td>`;
    return `<tr><th scope="row">${button}</th><td>${legalFrom(plan)}</td><td>${instructions}</td><td>${passes}</td>${clash}<td>${cost}</td></tr>`;
  });
  return (
    `<div class="wide"><table class="access-plans"><thead><tr>${heads.map((head) => `<th scope="col">${head}</th>`).join("")}</tr></thead>` +
    `<tbody>${lines.join("")}</tbody></table></div>`
  );
}

function wordsText({ words, slot }) {
  const range = words.length > 1 ? `words ${words[0]}–${words.at(-1)}` : `word ${words[0]}`;
  return slot === undefined ? range : `${range}.${slot}`;
}

function passesText(passes) {
  return passes === 1 ? "1 pass" : `${passes} passes`;
}

function counted(number, word) {
  return `${number || "no"} ${word}${number === 1 ? "" : "s"}`;
}

/** Return one access: lines of memory, with cells as wide as the access and at least a bank; then the banks. */
function accessFigure(operand, plans, state) {
  const place = chosen(plans, state);
  const { accesses } = plans[place.plan];
  const access = accesses[place.access];
  const options = accesses.map((one, number) => [number + 1, wordsText(one)]);
  const which = options.length > 1 ? accessChoice(options, place.access + 1) : "";
  const cells = cellsOfMemory(operand, access, state);
  const width = cellWidth(access);
  const heads = Array.from({ length: ROW_BYTES / width }, (_, column) => {
    const text = banksText(column, width);
    return `<div class="head col-head" role="columnheader">${text}</div>`;
  });
  const lines = cells.map(
    ({ line, row }) =>
      `<div class="line" role="row"><div class="head row-head" role="rowheader"><span class="bytes">${line * ROW_BYTES}</span></div>${row}</div>`,
  );
  const last = String(cells.at(-1).line * ROW_BYTES).length;
  const { width: liked, least: bare, height } = CELL_SIZES[width];
  const least = Math.max(bare, ...cells.map(({ needs }) => needs));
  const sizes = { width: Math.max(liked, least), least, height, count: ROW_BYTES / width, head: Math.max(5, last + 1) * 6.2 + 8, heads: 0 };
  const data = Object.entries(sizes).map(([name, value]) => `data-${name}="${Math.ceil(value)}"`);
  const name = `${operand.letter} in shared memory`;
  return (
    `<section class="operand memory" tabindex="-1" aria-label="${name}"><div class="caption">` +
    `<h3>${escapeText(short(access.instruction))}</h3> <span>${wordsText(access)} · ${passesText(access.passes)}, ` +
    `${counted(access.conflicts, "bank conflict")}</span>${which}${MORE}</div>` +
    `<div class="scroll"><div class="grid" role="grid" aria-label="${name}" data-grid="memory" data-counts="banks" ${data.join(" ")}>` +
    `<div class="line heads" role="row"><div class="head row-head" role="columnheader">bank</div>${heads.join("")}</div>` +
    `${bankLines(access)}${lines.join("")}</div></div></section>` +
    `<div class="legend"><p>A line is ${ROW_BYTES} bytes (B): one 4-byte word from each of the ${BANKS} banks. A cell names the lane (T) that supplies its ` +
    `address (+: more than one lane) and the elements in it; grey cells are not accessed. The numbers at the top count the words that ` +
    `each bank delivers for a request (of the warp, or of one matrix). Each word takes a pass; a bank conflict is a pass beyond the minimum.</p></div>`
  );
}

function accessChoice(options, current) {
  if (options.length <= MAX_BUTTONS) return choices("access", "access", options, current);
  const list = options.map(
    ([number, text]) => `<option value="${number}"${number === current ? " selected" : ""}>${text}</option>`,
  );
  return `<label class="controls">access <select data-set="access">${list.join("")}</select></label>`;
}

function cellWidth(access) {
  return Math.min(UNIT, Math.max(BANK_BYTES, access.width));
}

function banksText(column, width) {
  const banks = width / BANK_BYTES;
  return banks > 1 ? `${column * banks}–${(column + 1) * banks - 1}` : `${column}`;
}

/** Return the elements of the matrix by the memory cell in which they start. */
function elementsByCell(operand, memory, width) {
  const byCell = new Map();
  for (let row = 0; row < operand.rows; row++) {
    for (let col = 0; col < operand.cols; col++) {
      const address = addressIn(memory, row, col, operand.container, operand.layout.shape);
      const cell = Math.floor(address / width);
      if (!byCell.has(cell)) byCell.set(cell, []);
      byCell.get(cell).push([row, col]);
    }
  }
  return byCell;
}

/** Return elements as a range along one coordinate: 3,8–15. */
function elementsText(elements) {
  const ends = [0, 1].map((axis) => elements.map((element) => element[axis]));
  return ends.map((some) => rangeFrom(Math.min(...some), Math.max(...some))).join(",");
}

function rangeFrom(first, last) {
  return first === last ? `${first}` : `${first}–${last}`;
}

function cellsOfMemory(operand, access, state) {
  const width = cellWidth(access);
  const across = ROW_BYTES / width;
  const elements = elementsByCell(operand, memoryOf(state), width);
  const givers = new Map();
  for (const [lane, address] of access.addresses.entries()) {
    if (address === null) continue;
    const cell = Math.floor(address / width);
    givers.set(cell, [...(givers.get(cell) ?? []), lane]);
  }
  const used = [...elements.keys(), ...givers.keys()].map((cell) => Math.floor(cell / across));
  const lines = [...new Set(used)].sort((one, other) => one - other);
  return lines.map((line) => {
    const row = Array.from({ length: across }, (_, column) => line * across + column);
    const cells = row.map((cell) => memoryCell(operand, cell, width, elements.get(cell) ?? [], givers.get(cell) ?? []));
    const words = row.map((cell) => (width > BANK_BYTES && elements.has(cell) ? elementsText(elements.get(cell)) : ""));
    const names = row.map((cell) => (givers.has(cell) ? laneText(givers.get(cell)) : ""));
    const widthOf = (texts, letter) => Math.max(...texts.map((text) => text.length)) * letter + 1;
    return { line, row: cells.join(""), needs: Math.max(widthOf(words, SMALL_LETTER), widthOf(names, LANE_LETTER)) };
  });
}

/** Return the first lane of a cell, with a + if there are more. */
function laneText([first, ...others]) {
  return `T${first}${others.length ? "+" : ""}`;
}

function memoryCell(operand, cell, width, held, lanes) {
  const words = held.length ? elementsText(held) : "";
  const bytes = rangeFrom(cell * width, (cell + 1) * width - 1);
  const what = held.length ? `${operand.letter}[${words.replace(",", "][")}]` : "no element";
  const whose = lanes.length ? `address of lane ${ranges(lanes)}` : "not read here";
  const second = words && (width > BANK_BYTES || !lanes.length) ? `<span>${width > BANK_BYTES ? words : "·"}</span>` : "";
  const first = lanes.length ? `<b>${laneText(lanes)}</b>` : "";
  const colour = lanes.length ? laneClass(lanes[0]) : held.length ? "waiting" : "vacant";
  const data = lanes.length ? ` data-lanes="${lanes.join(" ")}"` : "";
  return (
    `<div class="cell ${colour}" role="gridcell" tabindex="-1" data-bytes="${cell * width}" data-size="${width}"${data} ` +
    `aria-label="bytes ${bytes}: ${what}, ${whose}">${first}${second}</div>`
  );
}

/** Return the number of words that each bank supplies, a line for each request. */
function bankLines(access) {
  const width = cellWidth(access);
  const per = width / BANK_BYTES;
  const requests = requestsOf(access);
  const lines = requests.map((request, number) => {
    const loads = bankLoads(request, access.width);
    const fair = Math.ceil(loads.reduce((all, load) => all + load, 0) / BANKS);
    const cells = Array.from({ length: BANKS / per }, (_, column) => {
      const words = Math.max(...loads.slice(column * per, (column + 1) * per));
      const kind = words > fair ? "clash" : words ? "calm" : "vacant";
      return (
        `<div class="cell ${kind}" role="gridcell" tabindex="-1" data-bytes="" data-request="${number}" ` +
        `data-bank="${column * per}" data-size="${width}" ` +
        `aria-label="banks ${banksText(column, width)}: ${counted(words, "word")}">${words || ""}</div>`
      );
    });
    const name = requests.length > 1 ? `mat ${number}` : "words";
    return `<div class="line banks" role="row"><div class="head row-head" role="rowheader">${name}</div>${cells.join("")}</div>`;
  });
  return lines.join("");
}

/** Return the lanes of a request that access these banks. */
function lanesAt(access, number, bank, banks) {
  const request = requestsOf(access)[number];
  const first = requestsOf(access).length > 1 ? number * request.length : 0;
  const reaches = (address) => {
    const loads = bankLoads([address], access.width).slice(bank, bank + banks);
    return loads.some(Boolean);
  };
  return request.flatMap((address, place) => (address !== null && reaches(address) ? [first + place] : []));
}

/** Describe a cell of memory or of the banks, and return its lanes. */
export function showBytes(cell, { operands, ...rest }, state) {
  const operand = operands[state.operand];
  const plans = currentPlans({ operands, ...rest }, state);
  const place = chosen(plans, state);
  const access = plans[place.plan].accesses[place.access];
  const size = Number(cell.dataset.size);
  const isBank = cell.dataset.bank !== undefined;
  const bank = isBank ? Number(cell.dataset.bank) : (Number(cell.dataset.bytes) % ROW_BYTES) / BANK_BYTES;
  const banks = rangeFrom(bank, bank + size / BANK_BYTES - 1);
  if (isBank) return showBanks(cell, access, bank, banks);
  const start = Number(cell.dataset.bytes);
  const held = elementsByCell(operand, memoryOf(state), size).get(start / size) ?? [];
  const lanes = (cell.dataset.lanes ?? "").split(" ").filter(Boolean).map(Number);
  const holder = held.length ? placesOf(operand.layout, held[0])[0] : null;
  showFacts({
    title: held.length ? `${operand.letter}[${elementsText(held).replace(",", "][")}]` : "No element",
    where: `bytes ${rangeFrom(start, start + size - 1)} · banks ${banks}`,
    facts: [
      ...(lanes.length ? [[lanes.length > 1 ? "Lanes" : "Lane", ranges(lanes)]] : []),
      ["Byte", start],
      ["Banks", banks],
      ...(lanes.length === 1 && access.addresses[lanes[0]] !== start ? [["Address", access.addresses[lanes[0]]]] : []),
    ],
    notes: [
      lanes.length
        ? `The address of ${lanes.length > 1 ? "lanes" : "lane"} ${ranges(lanes)}.`
        : "This access does not read here.",
      ...(holder ? [`${operand.letter}[${held[0].join("][")}] belongs in lane ${holder[0]}, register ${holder[1]}.`] : []),
    ],
  });
  if (lanes.length) showLane(scene(), lanes[0]);
  return lanes;
}

function showBanks(cell, access, bank, banks) {
  const number = Number(cell.dataset.request);
  const lanes = lanesAt(access, number, bank, Number(cell.dataset.size) / BANK_BYTES);
  const words = Number(cell.textContent || 0);
  const who = requestsOf(access).length > 1 ? `matrix ${number}` : "the warp";
  showFacts({
    title: `Banks ${banks}`,
    where: `requested by ${who}`,
    facts: [["Words", words], ["Lanes", lanes.length ? ranges(lanes) : "none"]],
    notes: [
      cell.matches(".clash")
        ? `${counted(words, "word")} of one bank: ${words} passes, more than the request needs.`
        : "No conflict here.",
    ],
  });
  return lanes;
}

function commands(instruction, operand, plans, state) {
  const { plan } = chosen(plans, state);
  const tiles = tilesText(operand.layout.dims, TILES[state.tiles]);
  const options = [
    `--order ${state.order}`,
    ...(state.pitch ? [`--pitch ${state.pitch}`] : []),
    ...(state.swizzle ? [`--swizzle ${state.swizzle}`] : []),
    ...(plan ? [`--plan ${plan + 1}`] : []),
  ].join(" ");
  const start = `warpfrag ${state.verb}s ${instruction.name} ${state.operand}${tiles} ${options}`;
  const tight = pitchOf({ ...memoryOf(state), pitch: null }, operand.layout.shape, operand.container);
  const overlap =
    state.pitch && Number(state.pitch) < tight
      ? `<p class="warning">The pitch is less than the ${tight} bytes of a ${state.order}: ${state.order}s overlap.</p>`
      : "";
  return (
    `${overlap}<h3>Code</h3>${["cuda", "ptx"].map((lang) => commandLine(`${start} --emit ${lang}`)).join("")}` +
    `<h3>A pitch or swizzle without conflicts</h3>` +
    commandLine(`warpfrag ${state.verb}s ${instruction.name} ${state.operand}${tiles} --order ${state.order} --search`)
  );
}

/** Return the address of every lane in every access of the current plan, as CSV. */
export function addressesText(shownScene, state) {
  const plans = currentPlans(shownScene, state);
  if (!plans.length) return "instruction,words,lane,address\n";
  const lines = plans[chosen(plans, state).plan].accesses.flatMap((access) =>
    access.addresses.map((address, lane) => [access.instruction, access.words.join(" "), lane, address ?? ""].join(",")),
  );
  return `${["instruction,words,lane,address", ...lines].join("\n")}\n`;
}
