// Locks, and waiting for other threads. In WebAssembly there is one thread, which never waits.
#pragma once

#if defined(__wasm__)
namespace regard {

struct Mutex {};
struct Lock {
    explicit Lock(Mutex&) {}
};
struct Condition {
    void notify_one() {}
    void notify_all() {}
    template <class Ready> void wait(Lock&, Ready) {}
};
inline void yield() {}

}  // namespace regard
#else
#include <condition_variable>
#include <mutex>
#include <thread>

namespace regard {

using Mutex = std::mutex;
using Lock = std::unique_lock<std::mutex>;
using Condition = std::condition_variable;
inline void yield() { std::this_thread::yield(); }

}  // namespace regard
#endif
