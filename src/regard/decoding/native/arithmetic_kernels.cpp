// Compiled once for each instruction set, with REGARD_KERNELS as the name of its function table (see setup.py). The vector
// types of GCC and Clang process LANES numbers at a time; only int8 products need intrinsics.
//
// Results are deterministic. A sum over the depth adds one product after the other, regardless of the tile, so a sentence
// gets the same numbers in any batch. All other sums have PANEL partial sums, which are added in a fixed order (`Sums`).
// Only float32 products fuse multiplication and addition (`fused`), so an int8 model computes the same bits on every
// instruction set. The compiler must not fuse on its own: see -ffp-contract in setup.py.
#include "arithmetic_kernels.h"

#include <cmath>
#include <utility>
#include <vector>

#include "../../model/kernels/simd_vectors.h"
#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif

namespace regard {
namespace {

#if defined(__AVX512F__)
constexpr int REGISTERS = 24, MOST_ROWS = 12;
#elif defined(__AVX2__)
constexpr int REGISTERS = 12, MOST_ROWS = 6;
#else
constexpr int REGISTERS = 12, MOST_ROWS = 3;
#endif
constexpr int VECTORS = PANEL / LANES;  // number of vectors per panel

INLINE Vec fused(Vec a, Vec b, Vec sum) {  // a * b + sum, rounded only once if the instruction set supports it
#if defined(__AVX512F__)
    return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__AVX2__)
    return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return (Vec)vfmaq_f32((float32x4_t)sum, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + sum;
#endif
}

struct Sums {  // PANEL partial sums
    Vec parts[VECTORS] = {};

    // Adds `value(i)` for each vector i of a panel
    template <class Value> INLINE void add(Value value) {
        UNROLL for (int i = 0; i < VECTORS; ++i) parts[i] += value(i);
    }
    INLINE float all() const {  // adds adjacent halves, in the same order on every instruction set
        Vec halves[VECTORS];
        UNROLL for (int i = 0; i < VECTORS; ++i) halves[i] = parts[i];
        UNROLL for (int n = VECTORS / 2; n; n /= 2)
            UNROLL for (int i = 0; i < n; ++i) halves[i] += halves[i + n];
        return total(halves[0]);
    }
};

// The ways to store weights, and to multiply the weights of a panel in one step along the depth

#if defined(__AVX512F__)
INLINE Int unpack(const uint8_t* p) {  // unpacks LANES three-byte integers
    const __m512i spread = _mm512_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0, 6, 7, 8, 0, 9, 10, 11, 0);
    const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11));
    return (Int)_mm512_shuffle_epi8(_mm512_permutexvar_epi32(spread, _mm512_maskz_loadu_epi32(0xfff, p)), order);
}
#elif defined(__AVX2__)
INLINE Int unpack(const uint8_t* p) {
    __m128i low, high;
    std::memcpy(&low, p, sizeof low);
    std::memcpy(&high, p + 8, sizeof high);
    return (Int)_mm256_shuffle_epi8(_mm256_set_m128i(high, low), _mm256_setr_epi8(-1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11,
                                                                                  -1, 4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15));
}
#else
INLINE Int unpack(const uint8_t* p) {
    Int v;
    for (int i = 0; i < LANES; ++i) v[i] = three_bytes(p + 3 * i);
    return v;
}
#endif

struct Plain {  // float32
    using Number = float;
    using Sum = Vec;
    static constexpr int STEP = 1;           // steps along the depth
    static constexpr long SIZE = 4 * PANEL;  // bytes of a panel that each step reads
    static constexpr bool KEEPS = false;
    static long depth(const Matrix& m) { return m.depth; }
    INLINE static Vec weights(const uint8_t* p, int vector) { return load(reinterpret_cast<const float*>(p) + vector * LANES); }
    INLINE static Vec multiply_add(Vec sum, const float* row, Vec weights) { return fused(splat(*row), weights, sum); }
    struct Columns {  // converts sums to numbers
        Columns(const Matrix&, long) {}
        INLINE Vec value(Vec sum, const Rows&, int) const { return sum; }
    };
};

