// The two sweeps of a data term: the first warps and lets the term add up what it needs, row by row, in chunks that
// do not depend on the threads; the second multiplies dg/dw with the central difference of w.
#pragma once

#include <algorithm>
#include <vector>

#include "data_term.hpp"
#include "neighbours.hpp"
#include "sampler.hpp"

namespace pirate::PIRATE_VARIANT {

constexpr int kChunks = 64;  // of rows, at most; each has sums of its own

// w and the weights of all voxels: the caller's memory, or the scratch memory of its thread.
struct Warped {
  const float *w, *q;  // q: none if all count the same
  float *new_w = nullptr, *new_q = nullptr;
  Warped(const Shape& s, const DataTerm& t) : w(t.moving), q(t.moving_mask ? t.moving_mask : t.fixed_mask) {
    const std::size_t n = s.size() + 16;
    const bool warp = t.field, weigh = t.moving_mask && (t.field || t.fixed_mask);
    if (!warp && !weigh) return;
    float* memory = static_cast<float*>(scratch(sizeof(float) * n * (warp + weigh), 1));
    if (warp) w = new_w = memory;
    if (weigh) q = new_q = memory + (warp ? n : 0);
  }
};

template <int D>
PIRATE_INLINE void warp_row(const Shape& s, const Sampler<D>& sampler, const DataTerm& t, const Warped& to, int i,
                            int j, std::size_t row) {
  const std::size_t n = s.size();
  along_row<D, false>(sampler, t.field + row, n, i, j, 0, s.k, [&](int k, auto part, const Cell<D>& c) PIRATE_BODY {
    part.store(to.new_w + row + k, interpolate<D>(sampler, t.moving, c));
    if (to.new_q) part.store(to.new_q + row + k, interpolate<D>(sampler, t.moving_mask, c));
  });
}

// observe(chunk, first voxel of the row) for every row, when its w and q are there.
template <int D, class Observe>
void first_sweep(const Shape& s, const DataTerm& t, const Warped& to, int chunks, Observe observe) {
  const Sampler<D> sampler(s);
  parallel(chunks, [&](int c) {
    const int first = std::int64_t(s.rows()) * c / chunks, last = std::int64_t(s.rows()) * (c + 1) / chunks;
    for (int r = first; r < last; ++r) {
      const std::size_t row = std::size_t(r) * s.k;
      if (to.new_w) warp_row<D>(s, sampler, t, to, r / s.j, r % s.j, row);
      if (to.new_q && t.fixed_mask) {
        const float* moved = to.new_w ? to.new_q : t.moving_mask;
        vectors(0, s.k, [&](int k, auto part) PIRATE_BODY {
          part.store(to.new_q + row + k, part.load(moved + row + k) * part.load(t.fixed_mask + row + k));
        });
      }
      observe(c, row);
    }
  });
}

template <class Observe>
void first_sweep(const Shape& s, const DataTerm& t, const Warped& to, int chunks, Observe observe) {
  s.d == 3 ? first_sweep<3>(s, t, to, chunks, observe) : first_sweep<2>(s, t, to, chunks, observe);
}

inline int chunks_of(const Shape& s) { return std::min(kChunks, s.rows()); }

// Sums of a chunk, V lanes each. `With` says which besides those of w: none, those of f, and one of fw and ee.
enum class With { kNothing, kFixed, kProduct, kError };
template <With Kind>
struct Sums {
  static constexpr bool kReadsFixed = Kind != With::kNothing;
  Doubles q, w, ww, f, ff, cross;  // cross: of q f w or q (w - f)^2

  // One row of n voxels.
  PIRATE_INLINE void add(const float* fixed, const float* warped, const float* weight, int n) {
    weight ? add_row<true>(fixed, warped, weight, n) : add_row<false>(fixed, warped, weight, n);
  }
  void operator+=(const Sums& o) { q += o.q, w += o.w, ww += o.ww, f += o.f, ff += o.ff, cross += o.cross; }
  Moments moments(const Shape& s, bool weighted) const {
    return {weighted ? q.sum() : double(s.size()), f.sum(), ff.sum(), w.sum(), ww.sum()};
  }

