// Mutual information of fixed and warped by a Parzen histogram. The fixed image comes as bins i, order 0. A warped
// intensity lies at x = (w - low) / (high - low) (bins - 3), clipped into [0, bins - 3], that is in cell
// m = floor(x) at t = x - m, and spreads over the bins j = m, .., m + 3 by the cubic B-spline b_0(t), .., b_3(t).
// With weights q, Q = sum q:
//     p_ij = sum q b_(j - m)(t) / Q,   r_ij = log(p_ij / (p_i p_j)),   g = -sum p_ij r_ij
//     dg/dw = -(q / Q) dx/dw sum_j r_ij b'_(j - m)(t),                 0 outside [low, high].
// The sum over j is a parabola in t for every pair (i, m), whose three coefficients are tabulated.
//
// Each chunk of rows adds to a histogram of its own, four numbers side by side for each pair (i, m), so that what
// one voxel writes never straddles what the next one reads; the chunks are added in order.
#include <cmath>
#include <limits>
#include <vector>

#include "composed.hpp"
#include "kernels.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

typedef double four __attribute__((vector_size(32)));
struct Four {
  four v = {};
};
struct alignas(16) Parabola {
  float a, b, c, none = 0.f;  // a + b t + c t^2
};

constexpr four kSpline[4] = {{1. / 6, 4. / 6, 1. / 6, 0},  // b_0, .., b_3 = sum of kSpline[e] t^e
                             {-1. / 2, 0, 1. / 2, 0},
                             {1. / 2, -1, 1. / 2, 0},
                             {-1. / 6, 1. / 2, -1. / 2, 1. / 6}};
PIRATE_INLINE four spline(double t) { return ((kSpline[3] * t + kSpline[2]) * t + kSpline[1]) * t + kSpline[0]; }

// Cells (i, m) and parts t of V voxels.
struct Axis {
  int bins, cells;
  float low, high, rate, top;  // the range, rounded inwards to floats; dx/dw; greatest m
  Axis(int bins, double lowest, double highest) : bins(bins), cells(bins - 3) {
    const float endless = std::numeric_limits<float>::infinity();
    low = float(lowest), high = float(highest);
    if (low < lowest) low = std::nextafterf(low, endless);
    if (high > highest) high = std::nextafterf(high, -endless);
    rate = float(cells / (highest - lowest));
    top = float(cells - 1);
  }
  std::size_t size() const { return std::size_t(bins) * cells; }

  PIRATE_INLINE vi rows(const std::uint16_t* bin, int n) const {
    std::uint16_t b[V] = {};
    __builtin_memcpy(b, bin, n >= V ? sizeof b : n * sizeof *b);
    typedef std::uint16_t narrow __attribute__((vector_size(V * 2)));
    narrow v;
    __builtin_memcpy(&v, b, sizeof v);
    const vi i = __builtin_convertvector(v, vi);
    return i < bins ? i : vi{} + (bins - 1);  // memory stays safe, whatever was passed
  }
  PIRATE_INLINE vi locate(vf w, vi row, vf& t) const {
    const vf x = vmin(vmax((w - low) * rate, vf{}), set(float(cells)));
    const vi m = truncate(vmin(x, set(top)));
    t = x - to_float(m);
    return row * cells + m;
  }
};

struct Histogram {
  const Axis& axis;
  Four* sums;  // [i][m]

  // One row of n voxels.
  template <bool Weighted>
  PIRATE_INLINE void add(const std::uint16_t* bin, const float* warped, const float* weight, int n) const {
    vectors(0, n, [&](int k, auto part) PIRATE_BODY {
      const vf w = part.load(warped + k), own = Weighted ? part.load(weight + k) : vf{};
      if (Weighted && !any(own != 0.f)) return;
      const vi row = axis.rows(bin + k, part.n);
      if constexpr (!Weighted) {  // background: one bin, lowest intensity
        if (part.n == V && !any((w > axis.low) | (row != row[0]))) {
          sums[std::size_t(row[0]) * axis.cells].v += double(V) * kSpline[0];
          return;
        }
      }
      vf t;
      alignas(64) std::int32_t at[V];
      spill(axis.locate(w, row, t), at);
      const Doubles wide_t = wide(t);
      alignas(64) double parts[V], q[V];
      __builtin_memcpy(parts, &wide_t, sizeof parts);
      if constexpr (Weighted) {
        const Doubles a = wide(own);
        __builtin_memcpy(q, &a, sizeof q);
      }
      for (int l = 0; l < part.n; ++l) {
        four b = spline(parts[l]);
        if constexpr (Weighted) b *= q[l];
        sums[at[l]].v += b;
      }
    });
  }
};

// Mutual information, and for every pair (i, m) the parabola of `factor` sum_j r_ij b'_(j - m)(t) in t.
double finish(const Axis& axis, const std::vector<double>& p, double factor, std::vector<Parabola>& parabola) {
  const int n = axis.bins;
  std::vector<double> pi(n, 0.0), pj(n, 0.0), r(p.size(), 0.0);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) pi[i] += p[i * n + j], pj[j] += p[i * n + j];
  double information = 0;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      if (const double v = p[i * n + j]; v > 0) {
        r[i * n + j] = std::log(v / std::max(pi[i] * pj[j], std::numeric_limits<double>::min()));
        information += v * r[i * n + j];
      }
  parabola.resize(axis.size());
  for (int i = 0; i < n; ++i)
    for (int m = 0; m < axis.cells; ++m) {
      const double* e = &r[i * n + m];
      parabola[std::size_t(i) * axis.cells + m] = {float(factor * (e[2] - e[0]) / 2),
                                                   float(factor * (e[0] - 2 * e[1] + e[2])),
                                                   float(factor * (e[3] - e[0] + 3 * (e[1] - e[2])) / 2)};
    }
  return information;
}

