"""Wavefronts, counted in native code as `ptx.memory.count_wavefronts` does it.

Both functions look first for what is common: neighbours in ascending order; words that all lie in other banks. What is
not among that is counted one by one: a unit is new if no lane before has it.
"""

from __future__ import annotations

from warpfrag.memory.shared_memory import BANK_BYTES, BANKS
from warpfrag.ptx.compiler.llvm_text import spread
from warpfrag.ptx.interpreter.memory import SECTOR

BEFORE = "<i32 0, " + ", ".join(f"i32 {lane}" for lane in range(31)) + ">"
SECTORS = f"""
define i64 @sectors(i32 %mask, ptr %addresses) {{
entry:
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %nothing, label %some
nothing:
  ret i64 0
some:
  %zeros = call i32 @llvm.ctlz.i32(i32 %mask, i1 true)
  %last = sub i32 31, %zeros
  %last_at = getelementptr i64, ptr %addresses, i32 %last
  %last_address = load i64, ptr %last_at
{spread("lasts", "%last_address")}
  %all = load <32 x i64>, ptr %addresses, align 8
  %live = bitcast i32 %mask to <32 x i1>
  %filled = select <32 x i1> %live, <32 x i64> %all, <32 x i64> %lasts
  %sector = lshr <32 x i64> %filled, splat (i64 {SECTOR.bit_length() - 1})
  %before = shufflevector <32 x i64> %sector, <32 x i64> poison, <32 x i32> {BEFORE}
  %falls = icmp ult <32 x i64> %sector, %before
  %fall_bits = bitcast <32 x i1> %falls to i32
  %ascends = icmp eq i32 %fall_bits, 0
  br i1 %ascends, label %neighbours, label %slow
neighbours:
  %differs = icmp ne <32 x i64> %sector, %before
  %differ_bits = bitcast <32 x i1> %differs to i32
  %changes = call i32 @llvm.ctpop.i32(i32 %differ_bits)
  %found = add i32 %changes, 1
  %found_wide = zext i32 %found to i64
  ret i64 %found_wide
slow:
  %first = call i64 @different(i32 %mask, ptr %addresses, i64 {SECTOR}, i64 1)
  ret i64 %first
}}"""

PASSES = f"""
define i64 @passes(i32 %mask, ptr %addresses, i64 %unit) {{
entry:
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %nothing, label %some
nothing:
  ret i64 0
some:
  %slots = udiv i64 {BANKS * BANK_BYTES}, %unit
  %all = load <32 x i64>, ptr %addresses, align 8
  %live = bitcast i32 %mask to <32 x i1>
{spread("units", "%unit")}
  %zeros = call i64 @llvm.cttz.i64(i64 %unit, i1 true)
{spread("shifts", "%zeros")}
  %piece = lshr <32 x i64> %all, %shifts
  %tops = select <32 x i1> %live, <32 x i64> %piece, <32 x i64> zeroinitializer
  %bottoms = select <32 x i1> %live, <32 x i64> %piece, <32 x i64> splat (i64 -1)
  %top = call i64 @llvm.vector.reduce.umax.v32i64(<32 x i64> %tops)
  %bottom = call i64 @llvm.vector.reduce.umin.v32i64(<32 x i64> %bottoms)
  %extent = sub i64 %top, %bottom
  %near = icmp ult i64 %extent, %slots
  br i1 %near, label %one_pass, label %wide
one_pass:
  ret i64 1
wide:
  %most = sub i64 %slots, 1
{spread("mosts", "%most")}
  %slot = and <32 x i64> %piece, %mosts
  %bit = shl <32 x i64> splat (i64 1), %slot
  %own_bits = select <32 x i1> %live, <32 x i64> %bit, <32 x i64> zeroinitializer
  %used = call i64 @llvm.vector.reduce.or.v32i64(<32 x i64> %own_bits)
  %used_narrow = trunc i64 %used to i32
  %banks = call i32 @llvm.ctpop.i32(i32 %used_narrow)
  %lanes = call i32 @llvm.ctpop.i32(i32 %mask)
  %apart = icmp eq i32 %banks, %lanes
  br i1 %apart, label %one_pass, label %slow
slow:
  %found = call i64 @different(i32 %mask, ptr %addresses, i64 %unit, i64 %slots)
  ret i64 %found
}}"""

PASSES_OF_MATRICES = (
    "\n".join(
        f"""  %matrix{first} = and i32 %mask, {0xFF << first}
  %fronts{first} = call i64 @passes(i32 %matrix{first}, ptr %addresses, i64 16)"""
        for first in (0, 8, 16, 24)
    )
    + """
  %fronts_low = add i64 %fronts0, %fronts8
  %fronts_high = add i64 %fronts16, %fronts24
  %fronts = add i64 %fronts_low, %fronts_high"""
)

# The most different units that fall into one of the slots.
DIFFERENT = """
define i64 @different(i32 %mask, ptr %addresses, i64 %unit, i64 %slots) noinline {
entry:
  %counts = alloca [32 x i64], align 64
  %kept = alloca [32 x i64], align 64
  store [32 x i64] zeroinitializer, ptr %counts
  br label %loop
loop:
  %left = phi i32 [%mask, %entry], [%left_after, %next]
  %known = phi i64 [0, %entry], [%known_after, %next]
  %most = phi i64 [0, %entry], [%most_after, %next]
  %more = icmp ne i32 %left, 0
  br i1 %more, label %one, label %done
done:
  ret i64 %most
one:
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %less = sub i32 %left, 1
  %left_after = and i32 %left, %less
  %address_at = getelementptr i64, ptr %addresses, i32 %lane
  %address = load i64, ptr %address_at
  %piece = udiv i64 %address, %unit
  br label %look
look:
  %index = phi i64 [0, %one], [%index_after, %other]
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
  %larger = call i64 @llvm.umax.i64(i64 %most, i64 %after)
  br label %next
next:
  %known_after = phi i64 [%known, %compare], [%known_more, %new]
  %most_after = phi i64 [%most, %compare], [%larger, %new]
  br label %loop
}"""
