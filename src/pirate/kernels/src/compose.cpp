// Composition of a field with a small update by an upwind star instead of interpolation:
//     out(x) = u(x) + sum over axes a of |d_a| (u(x + sign(d_a) e_a) - u(x)) + d(x),   |d_a| clipped to 1,
// the border voxel repeated outside. First-order equal to u(x + d) + d for |d| <= 1.
#include "kernels.hpp"
#include "neighbours.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

template <int D>
void star_row(const Shape& s, const float* u, const float* d, float* out, int i, int j) {
  const std::size_t n = s.size(), row = (std::size_t(i) * s.j + j) * s.k;
  const std::ptrdiff_t plane = s.plane(), line = s.k;
  const std::ptrdiff_t up_i = i > 0 ? -plane : 0, down_i = i + 1 < s.i ? plane : 0;
  const std::ptrdiff_t up_j = j > 0 ? -line : 0, down_j = j + 1 < s.j ? line : 0;
  // One channel after the other: all rows at once would not find room in the first cache, where rows of planes
  // and channels that lie a multiple of 4 kB apart compete.
  for (int m = 0; m < D; ++m) {
    const float* r = u + m * n + row;
    vectors(0, s.k, [&](int k, auto part) PIRATE_BODY {
      const vf here = part.load(r + k);
      vf moved = here;
      auto towards = [&](int a, vf low, vf high) PIRATE_BODY {
        const vf step = part.load(d + a * n + row + k);
        moved += vmin(vabs(step), set(1.f)) * ((step < 0.f ? low : high) - here);
        if (a == m) moved += step;
      };
      towards(0, part.load(r + up_i + k), part.load(r + down_i + k));
      if constexpr (D == 3) towards(1, part.load(r + up_j + k), part.load(r + down_j + k));
      const Sides side = along_k(r, k, s.k);
      towards(D - 1, side.low, side.high);
      part.store(out + m * n + row + k, moved);
    });
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
