// The queues of waiting and finished sentences of a search. A live search accepts more sentences while it runs.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "threads.h"

namespace regard {

struct Request {  // must match compiled_library.py
    int64_t count;             // number of sentences
    const int32_t* sources;    // tokens that the encoder reads or a decoder continues
    const int64_t* offsets;    // [count + 1] start of each source in `sources`
    const int32_t* limits;     // [count] maximum number of tokens of an output, including its end
    const double* uniform;        // with sampling: [rows * limit] random numbers for each sentence
    const int64_t* uniform_offsets;
    const int32_t* never_generated;
    int32_t never_generated_count, begin, end;
    int32_t beam;   // beam size; 0: greedy search or sampling
    int32_t rows;   // number of outputs per sentence without a beam
    int32_t best;   // maximum number of outputs to return
    int32_t top_k, power_penalty, alignment;
    int32_t workers, lanes, rows_at_once;
    double length_penalty, patience, temperature, top_p, min_p, repetition_penalty;  // temperature 0: greedy or beam search
    const int32_t* stop;                               // set by the caller to end the search immediately
    int32_t (*on_token)(int32_t sentence, int32_t row, int32_t token);  // called after each token; a result other than 0 ends the output
};

struct Output {
    std::vector<int32_t> tokens;
    std::vector<float> gains;  // log-probabilities of the tokens, and of the end token if it was generated
    std::vector<float> looks;  // [gains][source], if requested: the attention of each token to the source
    double total = 0.0, score = 0.0;
    bool finished = false;
};

struct Found {  // the best outputs of a sentence
    int64_t number;
    std::vector<Output> outputs;
};

struct Task {  // a waiting or running sentence
    int64_t number;
    std::vector<int32_t> source;
    int32_t limit;
    std::vector<double> uniform;
    std::atomic<bool> unwanted{false};

    Task(const Request& r, int64_t i) : number(i), source(r.sources + r.offsets[i], r.sources + r.offsets[i + 1]), limit(r.limits[i]) {
        if (r.temperature > 0) uniform.assign(r.uniform + r.uniform_offsets[i], r.uniform + r.uniform_offsets[i + 1]);
    }
};
using TaskPointer = std::shared_ptr<Task>;

class Job {  // thread-safe
public:
    const Request& request;
    const bool live;

    Job(const Request& r, bool is_live)
        : request(settings_), live(is_live), settings_(r), never_generated_(r.never_generated, r.never_generated + r.never_generated_count), open_(is_live) {
        settings_.never_generated = never_generated_.data();
    }

    // Adds sentences, which get consecutive numbers; returns the number of the first
    int64_t add(const Request& r) {
        std::vector<TaskPointer> more;
        for (int64_t i = 0; i < r.count; ++i) more.push_back(std::make_shared<Task>(r, i));
        const Lock lock(mutex_);
        const int64_t first = added_;
        for (const TaskPointer& task : more) tasks_[task->number += first] = task;
        if (!live)  // longest first, so that a batch has sentences of similar length
            std::stable_sort(more.begin(), more.end(), [](const auto& a, const auto& b) { return a->source.size() > b->source.size(); });
        waiting_.insert(waiting_.end(), more.begin(), more.end());
        added_ += r.count;
        if (r.count == 1) more_.notify_one();
        else more_.notify_all();
        return first;
    }

    // Returns up to `most` sentences with about `tokens` tokens, but leaves a share to other idle workers
    std::vector<TaskPointer> take(size_t most, size_t tokens, bool idle) {
        std::vector<TaskPointer> taken;
        const Lock lock(mutex_);
        most = std::min(most, (waiting_.size() + (idle ? idle_ : 0)) / (idle_ + 1));
        for (size_t sum = 0; taken.size() < most && (taken.empty() || sum < tokens); waiting_.pop_front()) {
            taken.push_back(waiting_.front());
            sum += taken.back()->source.size();
        }
        return taken;
    }

    void rest() {  // waits until there is a sentence or the job has ended
        Lock lock(mutex_);
        ++idle_;
        more_.wait(lock, [&] { return !open_ || !waiting_.empty(); });
        --idle_;
    }

    void finish(const Task& task, std::vector<Output> outputs) {
        const Lock lock(mutex_);
        if (!tasks_.erase(task.number)) return;  // the sentence was cancelled
        found_.push_back({task.number, std::move(outputs)});
        done_.notify_one();
    }

    std::vector<Found> wait() {  // waits for sentences, and returns those done since the last call; none if the job has ended
        Lock lock(mutex_);
        done_.wait(lock, [&] { return !open_ || !found_.empty(); });
        std::vector<Found> found;
        found.swap(found_);
        return found;
    }

    bool cancel(int64_t number) {  // returns false if the sentence is already done
        const Lock lock(mutex_);
        const auto place = tasks_.find(number);
        if (place == tasks_.end()) return false;
        place->second->unwanted = true;
        waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), place->second), waiting_.end());
        tasks_.erase(place);
        return true;
    }

    void close(bool failed = false) {  // ends the job immediately
        const Lock lock(mutex_);
        open_ = false, over_ = true;
        if (failed) failed_ = true;
        more_.notify_all(), done_.notify_all();
    }

    bool failed() const { return failed_; }
    bool stopped() const { return over_ || (request.stop && __atomic_load_n(request.stop, __ATOMIC_RELAXED)); }
    double penalty(size_t length) const {
        const double n = double(length), alpha = request.length_penalty;
        return request.power_penalty ? std::pow(n, alpha) : std::pow((5.0 + n) / 6.0, alpha);
    }

private:
    Request settings_;
    std::vector<int32_t> never_generated_;
    Mutex mutex_;
    Condition more_, done_;
    bool open_;  // whether more sentences may be added
    std::atomic<bool> over_{false}, failed_{false};
    int64_t added_ = 0;
    size_t idle_ = 0;  // number of waiting workers
    std::map<int64_t, TaskPointer> tasks_;  // waiting and running sentences
    std::deque<TaskPointer> waiting_;
    std::vector<Found> found_;
};

}  // namespace regard
