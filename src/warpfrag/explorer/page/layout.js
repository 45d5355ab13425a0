// The linear map: (lane, reg, slot) -> coordinates, by xor of the bases of the bits that are 1. See warpfrag/layout.py.

const INPUTS = ["lane", "reg", "slot"];

/** The coordinates of the element at a place, in the order of layout.dims. */
export function elementAt(layout, lane, reg, slot) {
  const coordinates = new Array(layout.dims.length).fill(0);
  const indices = [lane, reg, slot];
  for (let input = 0; input < INPUTS.length; input++) {
    const bases = layout[INPUTS[input]];
    for (let bit = 0; bit < bases.length; bit++) {
      if ((indices[input] >> bit) & 1) coordinates[bases[bit][0]] ^= bases[bit][1];
    }
  }
  return coordinates;
}

/** Every place that holds an element, sorted; the first is the one the hardware reads. */
export function placesOf(layout, coordinates) {
  let places = [[0, 0, 0]];
  INPUTS.forEach((name, input) => {
    layout[name].forEach(([dim, step], bit) => {
      const ways = step ? [coordinates[dim] & step ? 1 : 0] : [0, 1]; // the bit of a copy is free
      places = places.flatMap((place) => ways.map((way) => place.with(input, place[input] | (way << bit))));
    });
  });
  return places.sort((one, other) => one[0] - other[0] || one[1] - other[1] || one[2] - other[2]);
}

/** How far lane, reg or slot runs. */
export function extentOf(layout, input) {
  return 1 << layout[input].length;
}

/** How many places hold each element: a bit that moves nothing doubles them. */
export function copiesOf(layout) {
  return 1 << INPUTS.flatMap((name) => layout[name]).filter(([, step]) => !step).length;
}

/** How many neighbours along one coordinate the slots of a register hold, and along which coordinate. */
export function slotRun(layout) {
  const dim = layout.slot.length ? layout.slot[0][0] : 0;
  let bits = 0;
  while (bits < layout.slot.length && layout.slot[bits][0] === dim && layout.slot[bits][1] === 1 << bits) bits++;
  return { dim, length: 1 << bits };
}
