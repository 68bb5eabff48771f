// Composition of a field with a small update by an upwind star instead of interpolation:
//     out(x) = u(x) + sum over axes a of |d_a| (u(x + sign(d_a) e_a) - u(x)) + d(x),   |d_a| clipped to 1,
// the border voxel repeated outside. First-order equal to u(x + d) + d for |d| <= 1.
#include "kernels.hpp"
#include "simd.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

// u at the voxel before and after along k, for the V voxels from k on, the border repeated.
PIRATE_INLINE vf before(const float* row, int k, int count) {
  if (k > 0) return load_first(row + k - 1, count);
  alignas(64) float t[V];
  t[0] = row[0];
  for (int l = 1; l < V; ++l) t[l] = l < count ? row[l - 1] : 0.f;
  return load(t);
}
PIRATE_INLINE vf after(const float* row, int k, int n) {
  if (k + V < n) return load(row + k + 1);
  alignas(64) float t[V];
  for (int l = 0; l < V; ++l) t[l] = row[k + l + 1 < n ? k + l + 1 : n - 1];
  return load(t);
}

template <int D>
void star_row(const Shape& s, const float* u, const float* d, float* out, int i, int j) {
  const std::size_t n = s.size(), row = (std::size_t(i) * s.j + j) * s.k;
  const std::ptrdiff_t plane = s.plane(), line = s.k;
  const std::ptrdiff_t up_i = i > 0 ? -plane : 0, down_i = i + 1 < s.i ? plane : 0;
  const std::ptrdiff_t up_j = j > 0 ? -line : 0, down_j = j + 1 < s.j ? line : 0;
  const vf zero = {}, one = set(1.f);
  for (int k = 0; k < s.k; k += V) {
    const int count = s.k - k < V ? s.k - k : V;
    vf step[D], size[D];
    for (int a = 0; a < D; ++a) {
      step[a] = load_first(d + a * n + row + k, count);
      size[a] = vmin(vabs(step[a]), one);
    }
    for (int m = 0; m < D; ++m) {
      const float* r = u + m * n + row;
      const vf here = load_first(r + k, count);
      vf moved = here + step[m];
      auto towards = [&](int a, vf low, vf high) {
        moved += size[a] * ((step[a] < zero ? low : high) - here);
      };
      towards(0, load_first(r + up_i + k, count), load_first(r + down_i + k, count));
      if constexpr (D == 3) towards(1, load_first(r + up_j + k, count), load_first(r + down_j + k, count));
      towards(D - 1, before(r, k, count), after(r, k, s.k));
      store_first(out + m * n + row + k, moved, count);
    }
  }
}

}  // namespace

void compose_small(const Shape& s, const float* field, const float* update, float* out) {
  parallel(s.i, [&](int i) {
    for (int j = 0; j < s.j; ++j) {
      if (s.d == 3) star_row<3>(s, field, update, out, i, j);
      if (s.d == 2) star_row<2>(s, field, update, out, i, j);
    }
  });
}

}  // namespace pirate::PIRATE_VARIANT
