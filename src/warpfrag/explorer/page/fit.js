// Room: cells as wide as the page allows, cut only between cells, and a sign where a grid goes on out of sight.

import { byId } from "./html.js";

const GAP = 14; // between A and D
const PAIR = 700; // where there are several products, two stand side by side in at least so much space,
const BETWEEN = 24; // with this between them
const GROWN = 1.3; // cells that stand side by side may be so much wider than they like, where there is room
const FILLED = 1.7; // and those of A, where what stands below it is wider
const TIGHT = 8; // in cells with less than this for a letter, the lane is smaller,
const TINY = 7; // and with less than this the element too

/** Buttons that say what is out of sight, and lead there. */
export const MORE =
  `<span class="more" hidden><button type="button" data-more="-1">‹</button>` +
  `<button type="button" data-more="1">›</button></span>`;

function sizesOf(grid) {
  const { width, least, height, count, head, heads, letters = 0 } = grid.dataset;
  return { width: +width, least: +least, height: +height, count: +count, head: +head, heads: +heads, letters: +letters };
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
  resize(grid, sizes, cellWidths([sizes], space).cells[0]);
}

/** A and D side by side with B below D, where that fits; else A, D and B below each other. */
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
  // Where there is room to spare, what stands below A may be wider than A.
  const right = column.head + column.count * beside.cells[1];
  const first = Math.min(widestBelow(product), space - GAP - right);
  const filled = Math.min((first - forA.head) / forA.count, FILLED * forA.width);
  resize(a, forA, Math.floor(Math.max(beside.cells[0], filled)));
  product.style.setProperty("--first", `${first}px`);
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
}

/** The room that the grids below A like to have. */
function widestBelow(product) {
  const grids = [...product.querySelectorAll(".extras .grid")].map(sizesOf);
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
    if (grid.closest(".at-a, .at-b, .at-d, .pair")) continue;
    fitAlone(grid, grid.closest(".operand").parentElement.clientWidth);
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
  view.addEventListener("scroll", ({ target }) => target.matches(".scroll") && showMore(target), { capture: true });
  view.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-more]");
    if (!button) return;
    const scroll = button.closest(".operand").querySelector(".scroll");
    const shown = scroll.clientWidth - scroll.querySelector(".row-head").offsetWidth;
    scroll.scrollBy({ left: Number(button.dataset.more) * shown });
  });
}
