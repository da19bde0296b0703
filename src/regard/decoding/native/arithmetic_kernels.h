// The arithmetic of decoding as a table of functions: one table per instruction set, all with the same results.
#pragma once
#include <cstdint>

namespace regard {

// Output columns are stored in panels of 16, so that one step along the depth reads 16 neighbours
constexpr int PANEL = 16;

constexpr long round_up(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }

enum class Form {  // how the weights of a panel are stored
    plain,         // [depth][16], float32
    fixed,         // [depth][16], integers of three bytes (the upper ones of 32 bits), times the scale of their column
    int8,          // [depth / 4][16][4], bytes, four steps at once, times the scale of their column
};

inline int32_t three_bytes(const uint8_t* p) { return int32_t(uint32_t(p[0]) << 8 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 24); }

struct Matrix {  // [columns, depth], which maps a row of `depth` numbers to one of `columns`
    int columns = 0, depth = 0;
    Form form = Form::plain;
    const uint8_t* weights = nullptr;
    const float* scales = nullptr;
    const int32_t* sums = nullptr;  // sum of the bytes of each column
    const float* bias = nullptr;
    const void* lines = nullptr;  // the columns again, one by one, to compute single ones: float32, or in int8 two bytes per number
    const Matrix* next = nullptr;  // the matrix that is read next; its first weights are prefetched with the last of this one

    int panels() const { return int(round_up(columns, PANEL) / PANEL); }
    long deep() const { return round_up(depth, 4); }  // depth in int8
    long size() const { return PANEL * (form == Form::int8 ? deep() : form == Form::fixed ? depth * 3L : depth * 4L); }  // bytes of a panel
    long line() const { return round_up(depth, PANEL); }  // distance between lines, in numbers; padded with zeros
    float line_scale(int column) const { return form == Form::int8 ? scales[column] * (127.0f / 32767.0f) : 1.0f; }
};

enum class Activation : int { none, relu, gelu, gelu_tanh, silu };

struct Rows {  // float32 numbers, or bytes
    const void* data;
    long stride;
    int count;
    const float* scales = nullptr;  // in int8: the scale of each row
};

struct Kernels {
    const char* name;
    bool screens;  // int8 products are so fast that float32 logits are screened with two of them
    // out[row, column] = (add ? its old value : 0) + bias + row * column, for the columns of panels first ... last - 1,
    // the first of which goes to out[row, 0]
    void (*multiply)(const Rows& rows, const Matrix& matrix, int first, int last, float* out, long stride, bool add);
    void (*multiply_int8)(const Rows& rows, const Matrix& matrix, int first, int last, float* out, long stride, bool add);
    // out[row, i] = bias + row * column tokens[i], of the lines of a matrix; the rows are float32
    void (*pick)(const Rows& rows, const Matrix& matrix, const int32_t* tokens, int count, float* out, long stride);
    // turns a row into bytes for multiply_int8, and writes the remainders to `rest` unless it is null; returns the scale
    float (*quantize)(const float* row, int count, uint8_t* out, float* rest);
    void (*normalize)(const float* row, const float* gain, const float* bias, int count, float epsilon, bool rms, float* out);
    void (*activate)(float* row, const float* gate, int count, Activation kind);  // row = kind(row), or kind(gate) * row
    // softmax(query · keys * scale) · values, of one head; entry j has its key and value at these offsets
    void (*attend)(const float* query, const float* const* entries, int count, long key, long value, int key_width,
                   int value_width, float scale, float* weights, float* out);
    // adds to the sum of exp(x - highest), and raises `highest`; returns the highest of this row
    float (*sum_exp)(const float* row, int count, float* highest, double* sum);
    int (*above)(const float* row, int begin, int count, float least);  // returns the first index from `begin` on whose number is above `least`
};

const Kernels* portable_kernels();
#if defined(__x86_64__)
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
#endif

}  // namespace regard
