// Fit grids into the page: size the cells, cut only between cells, and mark grids that continue out of sight.

import { byId } from "./html.js";

const GAP = 14; // pixels between A and D
const PAIR = 700; // minimum space in pixels for two products or fragments side by side
const BETWEEN = 24; // pixels between two products
const GROWN = 1.3; // factor by which cells side by side may exceed their preferred width, if there is space
const FILLED = 1.7; // the same for cells of A, if the part above A is wider
const TIGHT = 8; // pixels per letter below which the lane's text is smaller
const TINY = 7; // pixels per letter below which the element's text is smaller too
const MARGINS = 3; // pixels below a caption or headings
const FLAT = [18, 17, 16, 15, 14, 13, 12, 11]; // heights of cells with text on one line
const ROOMY = 16; // height from which the letters are larger
const FLAT_LETTER = 5.45; // width of such a letter
const FLAT_BOX = 14; // smallest height of a box with one line of text above its elements
const FLAT_BOX_WIDTH = 60; // smallest width of such a box
const BOTTOM = 8; // pixels between a figure and the end of the window

/** Return buttons that name the columns out of sight and scroll to them. */
export const MORE =
  `<span class="more" hidden><button type="button" data-more="-1">‹</button>` +
  `<button type="button" data-more="1">›</button></span>`;

function sizesOf(grid) {
  const { width, least, height, low = height, bare = least, count, head, heads, letters = 0 } = grid.dataset;
  const numbers = { width, least, height, low, bare, count, head, heads, letters };
  return Object.fromEntries(Object.entries(numbers).map(([name, text]) => [name, Number(text)]));
}

/** Return the cell width of grids side by side: the preferred one, or less, down to the minimum. */
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
  const { style } = grid.parentElement; // the scrolling element needs the size of the fixed headings
  style.setProperty("--w", `${cell}px`);
  style.setProperty("--h", `${height}px`);
  style.setProperty("--head", `${head}px`);
  const most = Math.max(letters, 3); // at least as wide as T31
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

/** Return the height of the window below the top of an element when nothing is scrolled; infinite on a narrow page. */
function heightBelow(element) {
  const main = element.closest("main");
  if (!/auto|scroll/.test(getComputedStyle(main).overflowY)) return Infinity;
  const top = element.getBoundingClientRect().top + main.scrollTop;
  return main.getBoundingClientRect().bottom - top - BOTTOM;
}

/** Reduce the row height of stacked grids until they fit into the window, as far as their text allows. */
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

/** Return the height of a column without its rows: captions, headings and gaps. */
function fixedHeight(parts) {
  return parts.reduce((all, part) => all + part.offsetHeight + MARGINS, GAP);
}

/** Return true if the lane and the element of a cell fit into one line. */
function canBeFlat(grid) {
  const { letters } = sizesOf(grid);
  const cell = parseFloat(grid.parentElement.style.getPropertyValue("--w"));
  return letters > 0 && cell >= (letters + 3) * FLAT_LETTER + 3;
}

/** Arrange A and D side by side with B above D if they fit, otherwise A, D and B below each other. */
function fitProduct(product, space) {
  const [a, d, b] = ["a", "d", "b"].map((at) => product.querySelector(`.at-${at} .grid`));
  const [forA, forD, forB] = [a, d, b].map(sizesOf);
  const larger = (of) => Math.max(forD[of], forB[of]); // the columns of D and B are aligned
  const column = { ...forD, head: larger("head"), width: larger("width"), least: larger("least") };
  const beside = cellWidths([forA, column], space);
  product.classList.toggle("stacked", !beside.fits);
  if (!beside.fits) {
    for (const grid of [a, d, b]) fitAlone(grid, space);
    return;
  }
  resize(d, column, beside.cells[1]);
  resize(b, { ...column, height: forB.height }, beside.cells[1]);
  // If there is space, the part above A may be wider than A.
  const right = column.head + column.count * beside.cells[1];
  const first = Math.min(widestAbove(product), space - GAP - right);
  const filled = Math.min((first - forA.head) / forA.count, FILLED * forA.width);
  resize(a, forA, Math.floor(Math.max(beside.cells[0], filled)));
  product.style.setProperty("--first", `${first}px`);
  const below = product.closest(".products") ? Infinity : heightBelow(product); // four products never fit
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

/** Return the smallest row height that the text of some grids allows. */
function lowest(grids) {
  return grids.reduce((all, grid) => all + rowCount(grid) * sizesOf(grid).low, 0);
}

/** Flatten boxes that do not fit: the text is on one line, and the marks of the elements are below it. */
function flattenBoxes(grid, space) {
  const { height } = sizesOf(grid);
  const { style } = grid.parentElement;
  const lines = rowCount(grid);
  const isFlat = lines * height > space && parseFloat(style.getPropertyValue("--w")) >= FLAT_BOX_WIDTH;
  grid.classList.toggle("flat", isFlat);
  if (isFlat) style.setProperty("--h", `${Math.min(height, Math.max(FLAT_BOX, Math.floor(space / lines)))}px`);
}

/** Arrange source and target side by side if they fit, otherwise below each other. */
function fitPair(pair, space) {
  const grids = [...pair.querySelectorAll(".grid")];
  const sizes = grids.map(sizesOf);
  const beside = cellWidths(sizes, space);
  const lines = grids.map((grid) => grid.children.length);
  const height = Math.max(...sizes.map((size) => size.height)); // equal heights align the rows of both
  pair.classList.toggle("stacked", !beside.fits);
  for (const [place, grid] of grids.entries()) {
    const size = lines[0] === lines[1] ? { ...sizes[place], height } : sizes[place];
    if (beside.fits) resize(grid, size, beside.cells[place]);
    else fitAlone(grid, space);
  }
  if (beside.fits || space < PAIR) return;
  const widths = grids.map((grid) => grid.offsetWidth); // the narrower grid gets the width of the other
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

/** Return the preferred width of the grids above A. */
function widestAbove(product) {
  const grids = [...product.querySelectorAll(".extras:not(.below) .grid")].map(sizesOf);
  return Math.max(0, ...grids.map(({ head, count, width }) => head + count * width));
}

function headsOf(scroll) {
  return [...scroll.querySelectorAll(".heads > .col-head, .heads > .register-head")];
}

/** End a grid that is too wide between two columns. */
function cut(scroll, space) {
  scroll.style.removeProperty("width");
  const start = scroll.getBoundingClientRect().left - scroll.scrollLeft;
  const ends = headsOf(scroll).map((head) => head.getBoundingClientRect().right - start);
  const whole = ends.findLast((end) => end <= space + 0.5);
  const isCut = ends.at(-1) > space + 0.5 && whole;
  if (isCut) scroll.style.width = `${whole}px`;
  scroll.parentElement.classList.toggle("cut", Boolean(isCut)); // a cut grid takes all available space
  showMore(scroll);
}

function rangeOfHeads(heads) {
  const numbers = heads.flatMap((head) => (head.querySelector("b") ?? head).textContent.match(/\d+/g).map(Number));
  const [first, last] = [numbers[0], Number(heads.at(-1).dataset.last ?? numbers.at(-1))];
  return first === last ? `${first}` : `${first}–${last}`;
}

/** Show the names of the columns out of sight on the left and right. */
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

/** Fit the figure into the view. */
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

/** Fit the view again when the window changes, and handle scrolling and its buttons. */
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