 private:
  template <bool Weighted>
  PIRATE_INLINE void add_row(const float* fixed, const float* warped, const float* weight, int n) {
    Sums sums = *this;
    vectors(0, n, [&](int k, auto part) PIRATE_BODY {
      const Doubles v = wide(part.load(warped + k));
      Doubles qv = v, x, qx;
      if constexpr (kReadsFixed) qx = x = wide(part.load(fixed + k));
      if constexpr (Weighted) {
        const Doubles a = wide(part.load(weight + k));
        sums.q += a;
        qv = a * v;
        if constexpr (kReadsFixed) qx = a * x;
      }
      sums.w += qv;
      sums.ww.add_product(qv, v);
      if constexpr (kReadsFixed) {
        sums.f += qx;
        sums.ff.add_product(qx, x);
        if constexpr (Kind == With::kProduct) sums.cross.add_product(qx, v);
        if constexpr (Kind == With::kError) sums.cross.add_product(qv - qx, v - x);
      }
    });
    *this = sums;
  }
};

// The first sweep of a term that needs nothing but sums.
template <With Kind>
Sums<Kind> sum_up(const Shape& s, const DataTerm& t, const Warped& to) {
  std::vector<Sums<Kind>> parts(chunks_of(s));
  first_sweep(s, t, to, parts.size(), [&](int c, std::size_t row) {
    parts[c].add(t.fixed + row, to.w + row, to.q ? to.q + row : nullptr, s.k);
  });
  Sums<Kind> sums;
  for (const Sums<Kind>& p : parts) sums += p;
  return sums;
}

// (w(x + e_a) - w(x - e_a)) / 2 along each axis, one-sided at the borders, 0 along an axis of one voxel.
struct Slopes {
  const Shape& s;
  const float *w, *up_i, *down_i, *up_j, *down_j;  // the row and those beside it
  float half_i, half_j;
  Slopes(const Shape& s, const float* image, int i, int j) : s(s), w(image + (std::size_t(i) * s.j + j) * s.k) {
    up_i = w - (i > 0 ? s.plane() : 0), down_i = w + (i + 1 < s.i ? s.plane() : 0);
    up_j = w - (j > 0 ? s.k : 0), down_j = w + (j + 1 < s.j ? s.k : 0);
    half_i = i > 0 && i + 1 < s.i ? 0.5f : 1.f, half_j = j > 0 && j + 1 < s.j ? 0.5f : 1.f;
  }
  template <int D, class Lanes>
  PIRATE_INLINE void operator()(int k, Lanes part, vf* g) const {
    const Sides side = along_k(w, k, s.k);
    vf half = set(0.5f);
    if (k == 0 || k + V >= s.k) {
      const vf at = lanes() + float(k);
      half = ((at == 0.f) | (at == float(s.k - 1))) ? set(1.f) : half;
    }
    g[0] = (part.load(down_i + k) - part.load(up_i + k)) * half_i;
    if constexpr (D == 3) g[1] = (part.load(down_j + k) - part.load(up_j + k)) * half_j;
    g[D - 1] = (side.high - side.low) * half;
  }
};

// Row (i, j) of the product, for k from lo to hi, channel c to out[c].
template <int D, class Coefficient>
PIRATE_INLINE void slope_row(const Slopes& slopes, std::size_t row, int lo, int hi, Coefficient coefficient,
                             float* const (&out)[D]) {
  vectors(lo, hi, [&](int k, auto part) PIRATE_BODY {
    vf g[D];
    slopes.template operator()<D>(k, part, g);
    vi some = g[0] != 0.f;
    for (int c = 1; c < D; ++c) some |= g[c] != 0.f;
    if (any(some)) {  // not in the background
      const vf dw = coefficient(row + k, part);
      for (int c = 0; c < D; ++c) g[c] *= dw;
    }
    for (int c = 0; c < D; ++c) part.store(out[c] + k, g[c]);
  });
}

// A plane of the product. Streams go by way of a strip in the first cache: one that follows a load too closely would
// hold up later loads a multiple of 4 kB away.
template <int D, class Coefficient>
void slope_plane(const Shape& s, const float* warped, int i, bool past_cache, Coefficient coefficient, float* out) {
  constexpr int kStrip = 512;
  alignas(64) float strip[D][kStrip];
  for (int j = 0; j < s.j; ++j) {
    const Slopes slopes(s, warped, i, j);
    const std::size_t n = s.size(), row = (std::size_t(i) * s.j + j) * s.k;
    float* to[D];
    if (!past_cache) {
      for (int c = 0; c < D; ++c) to[c] = out + c * n + row;
      slope_row<D>(slopes, row, 0, s.k, coefficient, to);
      continue;
    }
    for (int lo = 0; lo < s.k; lo += kStrip) {
      const int hi = std::min(lo + kStrip, s.k);
      for (int c = 0; c < D; ++c) to[c] = strip[c] - lo;
      slope_row<D>(slopes, row, lo, hi, coefficient, to);
      for (int c = 0; c < D; ++c)
        for (int k = lo; k < hi; k += V) stream(out + c * n + row + k, load(to[c] + k));
    }
  }
}

// out = coefficient(first voxel, part), V voxels at a time, times the slopes of w if asked.
template <class Coefficient>
void second_sweep(const Shape& s, const float* warped, bool slopes, Coefficient coefficient, float* out) {
  const bool past_cache = streamed(out, s.k, s.d * s.size());
  parallel(s.i, [&](int i) {
    if (!slopes) {
      const std::size_t start = i * s.plane();
      vectors(0, int(s.plane()), [&](int k, auto part) PIRATE_BODY {
        part.store(out + start + k, coefficient(start + k, part));
      });
    } else if (s.d == 3) {
      slope_plane<3>(s, warped, i, past_cache, coefficient, out);
    } else {
      slope_plane<2>(s, warped, i, past_cache, coefficient, out);
    }
    arrived();
  });
}

}  // namespace pirate::PIRATE_VARIANT
