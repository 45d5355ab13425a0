// Kernels of our own that follow the structure of CUTLASS 3 (ping-pong GEMM), DeepGEMM (fp8 with promotion) and
// FlashAttention 3 (forward): tensor maps, transaction barriers, clusters, warp specialisation, wgmma.
#include <cstdint>

struct __align__(64) Map { unsigned char bytes[128]; };

__device__ __forceinline__ uint32_t address(void const* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void init(uint64_t* bar, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(bar)), "r"(count)); }
__device__ __forceinline__ void expect(uint64_t* bar, int bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(bar)), "r"(bytes) : "memory"); }
__device__ __forceinline__ void arrive(uint64_t* bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(bar)) : "memory"); }
__device__ __forceinline__ void arrive_at(uint64_t* bar, int rank) {
  asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [a]; }" ::"r"(address(bar)), "r"(rank) : "memory");
}
__device__ __forceinline__ void wait(uint64_t* bar, int parity) {
  asm volatile("{\n .reg .pred p;\n W:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @!p bra W;\n}" ::"r"(address(bar)), "r"(parity) : "memory");
}
__device__ __forceinline__ void load(void* to, Map const* map, int x, int y, uint64_t* bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(address(to)), "l"(map), "r"(x), "r"(y), "r"(address(bar)) : "memory");
}
__device__ __forceinline__ void load_all(void* to, Map const* map, int x, int y, uint64_t* bar, uint16_t mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(address(to)), "l"(map), "r"(x), "r"(y), "r"(address(bar)), "h"(mask) : "memory");
}
__device__ __forceinline__ void store(Map const* map, int x, int y, void const* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y), "r"(address(from)) : "memory");
  asm volatile("cp.async.bulk.commit_group;"); asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
__device__ __forceinline__ uint64_t describe(void const* p, int stride) {  // swizzle 128
  return (uint64_t(address(p)) >> 4 & 0x3FFF) | uint64_t(stride >> 4) << 32 | uint64_t(1) << 62;
}
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void drain() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
__device__ __forceinline__ void cluster_sync() { asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ uint32_t rank() { uint32_t r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ void named(int id, int count) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory"); }
__device__ __forceinline__ void named_arrive(int id, int count) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory"); }
__device__ __forceinline__ uint32_t halves(float low, float high) { uint32_t r; asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(r) : "f"(low), "f"(high)); return r; }
__device__ __forceinline__ void mma_f16(float (&d)[32], uint64_t a, uint64_t b, int use) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) : "l"(a), "l"(b), "r"(use));
}

__device__ __forceinline__ void mma_f16_bt(float (&d)[32], uint32_t const (&a)[4], uint64_t b, int use) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(use));
}

__device__ __forceinline__ void mma_fp8(float (&d)[32], uint64_t a, uint64_t b, int use) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) : "l"(a), "l"(b), "r"(use));
}


constexpr int STAGES = 3, TILE = 64 * 64 * 2;

