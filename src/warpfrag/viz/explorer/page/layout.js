// The linear map: (lane, reg, slot) -> coordinates, by xor of what the bits that are 1 move. See warpfrag/core/layout.py.

const INPUTS = ["lane", "reg", "slot"];
const TABLES = new WeakMap();

/** The coordinates of the element at a place, in the order of layout.dims. */
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

/** The element of lane 0, register 0, slot 0: not the first one where a layout is that of another warp than the first. */
function startOf(layout) {
  return layout.start ? [...layout.start] : layout.dims.map(() => 0);
}

/** The number of an element, counting through all coordinates. */
function elementNumber(layout, coordinates) {
  return coordinates.reduce((number, coordinate, dim) => number * layout.shape[dim] + coordinate, 0);
}

/** For each element the places that hold it; made once for a layout, by going over all places. */
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

/** Every place that holds an element, sorted; the first is the one the hardware reads. */
export function placesOf(layout, coordinates) {
  return tableOf(layout).get(elementNumber(layout, coordinates));
}

/** How many places hold each element. */
export function copiesOf(layout) {
  return placesOf(layout, startOf(layout)).length;
}

/** How far lane, reg or slot runs. */
export function extentOf(layout, input) {
  return layout.extents?.[input] ?? 1 << layout[input].length;
}

/** How many neighbours along one coordinate the slots of a register hold, and along which coordinate. */
export function slotRun(layout) {
  const dim = (layout.slot[0] ?? []).findIndex((step) => step);
  if (dim < 0) return { dim: 0, length: 1 };
  const isNext = (steps, bit) => steps.every((step, place) => step === (place === dim ? 1 << bit : 0));
  const bits = layout.slot.findIndex((steps, bit) => !isNext(steps, bit));
  return { dim, length: 1 << (bits < 0 ? layout.slot.length : bits) };
}

/** What one warp of a warpgroup holds: the element from which it starts. */
export function ofWarp(layout, warp) {
  const start = layout.warp.reduce(
    (found, steps, bit) => (((warp >> bit) & 1) ? found.map((one, dim) => one ^ steps[dim]) : found),
    layout.dims.map(() => 0),
  );
  return { ...layout, start };
}

/** The accumulator of a narrower instruction: so many columns, and the registers that they fill. */
export function narrowed(layout, width) {
  const shape = layout.shape.with(-1, width);
  const share = width / layout.shape.at(-1);
  return { ...layout, shape, extents: { reg: (1 << layout.reg.length) * share } };
}

/** Tiles side by side, so many along each coordinate: they are counted by new bits of reg, above the old ones. */
export function tiled(layout, counts) {
  const more = counts.flatMap((count, dim) =>
    Array.from({ length: Math.log2(count) }, (_, bit) =>
      layout.shape.map((extent, other) => (other === dim ? extent << bit : 0)),
    ),
  );
  const shape = layout.shape.map((extent, dim) => extent * counts[dim]);
  return more.length ? { ...layout, shape, reg: [...layout.reg, ...more] } : layout;
}
