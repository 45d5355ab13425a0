"""Let loops that wait for a word see the values that were overwritten before the load, oldest first.

On a GPU, a waiting thread may load the word after each of its changes, and may continue earlier than in a run whose
blocks start one after the other. The load in such a loop therefore first returns each overwritten value that the thread
may still see. The thread is ordered after other threads only if it keeps waiting until the load returns the last value.
"""

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction
from warpfrag.machine.ir.scalar_types import B32, B64
from warpfrag.machine.sanitizer.ordering import Ordering

Numbers = NDArray[np.int64]
OPEN_ORDER = "threads change a word in an undetermined order, and other threads wait for its value"


class Overwritten(NamedTuple):
    """An overwritten value, with the thread that replaced it and the time."""

    value: int
    entity: int
    time: int


class WaitedWords:
    """The overwritten values of each word, and the number of them that each waiting thread has seen."""

    def __init__(self) -> None:
        """Create an empty record."""
        self.words: defaultdict[tuple[int, int], list[Overwritten]] = defaultdict(list)
        self.seen: dict[tuple[int, tuple[int, int]], int] = {}

    def replace(self, word: tuple[int, int], value: int, entity: int, time: int) -> None:
        """Record a value that a thread replaced."""
        self.words[word].append(Overwritten(value, entity, time))

    def load(self, word: tuple[int, int], current: int, thread: int, ordering: Ordering) -> tuple[int, bool]:
        """Return the next value that a thread may see, and False if another order of the changes gives other values."""
        entity = int(ordering.entities(np.array([thread]))[0])
        replaced, first = self.words.get(word, []), self.seen.get((entity, word), 0)
        if first == len(replaced):
            return current, True
        entities, times = (np.array([item[at] for item in replaced[first:]]) for at in (1, 2))
        known = ordering.knows(np.full(len(times), thread), entities, times) | (entities == entity)
        first += int(np.flatnonzero(known)[-1]) + 1 if known.any() else 0
        values = [*(item.value for item in replaced[first:]), current]
        self.seen[entity, word] = min(first + 1, len(replaced))
        changes = {after - before for before, after in pairwise(values)}
        return values[0], len(changes) <= 1 or len({item.entity for item in replaced[first:]}) == 1


def is_word_load(inst: DecodedInstruction) -> bool:
    """Return True for a load of 32 or 64 bits."""
    action = inst.action
    bits = action.type.bits * action.count if isinstance(action, actions.MemoryLoad) else 0
    return bits in {B32.bits, B64.bits}
