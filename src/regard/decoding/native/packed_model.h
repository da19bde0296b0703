// The weights of a model folder, in the layout of weight_packing.py. The caller must read the file into private memory,
// because truncating a memory-mapped file would kill the process.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "arithmetic_kernels.h"

namespace regard {

struct Shape {  // the header of the file; must match weight_packing.py
    char magic[8];
    int64_t size;  // of the file in bytes
    int32_t decoder_only, width, heads, groups, key_width, value_width, hidden, encoder_layers, decoder_layers;
    int32_t pre_norm, rms, activation, gated, rotary, positions, source_vocabulary, target_vocabulary, int8;
    int32_t embedding_norm, one_source_table, one_target_table, max_length, has_screen, fixed;
    float epsilon, rotary_base, embedding_scale;
};

struct Norm {
    const float *gain, *bias;
};

struct Layer {
    Norm self_norm, cross_norm, feed_forward_norm;
    Matrix query_key_value, self_output, cross_query, cross_output, rise, fall;  // `rise` also contains the gate, if there is one
};

struct Shortlist {  // the tokens allowed for each source; must match compiled_library.py
    const int64_t* starts;  // [source vocabulary + 1] into `tokens`: possible translations of each source token; null: no shortlist
    const int32_t* tokens;
    const int32_t* common;  // tokens allowed for every source
    int64_t starts_count, tokens_count, common_count;

    // Lists all tokens allowed for this source in ascending order
    void list(const std::vector<int32_t>& source, int vocabulary, std::vector<int32_t>& out) const {
        std::vector<uint64_t> there(size_t(vocabulary + 63) / 64);
        const auto add = [&](int32_t token) { there[size_t(token) / 64] |= uint64_t(1) << token % 64; };
        std::for_each(common, common + common_count, add);
        for (int32_t token : source) std::for_each(tokens + starts[token], tokens + starts[token + 1], add);
        out.clear();
        for (size_t i = 0; i < there.size(); ++i)
            for (uint64_t bits = there[i]; bits; bits &= bits - 1) out.push_back(int32_t(i * 64) + __builtin_ctzll(bits));
    }
};

class Model {
public:
    Shape shape;
    Shortlist shortlist{};
    bool screened = false;  // whether to use `screen`, and then the lines of `logits`
    Matrix source_embedding, target_embedding, logits;
    Matrix screen;  // `logits` in int8; in a float32 model, only for large vocabularies
    float screen_off = 0.0f, screen_length = 0.0f;  // maximum distance of a column from that of `logits`, and maximum length
    const float *source_positions = nullptr, *target_positions = nullptr;  // [max_length, padded width], or null
    Norm source_norm, target_norm, encoder_norm, decoder_norm;
    std::vector<Layer> encoder, decoder;
    Matrix memory;  // maps encoder states to the keys and values of all decoder layers
    std::vector<float> cosines, sines;  // [max_length, key_width / 2]

    // `data` must outlive the model
    Model(const char* data, size_t size) : data_(data), size_(size) { read(); }
    Model(const Model&) = delete;

    int width() const { return int(round_up(shape.width, PANEL)); }  // padded width
    int keys() const { return shape.groups * shape.key_width; }      // width of the keys of one layer
    int values() const { return shape.groups * shape.value_width; }
    int entry() const { return keys() + values(); }
    int hidden() const { return int(round_up(shape.hidden, PANEL)); }
    bool int8() const { return shape.int8 != 0; }

    // Must be called once, before any search
    void choose(const Kernels& kernels) {
        screened = screen.weights && (int8() || kernels.screens);
        link();
    }

    // Must be called before any search; the caller must keep the arrays
    void shorten(const Shortlist& with) {
        if (!logits.lines) throw std::runtime_error("is no model that translates");
        const auto known = [&](int32_t token) { return token >= 0 && token < shape.target_vocabulary; };
        const bool fits = with.starts_count == shape.source_vocabulary + 1 && with.starts[0] == 0 &&
                          with.starts[shape.source_vocabulary] == with.tokens_count && std::is_sorted(with.starts, with.starts + with.starts_count) &&
                          std::all_of(with.tokens, with.tokens + with.tokens_count, known) &&
                          std::all_of(with.common, with.common + with.common_count, known);
        if (!fits) throw std::runtime_error("the lists do not fit the vocabulary");
        shortlist = with;
    }

