// The Transformer's forward pass, position by position. Several threads, the lanes of a team, run the same functions in
// parallel: each computes its share of the rows or columns of a step, and waits for the others before the next step.
#pragma once
#include <algorithm>
#include <atomic>
#include <numeric>

#include "packed_model.h"
#include "threads.h"

namespace regard {

struct Range {
    long begin, end;
};

class Team {
public:
    const int lanes;
    explicit Team(int size) : lanes(size) {}

    Range share(int lane, long count) const { return {count * lane / lanes, count * (lane + 1) / lanes}; }

    void wait() {  // waits until all lanes arrive; spins first, because steps take microseconds, and then yields
        if (lanes == 1) return;
        const int round = round_.load(std::memory_order_acquire);
        if (waiting_.fetch_add(1, std::memory_order_acq_rel) == lanes - 1) {
            waiting_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
            if (spins > 4000) yield();
        }
    }

private:
    std::atomic<int> waiting_{0}, round_{0};
};

struct Position {  // a token to read in this step
    int token, place;
    float* entry;                // where to store its keys and values; those of layer l are at `path_step` * l
    const float* const* path;    // entries of all tokens up to this one
    const float* const* memory;  // keys and values of the source, in the same format
    int memory_count;
    long path_step, memory_step;
};

template <class T> class Buffer {  // grows when needed; new elements are zero
public:
    T* get(size_t count) {
        if (count > values_.size()) values_.assign(count + count / 4, T{});
        return values_.data();
    }
    T* data() { return values_.data(); }

private:
    std::vector<T> values_;
};

class Network {
public:
    const Model& model;
    const Kernels& kernels;
    Team& team;

    Network(const Model& m, const Kernels& k, Team& t)
        : model(m), kernels(k), team(t), width_(m.width()), context_(round_up(m.shape.heads * m.shape.value_width, PANEL)),
          terms_(m.screened && !m.int8() ? 2 : 1) {
        const Shape& s = m.shape;
        const long wide[] = {s.heads * s.key_width + m.entry(), s.gated ? 2 * m.hidden() : m.hidden(), s.heads * s.key_width};
        wide_ = round_up(*std::max_element(wide, wide + 3), PANEL);
        bytes_ = round_up(std::max({width_, context_, long(m.hidden())}), 64);
    }

    // One lane must call this before any lane uses this number of rows
    void reserve(int rows, int longest) {
        const size_t n = size_t(rows);
        x_.get(n * width_), y_.get(n * width_), wide_rows_.get(n * wide_), context_rows_.get(n * context_);
        if (model.int8() || model.screened) byte_rows_.get(terms_ * n * bytes_), byte_scales_.get(terms_ * n), margins_.get(n);
        weights_ = round_up(longest, PANEL) + PANEL;
        weight_rows_.get(size_t(weights_ * team.lanes));
        if (sources_.size() < n) sources_.resize(n);
    }

    // Encodes several sources, of which source i has the tokens starts[i] ... starts[i + 1] - 1; writes the decoder's keys and
    // values of each row to out[row]
    void encode(int lane, const int32_t* tokens, const std::vector<int>& starts, float* out, long stride) {
        const int rows = starts.back();
        for_rows(lane, rows, [&](long row) {
            const auto next = std::upper_bound(starts.begin(), starts.end(), int(row));
            embed(model.source_embedding, model.source_positions, model.source_norm, tokens[row], int(row) - *(next - 1), x_.data() + row * width_);
            sources_[size_t(row)] = wide_rows_.data() + row * wide_;
        });
        const Shape& s = model.shape;
        const long key = s.heads * s.key_width;
        for (const Layer& layer : model.encoder) {
            sublayer(lane, rows, layer.self_norm, layer.query_key_value, layer.self_output, context_rows_.data(), context_, [&] {
                if (s.rotary)
                    for (size_t i = 0; i + 1 < starts.size(); ++i)
                        for_rows(lane, starts[i + 1] - starts[i], [&](long p) { turn(wide_rows_.data() + (starts[i] + p) * wide_, int(p)); });
                for_heads(lane, rows, [&](long row, int head, float* weights) {
                    const auto next = std::upper_bound(starts.begin(), starts.end(), int(row));
                    attend(wide_rows_.data() + row * wide_, row, head, sources_.data() + *(next - 1), *next - *(next - 1), key, weights);
                });
            });
            feed_forward(lane, rows, layer);
        }
        linear(lane, model.memory, normalized(lane, rows, model.encoder_norm), width_, rows, out, stride, false);
    }

