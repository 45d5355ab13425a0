"""The tags of stores in LLVM assembly: what `interpreter.store_tags` does, for one warp.

A helper that stores calls `tagged_B_C` in place of the mover `store_B_C` (B bits, C elements of a lane): it tags the
words of all lanes, moves the data, and reads it again where two lanes may have met at one address: where a word had the
tag of this warp already. Lanes that store one line are tagged by vectors: their addresses are consecutive, or those of
an aligned line in another order (lane times size, xor a constant, as swizzles give it). Only where a tag is that of
somebody else, whom nothing orders, bytes are compared.
"""

from __future__ import annotations

from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.compiler import context
from warpfrag.ptx.compiler.ir_builder import next_lane_lines, splat_lines
from warpfrag.ptx.interpreter.store_tags import (
    BLOCK_FIELD,
    INTERVAL_SHIFT,
    SERVED_BYTES,
    WARP_FIELD,
    WORD,
    WORD_BYTES,
)
from warpfrag.ptx.program.inexact import InexactCause

TAG_ARGUMENTS = "i64 %shadow, i64 %mine, i64 %across, ptr %cause"
PARAMETERS = f"i32 %part, ptr %places, i64 %delta, ptr %items, {TAG_ARGUMENTS}"
LANE_NUMBERS = "<" + ", ".join(f"i64 {lane}" for lane in range(LANES)) + ">"

# Orders what a block stores from now on behind all that it stored (`across` 0), or that any block did.
END_WAIT = f"""
define void @end_wait(ptr %context, i64 %row, i32 %mask, i64 %across) {{
entry:
  %is_none = icmp eq i32 %mask, 0
  br i1 %is_none, label %done, label %start
start:
  %writers_at = getelementptr i64, ptr %context, i64 {context.WRITERS}
  %writers = load ptr, ptr %writers_at
  %count_at = getelementptr i64, ptr %context, i64 {context.BLOCK_WARPS}
  %count = load i64, ptr %count_at
  %rest = urem i64 %row, %count
  %first = sub i64 %row, %rest
  %end = add i64 %first, %count
  br label %loop
loop:
  %index = phi i64 [%first, %start], [%after, %loop]
  %at = getelementptr i64, ptr %writers, i64 %index
  %tag = load i64, ptr %at
  %later = add i64 %tag, {1 << INTERVAL_SHIFT}
  %marked = or i64 %later, %across
  store i64 %marked, ptr %at
  %after = add i64 %index, 1
  %more = icmp ult i64 %after, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""


def tag_arguments(shadow: str, *, is_shared: bool) -> str:
    """Lines that make the arguments of a tagged store: `shadow` is the address of the tag of address 0."""
    return f"""{shadow}
  %writers_at = getelementptr i64, ptr %context, i64 {context.WRITERS}
  %writers = load ptr, ptr %writers_at
  %mine_at = getelementptr i64, ptr %writers, i64 %row
  %mine = load i64, ptr %mine_at
  %has_waited = icmp slt i64 %mine, 0
  %across = select i1 %has_waited, i64 0, i64 {0 if is_shared else BLOCK_FIELD}
  %causes_at = getelementptr i64, ptr %context, i64 {context.STEP_CAUSES}
  %causes = load ptr, ptr %causes_at
  %cause = getelementptr i8, ptr %causes, i64 %step"""


def foreign_lines(name: str, count: int, tags: str, masks: str) -> str:
    """Lines that set %name, <count x i1>: where bytes of `masks` have the tag of somebody whom nothing orders."""
    kind = f"<{count} x i64>"
    return f"""  %{name}_x = xor {kind} {tags}, %mines{count}
  %{name}_same = icmp ult {kind} %{name}_x, splat (i64 {1 << INTERVAL_SHIFT})
  %{name}_warp = and {kind} %{name}_x, splat (i64 {WARP_FIELD})
  %{name}_other = icmp ne {kind} %{name}_warp, zeroinitializer
  %{name}_near = and <{count} x i1> %{name}_same, %{name}_other
  %{name}_block = and {kind} %{name}_x, %fields{count}
  %{name}_far = icmp ne {kind} %{name}_block, zeroinitializer
  %{name}_either = or <{count} x i1> %{name}_near, %{name}_far
  %{name}_held = and {kind} {tags}, {masks}
  %{name}_touched = icmp ne {kind} %{name}_held, zeroinitializer
  %{name} = and <{count} x i1> %{name}_either, %{name}_touched"""


def store_order(size: int) -> list[int]:
    """The lanes of a warp in the order in which they store so many bytes each: who stays comes last."""
    together = min(LANES, SERVED_BYTES // size)
    return [lane ^ (together - 1) for lane in range(LANES)]


def tagged_text(bits: int, count: int, cause: InexactCause) -> str:
    """The functions of a tagged store; the mover is in the same module.

    `cause` is what it means if lanes of one instruction store different bytes to one address.
    """
    size = bits // 8 * count
    is_narrow = size < WORD
    words = max(1, size // WORD)  # of a lane
    line_words = LANES * size // WORD
    width = min(line_words, LANES)
    vectors = range(line_words // width)
    splats = "\n".join(
        splat_lines(f"{name}{tags}", scalar, count=tags)
        for tags in sorted({words, width})
        for name, scalar in {"mines": "%mine", "fields": "%across", "owns": "%own"}.items()
    )
    checks = "\n".join(
        f"""  %line_at{index} = getelementptr i64, ptr %line_tags, i64 {index * width}
  %line_before{index} = load <{width} x i64>, ptr %line_at{index}, align 8
{foreign_lines(f"line_foreign{index}", width, f"%line_before{index}", f"splat (i64 {WORD_BYTES})")}
  %line_any{index + 1} = or <{width} x i1> %line_foreign{index}, %line_any{index}"""
        for index in vectors
    )
    stores = "\n".join(f"  store <{width} x i64> %owns{width}, ptr %line_at{index}, align 8" for index in vectors)
    return f"""{resolve_text(bits, count)}
