// Searches for outputs with a model. Sentences join when others leave, so that products always have many rows. The rules
// are the same as in decoding/beam_search.py, which is the reference.
#pragma once
#include <limits>
#include <memory>

#include "sentence_queues.h"
#include "forward_pass.h"

namespace regard {

constexpr float NEVER = -std::numeric_limits<float>::infinity();

struct Hypothesis {
    Output output;
    std::vector<const float*> path;  // keys and values of the tokens read so far
    std::vector<int32_t> unread;
    int row = 0;
};

using Block = std::unique_ptr<float[]>;

class Entries {  // allocates memory for keys and values one by one, and takes all of it back at once
public:
    static constexpr long BLOCK = 8;  // number of entries stored next to each other, layer by layer

    float* next(long entry, long layers, std::vector<Block>& spare) {
        if (used_ == long(blocks_.size()) * BLOCK) {
            if (spare.empty()) spare.emplace_back(new float[size_t(BLOCK * entry * layers)]);
            blocks_.push_back(std::move(spare.back()));
            spare.pop_back();
        }
        const long i = used_++;
        return blocks_[size_t(i / BLOCK)].get() + i % BLOCK * entry;
    }
    void clear(std::vector<Block>& spare) {
        used_ = 0;
        spare.insert(spare.end(), std::make_move_iterator(blocks_.begin()), std::make_move_iterator(blocks_.end()));
        blocks_.clear();
    }

private:
    std::vector<Block> blocks_;
    long used_ = 0;
};

struct Memory {  // the encoder's keys and values, to which the decoder attends
    TaskPointer task;  // the sentence, or null
    std::vector<float> values;  // [layers][positions][keys, values]
    std::vector<const float*> rows;
};

struct Sentence {  // a sentence in progress
    Memory memory;
    Entries entries;
    std::vector<Hypothesis> alive;
    std::vector<Output> found;
    std::vector<int32_t> tokens;  // with a shortlist: the tokens allowed in outputs
    int first_row = 0;  // first row of its states in this step
    bool free() const { return !memory.task; }
};

struct ExpSum {  // the sum of exponentials of some logits
    float highest = NEVER;
    double sum = 0.0;  // sum of exp(logit - highest)

    void add(const ExpSum& other) {
        if (!(other.sum > 0)) return;
        if (other.highest > highest) sum *= std::exp(double(highest) - other.highest), highest = other.highest;
        sum += other.sum * std::exp(double(other.highest) - highest);
    }
};

struct Ranked {
    float logit;
    int32_t token;
};
using Ranking = std::vector<Ranked>;  // sorted by logit, highest first; ties by token, lowest first

inline void insert(Ranking& ranking, Ranked one, size_t most) {
    if (ranking.size() == most) ranking.pop_back();
    auto place = ranking.end();
    while (place != ranking.begin() && (place - 1)->logit < one.logit) --place;
    ranking.insert(place, one);
}

struct Scores {  // the scores of one hypothesis, over one lane's part of the vocabulary
    std::vector<ExpSum> chunks;
    Ranking best;
    // Only used if logits are screened first:
    ExpSum seen;                       // sum over all chunks so far
    Ranking screened;                  // the best screened logits
    std::vector<float> near;           // screened logits that may be among the best or matter for the sum,
    std::vector<int32_t> near_tokens;  // their tokens,
    std::vector<float> exact;          // and their exact logits

    void clear() { chunks.clear(), best.clear(), seen = {}, screened.clear(), near.clear(), near_tokens.clear(), exact.clear(); }
};

struct Columns {  // tokens that are scored together: a range or a list
    int first, count;
    const int32_t* listed;

    int32_t token(int i) const { return listed ? listed[i] : first + i; }
    int find(int32_t token) const {  // returns the column of a token, or -1
        if (!listed) return token >= first && token < first + count ? token - first : -1;
        const int32_t* place = std::lower_bound(listed, listed + count, token);
        return place < listed + count && *place == token ? int(place - listed) : -1;
    }
};

class Worker {  // a team of lanes with its own sentences
public:
    static constexpr double WRONG = 1e-5, WRONG_INT8 = 1e-3;  // typical maximum error of a screened probability
    static constexpr int PATIENCE = 4;  // number of steps after which a live search accepts even a few sentences

