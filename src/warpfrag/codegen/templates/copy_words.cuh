namespace warpfrag {

// Copy a tile of whole words between global and shared memory, with all threads of a block.
__device__ __forceinline__ void copy_words(void* to, const void* from, int words) {
    for (int i = threadIdx.x; i < words; i += blockDim.x) {
        static_cast<uint32_t*>(to)[i] = static_cast<const uint32_t*>(from)[i];
    }
    __syncthreads();
}

}  // namespace warpfrag
