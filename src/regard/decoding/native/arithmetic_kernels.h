// The arithmetic of decoding: one table of functions per instruction set, all with the same results.
#pragma once
#include <cstdint>

namespace regard {

// Output columns are stored in panels of 16, so that one step along the depth reads 16 neighbours
constexpr int PANEL = 16;

constexpr long round_up(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }

enum class Form {  // how to store the weights of a panel
    plain,         // [depth][16], float32
    fixed,         // [depth][16], three-byte integers (the upper bytes of 32-bit ones), times the scale of their column
    int8,          // [depth / 4][16][4], bytes for four steps at a time, times the scale of their column
};

inline int32_t three_bytes(const uint8_t* p) { return int32_t(uint32_t(p[0]) << 8 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 24); }

struct Matrix {  // [columns, depth], maps a row of `depth` numbers to a row of `columns` numbers
    int columns = 0, depth = 0;
    Form form = Form::plain;
    const uint8_t* weights = nullptr;
    const float* scales = nullptr;
    const int32_t* sums = nullptr;  // sum of the bytes of each column
    const float* bias = nullptr;
    const void* lines = nullptr;  // the columns one by one, to compute single columns: float32 or, for int8 models, int16
    const Matrix* next = nullptr;  // the matrix read next, whose first weights are prefetched with the last ones of this matrix

    int panels() const { return int(round_up(columns, PANEL) / PANEL); }
    long deep() const { return round_up(depth, 4); }  // padded depth of int8
    long size() const { return PANEL * (form == Form::int8 ? deep() : form == Form::fixed ? depth * 3L : depth * 4L); }  // size of a panel in bytes
    long line() const { return round_up(depth, PANEL); }  // distance between lines in numbers; lines are padded with zeros
    float line_scale(int column) const { return form == Form::int8 ? scales[column] * (127.0f / 32767.0f) : 1.0f; }
};

enum class Activation : int { none, relu, gelu, gelu_tanh, silu };

struct Rows {  // float32 numbers, or bytes
    const void* data;
    long stride;
    int count;
    const float* scales = nullptr;  // int8 only: the scale of each row
};

struct Kernels {
    const char* name;
    bool screens;  // whether int8 products are fast enough to screen float32 logits with two of them
    // out[row, column] = (add ? its old value : 0) + bias + row * column, for the columns of panels first ... last - 1,
    // the first of which goes to out[row, 0]
    void (*multiply)(const Rows& rows, const Matrix& matrix, int first, int last, float* out, long stride, bool add);
    void (*multiply_int8)(const Rows& rows, const Matrix& matrix, int first, int last, float* out, long stride, bool add);
    // out[row, i] = bias + row * column tokens[i], of the lines of a matrix; the rows are float32
    void (*pick)(const Rows& rows, const Matrix& matrix, const int32_t* tokens, int count, float* out, long stride);
    // converts a row to bytes for multiply_int8, and writes the remainders to `rest` unless it is null; returns the scale
    float (*quantize)(const float* row, int count, uint8_t* out, float* rest);
    void (*normalize)(const float* row, const float* gain, const float* bias, int count, float epsilon, bool rms, float* out);
    void (*activate)(float* row, const float* gate, int count, Activation kind);  // row = kind(row), or kind(gate) * row
    // softmax(query · keys * scale) · values of one head; the key and value of entry j are at these offsets
    void (*attend)(const float* query, const float* const* entries, int count, long key, long value, int key_width,
                   int value_width, float scale, float* weights, float* out);
    // updates `highest`, adds to the sum of exp(x - highest), and returns the maximum of this row
    float (*sum_exp)(const float* row, int count, float* highest, double* sum);
    int (*above)(const float* row, int begin, int count, float least);  // returns the first index from `begin` on with a number above `least`
};

const Kernels* portable_kernels();
#if defined(__x86_64__)
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
#endif

}  // namespace regard
