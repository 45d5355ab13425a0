// The linear map (lane, reg, slot) -> coordinates: the xor of the moves of the set bits, as in warpfrag/layout.

const INPUTS = ["lane", "reg", "slot"];
const TABLES = new WeakMap();

/** Return the coordinates of the element at a place, in the order of layout.dims. */
export function elementAt(layout, lane, reg, slot) {
  const coordinates = startOf(layout);
  const indices = [lane, reg, slot];
  for (let input = 0; input < INPUTS.length; input++) {
    const bases = layout[INPUTS[input]];
    for (let bit = 0; bit < bases.length; bit++) {
      if (!((indices[input] >> bit) & 1)) continue;
      for (let dim = 0; dim < coordinates.length; dim++) coordinates[dim] ^= bases[bit][dim];
    }
  }
  return coordinates;
}

/** Return the element of lane 0, register 0, slot 0; for warps after the first it is not element 0. */
function startOf(layout) {
  return layout.start ? [...layout.start] : layout.dims.map(() => 0);
}

/** Return the index of an element in row-major order. */
function elementNumber(layout, coordinates) {
  return coordinates.reduce((number, coordinate, dim) => number * layout.shape[dim] + coordinate, 0);
}

/** Return the places that hold each element; computed once per layout. */
function tableOf(layout) {
  if (!TABLES.has(layout)) {
    const table = new Map();
    const [lanes, regs, slots] = INPUTS.map((input) => extentOf(layout, input));
    for (let lane = 0; lane < lanes; lane++) {
      for (let reg = 0; reg < regs; reg++) {
        for (let slot = 0; slot < slots; slot++) {
          const number = elementNumber(layout, elementAt(layout, lane, reg, slot));
          if (!table.has(number)) table.set(number, []);
          table.get(number).push([lane, reg, slot]);
        }
      }
    }
    TABLES.set(layout, table);
  }
  return TABLES.get(layout);
}

/** Return every place that holds an element, sorted; the hardware reads the first. */
export function placesOf(layout, coordinates) {
  return tableOf(layout).get(elementNumber(layout, coordinates));
}

/** Return the number of places that hold each element. */
export function copiesOf(layout) {
  return placesOf(layout, startOf(layout)).length;
}

/** Return the extent of lane, reg or slot. */
export function extentOf(layout, input) {
  return layout.extents?.[input] ?? 1 << layout[input].length;
}

/** Return the number of adjacent elements in a register, and the coordinate along which they are adjacent. */
export function slotRun(layout) {
  const dim = (layout.slot[0] ?? []).findIndex((step) => step);
  if (dim < 0) return { dim: 0, length: 1 };
  const isNext = (steps, bit) => steps.every((step, place) => step === (place === dim ? 1 << bit : 0));
  const bits = layout.slot.findIndex((steps, bit) => !isNext(steps, bit));
  return { dim, length: 1 << (bits < 0 ? layout.slot.length : bits) };
}

/** Return the layout of one warp of a warpgroup. */
export function ofWarp(layout, warp) {
  const start = layout.warp.reduce(
    (found, steps, bit) => (((warp >> bit) & 1) ? found.map((one, dim) => one ^ steps[dim]) : found),
    layout.dims.map(() => 0),
  );
  return { ...layout, start };
}

/** Return the accumulator layout of a narrower instruction, with this number of columns. */
export function narrowed(layout, width) {
  const shape = layout.shape.with(-1, width);
  const share = width / layout.shape.at(-1);
  return { ...layout, shape, extents: { reg: (1 << layout.reg.length) * share } };
}

/** Return the layout of tiles side by side; new high bits of reg count the tiles along each coordinate. */
export function tiled(layout, counts) {
  const more = counts.flatMap((count, dim) =>
    Array.from({ length: Math.log2(count) }, (_, bit) =>
      layout.shape.map((extent, other) => (other === dim ? extent << bit : 0)),
    ),
  );
  const shape = layout.shape.map((extent, dim) => extent * counts[dim]);
  return more.length ? { ...layout, shape, reg: [...layout.reg, ...more] } : layout;
}