struct Fixed : Plain {  // three-byte integers
    static constexpr long SIZE = 3 * PANEL;
    INLINE static Vec weights(const uint8_t* p, int vector) { return __builtin_convertvector(unpack(p + vector * LANES * 3), Vec); }
    struct Columns {
        const Vec scale;
        Columns(const Matrix& m, long first) : scale(load(m.scales + first)) {}
        INLINE Vec value(Vec sum, const Rows&, int) const { return sum * scale; }
    };
};

struct Kept : Fixed {  // like Fixed, but also stores the weights as float32 for the next rows
    static constexpr bool KEEPS = true;
};

struct Known : Fixed {  // reads the float32 weights that Kept has stored
    static constexpr long SIZE = Plain::SIZE;
    INLINE static Vec weights(const uint8_t* p, int vector) { return Plain::weights(p, vector); }
};

// int8: rows and weights are in -127 ... 127, so that sums of two products fit into 16 bits, and all instruction sets
// compute the same integers.

#if defined(__AVX512VNNI__)
constexpr bool SCREENS = true;
constexpr int ZERO = 128;  // rows store x + 128, because VPDPBUSD multiplies unsigned by signed bytes
INLINE Int multiply_add(Int sum, Int bytes, Int weights) {
    return (Int)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)bytes, (__m512i)weights);
}
#elif defined(__AVX2__)
constexpr bool SCREENS = false;
constexpr int ZERO = 0;
INLINE Int multiply_add(Int sum, Int bytes, Int weights) {
    const __m256i x = (__m256i)bytes;
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8((__m256i)weights, x));
    return sum + (Int)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#elif defined(__wasm_simd128__)
constexpr bool SCREENS = false;
constexpr int ZERO = 0;
INLINE v128_t even(Int bytes) { return wasm_i16x8_shr(wasm_i16x8_shl((v128_t)bytes, 8), 8); }
INLINE v128_t odd(Int bytes) { return wasm_i16x8_shr((v128_t)bytes, 8); }
INLINE Int multiply_add(Int sum, Int bytes, Int weights) {
    return sum + (Int)wasm_i32x4_dot_i16x8(even(bytes), even(weights)) + (Int)wasm_i32x4_dot_i16x8(odd(bytes), odd(weights));
}
#else
constexpr bool SCREENS = false;
constexpr int ZERO = 0;
INLINE Int multiply_add(Int sum, Int bytes, Int weights) {
    int8_t x[LANES * 4], w[LANES * 4];
    std::memcpy(x, &bytes, sizeof x);
    std::memcpy(w, &weights, sizeof w);
    for (int i = 0; i < LANES; ++i)
        for (int k = 0; k < 4; ++k) sum[i] += x[4 * i + k] * w[4 * i + k];
    return sum;
}
#endif

struct Bytes {
    using Number = uint8_t;
    using Sum = Int;
    static constexpr int STEP = 4;
    static constexpr long SIZE = 4 * PANEL;
    static constexpr bool KEEPS = false;
    static long depth(const Matrix& m) { return m.deep(); }
    INLINE static Int weights(const uint8_t* p, int vector) {
        Int v;
        std::memcpy(&v, p + vector * LANES * 4, sizeof v);
        return v;
    }
    INLINE static Int multiply_add(Int sum, const uint8_t* row, Int weights) {
        int32_t four;
        std::memcpy(&four, row, 4);
        return regard::multiply_add(sum, four + Int{}, weights);
    }
    struct Columns {
        const Vec scale;
        const Int excess;
        Columns(const Matrix& m, long first) : scale(load(m.scales + first)), excess(load(m.sums + first) * ZERO) {}
        INLINE Vec value(Int sum, const Rows& rows, int row) const { return __builtin_convertvector(sum - excess, Vec) * (scale * rows.scales[row]); }
    };
};

// Products of ROWS rows with PANELS panels, whose sums stay in registers while the weights of `next` are prefetched

struct Product {
    const Rows& rows;
    const Matrix& m;
    int first;  // first panel, whose columns go to out[row, 0]
    float* out;
    long stride;
    bool add;
    float* kept = nullptr;  // the current panels as float32
};

