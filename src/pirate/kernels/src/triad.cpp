// The measure of memory bandwidth: a = b + 3 c.
#include "kernels.hpp"
#include "simd.hpp"

namespace pirate::PIRATE_VARIANT {

void triad(std::int64_t n, float* a, const float* b, const float* c) {
  const std::int64_t part = 1 << 18;
  parallel(int((n + part - 1) / part), [&](int task) {
    const std::int64_t last = (task + 1) * part < n ? (task + 1) * part : n;
    const std::int64_t first = task * part;
    vectors(0, int(last - first), [&](int k, auto lanes) PIRATE_BODY {
      lanes.store(a + first + k, lanes.load(b + first + k) + 3.f * lanes.load(c + first + k));
    });
  });
}

}  // namespace pirate::PIRATE_VARIANT
