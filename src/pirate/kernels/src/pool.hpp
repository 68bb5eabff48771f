// Persistent threads that share the tasks of one loop.
#pragma once

#include <cstddef>

namespace pirate {

// Number of threads used by the next loop.
int threads();

// n >= 1 fixes the number of threads; 0 returns to PIRATE_NUM_THREADS, OMP_NUM_THREADS or the cores available.
void set_threads(int n);

// Calls body(context, task) once for every task in 0..tasks-1, on any thread in any order, and waits.
// A body must not write what another body reads or writes: then the result does not depend on the threads.
void run(int tasks, void (*body)(void*, int), void* context);

// At least `bytes` of memory of the calling thread, aligned to 64 bytes, kept for its next call; contents
// undefined. A later call of the same thread and slot may move it. Slot 0 is for the bodies of loops, slot 1
// for the caller of a loop, who is one of its threads.
void* scratch(std::size_t bytes, int slot = 0);

}  // namespace pirate
