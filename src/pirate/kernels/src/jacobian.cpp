// Jacobian determinant of x + field(x): det(1 + d field_c / d x_a), by central differences (one-sided at the
// borders) or forward differences (0 in the last plane); and where it, or the volume of a simplex of a cell, is
// <= 0: counted, summed and marked.
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

// A cell's corners are the voxels x + (0|1, 0|1, 0|1). body(value) gets d! times the oriented volume of the image
// of each of its simplices: the 2^d corner ones, of which the first is the determinant by forward differences,
// and in 3-D the two inner ones that complete the two splits into five (Liu et al., IJCV 2024).
template <int D, class Body>
PIRATE_INLINE void simplices(const vf (&c)[2][2][2][3], Body body) {
  vf m[3][3];
  auto edge = [&](int column, const vf (&to)[3], const vf (&from)[3], float i, float j, float k) PIRATE_BODY {
    m[0][column] = (to[0] - from[0]) + i;
    if constexpr (D == 3) m[1][column] = (to[1] - from[1]) + j;
    m[D - 1][column] = (to[D - 1] - from[D - 1]) + k;
  };
#pragma GCC unroll 8
  for (int corner = 0; corner < 1 << D; ++corner) {
    const int k = corner & 1, j = D == 3 ? corner >> 1 & 1 : 0, i = corner >> (D - 1) & 1;
    edge(0, c[1][j][k], c[0][j][k], 1.f, 0.f, 0.f);
    if constexpr (D == 3) edge(1, c[i][1][k], c[i][0][k], 0.f, 1.f, 0.f);
    edge(D - 1, c[i][j][1], c[i][j][0], 0.f, 0.f, 1.f);
    body(det<D>(m));
  }
  if constexpr (D == 3) {
    edge(0, c[1][1][0], c[0][0][0], 1.f, 1.f, 0.f);
    edge(1, c[1][0][1], c[0][0][0], 1.f, 0.f, 1.f);
    edge(2, c[0][1][1], c[0][0][0], 0.f, 1.f, 1.f);
    body(-det<D>(m));
    edge(0, c[0][0][1], c[1][1][1], -1.f, -1.f, 0.f);
    edge(1, c[0][1][0], c[1][1][1], -1.f, 0.f, -1.f);
    edge(2, c[1][0][0], c[1][1][1], 0.f, -1.f, -1.f);
    body(det<D>(m));
  }
}

// Corners of the cells from k on; where a next voxel is missing, the border is repeated.
template <int D, class Lanes>
PIRATE_INLINE void corners(const Shape& s, const float* u, int i, int j, int k, Lanes part, vf (&c)[2][2][2][3]) {
  const std::size_t n = s.size(), row = (std::size_t(i) * s.j + j) * s.k;
  const std::ptrdiff_t next_i = i + 1 < s.i ? s.plane() : 0, next_j = j + 1 < s.j ? s.k : 0;
#pragma GCC unroll 3
  for (int m = 0; m < D; ++m)
#pragma GCC unroll 4
    for (int at = 0; at < (D == 3 ? 4 : 2); ++at) {
      const int a = at & 1, b = at >> 1;
      const float* r = u + m * n + row + a * next_i + b * next_j;
      c[a][b][0][m] = part.load(r + k);
      c[a][b][1][m] = along_k(r, k, s.k).high;
    }
}

typedef std::uint8_t vb __attribute__((vector_size(V)));

PIRATE_INLINE vi load_bytes(const std::uint8_t* p, int n) {
  vb b = {};
  __builtin_memcpy(&b, p, n);
  return __builtin_convertvector(b, vi);
}
PIRATE_INLINE void store_bytes(std::uint8_t* p, vi v, int n) {
  const vb b = __builtin_convertvector(v, vb);
  __builtin_memcpy(p, &b, n);
}

// Natural logarithm of x > 0, normal numbers, to 1e-7: x = 2^e m with m in [1/sqrt(2), sqrt(2)), and
// log m = 2 (t + t^3/3 + t^5/5 + ...), t = (m - 1) / (m + 1), |t| < 0.172.
PIRATE_INLINE vf logarithm(vf x) {
  const vi shifted = (vi)x - 0x3f3504f3;  // the bits of 1/sqrt(2)
  const vf e = to_float(shifted >> 23), m = (vf)((shifted & 0x7fffff) + 0x3f3504f3);
  const vf t = (m - 1.f) / (m + 1.f), q = t * t;
  const vf series = ((((2.f / 9) * q + 2.f / 7) * q + 2.f / 5) * q + 2.f / 3) * q + 2.f;
  return e * 0.69314718f + t * series;
}

constexpr float kLeastLogarithm = 1e-9f;  // smaller determinants count as this one in the logarithm

