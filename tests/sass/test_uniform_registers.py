"""Uniform registers that diverged lanes of a warp assign and read: no order of the lanes is defined."""

import pytest

from sass.assembled import launch_text

pytestmark = pytest.mark.one_engine  # the judge runs in the interpreter

HALVES = """
    S2R R0, SR_LANEID
    UMOV UR4, 0x5
    ISETP.GE.U32.AND P3, PT, R0, 0x10, PT
    BSSY B0, 0x90
    @P3 BRA 0x70
    {}
    BRA 0x90
    {}
    {}
    BSYNC B0
    {}"""
READ, WRITE, COPY, NOP = "IMAD.U32 R4, RZ, RZ, UR4", "UMOV UR4, 0x7", "IMAD.U32 R5, RZ, RZ, UR4", "NOP"
ONE_SIDE = {
    "assigned after the other side reads it": (HALVES.format(READ, WRITE, READ, NOP), "UR4 is written here"),
    "assigned before the other side reads it": (HALVES.format(WRITE, COPY, READ, NOP), "UR4 is read here"),
    "assigned by some lanes and read by all": (HALVES.format(NOP, WRITE, NOP, READ), "UR4 is read here"),
}
DEFINED = {
    "read by all lanes on their own sides": HALVES.format(READ, READ, NOP, NOP),
    "assigned on both sides": HALVES.format(NOP, WRITE, READ, "UMOV UR4, 0x9\n" + READ),
    "not needed on the other side": HALVES.format(NOP, WRITE, READ, NOP),
    "assigned in a loop that lanes leave one by one": """
        S2R R0, SR_LANEID
        MOV R4, RZ
        BSSY B0, 0x70
        UMOV UR4, 0x1
        IADD3 R4, R4, UR4, RZ
        ISETP.GT.U32.AND P3, PT, R0, R4, PT
        @P3 BRA 0x30
        BSYNC B0""",
}


def reasons(text, folder):
    """Return the reasons about uniform registers why a run is not exact."""
    return [reason for reason in launch_text(text, folder, "auto")[1].inexact if " here, and diverged lanes " in reason]


@pytest.mark.parametrize("name", ONE_SIDE)
def test_a_register_that_one_side_of_a_branch_assigns_and_the_other_needs(name, tmp_path):
    """ptxas 13.0 compiled a random kernel to such code, and an H200 ran the lanes that branch first."""
    text, reason = ONE_SIDE[name]
    assert any(reason in found for found in reasons(text, tmp_path)), reasons(text, tmp_path)


@pytest.mark.parametrize("name", DEFINED)
def test_a_value_that_only_its_own_lanes_need(name, tmp_path):
    assert reasons(DEFINED[name], tmp_path) == []


@pytest.mark.parametrize("code", ["VOTE.ANY R4, PT, PT", "MATCH.ANY R4, R0", "SHFL.BFLY PT, R4, R0, 0x10, 0x1f"])
def test_lanes_that_have_not_met_may_vote_apart(code, tmp_path):
    """Both sides meet at 0x70, but only a WARPSYNC there makes a GPU run the lanes together."""
    sides = "S2R R0, SR_LANEID\nISETP.GE.U32.AND P3, PT, R0, 0x10, PT\n@P3 BRA 0x60\nNOP\nNOP\nBRA 0x70\nNOP\n"
    _, apart = launch_text(f"{sides}NOP\n{code}", tmp_path, "auto")
    _, together = launch_text(f"{sides}WARPSYNC.ALL\n{code}", tmp_path, "auto")

    assert any("lanes that took different branches" in reason for reason in apart.inexact)
    assert not any("branches" in reason for reason in together.inexact)