    Worker(const Model& model, const Kernels& kernels, Job& job)
        : team_(job.request.lanes), network_(model, kernels, team_), model_(model), kernels_(kernels), job_(job), request_(job.request),
          buffers_(size_t(team_.lanes)) {
        const int rows = request_.beam ? request_.beam : request_.rows;
        sentences_.resize(size_t(std::max(1, request_.rows_at_once / rows)));
        most_ = request_.beam ? 2 * size_t(request_.beam) : 1;
        screening_ = model.screened && !model.shortlist.starts && request_.temperature <= 0 && request_.repetition_penalty == 1.0;
    }

    void run(int lane) {
        for (;;) {
            by_one(lane, [&] { plan(); });
            if (over_) return;
            if (!pending_.empty()) {
                network_.encode(lane, pending_tokens_.data(), starts_, encoded_.data(), stride_);
                by_one(lane, [&] { keep_encoded(); });
                continue;
            }
            if (read_.empty() && job_.live) continue;
            if (read_.empty()) return;
            const float* states = network_.decode(lane, read_, request_.alignment ? looks_.data() : nullptr, looks_stride_);
            by_one(lane, [&] { gather(states); });
            guard([&] { score(lane); });
            if (screening_) {
                team_.wait();
                guard([&] { weigh_all(lane); });
            }
            team_.wait();
            const Range mine = team_.share(lane, long(sentences_.size()));
            guard([&] {
                for (long i = mine.begin; i < mine.end; ++i)
                    if (!sentences_[size_t(i)].free()) advance(sentences_[size_t(i)]);
            });
            team_.wait();
        }
    }

private:
    bool over_ = false;  // all lanes must see the same value, so that none leaves while others wait
    Team team_;
    Network network_;
    const Model& model_;
    const Kernels& kernels_;
    Job& job_;
    const Request& request_;
    std::vector<Sentence> sentences_;
    std::vector<Memory> ready_;
    std::vector<std::vector<float>> spare_;  // memory of earlier sentences, for reuse
    std::vector<Block> spare_blocks_;        // memory of their entries, for reuse
    int steps_ = 0;  // number of steps since sources were last encoded
    size_t most_;  // number of continuations to consider per hypothesis
    bool screening_;
    std::vector<TaskPointer> pending_;
    std::vector<int32_t> pending_tokens_;
    std::vector<int> starts_;
    Buffer<float> encoded_;
    long stride_ = 0;
    std::vector<Position> read_;
    std::vector<int> wanted_;  // rows of `read_` after which a new token is predicted
    std::vector<std::vector<int32_t>> previous_;  // with a repetition penalty: the tokens before each of these rows
    Buffer<float> states_, looks_;
    long looks_stride_ = 0;
    std::vector<std::vector<float>> buffers_;     // logits of each lane
    std::vector<std::vector<Scores>> scores_;     // indexed by lane and hypothesis
    std::vector<float> all_;                      // with sampling: logits of all tokens

    template <class Work> void guard(Work work) {
        try {
            work();
        } catch (...) {  // only thrown when out of memory
            job_.close(true);
        }
    }
    template <class Work> void by_one(int lane, Work work) {
        if (lane == 0) {
            if (!(over_ = job_.stopped())) guard(work);
            over_ = over_ || job_.failed();
        }
        team_.wait();
    }

    // Plans the next step: encodes new sources if there is room for them, otherwise generates a token of each sentence
    void plan() {
        pending_.clear(), read_.clear();
        std::vector<Sentence*> room;
        for (Sentence& s : sentences_) {
            if (!s.free() && s.memory.task->unwanted) s.memory.task = nullptr;
            if (!s.free()) continue;
            if (ready_.empty()) {
                room.push_back(&s);
            } else {
                begin(s, std::move(ready_.back()));
                ready_.pop_back();
            }
        }
        const bool idle = room.size() == sentences_.size();
        if (idle) job_.rest();
        if (model_.shape.decoder_only) {
            const std::vector<TaskPointer> taken = job_.take(room.size(), SIZE_MAX, idle);
            for (size_t i = 0; i < taken.size(); ++i) begin(*room[i], Memory{taken[i], {}, {}});
        } else {
            const size_t some = std::min<size_t>(16, (sentences_.size() + 3) / 4);  // products with few rows take as long as those with many
            const bool patient = job_.live && ++steps_ >= PATIENCE;  // but new sentences must not wait long
            if (room.size() >= some || idle || (patient && !room.empty())) take_sources(std::min<size_t>(room.size(), 32), idle);
        }
        if (pending_.empty()) list_unread();
    }