// D = A B^T, tiles of 64 x 64. Blocks of a cluster take neighbouring columns of tiles: each loads half of A for both.
// Warpgroup 0 loads; 1 and 2 take turns: while one multiplies, the other stores.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384) pingpong(const __grid_constant__ Map a, const __grid_constant__ Map b, const __grid_constant__ Map d, int tiles_m, int tiles_n, int k) {
  extern __shared__ __align__(1024) unsigned char smem[];
  unsigned char *as = smem, *bs = smem + STAGES * TILE, *ds = smem + 2 * STAGES * TILE;
  __shared__ uint64_t full[STAGES], empty[STAGES];
  int group = threadIdx.x / 128, own = rank();
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) { init(&full[s], 1); init(&empty[s], 2); }  // a warpgroup of each block
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync();
  int clusters = gridDim.x / 2, first = blockIdx.x / 2, pairs = tiles_m * (tiles_n / 2), steps = k / 64;
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      int at = 0;
      for (int pair = first; pair < pairs; pair += clusters) {
        int row = pair / (tiles_n / 2) * 64, col = (pair % (tiles_n / 2) * 2 + own) * 64;
        for (int step = 0; step < steps; ++step, ++at) {
          int s = at % STAGES;
          if (at >= STAGES) wait(&empty[s], (at / STAGES - 1) & 1);
          expect(&full[s], 2 * TILE);
          load_all(as + s * TILE + own * TILE / 2, &a, step * 64, row + own * 32, &full[s], 3);
          load(bs + s * TILE, &b, step * 64, col, &full[s]);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, tile = 0;
    unsigned char* out = ds + (group - 1) * TILE;
    for (int pair = first; pair < pairs; pair += clusters, ++tile) {
      if (tile % 2 != group - 1) continue;
      int row = pair / (tiles_n / 2) * 64, col = (pair % (tiles_n / 2) * 2 + own) * 64;
      if (tile) named(1 + tile % 2, 256);  // until the other has multiplied
      float acc[32];
      for (int i = 0; i < 32; ++i) acc[i] = 0;
      for (int step = 0; step < steps; ++step) {
        int at = tile * steps + step, s = at % STAGES;
        wait(&full[s], at / STAGES & 1);
        fence();
        for (int i = 0; i < 4; ++i) mma_f16(acc, describe(as + s * TILE + 32 * i, 1024), describe(bs + s * TILE + 32 * i, 1024), step + i > 0);
        commit();
        drain<0>();
        if (threadIdx.x % 128 < 2) arrive_at(&empty[s], threadIdx.x % 128);
      }
      if (pair + clusters < pairs) named_arrive(1 + (tile + 1) % 2, 256);
      for (int i = 0; i < 8; ++i)
        for (int h = 0; h < 2; ++h) {
          int r = warp * 16 + lane / 4 + 8 * h, c = 8 * i + lane % 4 * 2, at = r * 128 + c * 2;
          *reinterpret_cast<uint32_t*>(out + (at ^ (at >> 3 & 0x70))) = halves(acc[4 * i + 2 * h], acc[4 * i + 2 * h + 1]);
        }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      named(4 + group, 128);
      if (threadIdx.x % 128 == 0) store(&d, col, row, out);
      named(4 + group, 128);
    }
  }
  cluster_sync();
}

// D = (A B^T) with e4m3 operands, scales for 128 of K: each part is summed by the tensor core, then promoted in f32.
extern "C" __global__ void __launch_bounds__(160) fp8_scaled(const __grid_constant__ Map a, const __grid_constant__ Map b, float const* scale_a, float const* scale_b, float* d, int n, int k) {
  extern __shared__ __align__(1024) unsigned char smem[];
  unsigned char *as = smem, *bs = smem + STAGES * TILE;
  __shared__ uint64_t full[STAGES], empty[STAGES];
  int row = blockIdx.y * 64, col = blockIdx.x * 64, parts = k / 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) { init(&full[s], 1); init(&empty[s], 128); }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (threadIdx.x == 128)
      for (int part = 0; part < parts; ++part) {
        int s = part % STAGES;
        if (part >= STAGES) wait(&empty[s], (part / STAGES - 1) & 1);
        expect(&full[s], 2 * TILE);
        load(as + s * TILE, &a, part * 128, row, &full[s]);
        load(bs + s * TILE, &b, part * 128, col, &full[s]);
      }
    return;
  }
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float total[32], acc[32];
  for (int i = 0; i < 32; ++i) total[i] = acc[i] = 0;
  for (int part = 0; part < parts; ++part) {
    int s = part % STAGES;
    wait(&full[s], part / STAGES & 1);
    fence();
    for (int i = 0; i < 4; ++i) mma_fp8(acc, describe(as + s * TILE + 32 * i, 1024), describe(bs + s * TILE + 32 * i, 1024), i > 0);
    commit();
    drain<0>();
    arrive(&empty[s]);
    float sb = scale_b[blockIdx.x * parts + part];
    for (int i = 0; i < 32; ++i) {
      int r = row + warp * 16 + lane / 4 + 8 * (i / 2 % 2);
      total[i] = __fmaf_rn(acc[i], __fmul_rn(scale_a[r * parts + part], sb), total[i]);
    }
  }
  for (int i = 0; i < 32; ++i) {
    int r = row + warp * 16 + lane / 4 + 8 * (i / 2 % 2), c = col + 8 * (i / 4) + lane % 4 * 2 + i % 2;
    d[r * n + c] = total[i];
  }
}