template <class How, int ROWS, int PANELS>
void tile(const Product& p, const uint8_t* weights, const uint8_t* next, int row, int panel) {
    const typename How::Number* a = static_cast<const typename How::Number*>(p.rows.data) + row * p.rows.stride;
    const long stride = p.rows.stride, steps = How::depth(p.m) / How::STEP;
    typename How::Sum sum[ROWS][PANELS * VECTORS];
    UNROLL for (int i = 0; i < ROWS; ++i)
        UNROLL for (int j = 0; j < PANELS * VECTORS; ++j) sum[i][j] = typename How::Sum{};
    for (long k = 0; k < steps; ++k, a += How::STEP) {
        typename How::Sum b[PANELS * VECTORS];
        UNROLL for (int j = 0; j < PANELS * VECTORS; ++j) b[j] = How::weights(weights + (j / VECTORS * steps + k) * How::SIZE, j % VECTORS);
        UNROLL for (int j = 0; j < PANELS; ++j) __builtin_prefetch(next + (j * steps + k) * How::SIZE, 0, 2);
        if constexpr (How::KEEPS)
            UNROLL for (int j = 0; j < PANELS * VECTORS; ++j) store(p.kept + (j / VECTORS * steps + k) * PANEL + j % VECTORS * LANES, b[j]);
        UNROLL for (int i = 0; i < ROWS; ++i)
            UNROLL for (int j = 0; j < PANELS * VECTORS; ++j) sum[i][j] = How::multiply_add(sum[i][j], a + i * stride, b[j]);
    }
    UNROLL for (int j = 0; j < PANELS * VECTORS; ++j) {
        const long column = long(panel) * PANEL + j * LANES;
        const Vec bias = load(p.m.bias + column);
        const typename How::Columns columns(p.m, column);
        UNROLL for (int i = 0; i < ROWS; ++i) {
            float* place = p.out + (row + i) * p.stride + (panel - p.first) * PANEL + j * LANES;
            const Vec v = columns.value(sum[i][j], p.rows, row + i) + bias;
            store(place, p.add ? v + load(place) : v);
        }
    }
}

// Chooses a tile for a number of rows: as many panels as fit into the registers

constexpr int MOST_PANELS = 8;
constexpr long AT_ONCE = 1 << 18;  // bytes of panels to process while as many are prefetched; both fit into the L2 cache

constexpr int panels_at_once(int rows) {
    int panels = MOST_PANELS;
    while (panels > 1 && rows * panels * VECTORS > REGISTERS) panels /= 2;
    return panels;
}

using Tile = void (*)(const Product&, const uint8_t*, const uint8_t*, int, int);

template <class How, int ROWS> INLINE Tile tile_of(int panels) {
    constexpr int MOST = panels_at_once(ROWS);
    if (MOST >= 8 && panels == 8) return tile<How, ROWS, MOST >= 8 ? 8 : 1>;
    if (MOST >= 4 && panels == 4) return tile<How, ROWS, MOST >= 4 ? 4 : 1>;
    return panels == 2 ? tile<How, ROWS, MOST >= 2 ? 2 : 1> : tile<How, ROWS, 1>;
}
template <class How, int... I> Tile tile_of(int rows, int panels, std::integer_sequence<int, I...>) {
    Tile found = nullptr;
    ((rows == I + 1 ? void(found = tile_of<How, I + 1>(panels)) : void()), ...);
    return found;
}
constexpr auto EVERY_ROW_COUNT = std::make_integer_sequence<int, MOST_ROWS>{};

