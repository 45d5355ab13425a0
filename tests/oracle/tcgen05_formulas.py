"""Tensor memory, stated a second time: lanes and columns by division and remainder, as in the manual's figures.

No row of our tables is read here.
"""


def accumulator(letter, row, col, m, n):
    """(block, lane, column) of D[row, col] by the letter of its data path."""
    if letter == "A":
        return row // 128, row % 128, col
    if letter in "BC":
        block, row = row // 64, row % 64
        if letter == "B":
            return block, row + 64 * (col >= n // 2), col % (n // 2)
        return block, row % 16 + 32 * (row // 16), col
    if letter == "D":
        return 0, row, col
    if letter == "E":
        return 0, row + 64 * (col >= n // 2), col % (n // 2)
    if letter == "F":
        return 0, row % 16 + 32 * (row // 16), col
    return 0, row + 32 * (col // (n // 4)), col % (n // 4)


def letter(m, blocks, *, sparse, ws):
    """The letter of the data path of a product."""
    if blocks == 2:
        return "A" if m == 256 else "C" if sparse else "B"
    if m == 128:
        return "D"
    if m == 32:
        return "G"
    return "E" if ws else "F"


def loaded(shape, thread, reg, split):
    """(lane of the warp's 32, column) of a register of tcgen05.ld."""
    if shape == "32x32b":
        return thread, reg
    if shape == "16x64b":
        return thread // 4 + 8 * (thread % 2), thread // 2 % 2 + 2 * reg
    if shape == "16x128b":
        return thread // 4 + 8 * (reg % 2), thread % 4 + 4 * (reg // 2)
    if shape == "16x256b":
        return thread // 4 + 8 * (reg // 2 % 2), 2 * (thread % 4) + reg % 2 + 8 * (reg // 4)
    return thread % 16, reg + split * (thread // 16)


def metadata(kind, lane, k):
    """Return (lane, column, bit) of the metadata for logical column k of the row in a lane; without a selector."""
    if kind == "f16":
        return 16 * (lane // 16) + 8 * (k // 16) + lane % 8, 0, 16 * (lane // 8 % 2) + k % 16
    if kind == "tf32":
        return 16 * (lane // 16) + 8 * (k // 8) + lane % 8, 0, 16 * (lane // 8 % 2) + 2 * (k % 8)
    if kind in ("mxf4", "mxf4nvf4"):
        return lane, k // 64, k % 64 // 2
    return lane, k // 32, k % 32


def copied(shape, row):
    """Return the lanes to which tcgen05.cp copies a source row."""
    if shape.startswith("128"):
        return [row]
    if shape == "4x256b":
        return [32 * row]
    if shape == "32x128b.warpx4":
        return [row, row + 32, row + 64, row + 96]
    if shape == "64x128b.warpx2::02_13":
        return [row, row + 64]
    first = 64 * (row // 32) + row % 32
    return [first, first + 32]


def scale(row, byte, rows):
    """(lane, column) of a scale factor in the first group of lanes, and its byte."""
    return row % 32, row // 32 + byte // 4 * 4 * -(-rows // 128), byte % 4
