// float32, bfloat16 and float16 in memory, read as float and written rounded to nearest, ties to even.
//
// By integer arithmetic alone, which every compiler vectorises for every processor.

#pragma once

#include <cstdint>
#include <cstring>

#if defined(__GNUC__)
#define INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif
#define PREFETCH(address, for_writing) __builtin_prefetch(address, for_writing)
#else
#define INLINE __forceinline
#define INDEPENDENT __pragma(loop(ivdep))
#define PREFETCH(address, for_writing)
#endif

struct BFloat16 {
    uint16_t bits;
};

struct Half {
    uint16_t bits;
};

template <class To, class From>
INLINE To bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From), "a change of type, not of value");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

INLINE float load(const float* at) { return *at; }
INLINE void store(float* at, float value) { *at = value; }

// bfloat16 is the upper half of a float. Rounded to nearest, ties to even; a NaN becomes the plain one.
INLINE float load(const BFloat16* at) { return bits_as<float>(uint32_t(at->bits) << 16); }
INLINE void store(BFloat16* at, float value)
{
    const uint32_t bits = bits_as<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    at->bits = uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

// float16 by integer arithmetic, which every compiler can vectorise. 5 bits of exponent against 8: shifting
// the magnitude left by 13 and multiplying by 2^112 moves the bias, subnormals included, without rounding.
INLINE float load(const Half* at)
{
    const uint32_t sign = uint32_t(at->bits & 0x8000u) << 16;
    const uint32_t magnitude = at->bits & 0x7fffu;
    const float scaled = bits_as<float>(magnitude << 13) * bits_as<float>(0x77800000u);
    const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
    return bits_as<float>(bits_as<uint32_t>(scaled) | special | sign);
}

INLINE void store(Half* at, float value)
{
    const uint32_t bits = bits_as<uint32_t>(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    // Normal: rounded to nearest, ties to even, and the bias moved by 112.
    const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    // Subnormal: adding 0.5 leaves the last place of a float at 2^-24, which is float16's smallest number.
    const uint32_t small = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t result = magnitude < 0x38800000u ? small : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;  // rounds past 65504
    result = magnitude > 0x7f800000u ? 0x7e00u : result;   // NaN
    at->bits = uint16_t(result | sign);
}
