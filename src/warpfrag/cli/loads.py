"""`warpfrag loads`: every plan to fill an operand from shared memory."""

from warpfrag.cli.support.access_plans import access_plans_command

MMA = "mma.m16n8k16.f32.f16.f16.f32"

command = access_plans_command(
    "load",
    "fill an operand from shared memory",
    f"warpfrag loads {MMA} a --order row --pitch 128 --swizzle 128",
    f"warpfrag loads {MMA} b:col=2 --order col --pitch 128 --swizzle 128 --lanes   # two tiles",
    f"warpfrag loads {MMA} a --search",
    f"warpfrag loads {MMA} a --search --width 80             # tiles of 80 bytes, written and read",
    f"warpfrag loads {MMA} b --pitch 128 --swizzle 128 --emit cuda",
    f"warpfrag loads {MMA} a --pitch 128 --swizzle 128 -o addresses.svg",
    "warpfrag loads mma.m16n8k32.kind::f8f6f4.f32.e3m2.e2m1.f32 a --pitch 48 --packed",
)
