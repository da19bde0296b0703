// The functions that Python calls to load a packed model, search in one call or in a live job, and free memory. They do
// not throw exceptions, and do not hold the GIL.
#include "loaded_model.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace regard {
namespace {

const Kernels* choose(const std::string& name) {  // "": the best that this machine supports
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx512 && (name.empty() || name == "avx512")) return avx512_kernels();
    if (avx2 && (name.empty() || name == "avx2")) return avx2_kernels();
#endif
    return name.empty() || name == "portable" ? portable_kernels() : nullptr;
}

// Moves a new thread off the processor of its waiting parent, because Linux may take longer to do so than a sentence takes
class Apart {
#if defined(__linux__)
    cpu_set_t others_;
    bool known_;

public:
    Apart() : known_(!sched_getaffinity(0, sizeof others_, &others_) && CPU_COUNT(&others_) > 1) {
        const int here = sched_getcpu();
        if (known_ && here >= 0) CPU_CLR(here, &others_);
    }
    void go() const {
        if (known_) sched_setaffinity(0, sizeof others_, &others_);
    }
#else
public:
    void go() const {}
#endif
};

// Runs every lane of every worker; the first lane runs in this thread
void run_all(const std::vector<std::unique_ptr<Worker>>& workers, int lanes) {
    std::atomic<int> gate{0};  // 1: all threads have started; -1: one failed to start, so the others must not wait for it
    std::vector<std::thread> threads;
    const Apart apart;
    const auto finish = [&](int way) {
        gate = way;
        for (std::thread& thread : threads) thread.join();
    };
    try {
        for (int i = 1; i < int(workers.size()) * lanes; ++i)
            threads.emplace_back([&, i] {
                if (lanes > 1) apart.go();
                while (!gate) yield();
                if (gate > 0) workers[size_t(i / lanes)]->run(i % lanes);
            });
    } catch (...) {
        finish(-1);
        throw std::runtime_error("could not start the threads");
    }
    gate = 1;
    workers[0]->run(0);
    finish(1);
}

void tell(char* error, int64_t size, const char* text) {
    std::strncpy(error, text, size_t(size - 1));
    error[size - 1] = 0;
}

// Runs `work`; if it throws, writes the message to `error` and returns an empty value
template <class Work> auto tried(char* error, int64_t size, Work work) -> decltype(work()) {
    try {
        return work();
    } catch (const std::bad_alloc&) {
        tell(error, size, "there is not enough memory");
    } catch (const std::exception& problem) {
        tell(error, size, problem.what());
    }
    return {};
}

}  // namespace
}  // namespace regard

struct Live {  // a running search that sentences can join; each worker is a thread that sleeps while there is no work
    regard::Loaded& loaded;
    regard::Job job;
    std::vector<std::unique_ptr<regard::Worker>> workers;
    std::vector<std::thread> threads;

    Live(regard::Loaded& with, const regard::Request& request) : loaded(with), job(request, true) {
        for (int i = 0; i < request.workers; ++i) workers.push_back(std::make_unique<regard::Worker>(with.model, *with.kernels, job));
    }
    void start() {
        for (auto& worker : workers) threads.emplace_back([&worker] { worker->run(0); });
    }
    ~Live() {
        job.close();
        for (std::thread& thread : threads) thread.join();
    }
};

extern "C" {

const char* regard_kernels(const char* name) {
    const regard::Kernels* found = regard::choose(name);
    return found ? found->name : "";
}

// Returns the model in these bytes, which must stay in place until it is unloaded
void* regard_load_bytes(const char* data, int64_t length, const char* kernels, char* error, int64_t size) {
    return regard::tried(error, size, [&] {
        const regard::Kernels* chosen = regard::choose(kernels);
        if (!chosen) throw std::runtime_error("needs instructions that this machine does not have");
        auto loaded = std::make_unique<regard::Loaded>(data, size_t(length), chosen);
        loaded->model.choose(*chosen);
        return loaded.release();
    });
}

// Restricts all outputs to the tokens of a shortlist; returns 0 and an error if the shortlist does not fit the model
int32_t regard_shorten(void* loaded, const regard::Shortlist* list, char* error, int64_t size) {
    return regard::tried(error, size, [&] { return static_cast<regard::Loaded*>(loaded)->model.shorten(*list), 1; });
}

void regard_unload(void* loaded) { delete static_cast<regard::Loaded*>(loaded); }

regard::Result* regard_search(void* loaded, const regard::Request* request, char* error, int64_t size) {
    const auto& [model, kernels] = *static_cast<regard::Loaded*>(loaded);
    return regard::tried(error, size, [&, &model = model, &kernels = kernels] {
        if (const char* problem = regard::wrong(model, *request)) throw std::runtime_error(problem);
        regard::Job job(*request, false);
        job.add(*request);
        std::vector<std::unique_ptr<regard::Worker>> workers;
        for (int i = 0; i < request->workers; ++i) workers.push_back(std::make_unique<regard::Worker>(model, *kernels, job));
        regard::run_all(workers, request->lanes);
        if (job.failed()) throw std::bad_alloc();
        std::vector<regard::Found> all(size_t(request->count));  // stopped sentences have no outputs
        for (regard::Found& found : job.wait()) all[size_t(found.number)] = std::move(found);
        return new regard::Result(all);
    });
}

void regard_release(regard::Result* result) { delete result; }

// Returns a live search with the options of a request, which need not contain sentences
Live* regard_open(void* loaded, const regard::Request* request, char* error, int64_t size) {
    return regard::tried(error, size, [&] {
        auto& with = *static_cast<regard::Loaded*>(loaded);
        if (const char* problem = regard::wrong(with.model, *request)) throw std::runtime_error(problem);
        if (request->lanes != 1) throw std::runtime_error("a live search has one thread a worker");
        auto made = std::make_unique<Live>(with, *request);
        made->start();
        return made.release();
    });
}

// Adds the sentences of a request, searched with the live search's options; returns the number of the first, or -1
int64_t regard_submit(Live* live, const regard::Request* request, char* error, int64_t size) {
    return regard::tried(error, size, [&]() -> int64_t {
        if (const char* problem = regard::wrong(live->loaded.model, *request)) throw std::runtime_error(problem);
        return live->job.add(*request) + 1;
    }) - 1;
}

// Waits until some sentences are done; returns null if the search was closed, or null and an error if it failed
regard::Result* regard_wait(Live* live, char* error, int64_t size) {
    return regard::tried(error, size, [&]() -> regard::Result* {
        const std::vector<regard::Found> found = live->job.wait();
        if (live->job.failed()) throw std::bad_alloc();
        return found.empty() ? nullptr : new regard::Result(found);
    });
}

// Removes a waiting or running sentence; returns 0 if it is already done
int32_t regard_cancel(Live* live, int64_t number) { return live->job.cancel(number); }

// Ends a live search and its `regard_wait`; call regard_free afterwards
void regard_close(Live* live) { live->job.close(); }

void regard_free(Live* live) { delete live; }
}