    void take_sources(size_t most, bool idle) {
        pending_ = job_.take(most, 512, idle);
        if (pending_.empty()) return;
        steps_ = 0;
        pending_tokens_.clear();
        starts_.assign(1, 0);
        size_t longest = 0;
        for (const TaskPointer& task : pending_) {
            pending_tokens_.insert(pending_tokens_.end(), task->source.begin(), task->source.end());
            starts_.push_back(int(pending_tokens_.size()));
            longest = std::max(longest, task->source.size());
        }
        stride_ = long(model_.memory.panels()) * PANEL;
        encoded_.get(pending_tokens_.size() * size_t(stride_));
        network_.reserve(int(pending_tokens_.size()), int(longest));
    }

    void keep_encoded() {
        for (size_t i = pending_.size(); i-- > 0;) {
            Memory m{pending_[i], {}, {}};
            if (!spare_.empty()) m.values.swap(spare_.back()), spare_.pop_back();
            m.values.clear();
            m.values.reserve(size_t((starts_[i + 1] - starts_[i]) * model_.shape.decoder_layers * model_.entry()));
            for (long layer = 0; layer < model_.shape.decoder_layers; ++layer)
                for (int row = starts_[i]; row < starts_[i + 1]; ++row) {
                    const float* first = encoded_.data() + row * stride_ + layer * model_.entry();
                    m.values.insert(m.values.end(), first, first + model_.entry());
                }
            ready_.push_back(std::move(m));
        }
    }

    void begin(Sentence& s, Memory memory) {
        if (s.memory.values.capacity()) spare_.push_back(std::move(s.memory.values));
        s.memory = std::move(memory);
        s.memory.rows.clear();
        const size_t positions = s.memory.values.size() / size_t(model_.shape.decoder_layers * model_.entry());
        for (size_t i = 0; i < positions; ++i) s.memory.rows.push_back(s.memory.values.data() + i * size_t(model_.entry()));
        s.entries.clear(spare_blocks_);
        s.found.clear();
        if (model_.shortlist.starts) model_.shortlist.list(s.memory.task->source, model_.logits.columns, s.tokens);
        s.alive.assign(1, {});
        if (model_.shape.decoder_only)
            s.alive[0].unread = s.memory.task->source;
        else
            s.alive[0].unread.assign(1, request_.begin);
    }

    void list_unread() {
        int longest = 1;
        wanted_.clear();
        for (Sentence& s : sentences_) {
            if (s.free()) continue;
            s.first_row = int(wanted_.size());
            forget(s);
            for (Hypothesis& h : s.alive) {
                const size_t before = h.path.size();
                for (size_t i = 0; i < h.unread.size(); ++i) h.path.push_back(s.entries.next(model_.entry(), model_.shape.decoder_layers, spare_blocks_));
                for (size_t i = 0; i < h.unread.size(); ++i) {
                    const int place = int(before + i);
                    float* entry = const_cast<float*>(h.path[size_t(place)]);
                    read_.push_back({h.unread[i], place, entry, h.path.data(), s.memory.rows.data(), int(s.memory.rows.size()),
                                     Entries::BLOCK * model_.entry(), long(s.memory.rows.size()) * model_.entry()});
                }
                longest = std::max({longest, int(h.path.size()), int(s.memory.rows.size())});
                if (request_.repetition_penalty != 1.0) {
                    previous_.resize(std::max(previous_.size(), wanted_.size() + 1));
                    list_previous(s, h, previous_[wanted_.size()]);
                }
                wanted_.push_back(int(read_.size()) - 1);
            }
        }
        network_.reserve(int(read_.size()), longest);
        states_.get(wanted_.size() * size_t(network_.width()));
        looks_stride_ = longest;
        if (request_.alignment) looks_.get(read_.size() * size_t(model_.shape.heads * longest));
        scores_.resize(size_t(team_.lanes));
        for (auto& rows : scores_) rows.resize(std::max(rows.size(), wanted_.size()));
        if (request_.temperature > 0) all_.assign(wanted_.size() * size_t(model_.logits.columns), NEVER);
    }

