"""The global side of cp.async in LLVM assembly: a helper that gathers the source into the `items` of a warp."""

from __future__ import annotations

from warpfrag.ptx.compiler import context
from warpfrag.ptx.compiler.access_hook import screen_call
from warpfrag.ptx.compiler.ir_builder import next_lane_lines, splat_lines
from warpfrag.ptx.program.state_spaces import SPACES

COPY_PARAMETERS = "ptr %context, i64 %row, i32 %mask, ptr %addresses, ptr %items, ptr %src_bytes, i64 %step"


def copy_text(words: int) -> str:
    """Copy so many words of each lane from global memory to `items`, but only the first `src_bytes` of them.

    Lanes that copy the same number of bytes are one request, as in the interpreter; zeros follow them.
    """
    size = 4 * words
    space = SPACES.index("global")
    zeros = "\n".join(
        f"""  %zero{word} = getelementptr i8, ptr %items, i64 {128 * word}
  store <32 x i32> zeroinitializer, ptr %zero{word}, align 64"""
        for word in range(words)
    )
    moves = "\n".join(
        f"""  %from{word} = getelementptr i32, ptr %place, i64 {word}
  %code{word} = load i32, ptr %from{word}, align 1
  %to{word} = getelementptr i32, ptr %items, i64 {32 * word}
  %own{word} = getelementptr i32, ptr %to{word}, i32 %lane
  store i32 %code{word}, ptr %own{word}, align 4"""
        for word in range(words)
    )
    return f"""
define i32 @copy_{words}({COPY_PARAMETERS}) {{
entry:
  %counts = load <32 x i32>, ptr %src_bytes, align 64
  %misaligned = call i1 @is_misaligned(i32 %mask, ptr %addresses, i64 {size - 1})
  br i1 %misaligned, label %fault, label %aligned
fault:
  ret i32 1
done:
  ret i32 0
aligned:
{zeros}
  br label %groups
groups:
  %left = phi i32 [%mask, %aligned], [%left_after, %group], [%left_after, %lanes]
  %more = icmp ne i32 %left, 0
  br i1 %more, label %group, label %done
group:
  %first = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %count_at = getelementptr i32, ptr %src_bytes, i32 %first
  %count = load i32, ptr %count_at
{splat_lines("count_all", "%count", 32)}
  %same = icmp eq <32 x i32> %counts, %count_all
  %same_bits = bitcast <32 x i1> %same to i32
  %part = and i32 %left, %same_bits
  %left_after = xor i32 %left, %part
  %nothing = icmp eq i32 %count, 0
  br i1 %nothing, label %groups, label %request
request:
  %count_wide = zext i32 %count to i64
  %part_lanes = call i32 @llvm.ctpop.i32(i32 %part)
  %part_wide = zext i32 %part_lanes to i64
  %bytes = mul i64 %part_wide, %count_wide
  call void @count_bytes(ptr %context, i64 {context.READ_BYTES + space}, i64 {context.STEP_READ}, i64 %step, i64 %bytes)
  %fronts = call i64 @sectors(i32 %part, ptr %addresses)
  call void @count_wavefronts(ptr %context, i64 {space}, i64 %step, i64 %fronts)
  %is_all = icmp eq i32 %count, {size}
  br label %lanes
lanes:
  %lanes_left = phi i32 [%part, %request], [%lanes_left_after, %whole], [%lanes_left_after, %bytes_loop]
  %home = phi ptr [null, %request], [%home_now, %whole], [%home_now, %bytes_loop]
  %any = icmp ne i32 %lanes_left, 0
  br i1 %any, label %next_lane, label %groups
next_lane:
{next_lane_lines("lanes_left", "addresses", "address")}
  %known = icmp ne ptr %home, null
  br i1 %known, label %look, label %search
look:
  %old_start = load i64, ptr %home
  %old_end_at = getelementptr i64, ptr %home, i64 1
  %old_end = load i64, ptr %old_end_at
  %old_offset = sub i64 %address, %old_start
  %old_bytes = sub i64 %old_end, %old_start
  %inside = icmp ult i64 %old_offset, %old_bytes
  br i1 %inside, label %inside_row, label %search
search:
  %new = call ptr @find(ptr %context, i64 %address)
  %none = icmp eq ptr %new, null
  br i1 %none, label %fault, label %inside_row
inside_row:
  %home_now = phi ptr [%home, %look], [%new, %search]
  %start = load i64, ptr %home_now
  %end_at = getelementptr i64, ptr %home_now, i64 1
  %end = load i64, ptr %end_at
  %available = sub i64 %end, %address
  %tight = icmp ult i64 %available, %count_wide
  br i1 %tight, label %fault, label %fits
fits:
  %data_at = getelementptr i64, ptr %home_now, i64 2
  %data = load ptr, ptr %data_at
  %offset = sub i64 %address, %start
  %place = getelementptr i8, ptr %data, i64 %offset
  %lane_bit = shl i32 1, %lane
{screen_call("global", "%count_wide", is_store=False, part="%lane_bit", home="%home_now")}
  br i1 %is_all, label %whole, label %bytes_loop
whole:
{moves}
  br label %lanes
bytes_loop:
  %index = phi i64 [0, %fits], [%index_after, %byte]
  %bytes_left = icmp ult i64 %index, %count_wide
  br i1 %bytes_left, label %byte, label %lanes
byte:
  %byte_at = getelementptr i8, ptr %place, i64 %index
  %code = load i8, ptr %byte_at
  %word = lshr i64 %index, 2
  %word_start = mul i64 %word, 128
  %in_word = and i64 %index, 3
  %lane_wide = zext i32 %lane to i64
  %lane_start = mul i64 %lane_wide, 4
  %before = add i64 %word_start, %lane_start
  %target = add i64 %before, %in_word
  %target_at = getelementptr i8, ptr %items, i64 %target
  store i8 %code, ptr %target_at
  %index_after = add i64 %index, 1
  br label %bytes_loop
}}"""