// Splits the rows into blocks of equal height, and multiplies a few panels with all blocks before the next panels. The
// first block uses the panels as stored in the file, the others as `First` has stored them
template <class First, class Then = First> void sweep(Product p, int last) {
    const int rows = p.rows.count, blocks = (rows + MOST_ROWS - 1) / MOST_ROWS, high = (rows + blocks - 1) / blocks;
    const int rest = rows - (rows - 1) / high * high;
    const long size = p.m.size();
    const Matrix* after = p.m.next;  // this thread computes the same share of it
    const uint8_t* share = after ? after->weights + long(p.first) * after->panels() / p.m.panels() * after->size() : nullptr;
    int panels = panels_at_once(high);
    while (panels > 2 && panels * size > AT_ONCE) panels /= 2;
    for (int panel = p.first; panel < last; panel += panels) {
        while (panel + panels > last) panels /= 2;
        const Tile whole = tile_of<Then>(high, panels, EVERY_ROW_COUNT), end = tile_of<Then>(rest, panels, EVERY_ROW_COUNT);
        const uint8_t *stored = p.m.weights + panel * size, *then = First::KEEPS ? reinterpret_cast<uint8_t*>(p.kept) : stored;
        tile_of<First>(high, panels, EVERY_ROW_COUNT)(p, stored, share && panel + panels == last ? share : stored + panels * size, 0, panel);
        for (int row = high; row < rows; row += high) (row + high <= rows ? whole : end)(p, then, then, row, panel);
    }
}

void multiply(const Rows& rows, const Matrix& m, int first, int last, float* out, long stride, bool add) {
    struct alignas(64) Line {
        float numbers[PANEL];
    };
    thread_local std::vector<Line> kept;
    Product p{rows, m, first, out, stride, add};
    if (rows.count <= 0) return;
    if (m.form == Form::plain) return sweep<Plain>(p, last);
    if (rows.count <= MOST_ROWS) return sweep<Fixed>(p, last);
    if (kept.size() < size_t(MOST_PANELS * m.depth)) kept.resize(size_t(MOST_PANELS * m.depth));
    p.kept = kept.data()->numbers;
    sweep<Kept, Known>(p, last);
}

void multiply_int8(const Rows& rows, const Matrix& m, int first, int last, float* out, long stride, bool add) {
    if (rows.count > 0) sweep<Bytes>({rows, m, first, out, stride, add}, last);
}

// Rows of states are padded with zeros to a multiple of PANEL