    // Reads these positions of unfinished outputs and returns their last states; writes the last layer's attention of each
    // head to the source to `looks` [rows][heads][stride] unless it is null
    const float* decode(int lane, const std::vector<Position>& read, float* looks, long stride) {
        const int rows = int(read.size());
        const Shape& s = model.shape;
        for_rows(lane, rows, [&](long row) {
            const Position& p = read[size_t(row)];
            embed(model.target_embedding, model.target_positions, model.target_norm, p.token, p.place, x_.data() + row * width_);
        });
        long number = 0;
        for (const Layer& layer : model.decoder) {
            sublayer(lane, rows, layer.self_norm, layer.query_key_value, layer.self_output, context_rows_.data(), context_, [&] {
                for_rows(lane, rows, [&](long row) {
                    float* wide = wide_rows_.data() + row * wide_;
                    if (s.rotary) turn(wide, read[size_t(row)].place);
                    std::copy_n(wide + s.heads * s.key_width, model.entry(), read[size_t(row)].entry + number * read[size_t(row)].path_step);
                });
                for_heads(lane, rows, [&](long row, int head, float* weights) {
                    const Position& p = read[size_t(row)];
                    attend(wide_rows_.data() + row * wide_, row, head, p.path, p.place + 1, number * p.path_step, weights);
                });
            });
            if (!s.decoder_only)
                sublayer(lane, rows, layer.cross_norm, layer.cross_query, layer.cross_output, context_rows_.data(), context_, [&] {
                    for_heads(lane, rows, [&](long row, int head, float* weights) {
                        const Position& p = read[size_t(row)];
                        attend(wide_rows_.data() + row * wide_, row, head, p.memory, p.memory_count, number * p.memory_step, weights);
                        if (looks && &layer == &model.decoder.back()) std::copy_n(weights, p.memory_count, looks + (row * s.heads + head) * stride);
                    });
                });
            feed_forward(lane, rows, layer);
            ++number;
        }
        return normalized(lane, rows, model.decoder_norm);
    }

    long width() const { return width_; }

    // Converts rows of states to the input of `logits`
    Rows scorable(int lane, const float* states, int rows) { return quantized(lane, states, width_, rows, model.logits.depth); }

    // Computes the logits of a share of the vocabulary chunk by chunk, and calls see(first column, columns, logits of row 0,
    // stride). All lanes together see the same chunks in the same order as a single lane.
    template <class See> void logits(int lane, const Rows& input, std::vector<float>& buffer, See see) {
        const Matrix& m = model.logits;
        buffer.resize(size_t(input.count * CHUNK));
        for_chunks(lane, m.columns, [&](long first, long count) {
            product(input, m, int(first / PANEL), int(round_up(first + count, PANEL) / PANEL), buffer.data(), CHUNK, false);
            see(int(first), int(count), buffer.data(), CHUNK);
        });
    }

