// Jacobian determinant of x + field(x): det(1 + d field_c / d x_a), by central differences (one-sided at the
// borders) or forward differences (0 in the last plane); and counts of voxels where it is <= 0.
#include <vector>

#include "kernels.hpp"
#include "neighbours.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

template <int D>
PIRATE_INLINE vf det(const vf (&m)[3][3]) {
  if constexpr (D == 2) return m[0][0] * m[1][1] - m[0][1] * m[1][0];
  return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
         m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
}

// Reads the neighbours once, gives the determinant by central and, if asked, forward differences.
template <int D, bool Central, bool Forward, class Lanes>
PIRATE_INLINE void at(const Shape& s, const float* u, int i, int j, int k, Lanes part, vf& central, vf& forward) {
  const std::size_t n = s.size(), row = (std::size_t(i) * s.j + j) * s.k;
  const std::ptrdiff_t plane = s.plane(), line = s.k;
  const std::ptrdiff_t up_i = i > 0 ? -plane : 0, down_i = i + 1 < s.i ? plane : 0;
  const std::ptrdiff_t up_j = j > 0 ? -line : 0, down_j = j + 1 < s.j ? line : 0;
  const vf half_i = set(up_i && down_i ? 0.5f : 1.f), half_j = set(up_j && down_j ? 0.5f : 1.f);
  vf half_k = set(0.5f);
  if (k == 0 || k + V >= s.k) {
    const vf x = lanes() + float(k);
    half_k = (x == 0.f) | (x >= float(s.k - 1)) ? set(1.f) : half_k;
  }
  vf c[3][3], f[3][3];
  for (int m = 0; m < D; ++m) {
    const float* r = u + m * n + row;
    const vf here = part.load(r + k);
    auto difference = [&](int a, vf low, vf high, vf half) PIRATE_BODY {
      if (Central) c[m][a] = (high - low) * half + (a == m ? 1.f : 0.f);
      if (Forward) f[m][a] = (high - here) + (a == m ? 1.f : 0.f);
    };
    difference(0, part.load(r + up_i + k), part.load(r + down_i + k), half_i);
    if constexpr (D == 3)
      difference(1, part.load(r + up_j + k), part.load(r + down_j + k), half_j);
    const Sides side = along_k(r, k, s.k);
    difference(D - 1, side.low, side.high, half_k);
  }
  if (Central) central = det<D>(c);
  if (Forward) forward = det<D>(f);
}

template <int D, bool Forward>
void determinant_plane(const Shape& s, const float* u, float* out, int i) {
  for (int j = 0; j < s.j; ++j)
    vectors(0, s.k, [&](int k, auto part) PIRATE_BODY {
      vf central, forward;
      at<D, !Forward, Forward>(s, u, i, j, k, part, central, forward);
      part.store(out + (std::size_t(i) * s.j + j) * s.k + k, Forward ? forward : central);
    });
}

struct Count {
  std::int64_t central = 0, forward = 0;
  float least = 0;
};

template <int D>
Count count_plane(const Shape& s, const float* u, int i) {
  auto inside = [](int x, int n) { return n == 1 || x + 1 < n; };  // a forward difference exists
  Count total;
  vf least = set(__builtin_inff());
  vi folded = {}, folded_forward = {};
  for (int j = 0; j < s.j; ++j)
    vectors(0, s.k, [&](int k, auto part) PIRATE_BODY {
      vf central, forward;
      at<D, true, true>(s, u, i, j, k, part, central, forward);
      const vi here = lanes_int() < part.n;
      folded -= (central <= 0.f) & here;
      least = vmin(here ? central : least, least);
      if (inside(i, s.i) && inside(j, s.j))
        folded_forward -= (forward <= 0.f) & (lanes_int() < s.k - 1 - k);
    });
  total.least = least[0];
  for (int l = 0; l < V; ++l) {
    total.central += folded[l];
    total.forward += folded_forward[l];
    if (least[l] < total.least) total.least = least[l];
  }
  return total;
}

}  // namespace

void determinant(const Shape& s, const float* field, bool forward, float* out) {
  parallel(s.i, [&](int i) {
    if (s.d == 3) forward ? determinant_plane<3, true>(s, field, out, i) : determinant_plane<3, false>(s, field, out, i);
    if (s.d == 2) forward ? determinant_plane<2, true>(s, field, out, i) : determinant_plane<2, false>(s, field, out, i);
  });
}

// Voxels with determinant <= 0: by central differences everywhere, by forward differences except in the last
// planes; and the least central determinant.
void folds(const Shape& s, const float* field, std::int64_t* central, std::int64_t* forward, double* least) {
  std::vector<Count> counts(s.i);
  parallel(s.i, [&](int i) { counts[i] = s.d == 3 ? count_plane<3>(s, field, i) : count_plane<2>(s, field, i); });
  Count total = counts[0];
  for (int i = 1; i < s.i; ++i) {
    total.central += counts[i].central;
    total.forward += counts[i].forward;
    if (counts[i].least < total.least) total.least = counts[i].least;
  }
  *central = total.central;
  *forward = total.forward;
  *least = total.least;
}

}  // namespace pirate::PIRATE_VARIANT
