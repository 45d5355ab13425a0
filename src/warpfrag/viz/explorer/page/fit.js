// Room: cells as wide and as high as the page allows, cut only between cells, and a sign where a grid goes on out of sight.

import { byId } from "./html.js";

const GAP = 14; // between A and D
const PAIR = 700; // where there are several products, two stand side by side in at least so much space,
const BETWEEN = 24; // with this between them
const GROWN = 1.3; // cells that stand side by side may be so much wider than they like, where there is room
const FILLED = 1.7; // and those of A, where what stands above it is wider
const TIGHT = 8; // in cells with less than this for a letter, the lane is smaller,
const TINY = 7; // and with less than this the element too
const MARGINS = 3; // below a caption or heads
const FLAT = [18, 17, 16, 15, 14, 13, 12, 11]; // in cells of these heights the words stand in one line,
const ROOMY = 16; // from this height on in larger letters,
const FLAT_LETTER = 5.45; // for which each letter needs so much
const FLAT_BOX = 14; // the lowest box with its words in one line above its elements,
const FLAT_BOX_WIDTH = 60; // and how wide it is at least
const BOTTOM = 8; // between a figure and the end of the window

/** Buttons that say what is out of sight, and lead there. */
export const MORE =
  `<span class="more" hidden><button type="button" data-more="-1">‹</button>` +
  `<button type="button" data-more="1">›</button></span>`;

function sizesOf(grid) {
  const { width, least, height, low = height, bare = least, count, head, heads, letters = 0 } = grid.dataset;
  const numbers = { width, least, height, low, bare, count, head, heads, letters };
  return Object.fromEntries(Object.entries(numbers).map(([name, text]) => [name, Number(text)]));
}

/** The width of the cells of grids that stand side by side: what they like, or less, down to the least they need. */
function cellWidths(sizes, space) {
  const sum = (of) => sizes.reduce((all, size) => all + of(size), 0);
  const left = space - sum((size) => size.head + size.heads) - GAP * (sizes.length - 1);
  const least = sum((size) => size.least * size.count);
  const liked = sum((size) => size.width * size.count);
  const share = Math.min(1, Math.max(0, (left - least) / (liked - least || 1)));
  const growth = sizes.length > 1 ? Math.min(GROWN, Math.max(1, left / liked)) : 1;
  const cells = sizes.map((size) => Math.floor((size.least + share * (size.width - size.least)) * growth));
  return { fits: least <= left, cells };
}

function resize(grid, { head, height, letters }, cell) {
  const { style } = grid.parentElement; // it scrolls, and has to know the heads that stay
  style.setProperty("--w", `${cell}px`);
  style.setProperty("--h", `${height}px`);
  style.setProperty("--head", `${head}px`);
  const most = Math.max(letters, 3); // T31
  grid.classList.toggle("tight", cell < TIGHT * most);
  grid.classList.toggle("tiny", cell < TINY * most);
}

function fitAlone(grid, space) {
  const sizes = sizesOf(grid);
  const { fits, cells } = cellWidths([sizes], space);
  const bare = Math.floor((space - sizes.head - sizes.heads) / sizes.count);
  const isBare = !fits && bare >= sizes.bare;
  resize(grid, sizes, isBare ? bare : cells[0]);
  grid.classList.toggle("bare", isBare);
}

/** The height of the window below the start of an element, before anything is scrolled; endless on a narrow page. */
function heightBelow(element) {
  const main = element.closest("main");
  if (!/auto|scroll/.test(getComputedStyle(main).overflowY)) return Infinity;
  const top = element.getBoundingClientRect().top + main.scrollTop;
  return main.getBoundingClientRect().bottom - top - BOTTOM;
}

/** Lower the rows of grids that stand on each other until the window holds them, as far as their words allow. */
function lower(stacks) {
  const columns = stacks.map(({ grids, space }) => {
    const sized = grids.map((grid) => ({ grid, ...sizesOf(grid), rows: rowCount(grid) }));
    return { sized, space };
  });
  const fits = (height) =>
    columns.every(({ sized, space }) => sized.reduce((all, size) => all + size.rows * height(size), 0) <= space);
  const lowered = (share) => (size) => Math.floor(size.low + share * (size.height - size.low));
  const flattened = (line) => (size) => (canBeFlat(size.grid) ? line : size.low);
  const share = [1, 0.8, 0.6, 0.4, 0.2, 0].find((one) => fits(lowered(one)));
  const line = FLAT.find((one) => fits(flattened(one)));
  const isFlat = share === undefined && line !== undefined;
  const height = isFlat ? flattened(line) : lowered(share ?? 0);
  for (const size of columns.flatMap(({ sized }) => sized)) {
    const flat = isFlat && canBeFlat(size.grid);
    size.grid.parentElement.style.setProperty("--h", `${height(size)}px`);
    size.grid.classList.toggle("flat", flat);
    size.grid.classList.toggle("roomy", flat && height(size) >= ROOMY);
    size.grid.classList.toggle("low", !flat && height(size) < Math.min(size.height, size.low + 3));
  }
}

