// Composition of a field with a small update by an upwind star instead of interpolation: with d = scale * update
//     out(x) = u(x) + sum over axes a of |d_a| (u(x + sign(d_a) e_a) - u(x)) + d(x),   |d_a| clipped to 1,
// the border voxel repeated outside. First-order equal to u(x + d) + d for |d| <= 1. Each axis has its own scale.
#include "kernels.hpp"
#include "neighbours.hpp"
#include "simd.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

// Row (i, j) of channel M.
template <int D, int M, bool Stream>
void star_channel(const Shape& s, const float* u, const float* d, const float* scale, int i, int j, float* out) {
  const std::size_t n = s.size(), row = (std::size_t(i) * s.j + j) * s.k;
  const std::ptrdiff_t plane = s.plane(), line = s.k;
  const float* r = u + M * n + row;
  const float *up_i = r - (i > 0 ? plane : 0), *down_i = r + (i + 1 < s.i ? plane : 0);
  const float *up_j = r - (j > 0 ? line : 0), *down_j = r + (j + 1 < s.j ? line : 0);
  const float *d_i = d + row, *d_j = d_i + n, *d_k = d_i + (D - 1) * n;
  const int nk = s.k;
  vectors(0, nk, [&](int k, auto part) PIRATE_BODY {
    const vf here = part.load(r + k);
    vf moved = here;
    auto towards = [&](const float* steps, float factor, bool own, vf low, vf high) PIRATE_BODY {
      const vf step = set(factor) * part.load(steps + k);
      moved += vmin(vabs(step), set(1.f)) * ((step < 0.f ? low : high) - here);
      if (own) moved += step;
    };
    towards(d_i, scale[0], M == 0, part.load(up_i + k), part.load(down_i + k));
    if constexpr (D == 3) towards(d_j, scale[1], M == 1, part.load(up_j + k), part.load(down_j + k));
    const Sides side = along_k(r, k, nk);
    towards(d_k, scale[D - 1], M == D - 1, side.low, side.high);
    if constexpr (Stream) stream(out + k, moved);
    else part.store(out + k, moved);
  });
}

// Row (i, j), channel m to out + m * step. One channel after the other: all rows at once would not find room in the
// first cache, where rows of planes and channels that lie a multiple of 4 kB apart compete.
template <int D, bool Stream>
void star_row(const Shape& s, const float* u, const float* d, const float* scale, int i, int j, float* out,
              std::size_t step) {
  star_channel<D, 0, Stream>(s, u, d, scale, i, j, out);
  star_channel<D, 1, Stream>(s, u, d, scale, i, j, out + step);
  if constexpr (D == 3) star_channel<D, 2, Stream>(s, u, d, scale, i, j, out + 2 * step);
}

}  // namespace

void compose_small(const Shape& s, const float* field, const float* update, const float* scale, float* out) {
  const bool past_cache = streamed(out, s.k, s.d * s.size());
  parallel(s.i, [&](int i) {
    for (int j = 0; j < s.j; ++j) {
      float* to = out + (std::size_t(i) * s.j + j) * s.k;
      if (s.d == 3 && past_cache) star_row<3, true>(s, field, update, scale, i, j, to, s.size());
      else if (s.d == 3) star_row<3, false>(s, field, update, scale, i, j, to, s.size());
      else star_row<2, false>(s, field, update, scale, i, j, to, s.size());
    }
    arrived();
  });
}

}  // namespace pirate::PIRATE_VARIANT
