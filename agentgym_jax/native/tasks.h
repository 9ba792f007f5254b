// A parallel loop over tasks for the calling thread and the threads of XLA's pool.

#ifndef AGENTGYM_JAX_NATIVE_TASKS_H_
#define AGENTGYM_JAX_NATIVE_TASKS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "xla/ffi/api/ffi.h"

// A handler that takes a pool gets that of its call.
template <>
struct xla::ffi::CtxBinding<xla::ffi::ThreadPool> {
  using Ctx = ThreadPool;
};

namespace agentgym {

// Runs `work(i)` for every i < count and returns when all are done. The caller waits only for tasks
// that another thread has started, so a pool without a free thread causes no deadlock. A thread that
// starts after the last task uses only the counters, which it shares.
template <typename Work>
void RunTasks(xla::ffi::ThreadPool& pool, int64_t count, const Work& work) {
  struct Counters {
    std::atomic<int64_t> next{0}, done{0};
  };
  auto counters = std::make_shared<Counters>();
  const auto take = [counters, count, work = &work] {
    for (int64_t i; (i = counters->next.fetch_add(1)) < count;) {
      (*work)(i);
      counters->done.fetch_add(1, std::memory_order_release);
    }
  };
  const int64_t threads = std::min<int64_t>(pool.num_threads(), count);
  for (int64_t i = 1; i < threads; ++i) pool.Schedule([take] { take(); });
  take();
  while (counters->done.load(std::memory_order_acquire) < count) std::this_thread::yield();
}

}  // namespace agentgym

#endif  // AGENTGYM_JAX_NATIVE_TASKS_H_