    // Returns one row of a table that is stored as a matrix, times `factor`
    void look_up(const Matrix& table, int token, float factor, float* out) const {
        const long panel = token / PANEL, place = token % PANEL;
        if (table.lines && (int8() || shortlist.starts || screened)) {  // more precise for int8; for float32, nothing else reads the panels in this case
            const long from = token * table.line();
            const float scale = table.line_scale(token) * factor;
            for (int k = 0; k < table.depth; ++k)
                out[k] = (int8() ? float(static_cast<const int16_t*>(table.lines)[from + k]) : static_cast<const float*>(table.lines)[from + k]) * scale;
        } else if (table.form == Form::int8) {
            const int8_t* p = reinterpret_cast<const int8_t*>(table.weights) + panel * table.deep() * PANEL + place * 4;
            const float scale = table.scales[token] * factor;
            for (int k = 0; k < table.depth; ++k) out[k] = float(p[k / 4 * 4 * PANEL + k % 4]) * scale;
        } else if (table.form == Form::fixed) {
            const uint8_t* p = table.weights + (panel * table.depth * PANEL + place) * 3;
            const float scale = table.scales[token] * factor;
            for (int k = 0; k < table.depth; ++k, p += PANEL * 3) out[k] = float(three_bytes(p)) * scale;
        } else {
            const float* p = reinterpret_cast<const float*>(table.weights) + panel * table.depth * PANEL + place;
            for (int k = 0; k < table.depth; ++k) out[k] = p[k * PANEL] * factor;
        }
    }

private:
    static constexpr size_t CHECKSUM = 16;  // size in bytes, at the end of the file

    const char* data_;
    size_t size_, at_ = 0;  // `size_` excludes the checksum once the header has been read

    // Compares the sum of all 8-byte words, and the sum of its partial sums, with those of weight_packing.py
    bool intact() const {
        uint64_t sum = 0, sums = 0, word, expected[2];
        for (size_t i = 0; i < size_; i += sizeof word) {
            std::memcpy(&word, data_ + i, sizeof word);
            sums += sum += word;
        }
        std::memcpy(expected, data_ + size_, sizeof expected);
        return sum == expected[0] && sums == expected[1];
    }

    template <class T> const T* take(size_t count) {
        at_ = size_t(round_up(long(at_), 64));
        if (count * sizeof(T) > size_ || at_ > size_ - count * sizeof(T)) throw std::runtime_error("is cut short");
        const T* found = reinterpret_cast<const T*>(data_ + at_);
        at_ += count * sizeof(T);
        return found;
    }

    Norm norm() {
        const float* gain = take<float>(size_t(width()));
        return {gain, take<float>(size_t(width()))};
    }

    Matrix matrix(int columns, int depth) { return matrix(columns, depth, int8() ? Form::int8 : shape.fixed ? Form::fixed : Form::plain); }

    Matrix matrix(int columns, int depth, Form form) {
        Matrix m;
        m.columns = columns, m.depth = depth, m.form = form;
        const size_t padded = size_t(m.panels()) * PANEL;
        m.weights = take<uint8_t>(size_t(m.panels()) * size_t(m.size()));
        if (form != Form::plain) m.scales = take<float>(padded);
        if (form == Form::int8) m.sums = take<int32_t>(padded);
        m.bias = take<float>(padded);
        return m;
    }

    Matrix table(int tokens) {  // a table that is only used for lookups, not for products
        if (!int8() || shape.decoder_only) return matrix(tokens, shape.width);
        Matrix m;
        m.columns = tokens, m.depth = shape.width, m.form = Form::int8;
        m.scales = take<float>(size_t(tokens));
        m.lines = take<int16_t>(size_t(tokens) * size_t(m.line()));
        return m;
    }

    Layer layer(bool cross) {
        const Shape& s = shape;
        Layer l;
        l.self_norm = norm();
        l.query_key_value = matrix(s.heads * s.key_width + entry(), s.width);
        l.self_output = matrix(s.width, s.heads * s.value_width);
        if (cross) {
            l.cross_norm = norm();
            l.cross_query = matrix(s.heads * s.key_width, s.width);
            l.cross_output = matrix(s.width, s.heads * s.value_width);
        }
        l.feed_forward_norm = norm();
        l.rise = matrix(s.gated ? 2 * hidden() : s.hidden, s.width);
        l.fall = matrix(s.width, s.hidden);
        return l;
    }