    // Does the same in int8: converts states to bytes and, in a float32 model, also their remainders. The error of a logit in
    // row i is at most margin(i), and usually much less.
    template <class See> void screen(int lane, const float* states, int rows, std::vector<float>& buffer, See see) {
        const Matrix& m = model.screen;
        for_rows(lane, rows, [&](long row) {
            const float *whole = states + row * width_, *state = whole;
            float *rest = y_.data() + row * width_, *scales = byte_scales_.data() + row;
            for (long i = 0; i < terms_; ++i, state = rest)
                scales[i * rows] = kernels.quantize(state, m.depth, byte_rows_.data() + (i * rows + row) * bytes_, i + 1 < terms_ ? rest : nullptr);
            const double length = std::sqrt(std::inner_product(whole, whole + m.depth, whole, 0.0));
            const double lost = 0.5 * scales[(terms_ - 1) * rows] * std::sqrt(double(m.depth));
            margins_.data()[row] = float(1.001 * length * model.screen_off + (lost + 1e-5 * length) * model.screen_length);
        });
        const Rows input{byte_rows_.data(), bytes_, int(terms_ * rows), byte_scales_.data()};
        buffer.resize(size_t(terms_ * rows * CHUNK));
        for_chunks(lane, m.columns, [&](long first, long count) {
            kernels.multiply_int8(input, m, int(first / PANEL), int(round_up(first + count, PANEL) / PANEL), buffer.data(), CHUNK, false);
            const float *bias = m.bias + first, *lower = buffer.data() + rows * CHUNK;
            for (long row = 0; row < rows && terms_ == 2; ++row)
                for (long i = 0; i < count; ++i) buffer[size_t(row * CHUNK + i)] += lower[row * CHUNK + i] - bias[i];
            see(int(first), int(count), buffer.data(), CHUNK);
        });
    }
    float margin(int row) { return margins_.data()[row]; }

    // Does the same for some rows and a share of these tokens; columns are positions in the list
    template <class See>
    void logits_of(int lane, const float* states, int rows, const std::vector<int32_t>& tokens, std::vector<float>& buffer, See see) {
        buffer.resize(size_t(rows * CHUNK));
        for_chunks(lane, long(tokens.size()), [&](long first, long count) {
            kernels.pick({states, width_, rows}, model.logits, tokens.data() + first, int(count), buffer.data(), CHUNK);
            see(int(first), int(count), buffer.data(), CHUNK);
        });
    }

private:
    static constexpr long CHUNK = 32 * PANEL;  // number of columns
    const long width_, context_, terms_;  // terms_: number of byte rows per screened row
    long wide_, bytes_, weights_ = 0;
    Buffer<float> x_, y_, wide_rows_, context_rows_, weight_rows_, byte_scales_, margins_;
    Buffer<uint8_t> byte_rows_;
    std::vector<const float*> sources_;

    template <class Work> void for_rows(int lane, long rows, Work work) {
        const Range mine = team.share(lane, rows);
        for (long row = mine.begin; row < mine.end; ++row) work(row);
        team.wait();
    }

    template <class Work> void for_chunks(int lane, long columns, Work work) {
        const Range mine = team.share(lane, (columns + CHUNK - 1) / CHUNK);
        for (long first = mine.begin * CHUNK; first < std::min(mine.end * CHUNK, columns); first += CHUNK) work(first, std::min(CHUNK, columns - first));
    }

    template <class Work> void for_heads(int lane, long rows, Work work) {
        const int heads = model.shape.heads;
        float* weights = weight_rows_.data() + lane * weights_;
        const Range mine = team.share(lane, rows * heads);
        for (long i = mine.begin; i < mine.end; ++i) work(i / heads, int(i % heads), weights);
        team.wait();
    }

    void embed(const Matrix& table, const float* positions, const Norm& norm, int token, int place, float* out) const {
        model.look_up(table, token, model.shape.embedding_scale, out);
        std::fill(out + model.shape.width, out + width_, 0.0f);  // the padding may contain NaN from earlier steps
        if (positions)
            for (int k = 0; k < model.shape.width; ++k) out[k] += positions[place * width_ + k];
        if (model.shape.embedding_norm) normalize(out, norm, out);
    }

