// The measure of memory bandwidth: a = b + 3 c.
#include "kernels.hpp"
#include "simd.hpp"

namespace pirate::PIRATE_VARIANT {

void triad(std::int64_t n, float* a, const float* b, const float* c) {
  const std::int64_t part = 1 << 18;
  parallel(int((n + part - 1) / part), [&](int task) {
    const std::int64_t last = (task + 1) * part < n ? (task + 1) * part : n;
    for (std::int64_t x = task * part; x < last; x += V) {
      const int count = last - x < V ? int(last - x) : V;
      store_first(a + x, load_first(b + x, count) + 3.f * load_first(c + x, count), count);
    }
  });
}

}  // namespace pirate::PIRATE_VARIANT
