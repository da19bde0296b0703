// The functions that JavaScript calls in WebAssembly: load a packed model, and search with it. browser/engine.js calls them.
//
// Nothing in the module catches exceptions: they end in `page_fail`, which throws an Error in JavaScript. That leaves the
// module in an unknown state, so JavaScript drops it.
#include <cstdlib>
#include <new>
#include <typeinfo>

#include "loaded_model.h"

#define EXPORT(name) __attribute__((export_name(#name)))

extern "C" [[noreturn]] __attribute__((import_module("page"), import_name("fail"))) void page_fail(const char* message);

namespace {

std::unique_ptr<regard::Loaded> model;
std::unique_ptr<regard::Result> result;

void* reserve(size_t size, size_t alignment) {
    void* memory = std::aligned_alloc(alignment, size_t(regard::round_up(long(size ? size : 1), long(alignment))));
    if (!memory) page_fail("there is not enough memory");
    return memory;
}

}  // namespace

// The C++ runtime, as small as possible

void* operator new(size_t size) { return reserve(size, alignof(std::max_align_t)); }
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, std::align_val_t alignment) { return reserve(size, size_t(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" {

void* __cxa_allocate_exception(size_t size) noexcept { return operator new(size); }
void __cxa_free_exception(void* memory) noexcept { std::free(memory); }
int __cxa_thread_atexit(void (*)(void*), void*, void*) noexcept { return 0; }  // the thread ends with the module
[[noreturn]] void __cxa_throw(void* thrown, std::type_info*, void (*)(void*)) { page_fail(static_cast<std::exception*>(thrown)->what()); }

EXPORT(regard_reserve) void* regard_reserve(size_t size) { return reserve(size, 64); }
EXPORT(regard_free) void regard_free(void* memory) { std::free(memory); }

// Loads the model in these bytes, which must stay where they are
EXPORT(regard_load) void regard_load(const char* data, size_t size) {
    model.reset();
    model = std::make_unique<regard::Loaded>(data, size, regard::portable_kernels());
    model->model.choose(*model->kernels);
}

// Searches for the best output of each source; `sources` has all tokens, one source after the other
EXPORT(regard_search)
const regard::Result* regard_search(int32_t count, const int32_t* sources, const int32_t* lengths, const int32_t* limits, const int32_t* never_generated,
                                    int32_t never_generated_count, int32_t begin, int32_t end, int32_t beam, int32_t power_penalty, double length_penalty,
                                    double patience, double repetition_penalty) {
    std::vector<int64_t> offsets(1, 0);
    for (int32_t i = 0; i < count; ++i) offsets.push_back(offsets.back() + lengths[i]);
    regard::Request request{};
    request.count = count, request.sources = sources, request.offsets = offsets.data(), request.limits = limits;
    request.never_generated = never_generated, request.never_generated_count = never_generated_count;
    request.begin = begin, request.end = end, request.beam = beam, request.power_penalty = power_penalty;
    request.rows = request.best = request.workers = request.lanes = 1;
    request.rows_at_once = 64;  // as in native_search.py
    request.length_penalty = length_penalty, request.patience = patience, request.repetition_penalty = repetition_penalty;
    request.top_p = 1.0;
    if (const char* problem = regard::wrong(model->model, request)) page_fail(problem);
    regard::Job job(request, false);
    job.add(request);
    regard::Worker(model->model, *model->kernels, job).run(0);
    std::vector<regard::Found> all(static_cast<size_t>(count));
    for (regard::Found& found : job.wait()) all[size_t(found.number)] = std::move(found);
    result = std::make_unique<regard::Result>(all);
    return result.get();
}
}