/** What stands in a column beside its rows: captions, heads, gaps, and what else is in it. */
function fixedHeight(parts) {
  return parts.reduce((all, part) => all + part.offsetHeight + MARGINS, GAP);
}

/** Whether lane and element of a cell fit into one line. */
function canBeFlat(grid) {
  const { letters } = sizesOf(grid);
  const cell = parseFloat(grid.parentElement.style.getPropertyValue("--w"));
  return letters > 0 && cell >= (letters + 3) * FLAT_LETTER + 3;
}

/** A and D side by side with B above D, where that fits; else A, D and B below each other. */
function fitProduct(product, space) {
  const [a, d, b] = ["a", "d", "b"].map((at) => product.querySelector(`.at-${at} .grid`));
  const [forA, forD, forB] = [a, d, b].map(sizesOf);
  const larger = (of) => Math.max(forD[of], forB[of]); // D and B have the same columns: they stand in line
  const column = { ...forD, head: larger("head"), width: larger("width"), least: larger("least") };
  const beside = cellWidths([forA, column], space);
  product.classList.toggle("stacked", !beside.fits);
  if (!beside.fits) {
    for (const grid of [a, d, b]) fitAlone(grid, space);
    return;
  }
  resize(d, column, beside.cells[1]);
  resize(b, { ...column, height: forB.height }, beside.cells[1]);
  // Where there is room to spare, what stands above A may be wider than A.
  const right = column.head + column.count * beside.cells[1];
  const first = Math.min(widestAbove(product), space - GAP - right);
  const filled = Math.min((first - forA.head) / forA.count, FILLED * forA.width);
  resize(a, forA, Math.floor(Math.max(beside.cells[0], filled)));
  product.style.setProperty("--first", `${first}px`);
  const below = product.closest(".products") ? Infinity : heightBelow(product); // four do not fit in any case
  const fixed = (places) => fixedHeight([...product.querySelectorAll(places)]);
  const extras = [...product.querySelectorAll(".extras .grid")];
  for (const grid of extras) fitAlone(grid, grid.closest(".below") ? space : first);
  const left = fixed(":is(.at-a, .extras:not(.below)) :is(.caption, .heads)") + (product.querySelector(":scope > .legend")?.offsetHeight ?? 0);
  lower([
    { grids: [b, d], space: below - fixed(":is(.at-b, .at-d) :is(.caption, .heads)") },
    { grids: [...product.querySelectorAll(".extras:not(.below) .grid"), a], space: below - left },
  ]);
}

function rowCount(grid) {
  return grid.querySelectorAll(".line:not(.heads)").length;
}

/** The height of the rows of some grids when they are as low as their words allow. */
function lowest(grids) {
  return grids.reduce((all, grid) => all + rowCount(grid) * sizesOf(grid).low, 0);
}

/** Lower boxes that would not fit: their words in one line, the marks of their elements below. */
function flattenBoxes(grid, space) {
  const { height } = sizesOf(grid);
  const { style } = grid.parentElement;
  const lines = rowCount(grid);
  const isFlat = lines * height > space && parseFloat(style.getPropertyValue("--w")) >= FLAT_BOX_WIDTH;
  grid.classList.toggle("flat", isFlat);
  if (isFlat) style.setProperty("--h", `${Math.min(height, Math.max(FLAT_BOX, Math.floor(space / lines)))}px`);
}

/** Source and target side by side where that fits; else below each other. */
function fitPair(pair, space) {
  const grids = [...pair.querySelectorAll(".grid")];
  const sizes = grids.map(sizesOf);
  const beside = cellWidths(sizes, space);
  const lines = grids.map((grid) => grid.children.length);
  const height = Math.max(...sizes.map((size) => size.height)); // of both, where a row stands beside its like
  pair.classList.toggle("stacked", !beside.fits);
  for (const [place, grid] of grids.entries()) {
    const size = lines[0] === lines[1] ? { ...sizes[place], height } : sizes[place];
    if (beside.fits) resize(grid, size, beside.cells[place]);
    else fitAlone(grid, space);
  }
  if (beside.fits || space < PAIR) return;
  const widths = grids.map((grid) => grid.offsetWidth); // the narrower one fills the width of the other
  const narrow = widths[0] < widths[1] ? 0 : 1;
  const { head, heads, count } = sizes[narrow];
  resize(grids[narrow], sizes[narrow], Math.floor((Math.max(...widths) - head - heads) / count));
  const plain = grids.filter((_, place) => sizes[place].letters); // the marks in boxes need their height
  const others = grids.filter((grid) => !plain.includes(grid));
  const captions = [...pair.querySelectorAll(".caption, .heads")];
  for (const grid of others) flattenBoxes(grid, heightBelow(pair) - fixedHeight(captions) - lowest(plain));
  const fixed = fixedHeight([...captions, ...others]);
  if (plain.length) lower([{ grids: plain, space: heightBelow(pair) - fixed }]);
}

