"""Where a difference between two runs comes from: a node for every lane of a step whose results differ.

A node has a parent, the difference that the lane read, or none: then it is an origin, for all that it read was equal.
Registers and bytes of memory hold the number of the node that made them differ, 0 where they are equal. Of several
differences that are read the one with the earliest origin is followed, so the way back leads to where the runs first
differ.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Nodes = NDArray[np.int64]

NO_ROOT = np.iinfo(np.int64).max


class NodeFacts(NamedTuple):
    """A node: its step on both sides (None where only one ran), its lane, and what differs there."""

    left: int | None
    right: int | None
    row: int
    lane: int
    visit: int
    name: str  # of the register, or of the memory
    codes: tuple[int, int]
    parent: int


@dataclass
class DifferingStep:
    """A step of which some lanes have different results, one node for each."""

    left: int | None
    right: int | None
    visit: int
    name: str
    rows: Nodes
    lanes: Nodes
    parents: Nodes
    codes: tuple[NDArray[np.uint64], NDArray[np.uint64]]


class Provenance:
    """All nodes, numbered from 1 in the order in which they arose."""

    def __init__(self) -> None:
        """There is no difference yet."""
        self.steps: list[DifferingStep] = []
        self.starts: list[int] = []
        self.roots: Nodes = np.full(1, NO_ROOT, np.int64)
        self.count = 1

    def __len__(self) -> int:
        """How many nodes there are."""
        return self.count - 1

    def add(self, step: DifferingStep) -> Nodes:
        """The numbers of the nodes of a step."""
        size = len(step.rows)
        numbers = np.arange(self.count, self.count + size)
        while len(self.roots) < self.count + size:
            self.roots = np.concatenate([self.roots, np.full(max(1024, len(self.roots)), NO_ROOT, np.int64)])
        self.roots[numbers] = np.where(step.parents > 0, self.roots[step.parents], numbers)
        self.steps.append(step)
        self.starts.append(self.count)
        self.count += size
        return numbers

    def earliest(self, candidates: Nodes) -> Nodes:
        """Of nodes along the first axis, the one with the earliest origin; 0 where there is none."""
        if not len(candidates):
            return np.zeros(candidates.shape[1:], np.int64)
        chosen = self.roots[candidates].argmin(axis=0)
        best: Nodes = np.take_along_axis(candidates, chosen[None], axis=0)[0]
        return best

    def facts(self, node: int) -> NodeFacts:
        """What is known of a node."""
        number = bisect_right(self.starts, node) - 1
        step, at = self.steps[number], node - self.starts[number]
        codes = int(step.codes[0][at]), int(step.codes[1][at])
        row, lane, parent = int(step.rows[at]), int(step.lanes[at]), int(step.parents[at])
        return NodeFacts(step.left, step.right, row, lane, step.visit, step.name, codes, parent)

    def chain(self, node: int) -> list[NodeFacts]:
        """The way from an origin to a node, the origin first."""
        facts = []
        while node:
            facts.append(self.facts(node))
            node = facts[-1].parent
        return facts[::-1]
