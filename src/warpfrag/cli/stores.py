"""`warpfrag stores`: every plan to store an operand to shared memory."""

from warpfrag.cli.support.access_plans import access_plans_command

HALF = "mma.m16n8k16.f16.f16.f16.f16"

command = access_plans_command(
    "store",
    "store an operand to shared memory",
    f"warpfrag stores {HALF} d --order row --pitch 32 --swizzle 32",
    "warpfrag stores mma.m16n8k16.f32.f16.f16.f32 d --pitch 32 --target sm_80",
    f"warpfrag stores {HALF} d:col=2 --search --emit ptx",
    "warpfrag stores wgmma.mma_async.m64n64k16.f16.f16.f16 d --pitch 128 --swizzle 128   # by four warps",
)
