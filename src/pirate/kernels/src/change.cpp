// Squared lengths of b - a and of b, in one pass and in double precision: the numbers of a relative change.
#include <vector>

#include "kernels.hpp"
#include "simd.hpp"

namespace pirate::PIRATE_VARIANT {

void change(std::int64_t n, const float* a, const float* b, double* difference, double* length) {
  constexpr std::int64_t kTask = 1 << 18;  // floats of a task
  const int tasks = int((n + kTask - 1) / kTask);
  std::vector<double> d(tasks), l(tasks);
  parallel(tasks, [&](int task) {
    const std::int64_t first = task * kTask, count = n - first < kTask ? n - first : kTask;
    Doubles dd, ll;
    vectors(0, int(count), [&](int k, auto part) PIRATE_BODY {
      const Doubles y = wide(part.load(b + first + k)), x = y - wide(part.load(a + first + k));
      dd.add_product(x, x);
      ll.add_product(y, y);
    });
    d[task] = dd.sum();
    l[task] = ll.sum();
  });
  *difference = *length = 0;
  for (int task = 0; task < tasks; ++task) *difference += d[task], *length += l[task];
}

}  // namespace pirate::PIRATE_VARIANT
