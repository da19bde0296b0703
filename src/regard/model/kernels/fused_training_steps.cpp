// The training steps between matrix products, each in a single pass over the data where PyTorch needs several. fused.py
// calls these functions and describes what they compute. Compiled once for each instruction set, with REGARD_KERNELS as
// the suffix of every name (see setup.py).
//
// The way that rows are distributed only depends on the number of threads, and no sum is computed by two threads, so
// results are deterministic.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include "simd_vectors.h"

#define JOINED_(name, set) regard_##name##_##set
#define JOINED(name, set) JOINED_(name, set)
#define EXPORT(name) extern "C" __attribute__((visibility("default"))) void JOINED(name, REGARD_KERNELS)

namespace regard {
namespace {

constexpr long round_up(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }

INLINE int most_threads() {
#if defined(_OPENMP)
    return omp_get_max_threads();
#else
    return 1;
#endif
}

// Splits 0 ... count - 1 into one part per thread and calls work(part, first, last); small inputs use a single thread.
template <class Work> void share(long count, long numbers, const Work& work) {
    const long parts = numbers < 20000 ? 1 : std::min<long>(most_threads(), count);
    if (parts <= 1) return work(0, 0, count);
#if defined(_OPENMP)
#pragma omp parallel for schedule(static, 1)
#endif
    for (long part = 0; part < parts; ++part) work(part, count * part / parts, count * (part + 1) / parts);
}

// Loads a whole vector, or only its first numbers followed by zeros
struct All {};
struct Some { long count; };
INLINE Vec load(const float* p, All) { return regard::load(p); }
INLINE Vec load(const float* p, Some some) { Vec v{}; std::memcpy(&v, p, some.count * 4); return v; }
INLINE void store(float* p, Vec v, All) { regard::store(p, v); }
INLINE void store(float* p, Vec v, Some some) { std::memcpy(p, &v, some.count * 4); }

// Calls work(i, number of elements from i on) for each vector in 0 ... count - 1
template <class Work> INLINE void sweep(long count, Work work) {
    long i = 0;
    for (; i + LANES <= count; i += LANES) work(i, All{});
    if (i < count) work(i, Some{count - i});
}

// RMSNorm

void normalize(const float* x, const float* gain, float* out, float* inverses, long first, long last, long width, float epsilon) {
    for (long row = first; row < last; ++row) {
        const float* in = x + row * width;
        float* to = out + row * width;
        Vec squares{};
        sweep(width, [&](long i, auto n) { const Vec v = load(in + i, n); squares += v * v; });
        const float inverse = inverses[row] = 1.0f / std::sqrt(total(squares) / width + epsilon);
        sweep(width, [&](long i, auto n) { store(to + i, load(in + i, n) * inverse * load(gain + i, n), n); });
    }
}

void normalize_back(const float* x, const float* gain, const float* inverses, const float* upstream, float* by_x, float* by_gain,
                    long first, long last, long width) {
    for (long row = first; row < last; ++row) {
        const float *in = x + row * width, *up = upstream + row * width, inverse = inverses[row];
        float* to = by_x + row * width;
        Vec along{};
        sweep(width, [&](long i, auto n) {
            const Vec both = load(in + i, n) * load(up + i, n);
            along += both * load(gain + i, n);
            store(by_gain + i, load(by_gain + i, n) + both * inverse, n);
        });
        const float pull = total(along) * inverse * inverse * inverse / width;
        sweep(width, [&](long i, auto n) {
            store(to + i, load(up + i, n) * load(gain + i, n) * inverse - load(in + i, n) * pull, n);
        });
    }
}

// Dropout: Philox4x32-10 (Salmon et al., 2011). A group of 16 blocks of four 32-bit words determines the mask of 128
// elements: halves m % 2 of words m / 2 of the 16 blocks determine elements 16 m ... 16 m + 15.

constexpr int BLOCKS = 16, GROUP = 128;
typedef uint32_t Words __attribute__((vector_size(BLOCKS * 4)));
typedef uint64_t Doubles __attribute__((vector_size(BLOCKS * 4)));  // every second word, as factors

// Computes both halves of all products with a factor. 64-bit vectors multiply their lower halves, so words alternate.
INLINE void multiply(Words words, uint32_t factor, Words* low, Words* high) {
    const Doubles even = ((Doubles)words & 0xFFFFFFFFu) * factor, odd = ((Doubles)words >> 32) * factor;
    *low = (Words)((even & 0xFFFFFFFFu) | odd << 32);
    *high = (Words)(even >> 32 | (odd & ~uint64_t(0xFFFFFFFFu)));
}

INLINE void draw(uint64_t block, uint32_t key0, uint32_t key1, Words* words) {
    for (int i = 0; i < BLOCKS; ++i) {
        words[0][i] = uint32_t(block + i);
        words[1][i] = uint32_t((block + i) >> 32);
    }
    words[2] = words[3] = Words{};
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
        Words low[2], high[2];
        multiply(words[0], 0xD2511F53u, low, high);
        multiply(words[2], 0xCD9E8D57u, low + 1, high + 1);
        words[0] = high[1] ^ words[1] ^ key0;
        words[1] = low[1];
        words[2] = high[0] ^ words[3] ^ key1;
        words[3] = low[0];
    }
}

void drop(const float* x, const float* y, float* out, long first, long last, long count, uint32_t key0, uint32_t key1,
          uint64_t start, uint32_t dropped, float scale) {
    uint32_t bits;  // bits of the scale, which are masked for dropped elements
    std::memcpy(&bits, &scale, sizeof bits);
    for (long group = first; group < last; ++group) {
        Words words[4];
        draw(start + group * BLOCKS, key0, key1, words);
        float factors[GROUP];
        UNROLL for (int m = 0; m < GROUP / BLOCKS; ++m) {
            const Words drawn = m % 2 ? words[m / 2] >> 16 : words[m / 2] & 0xFFFFu;
            const Words kept = (Words)(drawn >= Words{} + dropped) & bits;
            std::memcpy(factors + m * BLOCKS, &kept, sizeof kept);
        }
        const long base = group * GROUP;
        sweep(std::min<long>(GROUP, count - base), [&](long i, auto n) {
            const Vec v = load(y + base + i, n) * load(factors + i, n);
            store(out + base + i, x ? v + load(x + base + i, n) : v, n);
        });
    }
}

// SwiGLU

INLINE Vec sigmoid(Vec x) { return 1.0f / (1.0f + exponential(-larger(x, splat(-87.0f)))); }

void gate(const float* gates, const float* rises, float* out, long count) {
    sweep(count, [&](long i, auto n) {
        const Vec g = load(gates + i, n);
        store(out + i, g * sigmoid(g) * load(rises + i, n), n);
    });
}

void gate_back(const float* gates, const float* rises, const float* upstream, float* by_gates, float* by_rises, long count) {
    sweep(count, [&](long i, auto n) {
        const Vec g = load(gates + i, n), up = load(upstream + i, n), s = sigmoid(g);
        store(by_rises + i, up * g * s, n);
        store(by_gates + i, up * load(rises + i, n) * (s + g * s * (1.0f - s)), n);
    });
}

// Attention for short sequences. The rows of a head are packed contiguously, and padded with zeros to multiples of LANES.

#if defined(__AVX512F__)
constexpr int TILE_ROWS = 6, TILE_VECTORS = 4;
#else
constexpr int TILE_ROWS = 4, TILE_VECTORS = 2;
#endif

// out[i, j] = sum over k of a[i * row + k * column] * b[k * b_stride + j]
template <int ROWS, int VECTORS>
void tile(const float* a, long row, long column, const float* b, long b_stride, long depth, float* out, long stride) {
    Vec sum[ROWS][VECTORS];
    UNROLL for (int i = 0; i < ROWS; ++i)
        UNROLL for (int j = 0; j < VECTORS; ++j) sum[i][j] = Vec{};
    for (long k = 0; k < depth; ++k) {
        Vec line[VECTORS];
        UNROLL for (int j = 0; j < VECTORS; ++j) line[j] = regard::load(b + k * b_stride + j * LANES);
        UNROLL for (int i = 0; i < ROWS; ++i) {
            const Vec x = splat(a[i * row + k * column]);
            UNROLL for (int j = 0; j < VECTORS; ++j) sum[i][j] += x * line[j];
        }
    }
    UNROLL for (int i = 0; i < ROWS; ++i)
        UNROLL for (int j = 0; j < VECTORS; ++j) regard::store(out + i * stride + j * LANES, sum[i][j]);
}

template <int VECTORS>
void tiles(const float* a, long rows, long row, long column, const float* b, long b_stride, long depth, float* out, long stride) {
    long i = 0;
    for (; i + TILE_ROWS <= rows; i += TILE_ROWS)
        tile<TILE_ROWS, VECTORS>(a + i * row, row, column, b, b_stride, depth, out + i * stride, stride);
    for (; i + 2 <= rows; i += 2) tile<2, VECTORS>(a + i * row, row, column, b, b_stride, depth, out + i * stride, stride);
    if (i < rows) tile<1, VECTORS>(a + i * row, row, column, b, b_stride, depth, out + i * stride, stride);
}

// Multiplies `rows` rows with `columns` columns, which must be a multiple of LANES
void multiply(const float* a, long rows, long row, long column, const float* b, long b_stride, long columns, long depth,
              float* out, long stride) {
    long j = 0;
    for (; j + TILE_VECTORS * LANES <= columns; j += TILE_VECTORS * LANES)
        tiles<TILE_VECTORS>(a, rows, row, column, b + j, b_stride, depth, out + j, stride);
    for (; j + 2 * LANES <= columns; j += 2 * LANES)
        tiles<2>(a, rows, row, column, b + j, b_stride, depth, out + j, stride);
    if (j < columns) tiles<1>(a, rows, row, column, b + j, b_stride, depth, out + j, stride);
}

struct Heads {  // the arguments that all heads of a call share
    long heads, queries, keys, width;
    const float *cosines, *sines;  // [positions, width / 2], or null for no rotation
    bool causal;
    const float* bias;  // [batch, keys], or null
    long row() const { return heads * width; }
    long wide() const { return round_up(width, LANES); }
    long broad() const { return round_up(keys, LANES); }
    float scale() const { return 1.0f / std::sqrt(float(width)); }
};

// Rotates elements i and i + width / 2 of a row by the angle of its position, or back
INLINE void turn(const Heads& all, float* x, long position, float direction) {
    const long half = all.width / 2;
    const float *cosines = all.cosines + position * half, *sines = all.sines + position * half;
    sweep(half, [&](long i, auto n) {
        const Vec left = load(x + i, n), right = load(x + half + i, n), cosine = load(cosines + i, n), sine = load(sines + i, n) * direction;
        store(x + i, left * cosine - right * sine, n);
        store(x + half + i, right * cosine + left * sine, n);
    });
}

// Packs the rows of one head: [count, heads * width] -> [count, wide]
void pack(const Heads& all, const float* x, long count, float* out, float scale, bool turned) {
    for (long t = 0; t < count; ++t, x += all.row(), out += all.wide()) {
        sweep(all.width, [&](long i, auto n) { regard::store(out + i, load(x + i, n) * scale); });  // the rest stays zero
        if (turned && all.cosines) turn(all, out, t, 1.0f);
    }
}

void unpack(const Heads& all, float* x, long count, float* out, float scale, bool turned) {
    for (long t = 0; t < count; ++t, x += all.wide(), out += all.row()) {
        if (turned && all.cosines) turn(all, x, t, -1.0f);
        sweep(all.width, [&](long i, auto n) { store(out + i, load(x + i, n) * scale, n); });
    }
}

// Transposes [keys, wide] -> [width, broad]
void transpose(const Heads& all, const float* x, float* out) {
    for (long i = 0; i < all.width; ++i) {
        for (long s = 0; s < all.keys; ++s) out[i * all.broad() + s] = x[s * all.wide() + i];
        for (long s = all.keys; s < all.broad(); ++s) out[i * all.broad() + s] = 0.0f;
    }
}

// Converts the scores of a row to weights, which are 0 for masked keys
void soften(float* row, const float* bias, long keys, long broad) {
    for (long s = keys; s < broad; ++s) row[s] = -INFINITY;
    if (bias)
        for (long s = 0; s < keys; ++s) row[s] += bias[s];
    Vec tops = splat(-INFINITY), sum{};
    for (long s = 0; s < broad; s += LANES) tops = larger(tops, regard::load(row + s));
    const float top = highest(tops);
    for (long s = 0; s < broad; s += LANES) {
        const Vec x = regard::load(row + s);
        const Vec e = x < splat(-1e30f) ? Vec{} : exponential(x - top);
        regard::store(row + s, e);
        sum += e;
    }
    const float inverse = 1.0f / total(sum);
    for (long s = 0; s < broad; s += LANES) regard::store(row + s, regard::load(row + s) * inverse);
}

struct Scratch {
    std::vector<float> query, key, value, turned, up, scores;
    explicit Scratch(const Heads& all)
        : query(all.queries * all.wide()), key(all.keys * all.wide()), value(all.keys * all.wide()),
          turned(all.width * all.broad()), up(all.queries * all.wide()), scores(all.queries * all.broad()) {}
};

void attend(const Heads& all, Scratch& own, const float* query, const float* key, const float* value, const float* bias,
            float* weights, float* out) {
    const long wide = all.wide(), broad = all.broad();
    pack(all, query, all.queries, own.query.data(), all.scale(), true);
    pack(all, key, all.keys, own.key.data(), 1.0f, true);
    pack(all, value, all.keys, own.value.data(), 1.0f, false);
    transpose(all, own.key.data(), own.turned.data());
    multiply(own.query.data(), all.queries, wide, 1, own.turned.data(), broad, broad, all.width, weights, broad);
    for (long t = 0; t < all.queries; ++t)
        soften(weights + t * broad, bias, all.causal ? std::min(t + 1, all.keys) : all.keys, broad);
    multiply(weights, all.queries, broad, 1, own.value.data(), wide, wide, all.keys, own.up.data(), wide);
    unpack(all, own.up.data(), all.queries, out, 1.0f, false);
}

void attend_back(const Heads& all, Scratch& own, const float* query, const float* key, const float* value, const float* weights,
                 const float* upstream, float* by_query, float* by_key, float* by_value) {
    const long wide = all.wide(), broad = all.broad();
    float* scores = own.scores.data();
    pack(all, value, all.keys, own.value.data(), 1.0f, false);
    pack(all, upstream, all.queries, own.up.data(), 1.0f, false);
    transpose(all, own.value.data(), own.turned.data());
    multiply(own.up.data(), all.queries, wide, 1, own.turned.data(), broad, broad, all.width, scores, broad);
    multiply(weights, all.keys, 1, broad, own.up.data(), wide, wide, all.queries, own.value.data(), wide);
    unpack(all, own.value.data(), all.keys, by_value, 1.0f, false);
    for (long t = 0; t < all.queries; ++t) {
        const float* w = weights + t * broad;
        Vec along{};
        for (long s = 0; s < broad; s += LANES) along += regard::load(w + s) * regard::load(scores + t * broad + s);
        const float mean = total(along);
        for (long s = 0; s < broad; s += LANES)
            regard::store(scores + t * broad + s, regard::load(w + s) * (regard::load(scores + t * broad + s) - mean));
    }
    pack(all, key, all.keys, own.key.data(), 1.0f, true);
    multiply(scores, all.queries, broad, 1, own.key.data(), wide, wide, all.keys, own.up.data(), wide);
    unpack(all, own.up.data(), all.queries, by_query, all.scale(), true);
    pack(all, query, all.queries, own.query.data(), all.scale(), true);
    multiply(scores, all.keys, 1, broad, own.query.data(), wide, wide, all.queries, own.key.data(), wide);
    unpack(all, own.key.data(), all.keys, by_key, 1.0f, true);
}

// Cross-entropy: replaces the logits of a row by their gradients, except for the constant of label smoothing

struct Row {
    float top, sum;  // the log-sum-exp is log(sum) + top
    double flat;     // sum of all logits
};

INLINE Row exponentials(const float* logits, float* out, long count) {
    const long whole = count / LANES * LANES;
    Vec top = splat(-INFINITY), flat{}, sum{};
    for (long i = 0; i < whole; i += LANES) {
        const Vec x = regard::load(logits + i);
        flat += x;
        top = larger(top, x);
    }
    Row row{highest(top), 0.0f, total(flat)};
    for (long i = whole; i < count; ++i) row.top = std::max(row.top, logits[i]), row.flat += logits[i];
    for (long i = 0; i < whole; i += LANES) {
        const Vec e = exponential(regard::load(logits + i) - row.top);
        regard::store(out + i, e);
        sum += e;
    }
    row.sum = total(sum);
    for (long i = whole; i < count; ++i) row.sum += out[i] = std::exp(logits[i] - row.top);
    return row;
}

void cross_entropy(float* logits, long label, long count, float smoothing, double* surprise, double* flat) {
    const float right = logits[label];
    const Row row = exponentials(logits, logits, count);
    const double log_sum = std::log(double(row.sum)) + row.top;
    *surprise = log_sum - right;
    *flat = row.flat - count * log_sum;
    const float inverse = 1.0f / row.sum;
    sweep(count, [&](long i, auto n) { store(logits + i, load(logits + i, n) * inverse, n); });
    logits[label] += smoothing - 1.0f;
}

}  // namespace
}  // namespace regard