    void list_previous(const Sentence& s, const Hypothesis& h, std::vector<int32_t>& previous) const {
        if (model_.shape.decoder_only) previous = s.memory.task->source;
        else previous.assign(1, request_.begin);
        previous.insert(previous.end(), h.output.tokens.begin(), h.output.tokens.end());
        std::sort(previous.begin(), previous.end());
        previous.erase(std::unique(previous.begin(), previous.end()), previous.end());
    }

    // When a decoder has used all its positions, it forgets the older half of the text and reads the rest again
    void forget(Sentence& s) {
        const size_t longest = size_t(model_.shape.max_length);
        if (!model_.shape.decoder_only || s.alive[0].path.size() + s.alive[0].unread.size() <= longest) return;
        s.entries.clear(spare_blocks_);
        for (Hypothesis& h : s.alive) {
            std::vector<int32_t> text = s.memory.task->source;
            text.insert(text.end(), h.output.tokens.begin(), h.output.tokens.end());
            h.unread.assign(text.end() - long(std::min(text.size(), std::max<size_t>(1, longest / 2))), text.end());
            h.path.clear();
        }
    }

    void gather(const float* states) {
        const long width = network_.width();
        for (size_t i = 0; i < wanted_.size(); ++i) std::copy_n(states + wanted_[i] * width, width, states_.data() + long(i) * width);
    }

    void score(int lane) {
        const int rows = int(wanted_.size());
        std::vector<Scores>& scores = scores_[size_t(lane)];
        for (int row = 0; row < rows; ++row) scores[size_t(row)].clear();
        std::vector<float>& buffer = buffers_[size_t(lane)];
        if (screening_) {
            network_.screen(lane, states_.data(), rows, buffer, [&](int first, int count, float* logits, long stride) {
                for (int row = 0; row < rows; ++row) sift(scores[size_t(row)], row, first, count, logits + row * stride);
            });
            return;
        }
        if (!model_.shortlist.starts)
            return network_.logits(lane, network_.scorable(lane, states_.data(), rows), buffer, [&](int first, int count, float* logits, long stride) {
                for (int row = 0; row < rows; ++row) look_at(scores[size_t(row)], row, {first, count, nullptr}, logits + row * stride);
            });
        for (const Sentence& s : sentences_)
            if (!s.free())
                network_.logits_of(lane, states_.data() + s.first_row * network_.width(), int(s.alive.size()), s.tokens, buffer, [&](int first, int count, float* logits, long stride) {
                    for (int i = 0; i < int(s.alive.size()); ++i)
                        look_at(scores[size_t(s.first_row + i)], s.first_row + i, {0, count, s.tokens.data() + first}, logits + i * stride);
                });
    }

    // Processes the logits of some columns of one hypothesis
    void look_at(Scores& s, int row, const Columns& columns, float* logits) {
        if (request_.repetition_penalty != 1.0) discourage(logits, columns, previous_[size_t(row)]);
        s.chunks.emplace_back();
        const float peak = kernels_.sum_exp(logits, columns.count, &s.chunks.back().highest, &s.chunks.back().sum);
        for (int i = 0; i < request_.never_generated_count; ++i)
            if (const int column = columns.find(request_.never_generated[i]); column >= 0) logits[column] = NEVER;
        if (request_.temperature > 0) {
            for (int i = 0; i < columns.count; ++i) all_[size_t(row) * size_t(model_.logits.columns) + size_t(columns.token(i))] = logits[i];
            return;
        }
        if (peak > least(s.best)) keep_best(s.best, columns, logits);
    }

    float least(const Ranking& ranking) const { return ranking.size() == most_ ? ranking.back().logit : NEVER; }

