"""A machine for the few PTX instructions that emitted functions use: one lane, registers by name, memory as bytes.

Global and shared memory are the same bytes.
"""

import re

MASK = (1 << 32) - 1
INSTRUCTION = re.compile(r"(?:@(%\w+) )?([a-z0-9.]+)(?: (.*))?;")
ADDRESS = re.compile(r"\[(%\w+)(?: \+ (\d+))?\]")


def functions(text):
    """The bodies of the functions of a module, by name, with the names of their parameters."""
    found = {}
    for head in re.finditer(r"^\.func (?:\([^)]*\) )?(\w+)\(([^)]*)\)\n\{\n(.*?)\n\}", text, re.MULTILINE | re.DOTALL):
        found[head[1]] = (re.findall(r"%\w+", head[2]), head[3].split("\n"))
    return found


def signed(word):
    """A word as an s32."""
    return (word & MASK) - ((word & MASK) >> 31 << 32)


class Machine:
    """Runs one function on one lane."""

    def __init__(self, lines, memory, lane, arguments):
        self.memory, self.registers = memory, {"%laneid": lane, "%tid.x": lane, "%value": 0, **arguments}
        self.lines = [line.strip() for line in lines if not line.strip().startswith(("//", ".reg"))]
        self.labels = {line[:-1]: place for place, line in enumerate(self.lines) if line.endswith(":")}

    def run(self):
        """The register %value at the end."""
        place = 0
        while True:
            line = self.lines[place]
            place += 1
            if line.endswith(":"):
                continue
            guard, operation, operands = INSTRUCTION.fullmatch(line).groups()
            if guard and not self.registers[guard]:
                continue
            if operation == "ret":
                return self.registers["%value"]
            if operation == "bra":
                place = self.labels[operands]
                continue
            self.step(operation.split("."), operands.split(", "))

    def read(self, operand):
        return self.registers[operand] if operand.startswith("%") else int(operand)

    def address(self, operand):
        base, offset = ADDRESS.fullmatch(operand).groups()
        return self.registers[base] + int(offset or 0)

    def step(self, words, operands):
        name, size = words[0], int(words[-1][1:]) // 8
        if name == "st":
            place = self.address(operands[0])
            value = self.read(operands[1]) & ((1 << 8 * size) - 1)
            self.memory[place : place + size] = value.to_bytes(size, "little")
            return
        if name == "ld":
            place = self.address(operands[1])
            self.registers[operands[0]] = int.from_bytes(self.memory[place : place + size], "little")
            return
        self.registers[operands[0]] = self.compute(".".join(words), *map(self.read, operands[1:]))

    def compute(self, operation, *values):
        actions = {
            "mov.u32": lambda a: a,
            "mov.b32": lambda a: a,
            "shr.u32": lambda a, b: (a & MASK) >> b,
            "shr.s32": lambda a, b: signed(a) >> b & MASK,
            "shl.b32": lambda a, b: a << b & MASK,
            "and.b32": lambda a, b: a & b,
            "or.b32": lambda a, b: a | b,
            "xor.b32": lambda a, b: a ^ b,
            "add.s32": lambda a, b: a + b & MASK,
            "mul.lo.s32": lambda a, b: a * b & MASK,
            "mad.lo.s32": lambda a, b, c: a * b + c & MASK,
            "mad.wide.s32": lambda a, b, c: signed(a) * b + c,
            "setp.lt.u32": lambda a, b: a < b,
            "setp.gt.u32": lambda a, b: a > b,
            "setp.ge.u32": lambda a, b: a >= b,
        }
        return actions[operation](*values)
