"""Wavefronts in LLVM assembly, counted as `interpreter.memory.count_wavefronts` does it.

Both functions try the common case first: sectors in ascending order; words that all lie in different banks. Else units
are counted one by one: a unit is new if no earlier lane has it. Of shared memory the upper half of the result is how
many of the wavefronts are bank conflicts: those that as many units, spread evenly over the banks, would not take.
"""

from __future__ import annotations

from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.compiler.ir_builder import next_lane_lines, splat_lines
from warpfrag.ptx.interpreter.memory import SECTOR
from warpfrag.smem.shared_memory import BANK_BYTES, BANKS

LOW_HALF = (1 << 32) - 1
PREVIOUS_LANES = "<i32 0, " + ", ".join(f"i32 {lane}" for lane in range(LANES - 1)) + ">"
GLOBAL_SECTORS = f"""
define i64 @sectors(i32 %mask, ptr %addresses) {{
entry:
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %nothing, label %some
nothing:
  ret i64 0
some:
  %all = load <32 x i64>, ptr %addresses, align 8
  %is_whole = icmp eq i32 %mask, -1
  br i1 %is_whole, label %compare, label %fill
fill:
  %zeros = call i32 @llvm.ctlz.i32(i32 %mask, i1 true)
  %last = sub i32 31, %zeros
  %last_at = getelementptr i64, ptr %addresses, i32 %last
  %last_address = load i64, ptr %last_at
{splat_lines("lasts", "%last_address")}
  %live = bitcast i32 %mask to <32 x i1>
  %own = select <32 x i1> %live, <32 x i64> %all, <32 x i64> %lasts
  br label %compare
compare:
  %filled = phi <32 x i64> [%all, %some], [%own, %fill]
  %sector = lshr <32 x i64> %filled, splat (i64 {SECTOR.bit_length() - 1})
  %before = shufflevector <32 x i64> %sector, <32 x i64> poison, <32 x i32> {PREVIOUS_LANES}
  %falls = icmp ult <32 x i64> %sector, %before
  %fall_words = sext <32 x i1> %falls to <32 x i64>
  %any_fall = call i64 @llvm.vector.reduce.or.v32i64(<32 x i64> %fall_words)
  %ascends = icmp eq i64 %any_fall, 0
  br i1 %ascends, label %neighbours, label %slow
neighbours:
  %differs = icmp ne <32 x i64> %sector, %before
  %ones = zext <32 x i1> %differs to <32 x i64>
  %changes = call i64 @llvm.vector.reduce.add.v32i64(<32 x i64> %ones)
  %count = add i64 %changes, 1
  ret i64 %count
slow:
  %packed = call i64 @different(i32 %mask, ptr %addresses, i64 {SECTOR}, i64 1)
  %first = and i64 %packed, {LOW_HALF}
  ret i64 %first
}}"""

SHARED_WAVEFRONTS = f"""
define i64 @passes(i32 %mask, ptr %addresses, i64 %unit) {{
entry:
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %nothing, label %some
nothing:
  ret i64 0
some:
  %slots = udiv i64 {BANKS * BANK_BYTES}, %unit
  %all = load <32 x i64>, ptr %addresses, align 8
  %zeros = call i64 @llvm.cttz.i64(i64 %unit, i1 true)
{splat_lines("shifts", "%zeros")}
  %piece = lshr <32 x i64> %all, %shifts
  %is_whole = icmp eq i32 %mask, -1
  br i1 %is_whole, label %span, label %fill
fill:
  %live = bitcast i32 %mask to <32 x i1>
  %first = call i32 @llvm.cttz.i32(i32 %mask, i1 true)
  %first_piece = extractelement <32 x i64> %piece, i32 %first
{splat_lines("first_pieces", "%first_piece")}
  %own = select <32 x i1> %live, <32 x i64> %piece, <32 x i64> %first_pieces
  br label %span
span:
  %filled = phi <32 x i64> [%piece, %some], [%own, %fill]
  %top = call i64 @llvm.vector.reduce.umax.v32i64(<32 x i64> %filled)
  %bottom = call i64 @llvm.vector.reduce.umin.v32i64(<32 x i64> %filled)
  %extent = sub i64 %top, %bottom
  %near = icmp ult i64 %extent, %slots
  br i1 %near, label %single, label %wide
single:
  ret i64 1
wide:
  %last_slot = sub i64 %slots, 1
{splat_lines("last_slots", "%last_slot")}
  %slot = and <32 x i64> %filled, %last_slots
  %bit = shl <32 x i64> splat (i64 1), %slot
  %used = call i64 @llvm.vector.reduce.or.v32i64(<32 x i64> %bit)
  %used_narrow = trunc i64 %used to i32
  %banks = call i32 @llvm.ctpop.i32(i32 %used_narrow)
  %lanes = call i32 @llvm.ctpop.i32(i32 %mask)
  %apart = icmp eq i32 %banks, %lanes
  br i1 %apart, label %single, label %slow
slow:
  %packed = call i64 @different(i32 %mask, ptr %addresses, i64 %unit, i64 %slots)
  %count = and i64 %packed, {LOW_HALF}
  %unit_count = lshr i64 %packed, 32
  %rounded_up = add i64 %unit_count, %last_slot
  %ideal = udiv i64 %rounded_up, %slots
  %conflicts = sub i64 %count, %ideal
  %upper_half = shl i64 %conflicts, 32
  %result = or i64 %count, %upper_half
  ret i64 %result
}}"""

