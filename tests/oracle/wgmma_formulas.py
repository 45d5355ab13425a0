"""wgmma stated again, independently of the tables: the element in each register, and the address from a descriptor.

Written from the PTX ISA ("Register Fragments for wgmma", "Matrix descriptor format") and measurements on an H200, as a
person would write it down: with divisions, not with bits.
"""


def accumulator(warp: int, lane: int, i: int) -> tuple[int, int]:
    """Row and column of element i of C or D, of 32 or 16 bits."""
    return 16 * warp + lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2


def multiplicand(warp: int, lane: int, reg: int, slot: int, bits: int) -> tuple[int, int]:
    """Row and stored column of an element of A in registers."""
    each = 32 // bits
    return 16 * warp + lane // 4 + 8 * (reg % 2), each * (lane % 4) + slot + 4 * each * (reg // 2)


def metadata(warp: int, lane: int, bit: int, kind: str) -> tuple[int, int, int]:
    """Return the selector, row and chunk of the metadata code at a bit: as for mma.sp, for the 16 rows of each warp."""
    code = bit // 4
    if kind == "16-bit or tf32":  # two rows in a word, 8 chunks in two neighbouring lanes, a selector for every two
        return lane % 4 // 2, 16 * warp + lane // 4 + 8 * (code // 4), 4 * (lane % 2) + code % 4
    return 0, 16 * warp + lane // 4 + 8 * (lane % 2), 8 * (lane % 4 // 2) + code  # 8 chunks of one row in a word


def address(word: int, role: str, row: int, col: int, size: int, *, trans: bool) -> int:
    """The byte of an element, `size` bytes wide, of A (row along M) or B (row along K)."""
    start, leading, stride = ((word >> low & 0x3FFF) * 16 for low in (0, 16, 32))
    base, width = word >> 49 & 7, {0: 16, 1: 128, 2: 64, 3: 32}[word >> 62]
    r, k = (row, col) if role == "a" else (col, row)
    if not trans:
        inside = (r % 8) * width + k * size % width
        found = start + inside + r // 8 * stride + k * size // width * leading
    elif width == 16:
        found = start + r % 8 * 2 + k % 8 * 16 + r // 8 * stride + k // 8 * leading
    else:
        found = start + r % (width // 2) * 2 + k % 8 * width + r // (width // 2) * leading + k // 8 * stride
    pattern = {16: 0, 32: 1, 64: 3, 128: 7}[width]
    return found ^ ((found // 128 - base) % 8 & pattern) * 16