float quantize(const float* row, int count, uint8_t* out, float* rest) {
    Vec most = Vec{};
    for (long i = 0; i < round_up(count, PANEL); i += LANES) {
        const Vec v = load(row + i);
        most = larger(most, larger(v, -v));
    }
    const float peak = highest(most), scale = peak > 1e-30f ? peak / 127.0f : 1.0f, factor = 1.0f / scale;
    for (long i = 0; i < round_up(count, PANEL); i += LANES) {  // rounds to the nearest integer, like the sum in `exponential`
        const Vec rounded = load(row + i) * factor + 12582912.0f;
        const Int bits = (Int)rounded;
#if defined(__wasm_simd128__)
        const v128_t bytes = wasm_i8x16_shuffle((v128_t)bits, (v128_t)bits, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
        wasm_v128_store32_lane(out + i, bytes, 0);
#else
        for (int j = 0; j < LANES; ++j) out[i + j] = uint8_t(uint32_t(bits[j]) + ZERO);
#endif
        if (rest) store(rest + i, load(row + i) - (rounded - 12582912.0f) * scale);
    }
    return scale;
}

void normalize(const float* row, const float* gain, const float* bias, int count, float epsilon, bool rms, float* out) {
    const int whole = count / PANEL * PANEL;
    float mean = 0.0f;
    if (!rms) {
        Sums sum;
        for (int i = 0; i < round_up(count, PANEL); i += PANEL) sum.add([&](int j) { return load(row + i + j * LANES); });
        mean = sum.all() / float(count);
    }
    Sums squares;
    for (int i = 0; i < whole; i += PANEL)
        squares.add([&](int j) {
            const Vec v = load(row + i + j * LANES) - mean;
            return v * v;
        });
    float variance = squares.all();
    for (int i = whole; i < count; ++i) variance += (row[i] - mean) * (row[i] - mean);
    const float factor = 1.0f / std::sqrt(variance / float(count) + epsilon);
    for (int i = 0; i < round_up(count, PANEL); i += LANES)
        store(out + i, (load(row + i) - mean) * factor * load(gain + i) + load(bias + i));
}

INLINE Vec sigmoid(Vec x) { return 1.0f / (1.0f + exponential(x < splat(-88.0f) ? splat(88.0f) : -x)); }

INLINE Vec error_function(Vec x) {  // Abramowitz & Stegun 7.1.26, with an error of at most 1.5e-7
    const Vec size = larger(x, -x), t = 1.0f / (1.0f + 0.3275911f * size);
    Vec p = 1.061405429f * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const Vec y = 1.0f - p * t * exponential(-size * size);
    return x < Vec{} ? -y : y;
}

INLINE Vec apply(Vec x, Activation kind) {
    switch (kind) {
        case Activation::relu: return larger(x, Vec{});
        case Activation::gelu: return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
        case Activation::gelu_tanh: return x * sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
        case Activation::silu: return x * sigmoid(x);
        default: return x;
    }
}

void activate(float* row, const float* gate, int count, Activation kind) {
    for (int i = 0; i < count; i += LANES) {
        const Vec v = load(row + i);
        store(row + i, gate ? apply(load(gate + i), kind) * v : apply(v, kind));
    }
}

constexpr int KEYS_AT_ONCE = VECTORS > 2 ? 2 : 4;

template <int KEYS> INLINE void score(const float* query, const float* const* keys, long offset, int width, float* out) {
    Sums sum[KEYS];
    int i = 0;
    for (; i + PANEL <= width; i += PANEL)
        UNROLL for (int j = 0; j < KEYS; ++j)
            sum[j].add([&](int k) { return load(query + i + k * LANES) * load(keys[j] + offset + i + k * LANES); });
    UNROLL for (int j = 0; j < KEYS; ++j) {
        out[j] = sum[j].all();
        for (int k = i; k < width; ++k) out[j] += query[k] * keys[j][offset + k];
    }
}

template <int WIDE> INLINE void mix(const float* const* entries, int count, long offset, const float* weights, float* out) {
    Vec sum[WIDE];
    UNROLL for (int i = 0; i < WIDE; ++i) sum[i] = Vec{};
    for (int j = 0; j < count; ++j)
        UNROLL for (int i = 0; i < WIDE; ++i) sum[i] += weights[j] * load(entries[j] + offset + i * LANES);
    UNROLL for (int i = 0; i < WIDE; ++i) store(out + i * LANES, sum[i]);
}

void attend(const float* query, const float* const* entries, int count, long key, long value, int key_width,
            int value_width, float scale, float* weights, float* out) {
    int j = 0;
    for (int i = 0; i < count; ++i) {  // prefetch the values, and the keys of the next head
        for (int k = 0; k < value_width; k += PANEL) __builtin_prefetch(entries[i] + value + k, 0, 3);
        for (int k = 0; k < key_width; k += PANEL) __builtin_prefetch(entries[i] + key + key_width + k, 0, 3);
    }
    for (; j + KEYS_AT_ONCE <= count; j += KEYS_AT_ONCE) score<KEYS_AT_ONCE>(query, entries + j, key, key_width, weights + j);
    for (; j < count; ++j) score<1>(query, entries + j, key, key_width, weights + j);
    float most = weights[0];
    for (j = 1; j < count; ++j) most = weights[j] > most ? weights[j] : most;
    for (; j % PANEL; ++j) weights[j] = -INFINITY;  // becomes 1e-38, which does not change any sum
    Sums sum;
    for (j = 0; j < count; j += PANEL)
        sum.add([&](int k) {
            const Vec e = exponential((load(weights + j + k * LANES) - most) * scale);
            store(weights + j + k * LANES, e);
            return e;
        });
    const float factor = 1.0f / sum.all();
    for (j = 0; j < count; ++j) weights[j] *= factor;
    int i = 0;
    for (; i + 4 * LANES <= value_width; i += 4 * LANES) mix<4>(entries, count, value + i, weights, out + i);
    for (; i + LANES <= value_width; i += LANES) mix<1>(entries, count, value + i, weights, out + i);
    for (; i < value_width; ++i) {
        out[i] = 0.0f;
        for (j = 0; j < count; ++j) out[i] += weights[j] * entries[j][value + i];
    }
}

// Products with single columns of a matrix: multiplies a few lines with all rows while the next ones are prefetched

constexpr int TOGETHER = 4;

INLINE Vec multiply_add(Vec numbers, const float* p, Vec sum) { return fused(numbers, load(p), sum); }
INLINE Vec multiply_add(Vec numbers, const int16_t* p, Vec sum) {
    int16_t integers __attribute__((vector_size(LANES * 2)));
    std::memcpy(&integers, p, sizeof integers);
    return sum + numbers * __builtin_convertvector(integers, Vec);
}

template <class T> INLINE void pick_lines(const Rows& rows, const Matrix& m, const int32_t* tokens, int count, float* out, long stride) {
    const auto line = [&](int i) { return static_cast<const T*>(m.lines) + long(tokens[i]) * m.line(); };
    for (int i = 0; i < count; i += TOGETHER) {
        const T* lines[TOGETHER];  // the last line is repeated
        for (int j = 0; j < TOGETHER; ++j) lines[j] = line(i + j < count ? i + j : count - 1);
        for (int j = i + TOGETHER; j < i + 2 * TOGETHER && j < count; ++j)
            for (long k = 0; k < m.line(); k += 64 / long(sizeof(T))) __builtin_prefetch(line(j) + k, 0, 3);
        for (int row = 0; row < rows.count; ++row) {
            const float* numbers = static_cast<const float*>(rows.data) + row * rows.stride;
            Sums sum[TOGETHER];
            for (long k = 0; k < m.line(); k += PANEL)
                UNROLL for (int v = 0; v < VECTORS; ++v)
                    UNROLL for (int j = 0; j < TOGETHER; ++j)
                        sum[j].parts[v] = multiply_add(load(numbers + k + v * LANES), lines[j] + k + v * LANES, sum[j].parts[v]);
            for (int j = 0; j < TOGETHER && i + j < count; ++j)
                out[row * stride + i + j] = sum[j].all() * m.line_scale(tokens[i + j]) + m.bias[tokens[i + j]];
        }
    }
}

void pick(const Rows& rows, const Matrix& m, const int32_t* tokens, int count, float* out, long stride) {
    (m.form == Form::int8 ? pick_lines<int16_t> : pick_lines<float>)(rows, m, tokens, count, out, stride);
}

float sum_exp(const float* row, int count, float* high, double* sum) {
    const int whole = count / PANEL * PANEL;
    float rest[PANEL];  // the numbers after the last whole panel, padded with zeros
    for (int i = 0; i < PANEL; ++i) rest[i] = whole + i < count ? row[whole + i] : -INFINITY;
    Vec most = splat(-INFINITY);
    for (int i = 0; i < whole; i += LANES) most = larger(load(row + i), most);
    for (int i = 0; i < PANEL; i += LANES) most = larger(load(rest + i), most);
    const float peak = highest(most);
    if (peak > *high) {
        *sum *= std::exp(double(*high) - peak);
        *high = peak;
    }
    Sums part;
    const auto add = [&](const float* panel) { part.add([&](int i) { return exponential(load(panel + i * LANES) - *high); }); };
    for (int i = 0; i < whole; i += PANEL) add(row + i);
    if (whole < count) add(rest);
    *sum += part.all();
    return peak;
}

int above(const float* row, int begin, int count, float least) {
    int i = begin;
#if defined(__AVX512F__)
    for (; i + LANES <= count; i += LANES)
        if (const unsigned found = _mm512_cmp_ps_mask((__m512)load(row + i), (__m512)splat(least), _CMP_GT_OQ)) return i + __builtin_ctz(found);
#elif defined(__wasm_simd128__)
    while (i + LANES <= count && !wasm_v128_any_true((v128_t)(load(row + i) > splat(least)))) i += LANES;
#else
    for (; i + PANEL <= count; i += PANEL) {
        int any = 0;
        for (int j = 0; j < PANEL; ++j) any |= row[i + j] > least;
        if (any) break;
    }
#endif
    while (i < count && !(row[i] > least)) ++i;
    return i;
}

#define QUOTE_(x) #x
#define QUOTE(x) QUOTE_(x)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const Kernels TABLE = {QUOTE(REGARD_KERNELS), SCREENS, multiply, multiply_int8, pick, quantize, normalize, activate, attend, sum_exp, above};

}  // namespace

const Kernels* JOIN(REGARD_KERNELS, _kernels)() { return &TABLE; }

}  // namespace regard
