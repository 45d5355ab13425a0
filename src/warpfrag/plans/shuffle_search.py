"""Find the fewest shuffles for a linear map between the registers of lanes.

**The problem.** A map gives, for every target (lane, cell), the source (lane, cell) of its element. Data crosses
lanes only through `shfl`: every lane publishes one register, and every lane reads the register of one lane.

**Packets.** The cells that a target lane needs from one source lane are packed into words there, so every shuffle is
full.

**Rounds.** If all lanes read their packet 0 first, several lanes may need different packets of the same lane. Lane d
therefore starts with packet A d instead. The matrix A is chosen so that the source lanes are a permutation in every
round; it exists if the map is one-to-one. The number of shuffles is then minimal, because each shuffle gives a lane one
register of another lane.

Everything is linear over bits: lanes and cells are integers, directions are combined by xor, and `Echelon` solves the
equations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from warpfrag.layout.bit_matrix import Echelon


@dataclass(frozen=True)
class Select:
    """Set register w to register words[w], in all lanes or in those that share an odd number of bits with `mask`."""

    mask: int
    words: tuple[int, ...]


@dataclass(frozen=True)
class Swap:
    """Set slot s of each register to slot s ^ flip, in lanes that share an odd number of bits with `mask`."""

    mask: int
    flip: int
    words: int


@dataclass(frozen=True)
class Shuffle:
    """Read registers from other lanes: lane d reads from the xor of `flip` and columns[i] for each set bit i of d."""

    columns: tuple[int, ...]
    flips: tuple[int | None, ...]  # one per word; None if the word stays in its lane

    def lanes(self, flip: int) -> list[int]:
        """Return, for each lane, the lane that it reads."""
        sources = []
        for lane in range(1 << len(self.columns)):
            read = flip
            for bit, column in enumerate(self.columns):
                read ^= column * (lane >> bit & 1)
            sources.append(read)
        return sources


LANE = 32  # an integer encodes a lane and a cell: the lane's bits start here, above those of the cell
CELL = (1 << LANE) - 1


@dataclass(frozen=True)
class ShufflePlan:
    """A shuffle plan: packets are packed in the source lane, exchanged between lanes, and unpacked in the target lane.

    packets   the cells of each packet of a source lane
    publish   words exchanged before the shuffles, by lane
    shuffle   the lane that each word is read from
    receive   words exchanged after the shuffles
    cells     the packet, and the slot in it, of each cell of a target lane
    """

    packets: tuple[tuple[int, ...], ...]
    publish: tuple[Select, ...]
    shuffle: Shuffle
    receive: tuple[Select | Swap, ...]
    cells: tuple[tuple[int, int], ...]

    @property
    def shuffles(self) -> int:
        """The number of shuffles."""
        return sum(flip is not None for flip in self.shuffle.flips)

    @property
    def crosses(self) -> bool:
        """True if anything depends on the lane, so that registers are exchanged and not just renamed."""
        return bool(self.shuffles or self.receive or len(self.publish) > 1)

    @property
    def order(self) -> tuple[int, ...]:
        """The packet of each round, valid if nothing depends on the lane."""
        return self.publish[-1].words


def find_shuffles(lanes: list[int], cells: list[int], slots: int, preferred: list[int]) -> ShufflePlan | None:
    """Return the plan with the fewest shuffles for a linear map from target (lane, cell) to source (lane, cell).

    `lanes` and `cells` are the images of the target's lane bits and cell bits. A register has 2**slots cells.
    `preferred` lists the preferred packet directions among target cells, best first. Returns None if lanes would have
    to read different registers of one lane in the same round.
    """
    reduced, basis = _independent(cells)
    inside = [bits for bits in _span(basis) if bits and not combined(bits, cells) >> LANE]
    inner = _choose(sorted(inside, key=lambda bits: (([*preferred, bits].index(bits)), bits.bit_count(), bits)), slots)
    outer = _choose(basis, len(basis), inner)
    inner_images = [combined(bits, cells) for bits in inner]
    chosen = _start_packets(lanes, cells, outer, inner_images)
    if chosen is None:
        return None
    starts, columns = chosen  # for each bit of the lane, the first packet, and the lane that is read
    source_basis: list[int] = []  # the directions from packet to packet among the cells of a source lane
    seen = Echelon()
    for at, image in enumerate(inner_images):
        seen.add(image, 1 << at)
    for image in [*columns, *(combined(bits, cells) for bits in outer)]:
        cell = image & CELL
        if seen.rest(cell):
            seen.add(cell, 1 << (len(inner) + len(source_basis)))
            source_basis.append(cell)

    def packet(image: int) -> int:
        """Return the packet of a source cell."""
        return seen.inputs(image & CELL) >> len(inner)

    back = Echelon()  # from a lane that is read to the lane that reads it
    for bit, column in enumerate(columns):
        if back.rest(column >> LANE):
            back.add(column >> LANE, 1 << bit)

    def turned(image: int) -> int:
        """Return the current slot of the source cell that belongs in slot 0 of its packet."""
        return seen.inputs(image & CELL) & ((1 << len(inner)) - 1)

    outer = [bits ^ combined(turned(combined(bits, cells)), inner) for bits in outer]
    columns = [image ^ combined(combined(start, outer), cells) for image, start in zip(lanes, starts, strict=True)]
    first = [packet(column) for column in columns]

    def published(lane: int) -> int:
        """Return the packet that a lane publishes for its readers in round 0, relative to the packet of that round."""
        return combined(back.inputs(lane), first)

    rounds = range(1 << len(outer))
    flips = [combined(combined(number, outer), cells) >> LANE for number in rounds]
    wanted = [packet(combined(combined(number, outer), cells)) ^ published(flips[number]) for number in rounds]
    identity = [column >> LANE for column in columns] == [1 << bit for bit in range(len(columns))]
    shuffle = Shuffle(
        tuple(column >> LANE for column in columns), tuple(None if identity and not flip else flip for flip in flips)
    )
    publish = _exchanges([published(1 << bit) for bit in range(len(columns))], len(source_basis))
    receive = _exchanges(starts, len(outer))
    swaps = tuple(
        Swap(step.mask, step.words[0], 1 << len(outer))
        for step in _exchanges([turned(image) for image in columns], len(inner))
    )
    slots_of = Echelon()
    for at, bits in enumerate([*inner, *outer]):
        slots_of.add(bits, 1 << at)
    homes = []
    for cell in range(1 << len(cells)):
        at = slots_of.inputs(combined(cell, reduced))
        homes.append((at >> len(inner), at & ((1 << len(inner)) - 1)))
    packets = tuple(
        tuple(combined(number, source_basis) ^ combined(slot, [image & CELL for image in inner_images])
              for slot in range(1 << len(inner)))
        for number in range(1 << len(source_basis))
    )  # fmt: skip
    in_order = Select(0, tuple(wanted))  # no lane exchanges registers, so only put the words in the order of the rounds
    return ShufflePlan(packets, (*publish, in_order), shuffle, (*receive, *swaps), tuple(homes))


def combined(bits: int, directions: Sequence[int]) -> int:
    """Return the xor of the directions whose bits are set."""
    total = 0
    for at, direction in enumerate(directions):
        if bits >> at & 1:
            total ^= direction
    return total


def _independent(cells: list[int]) -> tuple[list[int], list[int]]:
    """Return, for each cell bit, the independent bits with the same image; and the list of independent bits."""
    rows = Echelon()
    reduced, basis = [], []
    for bit, image in enumerate(cells):
        if rows.rest(image):
            rows.add(image, 1 << bit)
            basis.append(1 << bit)
            reduced.append(1 << bit)
        else:
            reduced.append(rows.inputs(image))
    return reduced, basis


def _span(basis: Sequence[int]) -> list[int]:
    span = [0]
    for vector in basis:
        span += [vector ^ other for other in span]
    return span


def _choose(candidates: Sequence[int], count: int, given: Sequence[int] = ()) -> list[int]:
    """Return at most `count` candidates that are independent of each other and of the given vectors."""
    rows = Echelon()
    for vector in given:
        rows.add(vector)
    chosen: list[int] = []
    for vector in candidates:
        if len(chosen) < count and rows.rest(vector):
            rows.add(vector)
            chosen.append(vector)
    return chosen


def _start_packets(
    lanes: list[int], cells: list[int], outer: list[int], inner_images: list[int]
) -> tuple[list[int], list[int]] | None:
    """Return the first packet for each lane bit, and the place that is read, or None if there is no valid choice.

    No lane may publish two registers in one round, so lanes that read the same lane must read the same packet. The best
    choice makes a lane read itself; the next best is packet 0.
    """
    read = Echelon()  # the lanes that are read, by the bits that select them
    same = Echelon()  # the cells of a packet
    for image in inner_images:
        same.add(image)
    starts: list[int] = []
    columns: list[int] = []
    for bit, image in enumerate(lanes):
        choice = None
        options = sorted(range(1 << len(outer)), key=lambda start: (start.bit_count(), start))
        reads = [(start, image ^ combined(combined(start, outer), cells)) for start in options]
        reads.sort(key=lambda pair: pair[1] >> LANE != 1 << bit)
        for start, column in reads:
            if read.rest(column >> LANE):
                choice = start, column
                break
        if choice is None:
            for start, column in reads:
                others = read.inputs(column >> LANE)
                if not same.rest(column ^ combined(others, columns)):
                    choice = start, column
                    break
        if choice is None:
            return None
        starts.append(choice[0])
        columns.append(choice[1])
        if read.rest(choice[1] >> LANE):
            read.add(choice[1] >> LANE, 1 << bit)
    return starts, columns


def _exchanges(of_lane_bit: list[int], width: int) -> tuple[Select, ...]:
    """Return operations that move register w ^ x(lane) to w, where x is linear and given for each lane bit."""
    rows = Echelon()
    directions: list[int] = []
    for change in of_lane_bit:
        if rows.rest(change):
            rows.add(change, 1 << len(directions))
            directions.append(change)
    steps = []
    for at, direction in enumerate(directions):
        mask = sum(1 << bit for bit, change in enumerate(of_lane_bit) if rows.inputs(change) >> at & 1)
        steps.append(Select(mask, tuple(word ^ direction for word in range(1 << width))))
    return tuple(steps)
