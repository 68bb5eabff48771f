// Local correlation of fixed f and warped w, its exact gradient, and the force on a field.
//
// Box sums over the window of 2 r + 1 voxels along each axis (0 outside the image), n voxels:
//     cross = Sfw - Sf Sw / n,   vf = Sff - Sf^2 / n,   vw = Sww - Sw^2 / n,
//     squared:  c = cross^2 / (vf vw + e),      A = dc/dcross = 2 cross / (vf vw + e),   B = dc/dvw = -c vf / (vf vw + e)
//     plain:    c = cross / sqrt(vf vw + e),    A = 1 / sqrt(vf vw + e),                 B = -c vf / (2 (vf vw + e))
//     value = 1 - mean of c
//     d value / d w(y) = -(1/N) [ f(y) box(A) + w(y) box(2 B) - box((A Sf + 2 B Sw) / n) ](y).
// With weights q every product is weighted, n = box(q), the mean of c too, and the gradient is multiplied by q(y).
// Force on the field: that gradient times the gradient of the image, either of the moving image at x + field(x)
// (additive update: the exact derivative) or of the warped image (compositional update).
//
// A window in which q f is 0 throughout adds nothing to the value or to the gradient, whatever w is: cross, vf
// and q f are 0. So all work is confined, row by row, to the foreground of f grown by the windows.
//
// A thread walks through its planes: plane i is warped, plane i - r gets its statistics, plane i - 2 r its
// force. Sums along i are taken from a ring of planes of f and w; along j from a ring of rows; along k from one
// row. All sums are direct, so a voxel's result does not depend on where a thread begins.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "intervals.hpp"
#include "kernels.hpp"
#include "sampler.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

#define PIRATE_STAGE __attribute__((noinline))  // seen by a profiler

enum class Mode { kGiven, kAdditive, kCompositional };

struct Problem {
  Shape s;
  Mode mode;
  bool squared;
  int radius;
  float epsilon, intensity;  // intensity: weight of (w - f)^2 where f is not 0
  const float *fixed, *warped, *moving, *field, *weight;
  float* out;  // gradient (1 channel) or force (d channels)
};

constexpr float kLeastWeight = 1e-4f;  // a window with less has c = 0: its means would be quotients of rounding

int round_up(int n) { return (n + 15) / 16 * 16; }

// Where f is not 0 and counts.
Intervals seen(const Problem& p) {
  Intervals f = foreground(p.s, p.fixed);
  return p.weight ? f.meet(foreground(p.s, p.weight)) : f;
}

// Where each stage works.
struct Stages {
  Intervals statistics;  // windows that see the foreground of f
  Intervals sums;        // rows of sums along i that those need; also box(A), .. of one plane
  Intervals sums_j;      // what a row of box sums along k must be valid on
  Intervals force;       // where the gradient can differ from 0
  Intervals planes;      // what a plane of box(A), .. must be valid on
  Intervals warp;        // where w is needed
  Stages(const Problem& p, int ri, int rj, int rk)
      : statistics(seen(p).over_j(rj).over_i(ri).widen(rk, 0, p.s.k)),
        sums(statistics.over_j(rj).widen(rk, -rk - V, p.s.k + rk)),
        sums_j(sums.over_j(rj)),
        force(sums.over_i(ri).widen(0, 0, p.s.k)),
        planes(force.over_i(ri)),
        warp(force) {
    if (p.mode == Mode::kCompositional) {
      Intervals wide = force;
      warp.join(wide.widen(1, 0, p.s.k)).join(force.over_i(1)).join(force.over_j(1));
    }
  }
};

template <int R, bool Weighted>
class Walk {
  static constexpr int Q = Weighted ? 6 : 5;  // f, w, ff, ww, fw (, q)