    void keep_best(Ranking& best, const Columns& columns, const float* logits) const {
        for (int i = -1; (i = kernels_.above(logits, i + 1, columns.count, least(best))) < columns.count;) insert(best, {logits[i], columns.token(i)}, most_);
    }

    // Returns the screened logit above which a token may be among the best or matter for the sum. Since int8 states are not
    // exact anyway, a margin of twice the typical error is enough to compare two logits.
    float near_from(const ExpSum& seen, float least, int row) {
        const double worst = network_.margin(row), typical = worst / std::sqrt(double(model_.logits.depth));
        const double margin = model_.int8() ? 2 * typical : worst, wrong = model_.int8() ? WRONG_INT8 : WRONG;
        return std::nextafter(float(std::min(least - 2 * margin, seen.highest + std::log(seen.sum * wrong / typical))), NEVER);
    }

    // Processes the screened logits of some columns of one hypothesis, and keeps those that need exact ones
    void sift(Scores& s, int row, int first, int count, float* logits) {
        const Columns columns{first, count, nullptr};
        s.chunks.emplace_back();
        const float peak = kernels_.sum_exp(logits, count, &s.chunks.back().highest, &s.chunks.back().sum);
        s.seen.add(s.chunks.back());
        const auto keep = [&](int i) { s.near.push_back(logits[i]), s.near_tokens.push_back(columns.token(i)); };
        for (int i = 0; i < request_.never_generated_count; ++i)
            if (const int column = columns.find(request_.never_generated[i]); column >= 0) keep(column), logits[column] = NEVER;
        if (peak > least(s.screened)) keep_best(s.screened, columns, logits);
        const float from = near_from(s.seen, least(s.screened), row);
        if (peak > from)
            for (int i = -1; (i = kernels_.above(logits, i + 1, count, from)) < count;) keep(i);
    }

    // Merges the results of all lanes; the result does not depend on the number of lanes

    ExpSum sum_of_chunks(int row) const {
        ExpSum all;
        for (const auto& lane : scores_)
            for (const ExpSum& chunk : lane[size_t(row)].chunks) all.add(chunk);
        return all;
    }

    Ranking best(int row, Ranking Scores::*of = &Scores::best) const {
        Ranking all;
        for (const auto& lane : scores_) all.insert(all.end(), (lane[size_t(row)].*of).begin(), (lane[size_t(row)].*of).end());
        if (team_.lanes > 1) std::stable_sort(all.begin(), all.end(), [](const Ranked& a, const Ranked& b) { return a.logit > b.logit; });
        if (all.size() > most_) all.resize(most_);
        return all;
    }

    // Replaces the screened logits that matter by exact ones, and ranks them
    void weigh_all(int lane) {
        for (int row = 0; row < int(wanted_.size()); ++row)
            weigh(scores_[size_t(lane)][size_t(row)], row, near_from(sum_of_chunks(row), least(best(row, &Scores::screened)), row));
    }

    void weigh(Scores& s, int row, float from) {
        size_t count = 0;
        for (size_t i = 0; i < s.near.size(); ++i)
            if (s.near[i] > from) s.near[count] = s.near[i], s.near_tokens[count++] = s.near_tokens[i];
        s.near.resize(count), s.near_tokens.resize(count), s.exact.resize(count);
        kernels_.pick({states_.data() + row * network_.width(), network_.width(), 1}, model_.logits, s.near_tokens.data(), int(count), s.exact.data(), 0);
        const int32_t* last_excluded = request_.never_generated + request_.never_generated_count;
        for (size_t i = 0; i < count; ++i)
            if (s.exact[i] > least(s.best) && std::find(request_.never_generated, last_excluded, s.near_tokens[i]) == last_excluded)
                insert(s.best, {s.exact[i], s.near_tokens[i]}, most_);
    }

    // Penalizes the tokens of the output so far (Keskar et al., 2019)
    void discourage(float* logits, const Columns& columns, const std::vector<int32_t>& previous) const {
        const float penalty = float(request_.repetition_penalty);
        for (int32_t token : previous)
            if (const int column = columns.find(token); column >= 0) logits[column] = logits[column] < 0 ? logits[column] * penalty : logits[column] / penalty;
    }

