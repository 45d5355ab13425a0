"""Helpers in LLVM assembly that move data between the registers of a warp and memory, after checking every address.

    i32 load_global_16_1(context, row, mask, addresses, items, step)

`addresses` are those of the 32 lanes, `items` their data: element 0 of all lanes, then element 1. The result is 1 if an
access is outside its space or misaligned; the interpreter then finds out which and says so. Bytes and wavefronts are
counted as `interpreter.memory` does it.

Each helper is a module of its own, the same for all kernels: it is compiled once, whatever kernels need it.
"""

from __future__ import annotations

from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.compiler import context
from warpfrag.ptx.compiler.access_hook import SCREEN, SCREENED, TELL_GROUPS, screen_call
from warpfrag.ptx.compiler.async_copies import COPY_PARAMETERS, copy_text
from warpfrag.ptx.compiler.ir_builder import splat_lines
from warpfrag.ptx.compiler.store_overlaps import END_WAIT, TAG_ARGUMENTS, store_order, tag_arguments, tagged_text
from warpfrag.ptx.compiler.wavefronts import (
    COUNT_DISTINCT,
    GLOBAL_SECTORS,
    LOW_HALF,
    MATRIX_PASSES,
    MATRIX_WAVEFRONTS,
    SHARED_WAVEFRONTS,
)
from warpfrag.ptx.program import state_spaces
from warpfrag.ptx.program.inexact import InexactCause
from warpfrag.ptx.program.state_spaces import SPACES
from warpfrag.smem.shared_memory import BANK_BYTES

Helper = tuple[str, str, int, int]
"""load or store, the state space, the bits of an element, the elements of a lane: 16 bytes at most.

A "copy" is cp.async's. The space "matrices" is shared memory, where each eight lanes address the rows of a matrix.
"""
HELPER_PARAMETERS = "ptr %context, i64 %row, i32 %mask, ptr %addresses, ptr %items, i64 %step"
MOVER_PARAMETERS = "i32 %part, ptr %places, i64 %delta, ptr %items"
LANE_NUMBERS = "<" + ", ".join(f"i64 {lane}" for lane in range(LANES)) + ">"


def helper_name(access: str, space: str, bits: int, count: int) -> str:
    """The name of a helper's function."""
    return f"{access}_{space}_{bits}_{count}"


def helper_texts(helpers: set[Helper]) -> list[str]:
    """The modules of some helpers, and of those that they call."""
    generic = [helper for helper in helpers if helper[1] == "generic"]
    own = {(access, space, bits, count) for access, _, bits, count in generic for space in WINDOWS.values()}
    return [COMMON, *(helper_text(*helper) for helper in sorted(helpers | own))]


def helper_text(access: str, space: str, bits: int, count: int) -> str:
    """The module of one helper, with what is inlined into it."""
    if space == "generic":
        inner = [declaration((access, window, bits, count)) for window in WINDOWS.values()]
        return "\n".join([*inner, generic_text(access, bits, count)])
    inner = [INTRINSICS, DECLARED, MISALIGNED, COUNT, SCREEN]
    if access == "copy":
        return "\n".join([*inner, copy_text(count)])
    cause = InexactCause.STMATRIX_ROWS if space == "matrices" else InexactCause.LANES_AT_SAME_ADDRESS
    tagged = [tagged_text(bits, count, cause)] if access == "store" and space in TAGGED else []
    return "\n".join([*inner, mover_text(access, bits, count), *tagged, plain_text(access, space, bits, count)])


def declaration(helper: Helper) -> str:
    """The declaration of a helper, for modules that call it."""
    if helper[0] == "copy":
        return f"declare i32 @copy_{helper[3]}({COPY_PARAMETERS})"
    return f"declare i32 @{helper_name(*helper)}({HELPER_PARAMETERS})"


WINDOWS = {0: "global", 1: "shared", 2: "local", 3: "param"}
TAGGED = {"global", "const", "shared", "matrices"}
"""State spaces whose stores are tagged: other threads see them."""


