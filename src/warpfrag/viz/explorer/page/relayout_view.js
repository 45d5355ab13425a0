// The relayout view: two fragments of the same matrix side by side, and the plan between them.

import { byId, choices, escapeText } from "./html.js";
import { figureBar } from "./figure.js";
import { operandGrid } from "./grid.js";
import { operandChoices } from "./warp.js";
import { KINDS, changesLane, fragmentName, relayoutOf, targetsFrom } from "./relayouts.js";
import { currentInstruction, scene } from "./state.js";
import { isMatrix } from "./scene.js";

/** Draw the current relayout, from the instruction's operand to the selected fragment. */
export function drawRelayout(instruction, state) {
  const operand = instruction.operands[state.operand];
  const { relayout } = scene();
  const from = operandChoices(instruction, state, isMatrix);
  byId("view").innerHTML = relayout
    ? `<div class="view-bar">${from ? `<span>from ${from}</span>` : ""}${targetChoice(instruction, relayout, state)}</div>` +
      pairFigure(relayout, state)
    : `<p class="empty">${escapeText(operand.unknown ?? nothing(operand, instruction))}.</p>`;
}

function nothing({ letter, role }, { moved }) {
  if (moved && role === "d") return `Relayouts of D are shown for n = ${moved[0]}; other widths are moved in the same way`;
  return `There is no relayout from ${letter} of this instruction to another fragment`;
}

/** Return the name of a fragment in the list: its operands, format and instruction. */
function fragmentLabel(owner, key) {
  const letters = Object.values(owner.operands).filter((operand) => operand.key === key);
  const names = letters.map(({ letter }) => letter).join("/");
  return `${names} ${letters[0].format} · ${owner.op} ${owner.shapeText} ${owner.rest}`;
}

function targetChoice(instruction, relayout, state) {
  const [, [owner, role]] = relayout.ends;
  const chosen = owner.operands[role].key;
  const options = targetsFrom(instruction, state.operand).map((target) => {
    const { key } = target.owner.operands[target.target];
    const isChosen = key === chosen;
    const [name, whose] = isChosen ? [state.to, owner] : [target.name, target.owner];
    const text = escapeText(fragmentLabel(whose, key));
    const html = `<option value="${escapeText(name)}"${isChosen ? " selected" : ""}>${text}</option>`;
    return { kind: target.kind, html };
  });
  const groups = Object.entries(KINDS).map(([kind, title]) => {
    const some = options.filter((option) => option.kind === kind).map(({ html }) => html);
    return some.length ? `<optgroup label="${title}">${some.join("")}</optgroup>` : "";
  });
  const orders = [["", "natural order"], ...relayout.axes.map((axis) => [axis, axis === "col" ? "columns" : "rows"])];
  const order =
    orders.length > 1 ? `<span>permute ${choices("permute", "permute", orders, relayout.permute)}</span>` : "";
  return (
    `<label class="to">to <select data-set="to">${groups.join("")}</select></label>` +
    `<button type="button" data-swap>⇄ swap</button>${order}`
  );
}

function pairGrids(relayout, state) {
  const { source, target } = relayout;
  const parts = Array.from({ length: source.parts }, (_, part) => part);
  const mark = (part, row, col) => (changesLane(relayout, { role: "target", part, row, col }) ? " moved" : "");
  const one = (operand, part, more) =>
    operandGrid(operand, part, state, { caption: caption(operand, part, relayout), ...more });
  return parts
    .map((part) => `<div class="pair"><div>${one(source, part)}</div><div>${one(target, part, { mark })}</div></div>`)
    .join("");
}

function caption(operand, part, { ends, source }) {
  const [owner] = ends[operand.role === "source" ? 0 : 1];
  const which = operand.parts > 1 ? `<sub>${part}</sub>` : "";
  const tiles = operand.counts.some((count) => count > 1) ? `, ${operand.counts.join(" × ")} tiles` : "";
  const whose = operand === source ? "" : ` · ${escapeText(`${owner.op} ${owner.shapeText}`)}`;
  return (
    `<h3>${operand.letter}${which}</h3> <span>${operand.rows} × ${operand.cols} · ${operand.format} · ` +
    `${operand.regs} × ${operand.ptx_type}${tiles}${whose}</span>`
  );
}

function countMoved(relayout) {
  const { parts, rows, cols } = relayout.target;
  let moved = 0;
  for (let part = 0; part < parts; part++) {
    for (let row = 0; row < rows; row++) {
      for (let col = 0; col < cols; col++) moved += changesLane(relayout, { role: "target", part, row, col });
    }
  }
  return [moved, parts * rows * cols];
}

function pairFigure(relayout, state) {
  const { plan, orderText, source, target } = relayout;
  const [moved, all] = countMoved(relayout);
  const lanes = moved ? `${moved} of ${all} elements come from a different lane` : "Every element is already in its lane";
  const sign = moved ? `; in ${target.letter}, a corner of their cell is marked` : "";
  const warps = source.layout.start ? " Every warp does this with its own rows; warp 0 is shown." : "";
  const steps = plan.steps.map(([cost, text]) => `<li><b>${escapeText(cost)}</b> ${escapeText(text)}</li>`);
  const listed = steps.length ? `<h3>Steps</h3><ol class="steps">${steps.join("")}</ol>` : "";
  return (
    `<p class="verdict ${plan.kind}">${escapeText(plan.verdict)}</p>` +
    `<div class="ends">${figureBar("", [
      ["source.0", source.letter],
      ["target.0", target.letter],
    ])}</div>` +
    `<div class="legend"><p>A cell names the lane (T) and the PTX element. ${lanes}${sign}.${warps} ` +
    `${escapeText(orderText)}</p></div>` +
    `<div class="pairs-of">${pairGrids(relayout, state)}</div>` +
    `${listed}<h3>Code</h3>${["cuda", "ptx"].map((lang) => command(relayout, lang)).join("")}`
  );
}

/** Return the command that prints the code. */
function command({ ends, source, target, permute }, lang) {
  const [from, to] = [source, target].map((operand, side) => fragmentArgument(ends[side], operand));
  const text = `warpfrag relayout ${from} ${to}${permute ? ` --permute ${permute}` : ""} --emit ${lang}`;
  return commandLine(text);
}

/** Return a command with a copy button. */
export function commandLine(text) {
  return (
    `<div class="command"><pre><code>${escapeText(text)}</code></pre>` +
    `<button type="button" data-copy="command" aria-label="Copy the command">Copy</button></div>`
  );
}

/** Return an operand with its tiles in the command's notation: INSTRUCTION:OPERAND:col=2. */
function fragmentArgument([instruction, role], { layout, counts }) {
  return fragmentName(instruction, role) + tilesText(layout.dims, counts);
}

/** Return tiles in the command's notation. */
export function tilesText(dims, counts) {
  const said = counts.flatMap((count, dim) => (count > 1 ? [`${dims[dim]}=${count}`] : []));
  return said.length ? `:${said.join(",")}` : "";
}

/** Return the state of the opposite relayout. */
export function swapped(state) {
  const { ends } = relayoutOf(currentInstruction(), state.operand, state.to);
  const [[source, role], [target, other]] = ends;
  return { i: target.name, operand: other, to: fragmentName(source, role) };
}
