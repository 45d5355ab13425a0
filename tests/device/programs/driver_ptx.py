"""PTX through the driver API, with parameters in a buffer (CU_LAUNCH_PARAM_BUFFER_POINTER)."""

import ctypes

PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 salt = 77;
.visible .entry mix(.param .u64 data, .param .u32 factor, .param .u32 count)
{
  .reg .b64 a<4>; .reg .b32 r<8>; .reg .pred p;
  ld.param.u64 a1, [data]; ld.param.u32 r1, [factor]; ld.param.u32 r7, [count];
  mov.u32 r2, %tid.x; mov.u32 r3, %ctaid.x; mov.u32 r4, %ntid.x; mad.lo.u32 r2, r3, r4, r2;
  setp.ge.u32 p, r2, r7; @p ret;
  mul.wide.u32 a2, r2, 4; add.s64 a3, a1, a2; ld.global.u32 r5, [a3]; ld.global.u32 r6, [salt];
  mad.lo.u32 r5, r5, r1, r6; xor.b32 r5, r5, r2; st.global.u32 [a3], r5; ret;
}
"""
cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *args):
    result = getattr(cuda, name)(*args)
    if result:
        raise SystemExit(f"{name}: {result}")


device, context, module, function, data = ctypes.c_int(), *(ctypes.c_uint64() for _ in range(4))
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(function), module, b"mix")
call("cuMemAlloc_v2", ctypes.byref(data), ctypes.c_size_t(4000))
call("cuMemcpyHtoD_v2", data, (ctypes.c_uint32 * 1000)(*range(1000)), ctypes.c_size_t(4000))


class Params(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64), ("factor", ctypes.c_uint32), ("count", ctypes.c_uint32))


for factor in (3, 5, 7):
    params, size = Params(data.value, factor, 990), ctypes.c_size_t(ctypes.sizeof(Params))
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(params), 2, ctypes.addressof(size), None)
    call("cuLaunchKernel", function, 8, 1, 1, 128, 1, 1, 0, None, None, extra)
call("cuCtxSynchronize")
print("ok")