 public:
  Walk(const Problem& p, const Stages& stages, float scale)
      : p_(p), s_(p.s), st_(stages), scale_(scale), r_(R > 0 ? R : p.radius), ri_(r_), rj_(p.s.d == 3 ? r_ : 0) {
    left_ = round_up(2 * r_ + V);
    pitch_ = left_ + round_up(s_.k) + round_up(2 * r_ + 2 * V);
    plane_ = std::size_t(s_.j) * pitch_;
    plane_ += (1024 + 80 - plane_ % 1024) % 1024;  // planes apart in the sets of the cache (5 lines of 4 kB)
    span_ = 2 * r_ + 2;
    const std::size_t ring = span_ * plane_, held = ring * (2 + Weighted + gradients());
    const std::size_t lines = std::size_t(2 * r_ + 1) * (Q + 3) + Q + 3 + Q;
    float* memory = static_cast<float*>(scratch(sizeof(float) * (held + 3 * ring + lines * pitch_))) + left_;
    std::fill(memory - left_, memory - left_ + held, 0.f);  // outside the image everything is 0
    auto take = [&](std::size_t n) { return std::exchange(memory, memory + n); };
    f_ = take(ring);
    w_ = take(ring);
    if (Weighted) q_ = take(ring);
    for (int c = 0; c < gradients(); ++c) g_[c] = take(ring);
    for (float*& b : box_) b = take(ring);
    ring_ = take(std::size_t(2 * r_ + 1) * Q * pitch_);
    coefficient_ring_ = take(std::size_t(2 * r_ + 1) * 3 * pitch_);
    line_ = take(Q * pitch_);
    coefficient_ = take(3 * pitch_);
    zero_ = take(Q * pitch_);
    std::fill(zero_ - left_, zero_ - left_ + Q * pitch_, 0.f);
  }

  // Planes first..last-1 of the result; sums of c over them go to `values`.
  void operator()(int first, int last, double* values) {
    for (int i = std::max(0, first - 2 * ri_); i < last + 2 * ri_; ++i) {
      if (i < s_.i) warp_plane(i);
      const int m = i - ri_;
      if (m >= std::max(0, first - ri_) && m < std::min(s_.i, last + ri_)) {
        const double c = statistics_plane(m);
        if (m >= first && m < last) values[m] = c;
      }
      const int y = m - ri_;
      if (y >= first && y < last) force_plane(y);
    }
  }

 private:
  int gradients() const { return p_.mode == Mode::kAdditive ? s_.d : 0; }
  std::size_t slot(int i, int j) const { return std::size_t(i % span_) * plane_ + std::size_t(j) * pitch_; }

  PIRATE_STAGE void warp_plane(int i) {
    for (int j = 0; j < s_.j; ++j) {
      const int x = st_.warp.at(i, j);
      if (st_.warp.empty(x)) continue;
      const int lo = st_.warp.lo[x], hi = st_.warp.hi[x];
      const std::size_t here = slot(i, j), row = (std::size_t(i) * s_.j + j) * s_.k;
      auto copy = [&](const float* from, float* to) {
        std::memcpy(to + here + lo, from + row + lo, sizeof(float) * (hi - lo));
      };
      if (p_.field && i + 1 < s_.i) {  // short rows: the hardware would notice too late
        const int y = st_.warp.at(i, std::min(j + 2, s_.j - 1));
        const std::size_t soon = std::size_t(y) * s_.k + std::max(0, std::min(st_.warp.lo[y], s_.k));
        const int n = st_.warp.hi[y] - st_.warp.lo[y];
        for (int c = 0; c < s_.d; ++c) prefetch(p_.field + c * s_.size() + soon, n);
        prefetch(p_.fixed + soon, n);
      }
      copy(p_.fixed, f_);
      if constexpr (Weighted) copy(p_.weight, q_);
      if (p_.mode == Mode::kGiven) copy(p_.warped, w_);
      else if (s_.d == 3) warp_row<3>(i, j, lo, hi, here);
      else warp_row<2>(i, j, lo, hi, here);
    }
  }

