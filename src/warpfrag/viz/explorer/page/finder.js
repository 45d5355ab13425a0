// The finder: the search box, the choices, and the list of matches.

import { breakable, byId, escapeText, listStep, moveTabStop, roving } from "./html.js";
import { allValues, search } from "./search.js";
import { FACETS, currentInstruction } from "./state.js";

const LABELS = { target: "Target", op: "Operation", shape: "Shape", a: "A", b: "B", c: "C", d: "D", kind: "Kind" };
const WIDE = matchMedia("(min-width: 1080px)");

const PIECE = 80;

let matches = [];
let listing = 0;
let asked = "";

/** Build the choices once, and connect the finder; `choose` is called with the user's changes. */
export function startFinder(choose) {
  byId("facets").innerHTML = FACETS.map(
    (facet) =>
      `<label><span>${LABELS[facet]}</span><select data-facet="${facet}">` +
      `<option value="">any</option>` +
      `${allValues(facet)
        .map((value) => `<option>${escapeText(value)}</option>`)
        .join("")}</select></label>`,
  ).join("");
  byId("facets").addEventListener("change", ({ target }) => choose({ [target.dataset.facet]: target.value }));
  const take = (name) => {
    choose({ ...emptyQuestion(), i: name });
    openFinder(WIDE.matches);
  };
  byId("query").addEventListener("input", ({ target }) => {
    openFinder(true); // Enter may have closed it and kept the focus
    choose({ q: target.value });
  });
  byId("query").addEventListener("focus", () => openFinder(true));
  byId("query").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && matches.length) take(matches[0].name);
    if (event.key === "ArrowDown" && matches.length) {
      event.preventDefault();
      openFinder(true);
      byId("results").querySelector("a").focus();
    }
  });
  byId("results").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    take(link.dataset.name);
  });
  byId("results").addEventListener("focusin", ({ target }) => {
    moveTabStop(byId("results").querySelector('a[tabindex="0"]'), target);
  });
  roving(byId("results"), "a", (link, key) =>
    key === "ArrowUp" && !link.parentElement.previousElementSibling
      ? byId("query")
      : listStep([...byId("results").querySelectorAll("a")], link, key),
  );
  byId("clear").addEventListener("click", () => choose(emptyQuestion()));
  const fit = () => openFinder(WIDE.matches);
  WIDE.addEventListener("change", fit);
  fit();
}

/** Open or close the finder; on a narrow screen, it closes when the user opens an instruction. */
function openFinder(open) {
  byId("finder").open = open;
}

/** Return an empty query: no text, and no choices. */
export function emptyQuestion() {
  return { q: "", ...Object.fromEntries(FACETS.map((facet) => [facet, ""])) };
}

/** Show the matches for the state, unless they are already shown. */
export function showFound(state) {
  const question = JSON.stringify(Object.keys(emptyQuestion()).map((name) => state[name]));
  if (question === asked) return;
  asked = question;
  const query = byId("query");
  if (query.value !== state.q) query.value = state.q;
  const result = search(state);
  matches = result.matches;
  for (const select of byId("facets").querySelectorAll("select")) {
    const facet = select.dataset.facet;
    for (const option of select.options) {
      option.hidden = option.disabled =
        option.value !== "" && option.value !== state[facet] && !result.open[facet].has(option.value);
    }
    select.value = state[facet];
  }
  byId("clear").hidden = !(FACETS.some((facet) => state[facet]) || state.q);
  byId("count").textContent = matches.length
    ? `${matches.length} ${matches.length > 1 ? "entries" : "entry"}${matches.length > 1 && matches.some(({ family, tensor }) => family || tensor) ? ", widths grouped" : ""}`
    : "No instruction matches. Use fewer words, or clear the filters.";
  listFound(state);
}

function listItem({ name, op, shapeText, rest }) {
  return (
    `<li><a href="#i=${encodeURIComponent(name)}" data-name="${escapeText(name)}" title="${escapeText(name)}" ` +
    `tabindex="-1">` +
    `<b>${breakable(op)} ${shapeText}</b> <span>${breakable(rest)}</span></a></li>`
  );
}

/**
 * Write the list in pieces, so that typing and drawing do not wait for hundreds of lines. The visible lines, up to the
 * current instruction and a piece beyond it, are written immediately, so that a click or key right after typing acts on
 * the new list.
 */
function listFound(state) {
  const turn = ++listing;
  const results = byId("results");
  const wanted = matches;
  const visible = wanted.indexOf(listedAs(state)) + 1 + PIECE;
  const write = (start) => {
    if (turn !== listing) return; // a newer query has started
    const piece = wanted.slice(start, start + PIECE);
    results.insertAdjacentHTML("beforeend", piece.map(listItem).join(""));
    if (piece.includes(listedAs(state))) markCurrent(state); // it was selected in the meantime
    later(start + PIECE);
  };
  const later = (start) => {
    if (start < wanted.length) requestAnimationFrame(() => setTimeout(write, 0, start));
  };
  results.innerHTML = wanted.slice(0, visible).map(listItem).join("");
  markCurrent(state, { scroll: true });
  later(visible);
}

/** Return the line of the list for the current instruction; all widths of a wgmma share one. */
function listedAs({ i }) {
  const { family, tensor } = currentInstruction();
  const same = (one) => (tensor ? one.tensor?.family === tensor.family : family && one.family === family);
  return matches.find(({ name }) => name === i) ?? matches.find(same);
}

/** Mark the current instruction in the list, and scroll to it if it has changed. */
export function markCurrent(state, { scroll = false } = {}) {
  const results = byId("results");
  const before = results.querySelector("[aria-current]");
  before?.removeAttribute("aria-current");
  const line = listedAs(state);
  const current = line ? results.querySelector(`[data-name="${CSS.escape(line.name)}"]`) : null;
  current?.setAttribute("aria-current", "true");
  const stop = current ?? results.querySelector("a");
  if (stop) moveTabStop(results.querySelector('a[tabindex="0"]'), stop);
  if (!current || (current === before && !scroll)) return;
  const [own, list] = [current, results].map((part) => part.getBoundingClientRect());
  if (scroll || own.top < list.top || own.bottom > list.bottom) {
    results.scrollTop += own.top - list.top - results.clientHeight / 3;
  }
}
