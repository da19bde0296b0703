// A model with its kernels, the check of a request, and the results of a search as arrays: for Python and for JavaScript.
#pragma once
#include "hypothesis_search.h"

namespace regard {

struct Loaded {
    Model model;
    const Kernels* kernels;
    Loaded(const char* data, size_t size, const Kernels* chosen) : model(data, size), kernels(chosen) {}
};

constexpr int MOST_THREADS = 4096;

// Returns the fault of a request, or null
inline const char* wrong(const Model& model, const Request& r) {
    const Shape& s = model.shape;
    const int vocabulary = s.decoder_only ? s.target_vocabulary : s.source_vocabulary;
    if (r.count < 0 || r.beam < 0 || r.rows < 1 || r.best < 1 || r.lanes < 1 || r.workers < 1) return "a number is negative or zero";
    if (r.lanes > MOST_THREADS || r.workers > MOST_THREADS / r.lanes) return "there are too many threads";
    if (r.begin < 0 || r.begin >= s.target_vocabulary) return "the begin is not in the vocabulary";
    if (r.alignment && s.decoder_only) return "a decoder has no source to look at";
    for (int64_t i = 0; i < r.count; ++i) {
        const int64_t length = r.offsets[i + 1] - r.offsets[i];
        if (length < 1 || length > s.max_length) return "a source is empty or longer than the model's positions";
        if (r.limits[i] < 1 || (!s.decoder_only && r.limits[i] > s.max_length)) return "a limit is longer than the model's positions";
        for (int64_t j = r.offsets[i]; j < r.offsets[i + 1]; ++j)
            if (r.sources[j] < 0 || r.sources[j] >= vocabulary) return "a token is not in the vocabulary";
    }
    return nullptr;
}

struct Result {  // must match compiled_library.py; the arrays contain the concatenated outputs
    const int32_t* counts;  // number of outputs of each sentence
    const int32_t* tokens;
    const int32_t* token_counts;  // number of tokens of each output
    const float* gains;
    const int32_t* gain_counts;
    const double* scores;
    const int32_t* finished;
    const float* looks;
    int64_t sentences;
    const int64_t* numbers;  // numbers of the sentences
    std::vector<int64_t> numbers_;
    std::vector<int32_t> counts_, tokens_, token_counts_, gain_counts_, finished_;
    std::vector<float> gains_, looks_;
    std::vector<double> scores_;

    explicit Result(const std::vector<Found>& all) : sentences(int64_t(all.size())) {
        for (const auto& [number, outputs] : all) {
            numbers_.push_back(number);
            counts_.push_back(int32_t(outputs.size()));
            for (const Output& o : outputs) {
                tokens_.insert(tokens_.end(), o.tokens.begin(), o.tokens.end());
                gains_.insert(gains_.end(), o.gains.begin(), o.gains.end());
                looks_.insert(looks_.end(), o.looks.begin(), o.looks.end());
                token_counts_.push_back(int32_t(o.tokens.size()));
                gain_counts_.push_back(int32_t(o.gains.size()));
                scores_.push_back(o.score);
                finished_.push_back(o.finished);
            }
        }
        numbers = numbers_.data(), counts = counts_.data(), tokens = tokens_.data(), token_counts = token_counts_.data(), gains = gains_.data();
        gain_counts = gain_counts_.data(), scores = scores_.data(), finished = finished_.data(), looks = looks_.data();
    }
};

}  // namespace regard