  template <int D>
  void warp_row(int i, int j, int lo, int hi, std::size_t here) {
    const Sampler<D> sampler(s_);
    const float* field = p_.field + (std::size_t(i) * s_.j + j) * s_.k;
    const int end = std::min(s_.k, lo + (hi - lo + V - 1) / V * V);
    const std::size_t n = s_.size();
    const float* const moving = p_.moving;
    float* const w = w_ + here;  // past the image it stays 0
    if (p_.mode == Mode::kCompositional) {
      along_row<D, false>(sampler, field, n, i, j, lo, end, [&](int k, auto part, const Cell<D>& c) PIRATE_BODY {
        part.store(w + k, interpolate<D>(sampler, moving, c));
      });
    } else {
      along_row<D, false>(sampler, field, n, i, j, lo, end, [&](int k, auto part, const Cell<D>& c) PIRATE_BODY {
        vf g[D];
        part.store(w + k, interpolate<D, true>(sampler, moving, c, g));
        for (int m = 0; m < D; ++m) store(g_[m] + here + k, g[m]);
      });
    }
  }

  // Statistics of the windows of plane i, and A, 2 B, (A Sf + 2 B Sw) / n box-summed along k and j.
  double statistics_plane(int i) {
    double value = 0;
    for (int j = 0; j < s_.j + 2 * rj_; ++j) {
      if (j < s_.j) sums_i(i, j);
      const int t = j - rj_;
      if (t >= 0 && t < s_.j) value += coefficients(i, t);
      const int u = t - rj_;
      if (u >= 0 && u < s_.j) sums_j(i, u);
    }
    return value;
  }

  // Rows of the sums along i, into the ring.
  PIRATE_STAGE void sums_i(int i, int j) {
    const int x = st_.sums.at(i, j);
    if (st_.sums.empty(x)) return;
    const int n = 2 * r() + 1;
    const float *f[kMost], *w[kMost], *q[kMost];
    for (int m = 0; m < n; ++m) {
      const int at = i + m - r();
      const bool inside = at >= 0 && at < s_.i;
      f[m] = inside ? f_ + slot(at, j) : zero_;
      w[m] = inside ? w_ + slot(at, j) : zero_;
      if (Weighted) q[m] = inside ? q_ + slot(at, j) : zero_;
    }
    float* out = ring_ + std::size_t(j % (2 * rj_ + 1)) * Q * pitch_;
    for (int k = st_.sums.lo[x]; k < st_.sums.hi[x]; k += V) {
      vf v[Q] = {};
      for (int m = 0; m < n; ++m) {
        const vf a = load(f[m] + k), b = load(w[m] + k);
        vf qa = a, qb = b;
        if constexpr (Weighted) {
          const vf e = load(q[m] + k);
          qa *= e, qb *= e;
          v[5] += e;
        }
        v[0] += qa, v[1] += qb, v[2] += qa * a, v[3] += qb * b, v[4] += qa * b;
      }
      for (int m = 0; m < Q; ++m) store(out + m * pitch_ + k, v[m]);
    }
  }

  // c of row j, summed, and its coefficients box-summed along k, into their ring.
  PIRATE_STAGE double coefficients(int i, int j) {
    const int x = st_.statistics.at(i, j), r = this->r();
    float* out = coefficient_ring_ + std::size_t(j % (2 * rj_ + 1)) * 3 * pitch_;
    const int from = st_.sums_j.lo[x], to = st_.sums_j.hi[x] + V;
    auto clear = [&](float* rows, int a, int b) {
      for (int m = 0; m < 3; ++m)
        if (a < b) std::fill(rows + m * pitch_ + a, rows + m * pitch_ + b, 0.f);
    };
    if (st_.sums_j.empty(x)) return 0;
    if (st_.statistics.empty(x)) {
      clear(out, from, to);
      return 0;
    }
    const int lo = st_.statistics.lo[x], hi = st_.statistics.hi[x];
    const int start = align(lo - r);
    add_rows<Q>(ring_, j, start, hi + r, line_, pitch_);
    const vf total = window_statistics(i, j, lo, hi);
    const int end = lo + (hi - lo + V - 1) / V * V;
    clear(coefficient_, start - r, lo);
    clear(coefficient_, end, hi + 2 * r + V);
    int k = start;
    for (int m = 0; m < 3; ++m)
      for (k = start; k < hi + r; k += V) store(out + m * pitch_ + k, along_k(coefficient_ + m * pitch_ + k));
    clear(out, from, start);
    clear(out, k, to);
    return sum(total);
  }