# The wavefronts of one matrix of ldmatrix, whose rows eight lanes address: one where they lie in different banks.
MATRIX_PASSES = """
define i64 @matrix_passes(i32 %mask, ptr %addresses, i32 %first) {
entry:
  %eight = shl i32 255, %first
  %own = and i32 %mask, %eight
  %is_whole = icmp eq i32 %own, %eight
  br i1 %is_whole, label %whole, label %slow
whole:
  %first_at = getelementptr i64, ptr %addresses, i32 %first
  %all = load <8 x i64>, ptr %first_at, align 8
  %row = lshr <8 x i64> %all, splat (i64 4)
  %slot = and <8 x i64> %row, splat (i64 7)
  %bit = shl <8 x i64> splat (i64 1), %slot
  %used = call i64 @llvm.vector.reduce.or.v8i64(<8 x i64> %bit)
  %apart = icmp eq i64 %used, 255
  br i1 %apart, label %single, label %slow
single:
  ret i64 1
slow:
  %fronts = call i64 @passes(i32 %own, ptr %addresses, i64 16)
  ret i64 %fronts
}"""

MATRIX_WAVEFRONTS = (
    "\n".join(
        f"""  %fronts{first} = call i64 @matrix_passes(i32 %mask, ptr %addresses, i32 {first})"""
        for first in (0, 8, 16, 24)
    )
    + """
  %fronts_low = add i64 %fronts0, %fronts8
  %fronts_high = add i64 %fronts16, %fronts24
  %fronts = add i64 %fronts_low, %fronts_high"""
)

# The largest number of different units that fall into one slot; in the upper half how many there are in all.
COUNT_DISTINCT = f"""
define i64 @different(i32 %mask, ptr %addresses, i64 %unit, i64 %slots) noinline {{
entry:
  %counts = alloca [32 x i64], align 64
  %kept = alloca [32 x i64], align 64
  store [32 x i64] zeroinitializer, ptr %counts
  br label %loop
loop:
  %left = phi i32 [%mask, %entry], [%left_after, %next]
  %known = phi i64 [0, %entry], [%known_after, %next]
  %max = phi i64 [0, %entry], [%max_after, %next]
  %more = icmp ne i32 %left, 0
  br i1 %more, label %next_lane, label %done
done:
  %all = shl i64 %known, 32
  %packed = or i64 %all, %max
  ret i64 %packed
next_lane:
{next_lane_lines("left", "addresses", "address")}
  %piece = udiv i64 %address, %unit
  br label %look
look:
  %index = phi i64 [0, %next_lane], [%index_after, %other]
  %to_see = icmp ult i64 %index, %known
  br i1 %to_see, label %compare, label %new
compare:
  %kept_at = getelementptr i64, ptr %kept, i64 %index
  %seen = load i64, ptr %kept_at
  %same = icmp eq i64 %seen, %piece
  br i1 %same, label %next, label %other
other:
  %index_after = add i64 %index, 1
  br label %look
new:
  %new_at = getelementptr i64, ptr %kept, i64 %known
  store i64 %piece, ptr %new_at
  %known_more = add i64 %known, 1
  %slot = urem i64 %piece, %slots
  %count_at = getelementptr i64, ptr %counts, i64 %slot
  %before = load i64, ptr %count_at
  %after = add i64 %before, 1
  store i64 %after, ptr %count_at
  %max_now = call i64 @llvm.umax.i64(i64 %max, i64 %after)
  br label %next
next:
  %known_after = phi i64 [%known, %compare], [%known_more, %new]
  %max_after = phi i64 [%max, %compare], [%max_now, %new]
  br label %loop
}}"""
