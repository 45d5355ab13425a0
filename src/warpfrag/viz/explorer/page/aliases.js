// Aliases: find the instructions of a CuTe atom, a line of machine code, an LLVM intrinsic or an MLIR operation.

import { INSTRUCTIONS } from "./model.js";

const OPCODE = /[A-Z]\w*(?:\.\w+)+/g; // an opcode, such as those in "4 x IMMA.16832.U8.U8 + 8 x MOVM.U4TO8.M832"
const TOKENS = /[^\w.:]+/;
const SPACE = /\.p\d+$/; // the address space in an overloaded LLVM intrinsic
const PASTED_OPERATION = /(nvvm\.[\w.]+)[^{]*\{(.*)\}\s*(?::\s*(.*))?$/s;

let names = null;

function squeezed(text) {
  return text.toLowerCase().replace(/\s+/g, "");
}

/** Return the instructions by short name; computed on first use. */
function nameIndex() {
  if (names) return names;
  names = { exact: new Map(), among: new Map(), long: [], texts: new Map(), operations: new Map() };
  const push = (map, key, instruction) => map.set(key, [...(map.get(key) ?? []), instruction]);
  for (const instruction of INSTRUCTIONS) {
    const short = instruction.names.filter(({ kind }) => kind !== "MLIR");
    names.texts.set(instruction, short.map(({ name }) => name.toLowerCase()).join(" "));
    for (const { kind, name } of instruction.names) {
      if (kind === "MLIR") names.operations.set(instruction, operationOf(name));
      else if (kind !== "SASS" && TOKENS.test(name)) names.long.push([squeezed(name), instruction]);
      else if (kind !== "SASS") push(names.exact, name.toLowerCase(), instruction);
      else {
        const opcodes = new Set(name.match(OPCODE) ?? [name]);
        const only = opcodes.size === 1 && name === [...opcodes][0];
        for (const opcode of opcodes) push(only ? names.exact : names.among, opcode.toLowerCase(), instruction);
      }
    }
  }
  return names;
}

/** Return the key of an MLIR operation: the name, the attributes in any order, and the types. */
function operationOf(text) {
  const [, name, attributes = "", types = ""] = PASTED_OPERATION.exec(text) ?? [];
  return name && { name, attributes: attributes.split(/,\s*/).sort().join(), types: squeezed(types) };
}

function byOperation(query) {
  const asked = operationOf(query);
  if (!asked) return [];
  const fits = ({ name, attributes, types }) =>
    name === asked.name && attributes === asked.attributes && (!asked.types || types === asked.types);
  return [...nameIndex().operations].filter(([, operation]) => fits(operation)).map(([instruction]) => instruction);
}

/** Return the instructions that a foreign name refers to: those it names first, then those that compile to it. */
export function namedByAlias(query) {
  if (!query.trim()) return [];
  const operations = byOperation(query);
  if (operations.length) return operations;
  const { exact, among, long, texts } = nameIndex();
  const whole = squeezed(query);
  const tokens = query.toLowerCase().split(TOKENS).filter(Boolean).map((token) => token.replace(SPACE, ""));
  const matches = [
    ...long.filter(([name]) => whole.includes(name)).map(([, instruction]) => instruction),
    ...tokens.flatMap((token) => exact.get(token) ?? []),
    ...tokens.flatMap((token) => among.get(token) ?? []),
  ];
  if (matches.length) return [...new Set(matches)];
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return INSTRUCTIONS.filter((instruction) => words.every((word) => texts.get(instruction).includes(word)));
}