    // Returns the logarithm of the sum of exp(logit) over the vocabulary
    double normalizer(int row) const {
        ExpSum all = sum_of_chunks(row);
        if (screening_) {
            std::vector<float> near, exact;
            for (const auto& lane : scores_) {
                const Scores& s = lane[size_t(row)];
                near.insert(near.end(), s.near.begin(), s.near.end()), exact.insert(exact.end(), s.exact.begin(), s.exact.end());
            }
            ExpSum seen{all.highest, 0.0};
            kernels_.sum_exp(near.data(), int(near.size()), &seen.highest, &seen.sum);
            all.sum = std::max(all.sum - seen.sum, 0.0);
            kernels_.sum_exp(exact.data(), int(exact.size()), &all.highest, &all.sum);
        }
        return all.highest + std::log(all.sum);
    }

    void advance(Sentence& s) {
        if (request_.alignment) look(s);
        if (request_.beam) widen(s);
        else follow(s);
        if (!s.alive.empty()) return;
        std::stable_sort(s.found.begin(), s.found.end(), [](const Output& a, const Output& b) { return a.score > b.score; });
        if (s.found.size() > size_t(request_.best)) s.found.resize(size_t(request_.best));
        job_.finish(*s.memory.task, std::move(s.found));
        s.memory.task = nullptr;
    }

    // Stores the attention of each hypothesis's last position to the source, averaged over heads
    void look(Sentence& s) {
        const size_t heads = size_t(model_.shape.heads), length = s.memory.rows.size();
        for (size_t i = 0; i < s.alive.size(); ++i) {
            const float* from = looks_.data() + size_t(wanted_[size_t(s.first_row) + i]) * heads * size_t(looks_stride_);
            for (size_t place = 0; place < length; ++place) {
                float sum = 0.0f;
                for (size_t head = 0; head < heads; ++head) sum += from[head * size_t(looks_stride_) + place];
                s.alive[i].output.looks.push_back(sum / float(heads));
            }
        }
    }

    static Hypothesis extended(Hypothesis next, int32_t token, float gain) {
        next.output.tokens.push_back(token);
        next.output.gains.push_back(gain);
        next.output.total += gain;
        next.unread.assign(1, token);
        return next;
    }

    void find(Sentence& s, Output output, bool finished) const {
        output.finished = finished;
        output.score = output.total / job_.penalty(output.gains.size());
        s.found.push_back(std::move(output));
    }

