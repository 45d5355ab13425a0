// The text about an instruction: its name, targets, registers, formulas and evidence.

import { breakable, byId, escapeText, listed } from "./html.js";
import { TARGETS, isWarpgroup } from "./model.js";

/** Show the text around the figure. */
export function showAbout(instruction, state) {
  document.title = `${instruction.op} ${instruction.shapeText} - warpfrag explorer`;
  byId("name").innerHTML = breakable(instruction.name);
  byId("badges").innerHTML = badges(instruction)
    .map((text) => `<li>${escapeText(text)}</li>`)
    .join("");
  byId("legality").innerHTML = legality(instruction, state);
  byId("operand-rows").innerHTML = Object.values(instruction.operands).map(operandRow).join("") + stagedRow(instruction);
  byId("formulas").innerHTML = Object.values(instruction.operands).map(formulas).join("") + addressFormula(instruction);
  byId("h-operands").parentElement.hidden = byId("h-formulas").parentElement.hidden = Boolean(instruction.tensor);
  byId("last-lane").textContent = instruction.lanes - 1;
  byId("called").innerHTML = called(instruction);
  byId("known").innerHTML = known(instruction);
}

function badges(instruction) {
  const { pattern, ordered, selectors, kind, fragments_of: arch, operands } = instruction;
  return [
    ...(pattern ? [`sparse ${pattern.name}`] : []),
    ...(ordered ? ["ordered metadata"] : []),
    ...(selectors.length ? [selectors.length > 1 ? `selectors ${listed(selectors)}` : "selector 0"] : []),
    ...(instruction.access ? ["four warps, each with 32 lanes of tensor memory"] : []),
    ...(instruction.tensor ? tensorBadges(instruction.tensor) : []),
    ...(isWarpgroup(instruction) ? ["a warpgroup: four warps", "B in shared memory"] : []),
    ...(kind ? [`kind ${kind}`] : []),
    ...(operands.a?.parts > 1 && operands.b ? ["four products"] : []),
    ...(arch ? [`fragments as measured on ${arch}`] : []),
  ];
}

function tensorBadges({ family, shape }) {
  const who = family.blocks > 1 ? "a pair of blocks" : "one block";
  return [who, `D in tensor memory, data path ${shape.path}`, "B in shared memory", ...(family.sparse ? ["sparse"] : [])];
}

function legality(instruction, state) {
  const legal = new Set(instruction.targets);
  const chips = TARGETS.map((target) => {
    const yes = legal.has(target);
    return (
      `<li class="${yes ? "yes" : "no"}">` +
      `<span aria-hidden="true">${yes ? "✓" : "–"}</span> ${target}<span class="hidden">` +
      ` ${yes ? "legal" : "not legal"}</span></li>`
    );
  });
  const asked =
    state.target && !legal.has(state.target)
      ? `<p class="warning">Not legal on ${escapeText(state.target)}, the target chosen in the finder.</p>`
      : "";
  return `${asked}<ul class="targets">${chips.join("")}</ul>`;
}

function operandRow(operand) {
  const shape = operand.layout.shape.slice(operand.parts > 1 ? 0 : operand.plane).join(" × ");
  const cells = [
    operand.format,
    shape,
    `${operand.regs} × ${operand.ptx_type}`,
    operand.slots,
  ];
  const name = operand.meaning ? `${operand.letter} <span>${operand.meaning}</span>` : operand.letter;
  return `<tr><th scope="row">${name}</th>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`;
}

/** Describe B of wgmma, which is not in registers. */
function stagedRow({ staged, extents }) {
  if (!staged) return "";
  return `<tr><th scope="row">B</th><td>${staged.format}</td><td>${staged.rows} × ${extents.n}</td><td>shared memory</td><td></td></tr>`;
}

/** Return formulas as lines of text. */
function formulaLines(formulas) {
  return Object.entries(formulas).map(([name, formula]) => `${name} = ${formula}`);
}

/** Return the index formulas of operands as text that can be copied. */
export function formulaText(operands) {
  return operands
    .map(({ letter, layout }) =>
      [
        `// ${letter}: element i of a lane`,
        ...formulaLines(layout.element_formulas),
        `// ${letter}: where an element is`,
        ...formulaLines(layout.place_formulas),
        "",
      ].join("\n"),
    )
    .join("\n");
}

function formulaBlock(formulas) {
  return `<pre><code>${escapeText(formulaLines(formulas).join("\n"))}</code></pre>`;
}

function formulas({ unknown, letter, role, layout }) {
  if (unknown) return `<p>${escapeText(unknown)}.</p>`;
  return (
    `<div><h4>${letter} <button type="button" data-copy="formula" data-role="${role}">Copy</button></h4>` +
    `${formulaBlock(layout.element_formulas)}${formulaBlock(layout.place_formulas)}</div>`
  );
}

function addressFormula({ addresses }) {
  if (!addresses) return "";
  return `<div><h4>Addresses: the line that each lane points to</h4>${formulaBlock(addresses.element_formulas)}</div>`;
}

/** Return the names in other tools, with buttons that copy them. */
function called({ names }) {
  if (!names.length) return "<p>No other name is known.</p>";
  const lines = names.map(({ kind, name, targets = [] }) => {
    const where = targets.length ? ` <span>${escapeText(targets.join(" "))}</span>` : "";
    return (
      `<div class="command"><b>${kind}</b><pre><code>${escapeText(name)}</code>${where}</pre>` +
      `<button type="button" data-copy="command" aria-label="Copy the name in ${kind}">Copy</button></div>`
    );
  });
  return lines.join("");
}

function known({ evidence, sources }) {
  const rows = evidence.map(
    ({ arch, level, detail, machine }) =>
      `<tr><th scope="row">${arch}</th><td><span class="level">${level}</span></td><td>${escapeText(machine)}</td>` +
      `<td>${escapeText(detail)}</td></tr>`,
  );
  const arithmetic = rows.length
    ? `<h4>Arithmetic</h4><div class="wide"><table><thead><tr><th>arch</th><th>known by</th><th>runs as</th>` +
      `<th>detail</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`
    : "";
  return (
    `<h4>Fragments and legality</h4>` +
    `<ul>${sources.map((source) => `<li>${escapeText(source)}</li>`).join("")}</ul>${arithmetic}`
  );
}
