#ifndef WARPFRAG_ELEMENT
#define WARPFRAG_ELEMENT

#ifdef __CUDACC_RTC__  // NVRTC comes without <cstdint>
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned;
#else
#include <cstdint>
#endif

// Functions take strides in elements: (ld, 1) is row major, (1, ld) column major. All lanes of a warp take part.
namespace warpfrag {

// The code of an element of packed memory, low bits first: 4-bit element 3 is the high half of byte 1.
template <int bits>
__device__ __forceinline__ uint32_t element(const void* memory, int index) {
    if constexpr (bits == 16) {
        return static_cast<const uint16_t*>(memory)[index];
    } else if constexpr (bits == 8) {
        return static_cast<const uint8_t*>(memory)[index];
    } else {
        const uint8_t* bytes = static_cast<const uint8_t*>(memory) + (index * bits >> 3);
        const int low = index * bits & 7;
        uint32_t found = bytes[0];
        if (low + bits > 8) found |= static_cast<uint32_t>(bytes[1]) << 8;  // a 6-bit element crosses bytes
        return found >> low & ((1u << bits) - 1);
    }
}

}  // namespace warpfrag
#endif