using namespace regard;

EXPORT(norm)(const float* x, const float* gain, float* out, float* inverses, long rows, long width, float epsilon) {
    share(rows, rows * width, [=](long, long first, long last) { normalize(x, gain, out, inverses, first, last, width, epsilon); });
}

EXPORT(norm_back)(const float* x, const float* gain, const float* inverses, const float* upstream, float* by_x, float* by_gain,
                  long rows, long width) {
    std::vector<float> parts(most_threads() * width, 0.0f);
    float* sums = parts.data();
    share(rows, rows * width, [=](long part, long first, long last) {
        normalize_back(x, gain, inverses, upstream, by_x, sums + part * width, first, last, width);
    });
    for (long i = 0; i < width; ++i) {
        by_gain[i] = 0.0f;
        for (int part = 0; part < most_threads(); ++part) by_gain[i] += sums[part * width + i];
    }
}

EXPORT(drop)(const float* x, const float* y, float* out, long count, uint32_t key0, uint32_t key1, uint64_t start,
             uint32_t dropped, float scale) {
    share((count + GROUP - 1) / GROUP, count, [=](long, long first, long last) {
        drop(x, y, out, first, last, count, key0, key1, start, dropped, scale);
    });
}

EXPORT(gate)(const float* gates, const float* rises, float* out, long count) {
    share((count + GROUP - 1) / GROUP, count, [=](long, long first, long last) {
        const long from = first * GROUP;
        gate(gates + from, rises + from, out + from, std::min(last * GROUP, count) - from);
    });
}