/** The width that the grids above A like to have. */
function widestAbove(product) {
  const grids = [...product.querySelectorAll(".extras:not(.below) .grid")].map(sizesOf);
  return Math.max(0, ...grids.map(({ head, count, width }) => head + count * width));
}

function headsOf(scroll) {
  return [...scroll.querySelectorAll(".heads > .col-head, .heads > .register-head")];
}

/** Let a grid that is too wide end between two columns. */
function cut(scroll, space) {
  scroll.style.removeProperty("width");
  const start = scroll.getBoundingClientRect().left - scroll.scrollLeft;
  const ends = headsOf(scroll).map((head) => head.getBoundingClientRect().right - start);
  const whole = ends.findLast((end) => end <= space + 0.5);
  const isCut = ends.at(-1) > space + 0.5 && whole;
  if (isCut) scroll.style.width = `${whole}px`;
  scroll.parentElement.classList.toggle("cut", Boolean(isCut)); // it takes all the room there is
  showMore(scroll);
}

function rangeOfHeads(heads) {
  const numbers = heads.flatMap((head) => (head.querySelector("b") ?? head).textContent.match(/\d+/g).map(Number));
  const [first, last] = [numbers[0], Number(heads.at(-1).dataset.last ?? numbers.at(-1))];
  return first === last ? `${first}` : `${first}–${last}`;
}

/** Name the columns that are out of sight, left and right. */
function showMore(scroll) {
  const frame = scroll.getBoundingClientRect();
  const heads = headsOf(scroll);
  const fixed = scroll.querySelector(".heads > .row-head:has(+ .col-head, + .register-head)");
  const left = fixed?.getBoundingClientRect().right ?? frame.left;
  const before = heads.filter((head) => head.getBoundingClientRect().left < left - 1);
  const after = heads.filter((head) => head.getBoundingClientRect().right > frame.right + 1);
  scroll.classList.toggle("more-left", before.length > 0);
  scroll.classList.toggle("more-right", after.length > 0);
  const more = scroll.parentElement.querySelector(".more");
  const [back, on] = more.children;
  const what = scroll.firstElementChild.dataset.counts ?? "columns";
  more.hidden = !before.length && !after.length;
  back.hidden = !before.length;
  on.hidden = !after.length;
  if (before.length) back.textContent = `‹ ${what} ${rangeOfHeads(before)}`;
  if (after.length) on.textContent = `${what} ${rangeOfHeads(after)} ›`;
}

/** Fit what the view shows into it. */
export function fitView() {
  const view = byId("view");
  const space = view.clientWidth;
  const products = view.querySelectorAll(".product");
  const pairs = products.length > 1 && space > PAIR;
  const each = pairs ? Math.floor((space - BETWEEN) / 2) : space;
  view.querySelector(".products")?.classList.toggle("pairs", pairs);
  for (const product of products) fitProduct(product, each);
  for (const pair of view.querySelectorAll(".pair")) fitPair(pair, space);
  for (const grid of view.querySelectorAll(".grid[data-least]")) {
    if (grid.closest(".at-a, .at-b, .at-d, .pair, .product:not(.stacked) > .extras")) continue;
    fitAlone(grid, grid.closest(".operand").parentElement.clientWidth);
  }
  for (const part of view.querySelectorAll(".with-note")) {
    const grids = [...part.querySelectorAll(".grid")];
    const captions = [...part.querySelectorAll(".caption, .heads")];
    if (space > PAIR) lower([{ grids, space: heightBelow(part) - fixedHeight(captions) }]);
  }
  for (const scroll of view.querySelectorAll(".scroll")) cut(scroll, scroll.parentElement.clientWidth);
}

/** Keep what is shown fitted when the window changes, and follow those who scroll or ask for more. */
export function startFit() {
  const view = byId("view");
  let known = view.clientWidth;
  new ResizeObserver(() => {
    if (view.clientWidth === known) return;
    known = view.clientWidth;
    fitView();
  }).observe(view);
  addEventListener("resize", fitView); // also when only the height changes
  view.addEventListener("scroll", ({ target }) => target.matches(".scroll") && showMore(target), { capture: true });
  view.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-more]");
    if (!button) return;
    const scroll = button.closest(".operand").querySelector(".scroll");
    const shown = scroll.clientWidth - scroll.querySelector(".row-head").offsetWidth;
    scroll.scrollBy({ left: Number(button.dataset.more) * shown });
  });
}
