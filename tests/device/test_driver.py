"""The stand-in driver, called through ctypes: results, attributes, and the errors that a driver returns."""

import gzip
import json
from pathlib import Path

import pytest

from device.conditions import needs_stand_ins
from device.driver_api import run
from warpfrag.device.gpu_attributes import read_profile
from warpfrag.errors import InvalidOperand

TENSOR_MAPS = Path(__file__).parent.parent / "data" / "tensor_maps_h200.json.gz"
pytestmark = needs_stand_ins
H200 = json.loads((Path(__file__).parents[1] / "data" / "h200_driver.json").read_bytes())


def lines_of(program) -> list[str]:
    assert program.returncode == 0, program.stderr
    return program.stdout.splitlines()


@pytest.mark.parametrize("level", ["ptx", "auto"])
def test_a_kernel_runs_with_variables_and_constants(level, tmp_path):
    program = run(
        f"""
        import os
        os.environ["WARPFRAG_LEVEL"] = {level!r}
        start()
        n = 1000
        kind = C.c_float * n
        a, b, c = (allocate(4 * n) for _ in range(3))
        put(a, kind(*range(n)))
        put(b, kind(*range(n)))
        module = load(ADD)
        add = function(module, "add")
        ok(launch(add, (8,), (128,), a, b, c, C.c_int(n)))
        assert take(c, kind) == [3.0 * i for i in range(n)]

        address, size = C.c_uint64(), C.c_size_t()
        ok(cu.cuModuleGetGlobal_v2(C.byref(address), C.byref(size), module, b"counter"))
        print(size.value, *take(address, C.c_uint32 * 1))
        ok(cu.cuModuleGetGlobal_v2(C.byref(address), C.byref(size), module, b"scale"))
        put(address, (C.c_float * 1)(10.0))
        ok(launch(add, (8,), (128,), a, b, c, C.c_int(n)))
        assert take(c, kind) == [11.0 * i for i in range(n)]
        print(cu.cuModuleGetGlobal_v2(None, None, module, b"absent"))
        """,
        tmp_path,
    )

    assert lines_of(program) == ["4 6", "500"]


@pytest.mark.parametrize(("level", "checks"), [("ptx", "uninitialised"), ("auto", "uninitialised"), ("ptx", "all")])
def test_memory_that_nothing_wrote_since_its_allocation_is_a_finding(level, checks, tmp_path):
    program = run(
        f"""
        import os
        os.environ["WARPFRAG_LEVEL"] = {level!r}
        start()
        n = 64
        add = function(load(ADD), "add")
        def fresh():
            return allocate(4 * n)
        def sum_of(a, b, out=None):
            out = out or fresh()
            ok(launch(add, (1,), (64,), a, b, out, C.c_int(n)))
            return out
        ones = fresh()
        ok(cu.cuMemsetD32_v2(ones, 1, C.c_size_t(n)))
        some = fresh()
        ok(cu.cuMemcpyDtoD_v2(some, ones, C.c_size_t(4 * n - 8)))
        rows = fresh()
        ok(cu.cuMemsetD2D8_v2(rows, C.c_size_t(64), 0, C.c_size_t(64), C.c_size_t(4)))
        managed = C.c_uint64()
        ok(cu.cuMemAllocManaged(C.byref(managed), C.c_size_t(4 * n), 1))
        sum_of(ones, sum_of(ones, rows))
        sum_of(ones, managed)
        sum_of(ones, some)  # the last two numbers
        put(C.c_uint64(some.value + 4 * n - 8), (C.c_float * 2)())
        sum_of(ones, some)
        again = fresh()
        sum_of(ones, ones, again)
        ok(cu.cuMemFree_v2(again))
        sum_of(ones, fresh())
        """,
        tmp_path,
        checks=(checks,),
    )
    assert program.returncode == 0, program.stderr
    entries = [json.loads(line)["launch"] for line in (tmp_path / "launches.jsonl").read_text().splitlines()]
    assert [entry["verdict"] for entry in entries] == [*["clean"] * 3, "findings", *["clean"] * 2, "findings"]
    assert "byte 248 of the array at 0x" in entries[3]["findings"][0]
    assert "byte 0 of the array at 0x" in entries[-1]["findings"][0]