EXPORT(gate_back)(const float* gates, const float* rises, const float* upstream, float* by_gates, float* by_rises, long count) {
    share((count + GROUP - 1) / GROUP, count, [=](long, long first, long last) {
        const long from = first * GROUP;
        gate_back(gates + from, rises + from, upstream + from, by_gates + from, by_rises + from,
                  std::min(last * GROUP, count) - from);
    });
}

EXPORT(attend)(const float* query, const float* key, const float* value, const float* bias, const float* cosines,
               const float* sines, float* weights, float* out, long batch, long heads, long queries, long keys, long width,
               int causal) {
    const Heads all{heads, queries, keys, width, cosines, sines, causal != 0, bias};
    share(batch * heads, batch * heads * queries * keys * width, [=](long, long first, long last) {
        Scratch own(all);
        for (long i = first; i < last; ++i) {
            const long b = i / heads, asked = b * queries * all.row() + i % heads * width, there = b * keys * all.row() + i % heads * width;
            attend(all, own, query + asked, key + there, value + there, bias ? bias + b * keys : nullptr,
                   weights + i * queries * all.broad(), out + asked);
        }
    });
}

EXPORT(attend_back)(const float* query, const float* key, const float* value, const float* cosines, const float* sines,
                    const float* weights, const float* upstream, float* by_query, float* by_key, float* by_value, long batch,
                    long heads, long queries, long keys, long width) {
    const Heads all{heads, queries, keys, width, cosines, sines, false, nullptr};
    share(batch * heads, batch * heads * queries * keys * width, [=](long, long first, long last) {
        Scratch own(all);
        for (long i = first; i < last; ++i) {
            const long b = i / heads, asked = b * queries * all.row() + i % heads * width, there = b * keys * all.row() + i % heads * width;
            attend_back(all, own, query + asked, key + there, value + there, weights + i * queries * all.broad(), upstream + asked,
                        by_query + asked, by_key + there, by_value + there);
        }
    });
}

EXPORT(cross_entropy)(float* logits, const int64_t* labels, long rows, long count, float smoothing, double* surprise, double* flat) {
    share(rows, rows * count, [=](long, long first, long last) {
        for (long row = first; row < last; ++row)
            cross_entropy(logits + row * count, labels[row], count, smoothing, surprise + row, flat + row);
    });
}