def generic_text(access: str, bits: int, count: int) -> str:
    """A helper of generic addresses: lanes by the window that their address is in, each space by its own helper."""
    lines = [
        f"define i32 @{helper_name(access, 'generic', bits, count)}({HELPER_PARAMETERS}) {{",
        "entry:",
        "  %inner = alloca <32 x i64>, align 256",
        "  %all = load <32 x i64>, ptr %addresses, align 8",
        "  %window = lshr <32 x i64> %all, splat (i64 48)",
        "  br label %window0",
    ]
    for number, space in WINDOWS.items():
        after = f"window{number + 1}" if number + 1 in WINDOWS else "done"
        if number:
            lines_of = f"  %in{number} = icmp eq <32 x i64> %window, splat (i64 {number})"
        else:  # whatever is in no window
            lines_of = (
                "  %below0 = icmp eq <32 x i64> %window, zeroinitializer\n"
                f"  %above0 = icmp ugt <32 x i64> %window, splat (i64 {max(WINDOWS)})\n"
                "  %in0 = or <32 x i1> %below0, %above0"
            )
        name = helper_name(access, space, bits, count)
        lines.append(
            f"""window{number}:
{lines_of}
  %bits{number} = bitcast <32 x i1> %in{number} to i32
  %part{number} = and i32 %mask, %bits{number}
  %some{number} = icmp ne i32 %part{number}, 0
  br i1 %some{number}, label %call{number}, label %{after}
call{number}:
  %inner{number} = sub <32 x i64> %all, splat (i64 {state_spaces.WINDOWS[space]})
  store <32 x i64> %inner{number}, ptr %inner, align 256
  %wrong{number} = call i32 @{name}(ptr %context, i64 %row, i32 %part{number}, ptr %inner, ptr %items, i64 %step)
  %bad{number} = icmp ne i32 %wrong{number}, 0
  br i1 %bad{number}, label %fault, label %{after}"""
        )
    return "\n".join([*lines, "done:", "  ret i32 0", "fault:", "  ret i32 1", "}"])


def plain_text(access: str, space: str, bits: int, count: int) -> str:
    """A helper of one state space: check the alignment, count, then find where the lanes point to."""
    head = f"define i32 @{helper_name(access, space, bits, count)}({HELPER_PARAMETERS}) {{"
    space, matrices = ("shared", True) if space == "matrices" else (space, False)
    if space == "param" and access == "store":
        return f"{head}\n  %some = icmp ne i32 %mask, 0\n  %fault = zext i1 %some to i32\n  ret i32 %fault\n}}"
    size = bits // 8 * count
    aligned = size - 1 if size & (size - 1) == 0 else 0
    counter = (context.READ_BYTES if access == "load" else context.WRITTEN_BYTES) + SPACES.index(space)
    by_step = context.STEP_READ if access == "load" else context.STEP_WRITTEN
    mover = f"call void @{access}_{bits}_{count}(i32 %part, ptr %places, i64 %delta, ptr %items)"
    if access == "store" and space in TAGGED:
        mover = tagged_call(mover, is_shared=space == "shared")
    if space in SCREENED:
        mover = f"{screen_call(space, size, is_store=access == 'store', unit=bits // 8)}\n  {mover}"
    lines = [
        head,
        f"""entry:
  %all = load <32 x i64>, ptr %addresses, align 8
  %misaligned = call i1 @is_misaligned(i32 %mask, ptr %addresses, i64 {aligned})
  br i1 %misaligned, label %fault, label %aligned
fault:
  ret i32 1
done:
  ret i32 0
aligned:
  %lanes = call i32 @llvm.ctpop.i32(i32 %mask)
  %lanes_wide = zext i32 %lanes to i64
  %bytes = mul i64 %lanes_wide, {size}
  call void @count_bytes(ptr %context, i64 {counter}, i64 {by_step}, i64 %step, i64 %bytes)""",
    ]
    if space in {"global", "shared"}:
        if space == "global":
            fronts = "  %fronts = call i64 @sectors(i32 %mask, ptr %addresses)"
        elif matrices:
            fronts = MATRIX_WAVEFRONTS
        else:
            fronts = f"  %fronts = call i64 @passes(i32 %mask, ptr %addresses, i64 {max(size, BANK_BYTES)})"
        lines += [
            fronts,
            f"  call void @count_wavefronts(ptr %context, i64 {SPACES.index(space)}, i64 %step, i64 %fronts)",
        ]
    lines.append(in_table(access, size, mover) if space in {"global", "const"} else in_buffer(space, size, mover))
    return "\n".join([*lines, "}"])