    // Reports whether the sizes in the header are consistent, and no sum or product of them overflows an int
    bool possible() const {
        const Shape& s = shape;
        constexpr int64_t MOST = 1 << 24;
        const int64_t sources = s.decoder_only ? 1 : s.source_vocabulary, above = s.decoder_only ? 1 : s.encoder_layers;
        const int64_t sizes[] = {s.width, s.heads, s.groups, s.key_width, s.value_width, s.hidden, s.max_length, s.target_vocabulary,
                                 sources, above, s.decoder_layers};
        for (int64_t n : sizes)
            if (n < 1 || n > MOST) return false;
        const int64_t head = s.key_width + s.value_width;
        if (s.heads % s.groups || s.heads * head > MOST || s.groups * head > MOST / s.decoder_layers) return false;
        if (s.rotary && (s.key_width % 2 || int64_t(s.max_length) * s.key_width > 4 * MOST)) return false;
        const int64_t columns[] = {s.target_vocabulary, sources, s.heads * head, s.groups * head * s.decoder_layers, 2 * int64_t(s.hidden), s.positions ? s.max_length : 1};
        for (int64_t n : columns)
            if (n > 4 * s.size / s.width) return false;  // has more bytes than the file; no size below overflows 32 bits
        if ((s.has_screen && s.decoder_only) || (s.int8 && s.fixed)) return false;
        return s.decoder_only || !s.one_source_table || s.source_vocabulary == s.target_vocabulary;
    }

    // Links each matrix to the next one that is read, in the order of forward_pass.h
    void link() {
        Matrix* last = nullptr;
        const auto then = [&](Matrix& m) {
            if (last && m.weights) last->next = &m;
            if (m.weights) last = &m;
        };
        const auto through = [&](std::vector<Layer>& layers) {
            for (Layer& l : layers)
                for (Matrix* m : {&l.query_key_value, &l.self_output, &l.cross_query, &l.cross_output, &l.rise, &l.fall}) then(*m);
        };
        through(encoder);
        then(memory);
        through(decoder);
        last->next = screened ? &screen : &logits;
    }

    void read() {
        std::memcpy(&shape, take<char>(sizeof(Shape)), sizeof(Shape));
        const Shape& s = shape;
        if (std::memcmp(s.magic, "regard-6", 8) != 0) throw std::runtime_error("is not packed for this version");
        if (s.size != int64_t(size_) || size_ % 8) throw std::runtime_error("is cut short");
        size_ -= CHECKSUM;
        if (!intact()) throw std::runtime_error("is damaged");
        if (!possible()) throw std::runtime_error("has impossible sizes");
        logits = matrix(s.target_vocabulary, s.width);
        if (!s.decoder_only) {
            const size_t size = size_t(s.target_vocabulary) * size_t(logits.line());
            logits.lines = int8() ? static_cast<const void*>(take<int16_t>(size)) : take<float>(size);
            if (s.has_screen) screen = s.int8 ? logits : matrix(s.target_vocabulary, s.width, Form::int8);
            if (const float* most = s.has_screen ? take<float>(2) : nullptr) screen_off = most[0], screen_length = most[1];
        }
        target_embedding = s.one_target_table ? logits : table(s.target_vocabulary);
        if (s.positions) target_positions = take<float>(size_t(s.max_length) * size_t(width()));
        if (!s.decoder_only) {
            if (s.positions) source_positions = take<float>(size_t(s.max_length) * size_t(width()));
            source_embedding = s.one_source_table ? target_embedding : table(s.source_vocabulary);
            if (s.embedding_norm) source_norm = norm();
            for (int i = 0; i < s.encoder_layers; ++i) encoder.push_back(layer(false));
            if (s.pre_norm) encoder_norm = norm();
            memory = matrix(s.decoder_layers * entry(), s.width);
        }
        if (s.embedding_norm) target_norm = norm();
        for (int i = 0; i < s.decoder_layers; ++i) decoder.push_back(layer(!s.decoder_only));
        if (s.pre_norm) decoder_norm = norm();
        if (size_t(round_up(long(at_), 8)) != size_) throw std::runtime_error("has other sizes than it says");
        if (s.rotary)
            for (int p = 0; p < s.max_length; ++p)
                for (int i = 0; i < s.key_width; i += 2) {
                    const double angle = p * std::pow(double(s.rotary_base), -double(i) / s.key_width);
                    cosines.push_back(float(std::cos(angle)));
                    sines.push_back(float(std::sin(angle)));
                }
    }
};

}  // namespace regard