  PIRATE_STAGE vf window_statistics(int i, int j, int lo, int hi) {
    const float side = 2 * r() + 1, voxels = s_.d == 3 ? side * side * side : side * side;
    const vf zero = {}, epsilon = set(p_.epsilon);
    vf total = {}, inverse = set(1.f / voxels);
    for (int k = lo; k < hi; k += V) {
      vf v[Q];
      for (int m = 0; m < Q; ++m) v[m] = along_k(line_ + m * pitch_ + k);
      vi keep = lanes_int() < hi - k;
      if constexpr (Weighted) {
        keep &= v[5] > kLeastWeight;
        inverse = 1.f / (keep ? v[5] : set(1.f));
      }
      const vf mf = v[0] * inverse, mw = v[1] * inverse;
      const vf cross = v[4] - v[0] * mw, vff = vmax(v[2] - v[0] * mf, zero), vww = vmax(v[3] - v[1] * mw, zero);
      const vf product = vff * vww + epsilon;
      vf a, b2, c;
      if (p_.squared) {
        const vf inv = 1.f / product;
        a = 2.f * cross * inv;
        c = 0.5f * cross * a;
        b2 = -2.f * c * vff * inv;
      } else {
        a = 1.f / vsqrt(product);
        c = cross * a;
        b2 = -c * vff * (a * a);
      }
      if constexpr (Weighted) {
        const vf q = load(q_ + slot(i, j) + k);
        a *= q, b2 *= q, c *= q;
      }
      if (p_.intensity > 0.f) {
        const vf f = load(f_ + slot(i, j) + k), difference = load(w_ + slot(i, j) + k) - f;
        vf square = only(p_.intensity * (difference * difference), f != 0.f);
        if constexpr (Weighted) square *= load(q_ + slot(i, j) + k);
        c -= square;
      }
      // Lanes past `hi` saw memory that was never written: masked, not multiplied by 0, for it may not be a number.
      const vf ab = only(a * mf + b2 * mw, keep);
      a = only(a, keep), b2 = only(b2, keep), c = only(c, keep);
      store(coefficient_ + k, a);
      store(coefficient_ + pitch_ + k, b2);
      store(coefficient_ + 2 * pitch_ + k, ab);
      total += c;
    }
    return total;
  }

  // Box sums along j of the coefficients of plane i, row j.
  PIRATE_STAGE void sums_j(int i, int j) {
    const int x = st_.sums.at(i, j);
    if (st_.planes.empty(x)) return;
    const int from = st_.planes.lo[x], to = st_.planes.hi[x] + V;
    int lo = st_.sums.lo[x], end = from;
    float* rows[3] = {box_[0] + slot(i, j), box_[1] + slot(i, j), box_[2] + slot(i, j)};
    if (st_.sums.empty(x)) lo = to;
    else end = add_rows<3>(coefficient_ring_, j, lo, st_.sums.hi[x], rows[0], rows[1] - rows[0]);
    for (float* row : rows) {
      if (from < lo) std::fill(row + from, row + lo, 0.f);
      if (end > from && end < to) std::fill(row + end, row + to, 0.f);
    }
  }

  // out[m] = sum over rows j - rj..j + rj of a ring of N rows each, for k from lo to hi; returns where it ended.
  template <int N>
  int add_rows(const float* ring, int j, int lo, int hi, float* out, std::size_t step) {
    const int n = 2 * rj_ + 1;
    const float* rows[kMost];
    for (int m = 0; m < n; ++m) {
      const int at = j + m - rj_;
      rows[m] = at >= 0 && at < s_.j ? ring + std::size_t(at % n) * N * pitch_ : zero_;
    }
    int end = lo;
    for (int c = 0; c < N; ++c, out += step) {
      int k = lo;
      for (; k < hi; k += V) {
        vf v = load(rows[0] + k);
        for (int m = 1; m < (R > 0 ? 2 * R + 1 : n); ++m) v += load(rows[m] + k);
        store(out + k, v);
      }
      for (int m = 0; m < n; ++m) rows[m] += pitch_;
      end = k;
    }
    return end;
  }