define internal void @tagged_{bits}_{count}({PARAMETERS}) {{
entry:
  %own = or i64 %mine, {WORD_BYTES}
{splats}
  %all = load <32 x i64>, ptr %places, align 8
  %begin = load i64, ptr %places
{splat_lines("begins", "%begin")}
  %distances = mul <32 x i64> {LANE_NUMBERS}, splat (i64 {size})
  %in_line = add <32 x i64> %begins, %distances
  %apart = xor <32 x i64> %all, %in_line
  %any_apart = call i64 @llvm.vector.reduce.or.v32i64(<32 x i64> %apart)
  %follows = icmp eq i64 %any_apart, 0
  %is_whole = icmp eq i32 %part, -1
  %is_row = and i1 %follows, %is_whole
  %begin_rest = and i64 %begin, {WORD - 1 if is_narrow else 0}
  %is_aligned = icmp eq i64 %begin_rest, 0
  %is_line = and i1 %is_row, %is_aligned
  br i1 %is_line, label %line, label %maybe_swizzled
maybe_swizzled:
  %differences = xor <32 x i64> %all, %begins
  %off_line = xor <32 x i64> %differences, %distances
  %any_off_line = call i64 @llvm.vector.reduce.or.v32i64(<32 x i64> %off_line)
  %is_swizzled = icmp eq i64 %any_off_line, 0
  %is_permuted = and i1 %is_swizzled, %is_whole
  br i1 %is_permuted, label %line, label %lanes
line:
  %line_size = phi i64 [-1, %entry], [{-LANES * size}, %maybe_swizzled]
  %line_begin = and i64 %begin, %line_size
  %line_twice = shl i64 %line_begin, 1
  %line_address = add i64 %shadow, %line_twice
  %line_tags = inttoptr i64 %line_address to ptr
  %line_any0 = bitcast i{width} 0 to <{width} x i1>
{checks}
  %line_bits = bitcast <{width} x i1> %line_any{len(vectors)} to i{width}
  %is_met = icmp ne i{width} %line_bits, 0
  br i1 %is_met, label %lanes, label %own_line
own_line:
{stores}
  call void @store_{bits}_{count}(i32 %part, ptr %places, i64 %delta, ptr %items)
  ret void
lanes:
  %left = phi i32 [%part, %maybe_swizzled], [%part, %line], [%left_after, %met], [%left_after, %free]
  %may_repeat = phi i1 [false, %maybe_swizzled], [false, %line], [true, %met], [%may_repeat_after, %free]
  %more = icmp ne i32 %left, 0
  br i1 %more, label %next_lane, label %move
next_lane:
{next_lane_lines("left", "places", "place")}
  %word = and i64 %place, -4
  %twice = shl i64 %word, 1
  %address = add i64 %shadow, %twice
  %tags_at = inttoptr i64 %address to ptr
  %tags = load <{words} x i64>, ptr %tags_at, align 8
{narrow_mask(size) if is_narrow else ""}
{foreign_lines("foreign", words, "%tags", "%masks" if is_narrow else f"splat (i64 {WORD_BYTES})")}
  %foreign_bits = bitcast <{words} x i1> %foreign to i{words}
  %is_foreign = icmp ne i{words} %foreign_bits, 0
  br i1 %is_foreign, label %met, label %free
met:
  call void @resolve_{bits}_{count}(i32 %lane, i64 %place, i64 %delta, ptr %items, {TAG_ARGUMENTS})
  br label %lanes
free:
{NARROW_TAG if is_narrow else wide_tag(words)}
  %may_repeat_after = or i1 %may_repeat, %is_own
  br label %lanes
move:
  call void @store_{bits}_{count}(i32 %part, ptr %places, i64 %delta, ptr %items)
  br i1 %may_repeat, label %again, label %done
again:
  %again_left = phi i32 [%part, %move], [%again_left_after, %next_again]
  %again_seen = phi i{bits} [0, %move], [%again_any, %next_again]
  %again_more = icmp ne i32 %again_left, 0
  br i1 %again_more, label %next_again, label %seen
next_again:
{next_lane_lines("again_left", "places", "again_place", prefix="again_")}
  %again_start = add i64 %again_place, %delta
{read_again(bits, count)}
  br label %again
seen:
  %is_replaced = icmp ne i{bits} %again_seen, 0
  br i1 %is_replaced, label %doubt, label %done
doubt:
  %causes_before = load i8, ptr %cause
  %causes_after = or i8 %causes_before, {int(cause)}
  store i8 %causes_after, ptr %cause
  br label %done
done:
  ret void
}}"""


def wide_tag(words: int) -> str:
    """Lines that tag the words of a lane; %is_own is whether its warp had stored some since the last barrier."""
    return f"""  %own_tags = icmp eq <{words} x i64> %tags, %owns{words}
  %own_bits = bitcast <{words} x i1> %own_tags to i{words}
  %is_own = icmp ne i{words} %own_bits, 0
  store <{words} x i64> %owns{words}, ptr %tags_at, align 8"""


def narrow_mask(size: int) -> str:
    """Lines that make %masks of the bytes of a word that a lane stores, where it does not store all."""
    return f"""  %in_word = and i64 %place, 3
  %mask = shl i64 {(1 << size) - 1}, %in_word
  %masks = insertelement <1 x i64> poison, i64 %mask, i64 0"""


# The tag of a word that a lane stores a part of: bytes that its warp stored since the last barrier stay its own.
NARROW_TAG = f"""  %tag = extractelement <1 x i64> %tags, i64 0
  %difference = xor i64 %tag, %mine
  %is_mine = icmp ule i64 %difference, {WORD_BYTES}
  %kept = select i1 %is_mine, i64 %tag, i64 %mine
  %repeated = and i64 %kept, %mask
  %is_own = icmp ne i64 %repeated, 0
  %merged = or i64 %kept, %mask
  store i64 %merged, ptr %tags_at"""


def read_again(bits: int, count: int) -> str:
    """Lines that add to %again_seen what differs between a lane's data and memory, as %again_any."""
    unit = bits // 8
    lines, seen = [], "%again_seen"
    for index in range(count):
        name = "%again_any" if index == count - 1 else f"%again_any{index}"
        lines.append(f"""  %again_address{index} = add i64 %again_start, {unit * index}
  %again_at{index} = inttoptr i64 %again_address{index} to ptr
  %again_memory{index} = load i{bits}, ptr %again_at{index}, align 1
  %again_item{index} = getelementptr i8, ptr %items, i64 {LANES * unit * index}
  %again_own{index} = getelementptr i{bits}, ptr %again_item{index}, i32 %again_lane
  %again_code{index} = load i{bits}, ptr %again_own{index}, align 1
  %again_x{index} = xor i{bits} %again_memory{index}, %again_code{index}
  {name} = or i{bits} {seen}, %again_x{index}""")
        seen = name
    return "\n".join(lines)


