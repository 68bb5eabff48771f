// Persistent threads that share the tasks of one loop.
#include "pool.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define PIRATE_FORK 1
#endif

namespace pirate {
namespace {

int cores() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

int from_environment() {
  for (const char* name : {"PIRATE_NUM_THREADS", "OMP_NUM_THREADS"})
    if (const char* text = std::getenv(name))
      if (int n = std::atoi(text); n >= 1) return std::min(n, 1024);
  return cores();
}

class Pool {
 public:
  void run(int tasks, int wanted, void (*body)(void*, int), void* context) {
    grow(std::min(wanted, tasks) - 1);
    {
      std::lock_guard lock(mutex_);
      body_ = body;
      context_ = context;
      tasks_ = tasks;
      next_ = 0;
      invited_ = std::min<int>(std::min(wanted, tasks) - 1, workers_.size());
      pending_ = invited_;
      ++generation_;
    }
    start_.notify_all();
    work();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return pending_ == 0; });
  }

 private:
  void grow(int workers) {
    while (static_cast<int>(workers_.size()) < workers) {
      int id = workers_.size();
      workers_.emplace_back([this, id, seen = generation_] { serve(id, seen); });
      workers_.back().detach();  // they sleep until the process ends
    }
  }

  void serve(int id, unsigned long seen) {
    std::unique_lock lock(mutex_);
    while (true) {
      start_.wait(lock, [&] { return generation_ != seen; });
      seen = generation_;
      if (id >= invited_) continue;
      lock.unlock();
      work();
      lock.lock();
      if (--pending_ == 0) done_.notify_one();
    }
  }

  void work() {
    for (int task; (task = next_.fetch_add(1)) < tasks_;) body_(context_, task);
  }

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  unsigned long generation_ = 0;
  int invited_ = 0, pending_ = 0, tasks_ = 0;
  std::atomic<int> next_{0};
  void (*body_)(void*, int) = nullptr;
  void* context_ = nullptr;
};

std::atomic<int> chosen{0};
std::atomic<Pool*> pool{nullptr};
std::atomic<bool> busy{false};

// A child of fork() has none of its parent's threads: it starts a new pool and forgets the old one.
#ifdef PIRATE_FORK
const int fork_handler = pthread_atfork(nullptr, nullptr, [] {
  pool = nullptr;
  busy = false;
});
#endif

struct Arena {
  void* memory = nullptr;
  std::size_t size = 0;
  ~Arena() { ::operator delete(memory, std::align_val_t{64}); }
};
thread_local Arena arenas[2];

}  // namespace

int threads() {
  if (int n = chosen.load(); n >= 1) return n;
  static const int n = from_environment();
  return n;
}

void set_threads(int n) { chosen = std::max(0, std::min(n, 1024)); }

void run(int tasks, void (*body)(void*, int), void* context) {
  int wanted = threads();
  bool other = tasks <= 1 || wanted <= 1 || busy.exchange(true);
  if (other) {  // one thread, or the pool serves another caller now
    for (int task = 0; task < tasks; ++task) body(context, task);
    return;
  }
  if (pool.load() == nullptr) pool = new Pool;  // never destroyed: its threads may outlive static destruction
  pool.load()->run(tasks, wanted, body, context);
  busy = false;
}

void* scratch(std::size_t bytes, int slot) {
  Arena& arena = arenas[slot];
  if (bytes > arena.size) {
    ::operator delete(arena.memory, std::align_val_t{64});
    arena.memory = nullptr;
    arena.size = 0;
    arena.memory = ::operator new(bytes, std::align_val_t{64});
    arena.size = bytes;
  }
  return arena.memory;
}

}  // namespace pirate