def tagged_call(mover: str, *, is_shared: bool) -> str:
    """The call of a mover that tags what it stores, and the lines before it."""
    if is_shared:
        shadow = f"""  %tags_at = getelementptr i64, ptr %context, i64 {context.SHARED_TAGS}
  %tags = load i64, ptr %tags_at
  %twice = shl i64 %first, 1
  %shadow = add i64 %tags, %twice"""
    else:
        shadow = """  %tags_at = getelementptr i64, ptr %home, i64 4
  %tags = load i64, ptr %tags_at
  %twice = shl i64 %start, 1
  %shadow = sub i64 %tags, %twice"""
    call = mover.replace("@store_", "@tagged_").replace("ptr %items)", f"ptr %items, {TAG_ARGUMENTS})")
    return f"{tag_arguments(shadow, is_shared=is_shared).lstrip()}\n  {call}"


def span_check(mask: str, first: str, last: str, inside: str, otherwise: str) -> str:
    """Lines that go to `inside` where all lanes are live and between two addresses: no lane is looked at by itself."""
    return f"""  %is_whole = icmp eq i32 {mask}, -1
  br i1 %is_whole, label %span, label {otherwise}
span:
  %lowest = call i64 @llvm.vector.reduce.umin.v32i64(<32 x i64> %all)
  %highest = call i64 @llvm.vector.reduce.umax.v32i64(<32 x i64> %all)
  %is_from = icmp uge i64 %lowest, {first}
  %is_to = icmp ule i64 %highest, {last}
  %is_inside = and i1 %is_from, %is_to
  br i1 %is_inside, label {inside}, label {otherwise}"""


def in_table(access: str, size: int, mover: str) -> str:
    """Move the lanes of one allocation of global memory after the other."""
    writable = """  %writable_at = getelementptr i64, ptr %home, i64 3
  %writable = load i64, ptr %writable_at
  %locked = icmp eq i64 %writable, 0
  br i1 %locked, label %fault, label %open"""
    return f"""  br label %loop
loop:
  %left = phi i32 [%mask, %aligned], [%left_after, %move]
  %more = icmp ne i32 %left, 0
  br i1 %more, label %search, label %done
search:
  %first = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %first_at = getelementptr i64, ptr %addresses, i32 %first
  %address = load i64, ptr %first_at
  %home = call ptr @find(ptr %context, i64 %address)
  %none = icmp eq ptr %home, null
  br i1 %none, label %fault, label %check
check:
  %start = load i64, ptr %home
  %end_at = getelementptr i64, ptr %home, i64 1
  %end = load i64, ptr %end_at
  %available = sub i64 %end, %address
  %tight = icmp ult i64 %available, {size}
  br i1 %tight, label %fault, label %fits
fits:
{writable if access == "store" else "  br label %open"}
open:
  %last = sub i64 %end, {size}
{span_check("%left", "%start", "%last", "%move", "%compare")}
compare:
{splat_lines("starts", "%start")}
{splat_lines("lasts", "%last")}
  %from = icmp uge <32 x i64> %all, %starts
  %to = icmp ule <32 x i64> %all, %lasts
  %inside = and <32 x i1> %from, %to
  %inside_bits = bitcast <32 x i1> %inside to i32
  %some = and i32 %left, %inside_bits
  br label %move
move:
  %part = phi i32 [-1, %span], [%some, %compare]
  %left_after = xor i32 %left, %part
  %data_at = getelementptr i64, ptr %home, i64 2
  %data = load i64, ptr %data_at
  %delta = sub i64 %data, %start
  {mover.replace("%places", "%addresses")}
  br label %loop"""


