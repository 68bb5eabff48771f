// Longest vector of a field: the largest of sum over channels c of |weight_c x_c|.
#include <vector>

#include "kernels.hpp"
#include "simd.hpp"

namespace pirate::PIRATE_VARIANT {

double longest(const Shape& s, const float* x, const float* weight) {
  const std::size_t n = s.size();
  std::vector<float> found(s.i);
  parallel(s.i, [&](int i) {
    const float* first = x + std::size_t(i) * s.plane();
    vf most = set(0.f);
    vectors(0, int(s.plane()), [&](int k, auto part) PIRATE_BODY {
      vf length = set(0.f);
      for (int c = 0; c < s.d; ++c) length += vabs(set(weight[c]) * part.load(first + c * n + k));
      most = vmax(most, length);
    });
    float largest = 0.f;
    for (int lane = 0; lane < V; ++lane) largest = most[lane] > largest ? most[lane] : largest;
    found[i] = largest;
  });
  float largest = 0.f;
  for (float value : found) largest = value > largest ? value : largest;
  return largest;
}

}  // namespace pirate::PIRATE_VARIANT