def test_attributes_limits_and_errors_are_those_of_an_h200(tmp_path):
    program = run(
        """
        import json
        context = start()
        value, size, text = C.c_int(), C.c_size_t(), C.c_char_p()
        attributes = {}
        for number in range(1, 160):
            error = cu.cuDeviceGetAttribute(C.byref(value), number, 0)
            attributes[number] = [error, value.value if not error else None]
        limits = [[cu.cuCtxGetLimit(C.byref(size), limit), size.value] for limit in range(8)]
        names = {}
        for number in range(1000):
            if cu.cuGetErrorName(number, C.byref(text)) == 0:
                names[number] = text.value.decode()
        print(json.dumps([attributes, limits, names]))
        """,
        tmp_path,
    )
    attributes, limits, names = json.loads(lines_of(program)[0])

    expected = {number: [0, value] for number, value in H200["attributes"].items()}
    expected |= {number: [code, None] for number, code in H200["attribute_errors"].items() if int(number) < 160}
    assert attributes == expected
    assert [limit[1] for limit in limits if not limit[0]] == [v for v in H200["limits"].values() if isinstance(v, int)]
    assert [limit[0] for limit in limits if limit[0]] == [215]
    assert names == H200["errors"]


def test_occupancy_and_launch_errors_are_those_of_an_h200(tmp_path):
    shared = ADDITIONAL_SHARED.replace("\n", " ")
    program = run(
        f"""
        import json
        start()
        kernel = function(load({shared!r}.encode()), "small")
        cases = json.loads({json.dumps(json.dumps([H200["occupancy"], H200["launch_results"]]))})
        number, found = C.c_int(), []
        for threads, shared, _ in cases[0]:
            ok(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(C.byref(number), kernel, threads, C.c_size_t(shared)))
            found.append([threads, shared, number.value])
        results = [launch(kernel, grid, block, C.c_uint64(0), shared=shared) for grid, block, shared, *_ in cases[1]]
        attributes = []
        for index in range(10):
            ok(cu.cuFuncGetAttribute(C.byref(number), index, kernel))
            attributes.append(number.value)
        print(json.dumps([found, results, attributes]))
        """,
        tmp_path,
        record_only=True,
    )
    occupancy, results, attributes = json.loads(lines_of(program)[0])

    assert occupancy == H200["occupancy"]
    assert results == [row[3] for row in H200["launch_results"]]
    assert (attributes[0], attributes[1], attributes[8]) == (1024, 1024, 48128)