def in_buffer(space: str, size: int, mover: str) -> str:
    """Move the lanes of a space that is one buffer, with a part for every block or thread."""
    start = state_spaces.SHARED_START if space == "shared" else 0
    end = {"shared": context.SHARED_END, "local": context.LOCAL_STRIDE, "param": context.PARAMETER_BYTES}[space]
    base = {"shared": context.SHARED, "local": context.LOCAL, "param": context.PARAMETERS}[space]
    own = {
        "shared": f"""  %blocks_at = getelementptr i64, ptr %context, i64 {context.WARP_BLOCK}
  %blocks = load ptr, ptr %blocks_at
  %block_at = getelementptr i64, ptr %blocks, i64 %row
  %block = load i64, ptr %block_at
  %stride_at = getelementptr i64, ptr %context, i64 {context.SHARED_STRIDE}
  %stride = load i64, ptr %stride_at
  %first = mul i64 %block, %stride
  %places = getelementptr i8, ptr %addresses, i64 0""",
        "local": f"""  %thread = shl i64 %row, 5
  %first = mul i64 %thread, %end
  %own_starts = mul <32 x i64> {LANE_NUMBERS}, %ends
  %there = add <32 x i64> %all, %own_starts
  %places = alloca <32 x i64>, align 256
  store <32 x i64> %there, ptr %places, align 256""",
        "param": "  %first = add i64 0, 0\n  %places = getelementptr i8, ptr %addresses, i64 0",
    }[space]
    return f"""  %end_at = getelementptr i64, ptr %context, i64 {end}
  %end = load i64, ptr %end_at
{splat_lines("ends", "%end")}
  %last = sub i64 %end, {size}
  %is_empty = icmp ult i64 %end, {start + size}
  br i1 %is_empty, label %compare, label %not_empty
not_empty:
{span_check("%mask", str(start), "%last", "%fits", "%compare")}
compare:
  %low = icmp ult <32 x i64> %all, splat (i64 {start})
  %high = icmp uge <32 x i64> %all, %ends
  %availables = sub <32 x i64> %ends, %all
  %tight = icmp ult <32 x i64> %availables, splat (i64 {size})
  %below_or_above = or <32 x i1> %low, %high
  %outside = or <32 x i1> %below_or_above, %tight
  %outside_bits = bitcast <32 x i1> %outside to i32
  %outside_here = and i32 %outside_bits, %mask
  %wrong = icmp ne i32 %outside_here, 0
  br i1 %wrong, label %fault, label %fits
fits:
  %base_at = getelementptr i64, ptr %context, i64 {base}
  %base = load i64, ptr %base_at
{own}
  %delta = add i64 %base, %first
  %part = add i32 %mask, 0
  {mover}
  br label %done"""


