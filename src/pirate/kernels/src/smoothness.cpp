// Smoothness of a field: value = sum over channels, axes and voxels of (D_a u)^2, D_a the forward difference
// (0 in the last plane), and gradient = sum over axes of D_a^T D_a u: minus the Laplacian, Neumann borders.
#include <vector>

#include "kernels.hpp"
#include "simd.hpp"

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
  for (int k = 0; k < s.k; k += V) {
    const int count = s.k - k < V ? s.k - k : V;
    const vf here = load_first(r + k, count);
    vf low, high;
    if (k > 0 && k + V < s.k) {
      low = load(r + k - 1);
      high = load(r + k + 1);
    } else {
      for (int l = 0; l < V; ++l) {
        const int x = k + l < s.k ? k + l : s.k - 1;
        low[l] = l < count ? r[x > 0 ? x - 1 : 0] : 0.f;
        high[l] = l < count ? r[x + 1 < s.k ? x + 1 : x] : 0.f;
      }
    }
    const vf di = load_first(down_i + k, count) - here, dj = load_first(down_j + k, count) - here,
             dk = high - here;
    total += di * di + dj * dj + dk * dk;
    const vf back = (here - load_first(up_i + k, count)) + (here - load_first(up_j + k, count)) + (here - low);
    store_first(out + i * plane + j * line + k, back - di - dj - dk, count);
  }
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
