// Derivative of the composition out(x) = inner(x) + outer(x + inner(x)), the border of `outer` repeated. From
// g = dL/dout, with p = x + inner(x) and D_a the slope of the interpolant,
//     dL/dinner_a(x) = g_a(x) + sum over m of g_m(x) (D_a outer_m)(p)      no slope where p is on or beyond a border of a
//     dL/douter_m(y) = sum over x of g_m(x) tent(p - y)                    p clipped into the grid
// The second scatters. A channel of an item is one task, so that no two tasks write to one voxel and what is added to it
// comes in the order of x, whatever the threads.
#include <algorithm>

#include "kernels.hpp"
#include "sampler.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

template <int D>
void by_inner(const Shape& s, const float* outer, const float* inner, const float* g, float* out) {
  const std::size_t n = s.size();
  const Sampler<D> sampler(s);
  by_rows(s, [&](int i, int j, std::size_t row) {
    along_row<D, true>(sampler, inner + row, n, i, j, 0, s.k, [&](int k, auto part, const Cell<D>& c) PIRATE_BODY {
      vf p[D], sum[D], slopes[D];
      vi within[D];
      positions<D>(inner + row, n, i, j, k, part, p);
      for (int a = 0; a < D; ++a) {
        within[a] = (p[a] > 0.f) & (p[a] < sampler.last[a]);
        sum[a] = part.load(g + a * n + row + k);
      }
      for (int m = 0; m < D; ++m) {
        const vf own = part.load(g + m * n + row + k);
        interpolate<D, true>(sampler, outer + m * n, c, slopes);
        for (int a = 0; a < D; ++a) sum[a] += own * only(slopes[a], within[a]);
      }
      for (int a = 0; a < D; ++a) part.store(out + a * n + row + k, sum[a]);
    });
  });
}

// One channel: g (1 - t) to the lower corner and g t to the upper one, axis by axis.
template <int D>
void by_outer(const Shape& s, const float* inner, const float* g, float* out) {
  constexpr int kCorners = D == 3 ? 4 : 2;  // beside k, along which corners come in pairs
  const Sampler<D> sampler(s);
  const std::int64_t corner[4] = {0, sampler.si, sampler.sj, sampler.si + sampler.sj};
  std::fill(out, out + s.size(), 0.f);
  for (int r = 0; r < s.rows(); ++r) {
    const std::size_t row = std::size_t(r) * s.k;
    along_row<D, true>(sampler, inner + row, s.size(), r / s.j, r % s.j, 0, s.k,
                       [&](int k, auto part, const Cell<D>& c) PIRATE_BODY {
      alignas(64) float low[kCorners][V], high[kCorners][V];
      const vf whole = part.load(g + row + k), upper = whole * c.t[0];
      vf share[4] = {whole - upper, upper};
      if constexpr (D == 3)
        for (int m = 0; m < 2; ++m) share[2 + m] = share[m] * c.t[1], share[m] -= share[2 + m];
      for (int m = 0; m < kCorners; ++m) {
        const vf last = share[m] * c.t[D - 1];
        store(low[m], share[m] - last);
        store(high[m], last);
      }
      for (int l = 0; l < part.n; ++l)
        for (int m = 0; m < kCorners; ++m) {
          float* to = out + c.at[l] + corner[m];
          to[0] += low[m][l];
          to[1] += high[m][l];
        }
    });
  }
}

}  // namespace

// `items` fields one after the other; a derivative without a place to go is not computed.
void compose_adjoint(const Shape& s, int items, const float* outer, const float* inner, const float* g, float* d_outer,
                     float* d_inner) {
  const std::size_t n = s.size(), item = s.d * n;
  for (int b = 0; d_inner && b < items; ++b) {
    const std::size_t at = b * item;
    s.d == 3 ? by_inner<3>(s, outer + at, inner + at, g + at, d_inner + at)
             : by_inner<2>(s, outer + at, inner + at, g + at, d_inner + at);
  }
  if (!d_outer) return;
  parallel(items * s.d, [&](int task) {
    const std::size_t at = task * n, field = task / s.d * item;
    s.d == 3 ? by_outer<3>(s, inner + field, g + at, d_outer + at) : by_outer<2>(s, inner + field, g + at, d_outer + at);
  });
}

}  // namespace pirate::PIRATE_VARIANT