def resolve_text(bits: int, count: int) -> str:
    """A function that tags the words of one lane, and compares the bytes that somebody else stored."""
    unit = bits // 8
    size = unit * count
    mask = f"  %mask = shl i64 {(1 << size) - 1}, %in_word" if size < WORD else f"  %mask = or i64 {WORD_BYTES}, 0"
    return f"""
define internal void @resolve_{bits}_{count}(i32 %lane, i64 %place, i64 %delta, ptr %items, {TAG_ARGUMENTS}) noinline {{
entry:
  %lane_wide = zext i32 %lane to i64
  %lane_bytes = mul i64 %lane_wide, {unit}
  %in_word = and i64 %place, 3
  %first = and i64 %place, -4
{mask}
  %own = or i64 %mine, %mask
  br label %words
words:
  %index = phi i64 [0, %entry], [%index_after, %next]
  %bytes_before = shl i64 %index, 2
  %word = add i64 %first, %bytes_before
  %twice = shl i64 %word, 1
  %tag_address = add i64 %shadow, %twice
  %tag_at = inttoptr i64 %tag_address to ptr
  %tag = load i64, ptr %tag_at
  %x = xor i64 %tag, %mine
  %same = icmp ult i64 %x, {1 << INTERVAL_SHIFT}
  %warp = and i64 %x, {WARP_FIELD}
  %other = icmp ne i64 %warp, 0
  %near = and i1 %same, %other
  %block = and i64 %x, %across
  %far = icmp ne i64 %block, 0
  %either = or i1 %near, %far
  %overlap = and i64 %tag, %mask
  %touched = icmp ne i64 %overlap, 0
  %is_foreign = and i1 %either, %touched
  br i1 %is_foreign, label %bytes, label %free
free:
  %is_own = icmp ule i64 %x, {WORD_BYTES}
  %kept = select i1 %is_own, i64 %tag, i64 %mine
  %merged = or i64 %kept, %mask
  store i64 %merged, ptr %tag_at
  br label %next
bytes:
  %byte = phi i64 [0, %words], [%byte_after, %byte_next]
  %seen = phi i8 [0, %words], [%seen_after, %byte_next]
  %bit = lshr i64 %overlap, %byte
  %low = and i64 %bit, 1
  %is_met = icmp ne i64 %low, 0
  br i1 %is_met, label %compare, label %byte_next
compare:
  %address = add i64 %word, %byte
  %host = add i64 %address, %delta
  %memory_at = inttoptr i64 %host to ptr
  %memory = load i8, ptr %memory_at
  %inside = sub i64 %address, %place
  %element = udiv i64 %inside, {unit}
  %rest = urem i64 %inside, {unit}
  %element_bytes = mul i64 %element, {LANES * unit}
  %in_element = add i64 %lane_bytes, %rest
  %item = add i64 %element_bytes, %in_element
  %new_at = getelementptr i8, ptr %items, i64 %item
  %new = load i8, ptr %new_at
  %differs = xor i8 %memory, %new
  %seen_more = or i8 %seen, %differs
  br label %byte_next
byte_next:
  %seen_after = phi i8 [%seen, %bytes], [%seen_more, %compare]
  %byte_after = add i64 %byte, 1
  %is_last = icmp eq i64 %byte_after, {WORD}
  br i1 %is_last, label %compared, label %bytes
compared:
  %is_replaced = icmp ne i8 %seen_after, 0
  br i1 %is_replaced, label %doubt, label %equal
doubt:
  %causes_before = load i8, ptr %cause
  %causes_after = or i8 %causes_before, {int(InexactCause.OVERLAPPING_STORES)}
  store i8 %causes_after, ptr %cause
  store i64 %own, ptr %tag_at
  br label %next
equal:
  %is_covered = icmp eq i64 %overlap, %mask
  %stays = select i1 %is_covered, i64 %tag, i64 %own
  store i64 %stays, ptr %tag_at
  br label %next
next:
  %index_after = add i64 %index, 1
  %more = icmp ult i64 %index_after, {max(1, size // WORD)}
  br i1 %more, label %words, label %done
done:
  ret void
}}"""
