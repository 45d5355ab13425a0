"""The hook of compiled code for accesses: a call, in LLVM assembly, of the function that a check gives.

    void function(context, row, mask, places, base, buffer, size, is_store, step, items, unit)

Lane l accesses `size` bytes at places[l] + base of a buffer: the row of an allocation in the table, or the number of
shared or local memory. What it stores are elements of `unit` bytes: the first of all lanes, then the next. Groups of
cp.async are told as accesses of `COPY_GROUPS`: a store closes a group, a load waits until at most `size` are not done.
While the context has no function, an access costs one more comparison.
"""

from __future__ import annotations

from warpfrag.ptx.compiler import context

SHARED_BUFFER, LOCAL_BUFFER, COPY_GROUPS = 1, 2, 3
SCREENED = {"global", "const", "shared", "local"}
"""State spaces whose accesses are told."""

SCREEN = f"""
define internal void @screen(
  ptr %context, i64 %row, i32 %mask, ptr %places, i64 %base, i64 %buffer, i64 %size, i64 %is_store, i64 %step,
  ptr %items, i64 %unit
) alwaysinline {{
entry:
  %function_at = getelementptr i64, ptr %context, i64 {context.SCREEN}
  %function = load ptr, ptr %function_at
  %is_off = icmp eq ptr %function, null
  br i1 %is_off, label %done, label %tell
tell:
  %wide = zext i32 %mask to i64
  call void %function(
    ptr %context, i64 %row, i64 %wide, ptr %places, i64 %base, i64 %buffer, i64 %size, i64 %is_store, i64 %step,
    ptr %items, i64 %unit)
  br label %done
done:
  ret void
}}"""


TELL_GROUPS = f"""{SCREEN}
define void @tell_groups(ptr %context, i64 %row, i32 %mask, i64 %left, i64 %closes, i64 %step) {{
  call void @screen(
    ptr %context, i64 %row, i32 %mask, ptr null, i64 0, i64 {COPY_GROUPS}, i64 %left, i64 %closes, i64 %step,
    ptr null, i64 0)
  ret void
}}"""


def screen_call(
    space: str, size: int | str, *, is_store: bool, unit: int = 0, part: str = "%part", home: str = "%home"
) -> str:
    """Lines that tell of an access where a helper is about to move data, in elements of `unit` bytes."""
    places, base, buffer = "%places", "%first", str({"shared": SHARED_BUFFER, "local": LOCAL_BUFFER}.get(space))
    before = ""
    if space in {"global", "const"}:
        before = f"""  %buffer = ptrtoint ptr {home} to i64
  %minus_start = sub i64 0, %start
"""
        places, base, buffer = "%addresses", "%minus_start", "%buffer"
    arguments = f"ptr {places}, i64 {base}, i64 {buffer}, i64 {size}, i64 {int(is_store)}, i64 %step"
    arguments += f", ptr %items, i64 {unit}"
    return f"{before}  call void @screen(ptr %context, i64 %row, i32 {part}, {arguments})"