// One plane's share of the sums; a determinant that is not a number counts as a fold.
template <int D>
FoldSums sums_of_plane(const Shape& s, const float* u, const std::uint8_t* mask, int i) {
  FoldSums total;
  vf least = set(__builtin_inff()), largest = -least;
  vi voxels = {}, folds = {}, cells = {}, forward_folds = {}, bad_cells = {}, infinite = {};
  Doubles logs, squares;
  for (int j = 0; j < s.j; ++j) {
    const std::uint8_t* inside = mask ? mask + (std::size_t(i) * s.j + j) * s.k : nullptr;
    const bool next = i + 1 < s.i && (D == 2 || j + 1 < s.j);
    vf volume = {};
    vectors(0, s.k, [&](int k, auto part) PIRATE_BODY {
      vf central, unused, c[2][2][2][3];
      corners<D>(s, u, i, j, k, part, c);
      at<D, true, false>(s, u, i, j, k, part, central, unused);
      vi here = lanes_int() < part.n;
      for (int m = 0; m < D; ++m) infinite |= here & ~(vabs(c[0][0][0][m]) <= 3.4028235e38f);
      if (inside) here &= load_bytes(inside + k, part.n) != 0;
      voxels -= here;
      folds -= here & ~(central > 0.f);
      least = vmin(here ? central : least, least);
      largest = vmax(here ? central : largest, largest);
      const vf l = logarithm(vmax(here ? central : set(1.f), set(kLeastLogarithm)));
      const Doubles wide_l = wide(l);
      logs += wide_l;
      squares.add_product(wide_l, wide_l);
      if (!next) return;
      const vi cell = here & (lanes_int() < s.k - 1 - k);
      vi bad = {}, first = {};
      vf negative = {};
      bool forward = true;
      simplices<D>(c, [&](vf value) PIRATE_BODY {
        bad |= ~(value > 0.f);
        negative += vmax(-value, vf{});
        if (forward) first = bad;
        forward = false;
      });
      cells -= cell;
      forward_folds -= cell & first;
      bad_cells -= cell & bad;
      volume += cell ? negative : vf{};
    });
    total.volume += sum(volume) / (D == 3 ? 12 : 4);  // d! and two splits
  }
  total.least = least[0];
  total.largest = largest[0];
  for (int l = 0; l < V; ++l) {
    total.voxels += voxels[l];
    total.folds += folds[l];
    total.cells += cells[l];
    total.forward_folds += forward_folds[l];
    total.bad_cells += bad_cells[l];
    total.least = least[l] < total.least ? least[l] : total.least;
    total.largest = largest[l] > total.largest ? largest[l] : total.largest;
  }
  total.logs = logs.sum();
  total.squares = squares.sum();
  total.finite = !any(infinite);
  return total;
}

// Writes 1 where the central determinant, 2 where a simplex of the cell that begins here is not above epsilon.
template <int D>
std::int64_t mark_plane(const Shape& s, const float* u, float epsilon, std::uint8_t* marks, int i) {
  vi marked = {};
  for (int j = 0; j < s.j; ++j) {
    std::uint8_t* row = marks + (std::size_t(i) * s.j + j) * s.k;
    const bool next = i + 1 < s.i && (D == 2 || j + 1 < s.j);
    vectors(0, s.k, [&](int k, auto part) PIRATE_BODY {
      vf central, unused, c[2][2][2][3];
      at<D, true, false>(s, u, i, j, k, part, central, unused);
      vi mark = (lanes_int() < part.n) & ~(central > epsilon) & 1;
      if (next) {
        corners<D>(s, u, i, j, k, part, c);
        vi bad = {};
        simplices<D>(c, [&](vf value) PIRATE_BODY { bad |= ~(value > epsilon); });
        mark |= bad & (lanes_int() < s.k - 1 - k) & 2;
      }
      store_bytes(row + k, mark, part.n);
      marked -= mark != 0;
    });
  }
  std::int64_t total = 0;
  for (int l = 0; l < V; ++l) total += marked[l];
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

// Everything that is reported of a field's folding, over all voxels or those where mask is not 0; a cell counts
// where its first corner does.
void fold_sums(const Shape& s, const float* field, const std::uint8_t* mask, FoldSums* sums) {
  std::vector<FoldSums> planes(s.i);
  parallel(s.i, [&](int i) {
    planes[i] = s.d == 3 ? sums_of_plane<3>(s, field, mask, i) : sums_of_plane<2>(s, field, mask, i);
  });
  *sums = planes[0];
  for (int i = 1; i < s.i; ++i) sums->add(planes[i]);
}

// Marks every voxel where something is not above epsilon, see mark_plane, and counts them.
std::int64_t mark_folds(const Shape& s, const float* field, float epsilon, std::uint8_t* marks) {
  std::vector<std::int64_t> planes(s.i);
  parallel(s.i, [&](int i) {
    planes[i] = s.d == 3 ? mark_plane<3>(s, field, epsilon, marks, i) : mark_plane<2>(s, field, epsilon, marks, i);
  });
  std::int64_t total = 0;
  for (std::int64_t n : planes) total += n;
  return total;
}

}  // namespace pirate::PIRATE_VARIANT