  PIRATE_INLINE vf along_k(const float* at) const {
    vf v = load(at - r());
    for (int m = 1 - r(); m <= r(); ++m) v += load(at + m);
    return v;
  }

  void force_plane(int i) {
    const int channels = p_.mode == Mode::kGiven ? 1 : s_.d;
    for (int j = 0; j < s_.j; ++j) {
      const int x = st_.force.at(i, j);
      const std::size_t row = (std::size_t(i) * s_.j + j) * s_.k;
      int lo = st_.force.lo[x], hi = st_.force.hi[x];
      if (st_.force.empty(x)) lo = hi = 0;
      for (int c = 0; c < channels; ++c) {
        float* out = p_.out + c * s_.size() + row;
        std::fill(out, out + lo, 0.f);
        std::fill(out + hi, out + s_.k, 0.f);
      }
      if (lo < hi) force_row(i, j, lo, hi, row);
    }
  }

  PIRATE_STAGE void force_row(int i, int j, int lo, int hi, std::size_t row) {
    const int n = 2 * r() + 1;
    const float* box[3][kMost];
    for (int m = 0; m < n; ++m)
      for (int c = 0; c < 3; ++c) {
        const int at = i + m - r();
        box[c][m] = at >= 0 && at < s_.i ? box_[c] + slot(at, j) : zero_;
      }
    const std::size_t here = slot(i, j), size = s_.size();
    const float *f = f_ + here, *w = w_ + here;
    const float* up_i = i > 0 ? w_ + slot(i - 1, j) : w;
    const float* down_i = i + 1 < s_.i ? w_ + slot(i + 1, j) : w;
    const float* up_j = j > 0 ? w - pitch_ : w;
    const float* down_j = j + 1 < s_.j ? w + pitch_ : w;
    const float half_i = i > 0 && i + 1 < s_.i ? 0.5f : 1.f, half_j = j > 0 && j + 1 < s_.j ? 0.5f : 1.f;
    const Mode mode = p_.mode;
    const float scale = scale_, pull = -2.f * p_.intensity * scale_;
    const int nk = s_.k, d = s_.d;
    float* const result = p_.out + row;
    vectors(lo, hi, [&](int k, auto part) PIRATE_BODY {
      vf v[3];
      for (int c = 0; c < 3; ++c) {
        v[c] = load(box[c][0] + k);
        for (int m = 1; m < n; ++m) v[c] += load(box[c][m] + k);
      }
      const vf ff = load(f + k), ww = load(w + k);
      vf g = (ff * v[0] + ww * v[1] - v[2]) * scale;
      if (pull > 0.f) g += only(pull * (ww - ff), ff != 0.f);
      if constexpr (Weighted) g *= load(q_ + here + k);
      float* out = result + k;
      if (mode == Mode::kGiven) {
        part.store(out, g);
      } else if (mode == Mode::kAdditive) {
        for (int c = 0; c < d; ++c) part.store(out + c * size, g * load(g_[c] + here + k));
      } else {
        vf low = load(w + k - 1), high = load(w + k + 1), half = set(0.5f);
        if (k == 0 || k + V >= nk) {
          const vf at = lanes() + float(k), centre = load(w + k);
          const vi start = at == 0.f, end = at == float(nk - 1);
          low = start ? centre : low;
          high = end ? centre : high;
          half = (start | end) ? set(1.f) : half;
        }
        part.store(out, g * ((load(down_i + k) - load(up_i + k)) * half_i));
        if (d == 3) part.store(out + size, g * ((load(down_j + k) - load(up_j + k)) * half_j));
        part.store(out + (d - 1) * size, g * ((high - low) * half));
      }
    });
  }