// a[l], b[l], c[l] = the coefficients of table[at[l]].
PIRATE_INLINE void triples(const Parabola* table, const std::int32_t* at, vf& a, vf& b, vf& c) {
#if defined(__AVX2__)
  auto eight = [&](const std::int32_t* at, __m256& a, __m256& b, __m256& c) PIRATE_BODY {
    auto two = [&](int l) PIRATE_BODY {
      const __m128 first = _mm_load_ps(&table[at[l]].a), second = _mm_load_ps(&table[at[l + 4]].a);
      return _mm256_insertf128_ps(_mm256_castps128_ps256(first), second, 1);
    };
    const __m256 x0 = two(0), x1 = two(1), x2 = two(2), x3 = two(3);
    const __m256 l0 = _mm256_unpacklo_ps(x0, x2), l1 = _mm256_unpacklo_ps(x1, x3);  // a0 a2 b0 b2, a1 a3 b1 b3
    const __m256 h0 = _mm256_unpackhi_ps(x0, x2), h1 = _mm256_unpackhi_ps(x1, x3);  // c0 c2 .., c1 c3 ..
    a = _mm256_unpacklo_ps(l0, l1);
    b = _mm256_unpackhi_ps(l0, l1);
    c = _mm256_unpacklo_ps(h0, h1);
  };
#if defined(__AVX512F__)
  __m256 a0, a1, b0, b1, c0, c1;
  eight(at, a0, b0, c0);
  eight(at + 8, a1, b1, c1);
  a = (vf)_mm512_insertf32x8(_mm512_castps256_ps512(a0), a1, 1);
  b = (vf)_mm512_insertf32x8(_mm512_castps256_ps512(b0), b1, 1);
  c = (vf)_mm512_insertf32x8(_mm512_castps256_ps512(c0), c1, 1);
#else
  __m256 x, y, z;
  eight(at, x, y, z);
  a = (vf)x, b = (vf)y, c = (vf)z;
#endif
#else
  for (int l = 0; l < V; ++l) {
    const Parabola& p = table[at[l]];
    a[l] = p.a, b[l] = p.b, c[l] = p.c;
  }
#endif
}

template <With Kind>
double solve(const Shape& s, const DataTerm& t, const std::uint16_t* bin, const Axis& axis, Moments& moments) {
  const Warped to(s, t);
  const std::size_t fitting = s.size() / (8 * axis.size()) + 1;  // small images and many bins: few histograms
  const int chunks = int(std::min<std::size_t>(chunks_of(s), fitting));
  std::vector<Sums<Kind>> parts(chunks);
  std::vector<Four> histograms(chunks * axis.size());
  first_sweep(s, t, to, chunks, [&](int c, std::size_t row) {
    const float* q = to.q ? to.q + row : nullptr;
    const Histogram histogram{axis, histograms.data() + c * axis.size()};
    parts[c].add(t.fixed + row, to.w + row, q, s.k);
    q ? histogram.add<true>(bin + row, to.w + row, q, s.k) : histogram.add<false>(bin + row, to.w + row, q, s.k);
  });
  Sums<Kind> sums;
  for (const Sums<Kind>& p : parts) sums += p;
  moments = sums.moments(s, to.q);
  std::vector<double> p(std::size_t(axis.bins) * axis.bins, 0.0);
  for (std::size_t x = 0; x < axis.size(); ++x) {
    four total = {};
    for (int c = 0; c < chunks; ++c) total += histograms[c * axis.size() + x].v;
    for (int j = 0; j < 4; ++j) p[x / axis.cells * axis.bins + x % axis.cells + j] += total[j] / moments.q;
  }
  std::vector<Parabola> parabola;
  const double information = finish(axis, p, -axis.rate / moments.q, parabola);
  const float *w = to.w, *q = to.q;
  if (t.out)
    second_sweep(s, w, t.field, [&](std::size_t x, auto part) PIRATE_BODY {
      vf u, a, b, c;
      alignas(64) std::int32_t at[V];
      const vf v = part.load(w + x);
      spill(axis.locate(v, axis.rows(bin + x, part.n), u), at);
      triples(parabola.data(), at, a, b, c);
      vf dw = only(a + u * (b + u * c), (v >= axis.low) & (v <= axis.high));
      return q ? dw * part.load(q + x) : dw;
    }, t.out);
  return -information;
}

}  // namespace

// `bin` holds the bin of every voxel of fixed; t.fixed itself is read for its moments only, and may be missing.
double mutual_information(const Shape& s, const DataTerm& t, const std::uint16_t* bin, int bins, double low,
                          double high, Moments& moments) {
  const Axis axis(bins, low, high);
  return t.fixed ? solve<With::kFixed>(s, t, bin, axis, moments)
                 : solve<With::kNothing>(s, t, bin, axis, moments);
}

}  // namespace pirate::PIRATE_VARIANT