def mover_text(access: str, bits: int, count: int) -> str:
    """Move data between `items` and the addresses of the lanes in `part`, plus `delta`: at once if consecutive."""
    lines = [
        f"define internal void @{access}_{bits}_{count}({MOVER_PARAMETERS}) alwaysinline {{",
        "entry:",
    ]
    if count == 1:
        source, target = ("%line_at", "%items") if access == "load" else ("%items", "%line_at")
        lines.append(f"""  %all = load <32 x i64>, ptr %places, align 8
  %begin = load i64, ptr %places
{splat_lines("begins", "%begin")}
  %distances = mul <32 x i64> {LANE_NUMBERS}, splat (i64 {bits // 8})
  %in_line = add <32 x i64> %begins, %distances
  %distant = xor <32 x i64> %all, %in_line
  %distance = call i64 @llvm.vector.reduce.or.v32i64(<32 x i64> %distant)
  %is_row = icmp eq i64 %distance, 0
  %is_full = icmp eq i32 %part, -1
  %is_line = and i1 %is_row, %is_full
  br i1 %is_line, label %at_once, label %look
at_once:
  %line_start = add i64 %begin, %delta
  %line_at = inttoptr i64 %line_start to ptr
  %line = load <32 x i{bits}>, ptr {source}, align 1
  store <32 x i{bits}> %line, ptr {target}, align 1
  ret void
look:""")
    lines += ["  %is_whole = icmp eq i32 %part, -1", "  br i1 %is_whole, label %whole, label %loop", "whole:"]
    order = store_order(bits // 8 * count) if access == "store" else list(range(LANES))
    for lane in order:
        lines.append(lane_text(access, bits, count, str(lane), f"a{lane}"))
    lines.append(f"""  ret void
loop:
{REORDER[order[0]]}
  br label %next
next:
  %left = phi i32 [%ordered, %loop], [%left_after, %next_lane]
  %more = icmp ne i32 %left, 0
  br i1 %more, label %next_lane, label %done
done:
  ret void
next_lane:
  %place_in_order = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %lane = xor i32 %place_in_order, {order[0]}
  %less = sub i32 %left, 1
  %left_after = and i32 %left, %less
{lane_text(access, bits, count, "%lane", "b")}
  br label %next
}}""")
    return "\n".join(lines)


REORDER = {
    0: "  %ordered = or i32 %part, 0",
    31: "  %ordered = call i32 @llvm.bitreverse.i32(i32 %part)",
    15: "  %turned = call i32 @llvm.bitreverse.i32(i32 %part)\n"
    "  %ordered = call i32 @llvm.fshl.i32(i32 %turned, i32 %turned, i32 16)",
    7: "  %turned = call i32 @llvm.bitreverse.i32(i32 %part)\n  %ordered = call i32 @llvm.bswap.i32(i32 %turned)",
}
"""Lines that make %ordered of a mask of lanes, by the lane that stores first: it is what lane and place differ in."""


def lane_text(access: str, bits: int, count: int, lane: str, prefix: str) -> str:
    """Lines that move the elements of one lane; names begin with `prefix`."""
    unit = bits // 8
    lines = [
        f"  %{prefix}_place_at = getelementptr i64, ptr %places, i32 {lane}",
        f"  %{prefix}_address = load i64, ptr %{prefix}_place_at",
        f"  %{prefix}_start = add i64 %{prefix}_address, %delta",
        f"  %{prefix}_place = inttoptr i64 %{prefix}_start to ptr",
    ]
    for index in range(count):
        source, target = ("memory", "own") if access == "load" else ("own", "memory")
        lines += [
            f"  %{prefix}_memory{index} = getelementptr i8, ptr %{prefix}_place, i64 {unit * index}",
            f"  %{prefix}_item{index} = getelementptr i8, ptr %items, i64 {32 * unit * index}",
            f"  %{prefix}_own{index} = getelementptr i{bits}, ptr %{prefix}_item{index}, i32 {lane}",
            f"  %{prefix}_code{index} = load i{bits}, ptr %{prefix}_{source}{index}, align 1",
            f"  store i{bits} %{prefix}_code{index}, ptr %{prefix}_{target}{index}, align 1",
        ]
    return "\n".join(lines)


INTRINSICS = """declare i32 @llvm.cttz.i32(i32, i1)
declare i32 @llvm.ctlz.i32(i32, i1)
declare i64 @llvm.cttz.i64(i64, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.bitreverse.i32(i32)
declare i32 @llvm.bswap.i32(i32)
declare i32 @llvm.fshl.i32(i32, i32, i32)
declare i64 @llvm.vector.reduce.or.v32i64(<32 x i64>)
declare i64 @llvm.vector.reduce.or.v8i64(<8 x i64>)
declare i32 @llvm.vector.reduce.or.v32i32(<32 x i32>)
declare i64 @llvm.vector.reduce.add.v32i64(<32 x i64>)
declare i64 @llvm.vector.reduce.umin.v32i64(<32 x i64>)
declare i64 @llvm.vector.reduce.umax.v32i64(<32 x i64>)
declare i64 @llvm.umax.i64(i64, i64)"""

# Whether the address of a lane that is live has one of these low bits.
MISALIGNED = """
define internal i1 @is_misaligned(i32 %mask, ptr %addresses, i64 %low_bits) alwaysinline {
entry:
  %all = load <32 x i64>, ptr %addresses, align 8
  %is_whole = icmp eq i32 %mask, -1
  br i1 %is_whole, label %reduce, label %some
some:
  %live = bitcast i32 %mask to <32 x i1>
  %own = select <32 x i1> %live, <32 x i64> %all, <32 x i64> zeroinitializer
  br label %reduce
reduce:
  %live_addresses = phi <32 x i64> [%all, %entry], [%own, %some]
  %bits = call i64 @llvm.vector.reduce.or.v32i64(<32 x i64> %live_addresses)
  %rest = and i64 %bits, %low_bits
  %is_any = icmp ne i64 %rest, 0
  ret i1 %is_any
}"""

COUNT = f"""
define internal void @count(ptr %counters, i64 %index, i64 %more) alwaysinline {{
  %at = getelementptr i64, ptr %counters, i64 %index
  %before = load i64, ptr %at
  %after = add i64 %before, %more
  store i64 %after, ptr %at
  ret void
}}

define internal void @count_bytes(ptr %context, i64 %index, i64 %table, i64 %step, i64 %more) alwaysinline {{
  call void @count(ptr %context, i64 %index, i64 %more)
  %steps_at = getelementptr i64, ptr %context, i64 %table
  %steps = load ptr, ptr %steps_at
  call void @count(ptr %steps, i64 %step, i64 %more)
  ret void
}}

define internal void @count_wavefronts(ptr %context, i64 %space, i64 %step, i64 %packed) alwaysinline {{
  %more = and i64 %packed, {LOW_HALF}
  %conflicts = lshr i64 %packed, 32
  %conflicts_at = getelementptr i64, ptr %context, i64 {context.STEP_CONFLICTS}
  %by_step = load ptr, ptr %conflicts_at
  call void @count(ptr %by_step, i64 %step, i64 %conflicts)
  %passes = getelementptr i64, ptr %context, i64 {context.WAVEFRONTS}
  call void @count(ptr %passes, i64 %space, i64 %more)
  %steps_at = getelementptr i64, ptr %context, i64 {context.STEP_WAVEFRONTS}
  %steps = load ptr, ptr %steps_at
  call void @count(ptr %steps, i64 %step, i64 %more)
  ret void
}}"""

# Keeps the fault of the earliest step, and of one step that of the first warp.
FAULT = f"""
define void @fault(ptr %context, i64 %step, i64 %row, i32 %mask, ptr %addresses) {{
  %step_at = getelementptr i64, ptr %context, i64 {context.FAULT_STEP}
  %known = load i64, ptr %step_at
  %earlier = icmp ult i64 %step, %known
  br i1 %earlier, label %keep, label %done
keep:
  store i64 %step, ptr %step_at
  %row_at = getelementptr i64, ptr %context, i64 {context.FAULT_WARP}
  store i64 %row, ptr %row_at
  %mask_at = getelementptr i64, ptr %context, i64 {context.FAULT_MASK}
  %wide = zext i32 %mask to i64
  store i64 %wide, ptr %mask_at
  %all = load <32 x i64>, ptr %addresses
  %kept = getelementptr i64, ptr %context, i64 {context.FAULT_ADDRESSES}
  store <32 x i64> %all, ptr %kept, align 8
  br label %done
done:
  ret void
}}"""

# The allocation that holds an address: its row of the sorted table (start, end, data, writable, tags), or null.
FIND = f"""
define ptr @find(ptr %context, i64 %address) {{
entry:
  %table_at = getelementptr i64, ptr %context, i64 {context.ALLOCATIONS}
  %table = load ptr, ptr %table_at
  %count_at = getelementptr i64, ptr %context, i64 {context.ALLOCATION_COUNT}
  %count = load i64, ptr %count_at
  br label %loop
loop:
  %low = phi i64 [0, %entry], [%low_after, %look]
  %high = phi i64 [%count, %entry], [%high_after, %look]
  %more = icmp ult i64 %low, %high
  br i1 %more, label %look, label %last
look:
  %both = add i64 %low, %high
  %middle = lshr i64 %both, 1
  %middle_offset = mul i64 %middle, {context.ALLOCATION_WORDS}
  %middle_row = getelementptr i64, ptr %table, i64 %middle_offset
  %middle_start = load i64, ptr %middle_row
  %from = icmp uge i64 %address, %middle_start
  %next = add i64 %middle, 1
  %low_after = select i1 %from, i64 %next, i64 %low
  %high_after = select i1 %from, i64 %high, i64 %middle
  br label %loop
last:
  %none_starts = icmp eq i64 %low, 0
  br i1 %none_starts, label %none, label %check
check:
  %index = sub i64 %low, 1
  %offset = mul i64 %index, {context.ALLOCATION_WORDS}
  %row = getelementptr i64, ptr %table, i64 %offset
  %end_at = getelementptr i64, ptr %row, i64 1
  %end = load i64, ptr %end_at
  %inside = icmp ult i64 %address, %end
  br i1 %inside, label %inside_row, label %none
inside_row:
  ret ptr %row
none:
  ret ptr null
}}"""

WAVEFRONT_COUNTS = f"{COUNT_DISTINCT}{GLOBAL_SECTORS}{SHARED_WAVEFRONTS}{MATRIX_PASSES}"
COMMON = f"{INTRINSICS}{FAULT}{FIND}{WAVEFRONT_COUNTS}{END_WAIT}{TELL_GROUPS}"
DECLARED = """
declare void @fault(ptr, i64, i64, i32, ptr)
declare ptr @find(ptr, i64)
declare i64 @sectors(i32, ptr)
declare i64 @passes(i32, ptr, i64)
declare i64 @matrix_passes(i32, ptr, i32)
declare void @end_wait(ptr, i64, i32, i64)
declare void @tell_groups(ptr, i64, i32, i64, i64, i64)"""