  static constexpr int kMost = R > 0 ? 2 * R + 1 : 2 * 64 + 1;
  PIRATE_INLINE int r() const { return R > 0 ? R : r_; }

  const Problem& p_;
  const Shape& s_;
  const Stages& st_;
  const float scale_;
  const int r_, ri_, rj_;
  int left_, pitch_, span_;
  std::size_t plane_;
  float *f_, *w_, *q_ = nullptr, *g_[3] = {}, *box_[3], *ring_, *coefficient_ring_, *line_, *coefficient_, *zero_;
};

// Planes of about equal work for every thread. A result does not depend on the cut: see above.
std::vector<int> cuts(const Problem& p, const Stages& st) {
  const int parts = std::min(threads(), p.s.i);
  std::vector<double> work(p.s.i + 1, 0.0);
  for (int i = 0; i < p.s.i; ++i) {
    work[i + 1] = work[i] + 1;
    for (int j = 0; j < p.s.j; ++j)
      if (const int x = st.force.at(i, j); !st.force.empty(x)) work[i + 1] += 8 + st.force.hi[x] - st.force.lo[x];
  }
  std::vector<int> cut(parts + 1, 0);
  for (int c = 1; c <= parts; ++c)
    cut[c] = std::lower_bound(work.begin(), work.end(), work.back() * c / parts) - work.begin();
  cut[parts] = p.s.i;
  return cut;
}

double total_weight(const Shape& s, const float* weight) {
  if (!weight) return s.size();
  std::vector<double> parts(s.i, 0.0);
  parallel(s.i, [&](int i) {
    for (std::size_t x = i * s.plane(); x < (i + 1) * s.plane(); ++x) parts[i] += weight[x];
  });
  double total = 0;
  for (double v : parts) total += v;
  return total;
}

template <int R, bool Weighted>
double solve(const Problem& p) {
  const int rj = p.s.d == 3 ? p.radius : 0;
  const double n = total_weight(p.s, p.weight);
  const Stages stages(p, p.radius, rj, p.radius);
  const std::vector<int> cut = cuts(p, stages);
  std::vector<double> values(p.s.i, 0.0);
  parallel(cut.size() - 1, [&](int c) {
    if (cut[c] == cut[c + 1]) return;
    Walk<R, Weighted> walk(p, stages, n > 0 ? float(-1 / n) : 0.f);
    walk(cut[c], cut[c + 1], values.data());
  });
  double total = 0;
  for (double v : values) total += v;
  return n > 0 ? 1 - total / n : 1;
}

double solve(const Problem& p) {
  if (p.weight && p.s.d == 3 && p.radius == 2) return solve<2, true>(p);
  if (p.weight && p.s.d == 3 && p.radius == 3) return solve<3, true>(p);
  if (p.weight) return solve<0, true>(p);
  if (p.s.d == 3 && p.radius == 1) return solve<1, false>(p);
  if (p.s.d == 3 && p.radius == 2) return solve<2, false>(p);
  if (p.s.d == 3 && p.radius == 3) return solve<3, false>(p);
  return solve<0, false>(p);
}

}  // namespace

double local_correlation(const Shape& s, const float* fixed, const float* warped, const float* weight, int radius,
                         bool squared, float epsilon, float intensity, float* gradient) {
  return solve({s, Mode::kGiven, squared, radius, epsilon, intensity, fixed, warped, nullptr, nullptr, weight, gradient});
}

double local_correlation_force(const Shape& s, const float* fixed, const float* moving, const float* field,
                               const float* weight, int radius, bool squared, float epsilon, float intensity,
                               bool compositional, float* force) {
  const Mode mode = compositional ? Mode::kCompositional : Mode::kAdditive;
  return solve({s, mode, squared, radius, epsilon, intensity, fixed, nullptr, moving, field, weight, force});
}

}  // namespace pirate::PIRATE_VARIANT