    void normalize(const float* in, const Norm& norm, float* out) const {
        kernels.normalize(in, norm.gain, norm.bias, model.shape.width, model.shape.epsilon, model.shape.rms != 0, out);
    }

    void turn(float* row, int place) const {  // applies rotary positions to queries and keys
        const int half = model.shape.key_width / 2;
        const float *cosine = model.cosines.data() + long(place) * half, *sine = model.sines.data() + long(place) * half;
        for (int head = 0; head < model.shape.heads + model.shape.groups; ++head, row += 2 * half)
            for (int i = 0; i < half; ++i) {
                const float left = row[i], right = row[i + half];
                row[i] = left * cosine[i] - right * sine[i];
                row[i + half] = right * cosine[i] + left * sine[i];
            }
    }

    void attend(const float* queries, long row, int head, const float* const* entries, int count, long key, float* weights) {
        const Shape& s = model.shape;
        const long group = head / (s.heads / s.groups);
        kernels.attend(queries + head * s.key_width, entries, count, key + group * s.key_width, key + model.keys() + group * s.value_width,
                       s.key_width, s.value_width, 1.0f / std::sqrt(float(s.key_width)), weights,
                       context_rows_.data() + row * context_ + head * s.value_width);
    }

    Rows quantized(int lane, const float* in, long stride, int rows, int depth) {
        if (!model.int8()) return {in, stride, rows};
        for_rows(lane, rows, [&](long row) {
            byte_scales_.data()[row] = kernels.quantize(in + row * stride, depth, byte_rows_.data() + row * bytes_, nullptr);
        });
        return {byte_rows_.data(), bytes_, rows, byte_scales_.data()};
    }

    void product(const Rows& input, const Matrix& m, int first, int last, float* out, long stride, bool add) {
        (model.int8() ? kernels.multiply_int8 : kernels.multiply)(input, m, first, last, out, stride, add);
    }

    void linear(int lane, const Matrix& m, const float* in, long stride, int rows, float* out, long out_stride, bool add) {
        const Rows input = quantized(lane, in, stride, rows, m.depth);
        const Range panels = team.share(lane, m.panels());
        if (panels.begin < panels.end)
            product(input, m, int(panels.begin), int(panels.end), out + panels.begin * PANEL, out_stride, add);
        team.wait();
    }

    const float* normalized(int lane, int rows, const Norm& norm) {  // normalizes the states if the model is pre-norm; otherwise returns them unchanged
        if (!model.shape.pre_norm) return x_.data();
        for_rows(lane, rows, [&](long row) { normalize(x_.data() + row * width_, norm, y_.data() + row * width_); });
        return y_.data();
    }

    // Computes x + last(middle(first(norm(x)))), or norm(x + ...); `middle` converts the output of `first` to `between`
    template <class Middle>
    void sublayer(int lane, int rows, const Norm& norm, const Matrix& first, const Matrix& last, const float* between, long stride, Middle middle) {
        linear(lane, first, normalized(lane, rows, norm), width_, rows, wide_rows_.data(), wide_, false);
        middle();
        linear(lane, last, between, stride, rows, x_.data(), width_, true);
        if (!model.shape.pre_norm)
            for_rows(lane, rows, [&](long row) { normalize(x_.data() + row * width_, norm, x_.data() + row * width_); });
    }

    void feed_forward(int lane, int rows, const Layer& layer) {
        const int hidden = model.hidden(), gated = model.shape.gated;
        const auto kind = Activation(model.shape.activation);
        float* between = wide_rows_.data() + (gated ? hidden : 0);
        sublayer(lane, rows, layer.feed_forward_norm, layer.rise, layer.fall, between, wide_, [&] {
            for_rows(lane, rows, [&](long row) {
                float* rise = between + row * wide_;
                kernels.activate(rise, gated ? rise - hidden : nullptr, hidden, kind);
            });
        });
    }
};

}  // namespace regard
