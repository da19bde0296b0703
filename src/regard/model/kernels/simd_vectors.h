// Vectors of LANES numbers, with the vector types of GCC and Clang; LANES depends on the instruction set.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace regard {
namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
#define INLINE inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef float Vec __attribute__((vector_size(LANES * 4)));
typedef int32_t Int __attribute__((vector_size(LANES * 4)));

INLINE Vec load(const float* p) { Vec v; std::memcpy(&v, p, sizeof v); return v; }
INLINE Int load(const int32_t* p) { Int v; std::memcpy(&v, p, sizeof v); return v; }
INLINE void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
INLINE Vec splat(float x) { return x - Vec{}; }
INLINE Vec larger(Vec a, Vec b) { return a > b ? a : b; }

template <class Fold> INLINE float fold(Vec v, Fold two) {
    float x[LANES];
    std::memcpy(x, &v, sizeof v);
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; ++i) x[i] = two(x[i], x[i + n]);
    return x[0];
}
#if defined(__AVX512F__)
INLINE float highest(Vec v) { return _mm512_reduce_max_ps((__m512)v); }
INLINE float total(Vec v) { return _mm512_reduce_add_ps((__m512)v); }
INLINE int32_t total(Int v) { return _mm512_reduce_add_epi32((__m512i)v); }
#elif defined(__wasm_simd128__)
template <class Fold> INLINE float fold_lanes(Vec v, Fold two) {  // in the same order
    const Vec halves = two(v, __builtin_shufflevector(v, v, 2, 3, 2, 3));
    return two(halves, __builtin_shufflevector(halves, halves, 1, 1, 1, 1))[0];
}
INLINE float highest(Vec v) { return fold_lanes(v, [](Vec a, Vec b) { return larger(a, b); }); }
INLINE float total(Vec v) { return fold_lanes(v, [](Vec a, Vec b) { return a + b; }); }
INLINE int32_t total(Int v) { return v[0] + v[1] + v[2] + v[3]; }
#else
INLINE float highest(Vec v) { return fold(v, [](float a, float b) { return a > b ? a : b; }); }
INLINE float total(Vec v) { return fold(v, [](float a, float b) { return a + b; }); }
INLINE int32_t total(Int v) {
    int32_t sum = 0;
    for (int i = 0; i < LANES; ++i) sum += v[i];
    return sum;
}
#endif

// e^x for x <= 88, with an error of at most two units in the last place; results below 1e-38 become 1e-38
INLINE Vec exponential(Vec x) {
    x = larger(x, splat(-87.0f));
    const Vec shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the lowest bits are round(x / ln 2)
    const Vec n = shifted - 12582912.0f;
    const Vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + (r + 1.0f);
    return (Vec)((Int)p + ((Int)shifted << 23));
}

}  // namespace
}  // namespace regard