ADDITIONAL_SHARED = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry small(.param .u64 p)
{
    .shared .align 4 .b8 tile[1024];
    .reg .b32 %r<3>;
    mov.u32 %r1, tile;
    st.volatile.shared.u32 [%r1], 0;
    ret;
}
"""


def test_a_failed_launch_stays_and_is_printed(tmp_path):
    program = run(
        """
        start()
        a, b, c = (allocate(400) for _ in range(3))
        add = function(load(ADD), "add")
        print(launch(add, (1,), (128,), a, b, c, C.c_int(101)), cu.cuCtxSynchronize(), cu.cuMemFree_v2(a))
        ok(cu.cuDevicePrimaryCtxReset_v2(0))
        start()
        add = function(load(ADD), "add")
        a, b, c = (allocate(400) for _ in range(3))
        print(launch(add, (1,), (128,), a, b, c, C.c_int(100)))
        ok(cu.cuMemFree_v2(c))
        print(launch(add, (1,), (128,), a, b, c, C.c_int(100)))
        """,
        tmp_path,
    )

    assert lines_of(program) == ["700 700 700", "0", "700"]
    assert "add with grid (1, 1, 1) and block (128, 1, 1) failed, CUDA_ERROR_ILLEGAL_ADDRESS" in program.stderr
    assert "by thread (100, 0, 0) of block (0, 0, 0)" in program.stderr
    assert "in freed memory" in program.stderr


def test_bad_input_gets_the_error_of_a_driver(tmp_path):
    program = run(
        """
        address, size, handle = C.c_uint64(), C.c_size_t(), C.c_void_p()
        print(cu.cuMemAlloc_v2(C.byref(address), C.c_size_t(4)))               # not initialized
        ok(cu.cuInit(0))
        print(cu.cuMemAlloc_v2(C.byref(address), C.c_size_t(4)))               # no context
        print(cu.cuDeviceGet(C.byref(C.c_int()), 1))                           # no second device
        context = start()
        print(cu.cuMemAlloc_v2(C.byref(address), C.c_size_t(1 << 60)))         # too large
        print(cu.cuMemAlloc_v2(C.byref(address), C.c_size_t(0)))
        address = allocate(16)
        print(cu.cuMemcpyHtoD_v2(address, (C.c_char * 17)(), C.c_size_t(17)))  # too long
        ok(cu.cuMemFree_v2(address))
        print(cu.cuMemFree_v2(address))                                        # twice
        print(cu.cuMemcpyHtoD_v2(address, (C.c_char * 16)(), C.c_size_t(16)))  # freed
        print(cu.cuStreamSynchronize(C.c_void_p(0x123456)), cu.cuEventSynchronize(C.c_void_p(0x777)))
        print(cu.cuModuleLoadData(C.byref(handle), b"no PTX at all"))
        print(cu.cuModuleLoadData(C.byref(handle), bytes.fromhex("7f454c46") + bytes(100)))
        module = load(ADD)
        print(cu.cuModuleGetFunction(C.byref(handle), module, b"absent"))
        stream = C.c_void_p()
        ok(cu.cuStreamCreate(C.byref(stream), 0))
        second = C.c_void_p()
        ok(cu.cuCtxCreate_v2(C.byref(second), 0, 0))
        print(cu.cuStreamSynchronize(stream))                                  # of another context
        print(launch(function(module, "add"), (1,), (1,), address, address, address, C.c_int(0)))
        ok(cu.cuCtxDestroy_v2(second))
        ok(cu.cuCtxSetCurrent(context))
        ok(cu.cuStreamDestroy_v2(stream))
        print(cu.cuStreamDestroy_v2(stream))
        ok(cu.cuModuleUnload(module))
        print(cu.cuModuleUnload(module))
        print(cu.cuArrayCreate_v2(None, None))                                 # not supported
        """,
        tmp_path,
    )

    expected = ["3", "201", "101", "2", "1", "1", "1", "1", "400 400", "218", "200", "500", "400", "400", "400", "400"]
    assert lines_of(program) == [*expected, "801"]
    assert "cuArrayCreate_v2 is not supported" in program.stderr


def test_copies_fills_and_pools(tmp_path):
    program = run(
        """
        context = start()
        a = allocate(64)
        ok(cu.cuMemsetD32_v2(a, 7, C.c_size_t(16)))
        ok(cu.cuMemsetD16_v2(C.c_uint64(a.value + 4), 1, C.c_size_t(2)))
        ok(cu.cuMemsetD2D8_v2(C.c_uint64(a.value + 8), C.c_size_t(16), 255, C.c_size_t(2), C.c_size_t(3)))
        print(take(a, C.c_uint32 * 16))
        address, pool, stream = C.c_uint64(), C.c_void_p(), C.c_void_p()
        ok(cu.cuMemAllocAsync(C.byref(address), C.c_size_t(64), stream))
        ok(cu.cuMemcpyDtoDAsync_v2(address, a, C.c_size_t(64), stream))
        ok(cu.cuMemcpy(C.c_uint64(address.value + 64), C.c_uint64(a.value + 64), C.c_size_t(0)))  # nothing, at the end
        print(take(address, C.c_uint32 * 16) == take(a, C.c_uint32 * 16))
        kind, managed = C.c_uint(), C.c_uint64()
        ok(cu.cuPointerGetAttribute(C.byref(kind), 2, C.c_uint64(address.value + 5)))
        ok(cu.cuMemFreeAsync(address, stream))
        print(kind.value, cu.cuPointerGetAttribute(C.byref(kind), 2, address))
        ok(cu.cuMemAllocManaged(C.byref(managed), C.c_size_t(4), 1))
        C.c_uint32.from_address(managed.value).value = 77
        print(take(managed, C.c_uint32 * 1))
        free, total = C.c_size_t(), C.c_size_t()
        ok(cu.cuMemGetInfo_v2(C.byref(free), C.byref(total)))
        print(total.value - free.value, total.value)
        """,
        tmp_path,
        memory=1 << 20,
    )
    fills = [7] * 16
    fills[1] = 0x00010001
    fills[2] = fills[6] = fills[10] = 0x0000FFFF

    assert lines_of(program) == [str(fills), "True", "2 1", "[77]", f"68 {1 << 20}"]


@pytest.mark.parametrize("version", [12, 13])
def test_managed_memory_is_advised_and_prefetched(version, tmp_path):
    program = run(
        f"""
        start()
        runtime = C.CDLL("libcudart.so.{version}")

        class Location(C.Structure):
            _fields_ = [("type", C.c_int), ("id", C.c_int)]

        gpu, size, managed, stream = Location(1, 0), C.c_size_t(64), C.c_void_p(), C.c_void_p()
        ok(runtime.cudaMallocManaged(C.byref(managed), size, 1))
        ok(runtime.cudaMemAdvise_v2(managed, size, 1, gpu))
        ok(runtime.cudaMemPrefetchAsync_v2(managed, size, gpu, 0, stream))
        old = {version} == 12
        ok(runtime.cudaMemAdvise(managed, size, 1, 0 if old else gpu))
        ok(runtime.cudaMemPrefetchAsync(managed, size, *([0, stream] if old else [gpu, 0, stream])))
        ok(cu.cuMemAdvise(managed, size, 1, 0))
        ok(cu.cuMemPrefetchAsync_v2_ptsz(managed, size, gpu, 0, stream))
        print(runtime.cudaMemPrefetchAsync_v2(C.c_void_p(64), size, gpu, 0, stream), runtime.cudaGetLastError())
        """,
        tmp_path,
    )
    assert lines_of(program) == ["1 1"]


def test_graphs_are_captured_and_replayed(tmp_path):
    program = run(
        """
        start()
        n = 64
        a, b, c = (allocate(4 * n) for _ in range(3))
        put(a, (C.c_float * n)(*[1.0] * n))
        put(b, (C.c_float * n)(*[0.0] * n))
        add = function(load(ADD), "add")
        stream, graph, runs = C.c_void_p(), C.c_void_p(), C.c_void_p()
        ok(cu.cuStreamCreate(C.byref(stream), 1))
        ok(cu.cuStreamBeginCapture_v2(stream, 0))
        status, count = C.c_int(), C.c_size_t()
        ok(cu.cuStreamIsCapturing(stream, C.byref(status)))
        ok(launch(add, (1,), (64,), a, b, c, C.c_int(n), stream=stream))
        ok(cu.cuMemcpyDtoDAsync_v2(b, c, C.c_size_t(4 * n), stream))
        ok(cu.cuStreamEndCapture(stream, C.byref(graph)))
        ok(cu.cuGraphGetNodes(graph, None, C.byref(count)))
        print(status.value, count.value, take(c, C.c_float * n)[:2])
        ok(cu.cuGraphInstantiateWithFlags(C.byref(runs), graph, C.c_ulonglong(0)))
        for _ in range(3):
            ok(cu.cuGraphLaunch(runs, stream))
        print(take(b, C.c_float * n)[:2])
        ok(cu.cuStreamBeginCapture_v2(stream, 0))
        print(cu.cuStreamSynchronize(stream), cu.cuStreamEndCapture(stream, C.byref(graph)))
        """,
        tmp_path,
    )

    assert lines_of(program) == ["1 2 [0.0, 0.0]", "[6.0, 6.0]", "900 901"]


def test_private_tables_are_not_provided(tmp_path):
    program = run("print(cu.cuGetExportTable(C.byref(C.c_void_p()), bytes(16)))", tmp_path)

    assert lines_of(program) == ["500"]
    assert "which are not provided" in program.stderr
    assert "-cudart shared" in program.stderr


def test_entry_points_are_found_by_version(tmp_path):
    program = run(
        """
        function, status = C.c_void_p(), C.c_int()
        def find(name, version, flags=0):
            error = cu.cuGetProcAddress_v2(name, C.byref(function), version, C.c_uint64(flags), C.byref(status))
            return error, status.value, function.value
        exported = lambda name: C.cast(getattr(cu, name), C.c_void_p).value
        print(find(b"cuMemAlloc", 12000)[2] == exported("cuMemAlloc_v2"))
        print(find(b"cuCtxCreate", 12000)[2] == exported("cuCtxCreate_v3"))
        print(find(b"cuCtxCreate", 13000)[2] == exported("cuCtxCreate_v4"))
        print(find(b"cuMemcpyHtoD", 12000, 2)[2] == exported("cuMemcpyHtoD_v2_ptds"))
        print(find(b"cuNothing", 12000)[:2], find(b"cuLaunchKernelEx", 11000)[:2])
        """,
        tmp_path,
    )

    assert lines_of(program) == ["True", "True", "True", "True", "(500, 1) (500, 2)"]


def test_a_profile_is_read_from_a_gpu_and_used(tmp_path):
    program = run(
        """
        import json
        from dataclasses import asdict
        from warpfrag.device.gpu_attributes import measure_profile
        profile = asdict(measure_profile())
        json.dump(profile | {"name": "NVIDIA Tiny", "total_memory": 1 << 30}, open("tiny.json", "w"))
        """,
        tmp_path,
    )
    assert lines_of(program) == []
    name = "start(); name = C.create_string_buffer(64); ok(cu.cuDeviceGetName(name, 64, 0)); print(name.value)"
    again = run(name, tmp_path, profile=str(tmp_path / "tiny.json"))

    assert lines_of(again) == ["b'NVIDIA Tiny'"]
    measured, stored = read_profile(str(tmp_path / "tiny.json")), read_profile("H200")
    assert measured.attributes == stored.attributes
    assert measured.limits == stored.limits
    assert measured.stream_priorities == stored.stream_priorities


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"name": "x"}'])
def test_a_damaged_profile_is_rejected(content, tmp_path):
    path = tmp_path / "gpu.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidOperand, match="is not a GPU profile"):
        read_profile(str(path))


def test_a_tensor_map_has_the_bytes_of_the_driver(tmp_path):
    calls = json.loads(gzip.decompress(TENSOR_MAPS.read_bytes()))
    accepted = [call for call in calls if not call[-2]]
    assert len({call[0] for call in accepted}) == 13, "every data type"
    program = run(
        f"""
        start()
        for call in {accepted!r}:
            dtype, rank, address, dims, strides, box, steps, *choices, _, data = call
            target = (C.c_uint64 * 16)()
            wide, narrow = C.c_uint64 * 5, C.c_uint32 * 5
            arrays = wide(*dims), wide(*strides), narrow(*box), narrow(*steps)
            ok(cu.cuTensorMapEncodeTiled(target, dtype, rank, C.c_void_p(address), *arrays, *choices))
            print(bytes(target).hex() == data)
        """,
        tmp_path,
    )
    assert program.stdout.split() == ["True"] * len(accepted), program.stderr
