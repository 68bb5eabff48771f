// Smoothness of a field: value = sum over channels, axes and voxels of (D_a u)^2, D_a the forward difference
// (0 in the last plane), and gradient = sum over axes of D_a^T D_a u: minus the Laplacian, Neumann borders.
#include <vector>

#include "kernels.hpp"
#include "neighbours.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

// One row: out = sum over axes of (u - low) + (u - high), where a neighbour outside repeats the border and so
// adds nothing; the squared differences towards the high sides are summed.
double row(const Shape& s, const float* u, float* out, int i, int j) {
  const std::ptrdiff_t plane = s.plane(), line = s.k;
  const float* r = u + i * plane + j * line;
  const float* up_i = i > 0 ? r - plane : r;
  const float* down_i = i + 1 < s.i ? r + plane : r;
  const float* up_j = j > 0 ? r - line : r;
  const float* down_j = j + 1 < s.j ? r + line : r;
  vf total = {};
  vectors(0, s.k, [&](int k, auto part) PIRATE_BODY {
    const vf here = part.load(r + k);
    Sides side = along_k(r, k, s.k);
    if (part.n < V) side = {keep_first(side.low, part.n), keep_first(side.high, part.n)};
    const vf di = part.load(down_i + k) - here, dj = part.load(down_j + k) - here, dk = side.high - here;
    total += di * di + dj * dj + dk * dk;
    const vf back = (here - part.load(up_i + k)) + (here - part.load(up_j + k)) + (here - side.low);
    part.store(out + i * plane + j * line + k, back - di - dj - dk);
  });
  return sum(total);
}

}  // namespace

double smoothness_gradient(const Shape& s, const float* field, float* gradient) {
  std::vector<double> values(s.d * s.i, 0.0);
  parallel(s.d * s.i, [&](int task) {
    const std::size_t channel = task / s.i * s.size();
    for (int j = 0; j < s.j; ++j)
      values[task] += row(s, field + channel, gradient + channel, task % s.i, j);
  });
  double value = 0;
  for (double v : values) value += v;
  return value;
}

}  // namespace pirate::PIRATE_VARIANT