    // Beam search: of the first `beam` continuations, those that end become outputs; the first `beam` others stay alive
    void widen(Sentence& s) {
        struct Candidate {
            double total;
            size_t parent;
            int32_t token;
            float gain;
        };
        std::vector<Candidate> candidates;
        for (size_t parent = 0; parent < s.alive.size(); ++parent) {
            const int row = s.first_row + int(parent);
            const double all = normalizer(row);
            for (const auto& [logit, token] : best(row)) {
                const float gain = float(logit - all);
                if (gain > NEVER) candidates.push_back({s.alive[parent].output.total + gain, parent, token, gain});
            }
        }
        std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.total > b.total; });
        if (candidates.size() > most_) candidates.resize(most_);
        const size_t beam = size_t(request_.beam);
        std::vector<Hypothesis> before = std::move(s.alive);
        s.alive.clear();
        for (size_t rank = 0; rank < candidates.size(); ++rank) {
            const Candidate& c = candidates[rank];
            if (c.token != request_.end) {
                if (s.alive.size() < beam) s.alive.push_back(extended(before[c.parent], c.token, c.gain));
            } else if (rank < beam) {
                Output output = before[c.parent].output;
                output.gains.push_back(c.gain);
                output.total += c.gain;
                find(s, std::move(output), true);
            }
        }
        const size_t limit = size_t(s.memory.task->limit);
        const bool full = !s.alive.empty() && s.alive[0].output.gains.size() >= limit;
        if (full)
            for (const Hypothesis& h : s.alive) find(s, h.output, false);
        if (full || settled(s, limit)) s.alive.clear();
    }

    // Reports whether there are enough outputs, or no live hypothesis can beat the worst of the `beam` best outputs
    bool settled(const Sentence& s, size_t limit) const {
        const size_t beam = size_t(request_.beam);
        const double enough = std::max(double(request_.best), std::nearbyint(request_.patience * double(beam)));
        if (request_.patience > 0 && double(s.found.size()) >= enough) return true;
        if (s.found.size() < beam) return false;
        double most = -std::numeric_limits<double>::infinity();
        for (const Hypothesis& h : s.alive) most = std::max(most, h.output.total);
        std::vector<double> scores;
        for (const Output& f : s.found) scores.push_back(f.score);
        std::nth_element(scores.begin(), scores.begin() + long(beam) - 1, scores.end(), std::greater<double>());
        return scores[beam - 1] >= most / job_.penalty(limit);
    }

    // Greedy search and sampling: appends the most probable token or a sampled one
    void follow(Sentence& s) {
        if (s.alive[0].output.gains.empty()) {  // all outputs have the same scores for their first token
            for (int row = 1; row < request_.rows; ++row) s.alive.push_back(s.alive[0]);
            for (int row = 0; row < request_.rows; ++row) s.alive[size_t(row)].row = row;
        }
        const bool shared = s.alive[0].output.gains.empty();
        const Task& task = *s.memory.task;
        const size_t limit = size_t(task.limit);
        std::vector<Hypothesis> going_on;
        for (size_t i = 0; i < s.alive.size(); ++i) {
            Hypothesis& h = s.alive[i];
            const int row = s.first_row + (shared ? 0 : int(i));
            const auto [logit, token] = request_.temperature > 0 ? draw(h, task, row) : most_probable(row);
            const float gain = float(logit - normalizer(row));
            if (token < 0 || token == request_.end) {
                h.output.gains.push_back(gain), h.output.total += gain;
                find(s, std::move(h.output), token >= 0);
                continue;
            }
            Hypothesis next = extended(std::move(h), token, gain);
            const bool enough = request_.on_token && request_.on_token(int32_t(task.number), next.row, token);
            if (enough || next.output.gains.size() >= limit) find(s, std::move(next.output), false);
            else going_on.push_back(std::move(next));
        }
        s.alive = std::move(going_on);
    }

    Ranked most_probable(int row) const {
        const Ranking found = best(row);
        return found.empty() ? Ranked{NEVER, -1} : found[0];
    }

    // Samples a token: looks up a random number in the cumulative probabilities, in descending order of probability
    Ranked draw(const Hypothesis& h, const Task& task, int row) const {
        const int vocabulary = model_.logits.columns;
        const float* logits = all_.data() + long(row) * vocabulary;
        const float highest = *std::max_element(logits, logits + vocabulary);
        if (!(highest > NEVER)) return {NEVER, -1};
        std::vector<std::pair<double, int32_t>> heap;  // ties are ordered by token
        double sum = 0.0;
        for (int i = 0; i < vocabulary; ++i) {
            const double p = std::exp((double(logits[i]) - highest) / request_.temperature);
            if (p > 0) heap.push_back({p, -i}), sum += p;
        }
        std::make_heap(heap.begin(), heap.end());
        std::vector<std::pair<double, int32_t>> kept;
        double start = 0.0;
        const double uniform = task.uniform[size_t(h.row) * size_t(task.limit) + h.output.gains.size()];
        const bool whole = request_.top_k == 0 && request_.top_p >= 1.0 && request_.min_p <= 0.0;
        while (!heap.empty()) {
            const auto [p, token] = heap.front();
            const bool out = !kept.empty() && (start >= request_.top_p * sum || p < request_.min_p * kept.front().first);
            if (out || (request_.top_k && int(kept.size()) == request_.top_k)) break;
            kept.push_back({p, -token});
            start += p;
            if (whole && start > uniform * sum) break;  // later tokens are not needed
            std::pop_heap(heap.begin(), heap.end());
            heap.pop_back();
        }
        if (kept.empty()) return {NEVER, -1};  // all logits are NaN
        const double place = uniform * (whole ? sum : start);
        double end = 0.0;
        for (const auto& [p, token] : kept)
            if ((end += p) > place) return {logits[token], token};
        return {logits[kept.back().second], kept.back().second};
    }
};

}  // namespace regard