// O = softmax(Q K^T scale) V for one head of 64: a warp loads, a warpgroup computes; P stays in registers.
extern "C" __global__ void __launch_bounds__(160) attention(const __grid_constant__ Map q, const __grid_constant__ Map k, const __grid_constant__ Map v, const __grid_constant__ Map o, float scale, int length) {
  extern __shared__ __align__(1024) unsigned char smem[];
  unsigned char *qs = smem, *ks = smem + TILE, *vs = smem + 3 * TILE;
  __shared__ uint64_t ready, k_full[2], v_full[2], k_empty[2], v_empty[2];
  int blocks = length / 64;
  if (threadIdx.x == 0) {
    init(&ready, 1);
    for (int s = 0; s < 2; ++s) { init(&k_full[s], 1); init(&v_full[s], 1); init(&k_empty[s], 128); init(&v_empty[s], 128); }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (threadIdx.x == 128) {
      expect(&ready, TILE);
      load(qs, &q, 0, blockIdx.x * 64, &ready);
      for (int j = 0; j < blocks; ++j) {
        int s = j % 2;
        if (j >= 2) wait(&k_empty[s], (j / 2 - 1) & 1);
        expect(&k_full[s], TILE);
        load(ks + s * TILE, &k, 0, j * 64, &k_full[s]);
        if (j >= 2) wait(&v_empty[s], (j / 2 - 1) & 1);
        expect(&v_full[s], TILE);
        load(vs + s * TILE, &v, 0, j * 64, &v_full[s]);
      }
    }
    return;
  }
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float acc[32], s[32], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  for (int i = 0; i < 32; ++i) acc[i] = 0;
  wait(&ready, 0);
  for (int j = 0; j < blocks; ++j) {
    int stage = j % 2, parity = j / 2 & 1;
    wait(&k_full[stage], parity);
    fence();
    for (int i = 0; i < 4; ++i) mma_f16(s, describe(qs + 32 * i, 1024), describe(ks + stage * TILE + 32 * i, 1024), i > 0);
    commit();
    drain<0>();
    arrive(&k_empty[stage]);
    uint32_t p[16];
    for (int h = 0; h < 2; ++h) {
      float m = top[h];
      for (int i = 0; i < 8; ++i)
        for (int e = 0; e < 2; ++e) { float x = s[4 * i + 2 * h + e] * scale; s[4 * i + 2 * h + e] = x; if (x > m) m = x; }
      for (int d = 1; d < 4; d *= 2) { float y = __shfl_xor_sync(0xffffffffu, m, d); if (y > m) m = y; }
      float shrink, part = 0;
      asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(shrink) : "f"(__fsub_rn(top[h], m)));
      for (int i = 0; i < 8; ++i)
        for (int e = 0; e < 2; ++e) {
          float y;
          asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(__fsub_rn(s[4 * i + 2 * h + e], m)));
          s[4 * i + 2 * h + e] = y;
          part = __fadd_rn(part, y);
        }
      sum[h] = __fmaf_rn(sum[h], shrink, part);
      top[h] = m;
      for (int i = 0; i < 8; ++i)
        for (int e = 0; e < 2; ++e) acc[4 * i + 2 * h + e] = __fmul_rn(acc[4 * i + 2 * h + e], shrink);
    }
    for (int i = 0; i < 16; ++i) p[i] = halves(s[2 * i], s[2 * i + 1]);
    wait(&v_full[stage], parity);
    fence();
    for (int i = 0; i < 4; ++i) {
      uint32_t a[4] = {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
      mma_f16_bt(acc, a, describe(vs + stage * TILE + 2048 * i, 1024), 1);
    }
    commit();
    drain<0>();
    arrive(&v_empty[stage]);
  }
  for (int h = 0; h < 2; ++h) {
    for (int d = 1; d < 4; d *= 2) sum[h] = __fadd_rn(sum[h], __shfl_xor_sync(0xffffffffu, sum[h], d));
    for (int i = 0; i < 8; ++i) {
      int r = warp * 16 + lane / 4 + 8 * h, c = 8 * i + lane % 4 * 2, at = r * 128 + c * 2;
      *reinterpret_cast<uint32_t*>(qs + (at ^ (at >> 3 & 0x70))) = halves(__fdiv_rn(acc[4 * i + 2 * h], sum[h]), __fdiv_rn(acc[4 * i + 2 * h + 1], sum[h]));
    }
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  named(1, 128);
  if (threadIdx.x == 0) store(&o, 0, blockIdx.x * 64, qs);
}
