// ${plan}
// d and a: addresses in tensor memory, with the first lane of the warp in their upper half.
static __device__ __forceinline__ void ${name}(uint32_t d, uint32_t a) {
    for (int part = 0; part < ${count}; ++part) {
        uint32_t in[${inputs}], out[${outputs}];
        asm volatile("${load} {${loaded}}, [%${inputs}];"
                     " tcgen05.wait::ld.sync.aligned;"
                     : ${results} : "r"(d + part * ${columns}) : "memory");
        ${name}_registers(in, out);
        asm volatile("${store} [%0], {${stored}};"
                     :: "r"(a + part * ${width}), ${operands} : "memory");
    }
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}
