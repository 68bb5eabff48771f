// Linear interpolation at V positions at once.
//
// A position p lies in the cell of the voxels b and b + 1, b = floor(p) clipped into the grid, and reads
//     value = sum over corners c of image[c] * product over axes of tent(p - c),   tent(t) = max(0, 1 - |t|),
// which is linear interpolation with zeros outside: where p leaves the grid the tents of both corners fade
// to 0. With the border repeated, p is clipped into the grid first. The slope of the tent, taken from the
// right, gives the derivative of the interpolant. With t = p - b in [0, 1) for all axes and lanes, the usual
// case, the tents are 1 - t and t, and their slopes -1 and 1.
// Corners are read two at a time along k: s.k >= 2.
#pragma once

#include "shape.hpp"
#include "simd.hpp"

namespace pirate::PIRATE_VARIANT {

typedef std::uint32_t vu __attribute__((vector_size(V * 4)));

// What all samples of one image share; axes i, j, k or i, k.
template <int D>
struct Sampler {
  vf top[D], last[D];  // greatest b, greatest index
  vi second[D];        // mask: the axis has a second voxel
  bool thin = false;   // some axis has not
  int nj, nk;
  std::int64_t si, sj;  // from a corner to the next along i, j
  explicit Sampler(const Shape& s) : nj(s.j), nk(s.k), si(s.i > 1 ? s.plane() : 0), sj(s.j > 1 ? s.k : 0) {
    const int n[3] = {s.i, D == 3 ? s.j : s.k, s.k};
    for (int a = 0; a < D; ++a) {
      top[a] = set(float(n[a] > 1 ? n[a] - 2 : 0));
      last[a] = set(float(n[a] - 1));
      second[a] = (vi{} + n[a]) > 1;
      thin |= n[a] == 1;
    }
  }
};

// Where V positions fall.
template <int D>
struct Cell {
  vf t[D];                         // p - b
  bool inside;                     // all t in [0, 1) between two voxels
  alignas(64) std::int32_t at[V];  // offset of corner b
};

template <int D, bool Border>
PIRATE_INLINE void locate(const Sampler<D>& s, const vf* position, Cell<D>& c, vi* b) {
  vu most = {};
  for (int a = 0; a < D; ++a) {
    vf p = vmax(position[a], vf{});
    if constexpr (Border) p = vmin(p, s.last[a]);
    b[a] = truncate(vmin(p, s.top[a]));
    c.t[a] = (Border ? p : position[a]) - to_float(b[a]);
    if constexpr (!Border) most = most > (vu)c.t[a] ? most : (vu)c.t[a];
  }
  // The bits of a float in [0, 1) are below those of 1; of 1 or more, below 0 or no number they are not.
  c.inside = Border || !(s.thin || any((vi)(most >= 0x3f800000u)));
  vi base = b[0];
  if constexpr (D == 3) base = base * s.nj + b[1];
  base = base * s.nk + b[D - 1];
  spill(base, c.at);
}

template <int D, bool Border>
PIRATE_INLINE void locate(const Sampler<D>& s, const vf* position, Cell<D>& c) {
  vi unused[D];
  locate<D, Border>(s, position, c, unused);
}

PIRATE_INLINE vf tent(vf t) { return vmax(set(1.f) - vabs(t), vf{}); }
// From the right: 1 in [-1, 0), -1 in [0, 1), 0 elsewhere.
PIRATE_INLINE vf slope(vf t) {
  const vf one = set(1.f), s = t < 0.f ? one : -one;
  return (vf)((vi)s & ((t >= -one) & (t < one)));
}
PIRATE_INLINE vf only(vf v, vi mask) { return (vf)((vi)v & mask); }
PIRATE_INLINE vf mix(vf a, vf b, vf t) { return a + t * (b - a); }

// The general case, any axis partly outside.
template <int D, bool Gradient>
__attribute__((noinline)) vf interpolate_outside(const Sampler<D>& s, const float* image, const Cell<D>& c,
                                                 vf* gradient) {
  vf w0[D], w1[D], d0[D], d1[D];
  for (int a = 0; a < D; ++a) {
    const vf t = c.t[a];
    w0[a] = tent(t), w1[a] = only(tent(t - 1.f), s.second[a]);
    d0[a] = slope(t), d1[a] = only(slope(t - 1.f), s.second[a]);
  }
  vf value = {};
  for (int m = 0; m < D; ++m) gradient[m] = vf{};
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < (D == 3 ? 2 : 1); ++j) {
      vf a, b;
      pairs(image + i * s.si + j * s.sj, c.at, a, b);
      const vf wi = i ? w1[0] : w0[0], di = i ? d1[0] : d0[0];
      const vf row = a * w0[D - 1] + b * w1[D - 1], along = a * d0[D - 1] + b * d1[D - 1];
      if constexpr (D == 3) {
        const vf wj = j ? w1[1] : w0[1], dj = j ? d1[1] : d0[1];
        value += wi * wj * row;
        gradient[0] += di * wj * row;
        gradient[1] += wi * dj * row;
        gradient[2] += wi * wj * along;
      } else {
        value += wi * row;
        gradient[0] += di * row;
        gradient[1] += wi * along;
      }
    }
  return value;
}

// Value, and if asked the derivative along each axis.
template <int D, bool Gradient>
PIRATE_INLINE vf interpolate(const Sampler<D>& s, const float* image, const Cell<D>& c, vf* gradient) {
  if (__builtin_expect(!c.inside, 0)) return interpolate_outside<D, Gradient>(s, image, c, gradient);
  vf d[4], v[4];
  auto row = [&](std::int64_t offset, int m) PIRATE_BODY {
    vf a, b;
    pairs(image + offset, c.at, a, b);
    d[m] = b - a;
    v[m] = a + c.t[D - 1] * d[m];
  };
  row(0, 0);
  row(s.si, 1);
  if constexpr (D == 2) {
    const vf di = v[1] - v[0];
    if constexpr (Gradient) gradient[0] = di, gradient[1] = mix(d[0], d[1], c.t[0]);
    return v[0] + c.t[0] * di;
  } else {
    row(s.sj, 2);
    row(s.si + s.sj, 3);
    const vf i = c.t[0], j = c.t[1], e0 = v[2] - v[0], e1 = v[3] - v[1];
    const vf r0 = v[0] + j * e0, r1 = v[1] + j * e1, di = r1 - r0;
    if constexpr (Gradient) {
      gradient[0] = di;
      gradient[1] = mix(e0, e1, i);
      gradient[2] = mix(mix(d[0], d[2], j), mix(d[1], d[3], j), i);
    }
    return r0 + i * di;
  }
}

template <int D>
PIRATE_INLINE vf interpolate(const Sampler<D>& s, const float* image, const Cell<D>& c) {
  vf unused[D];
  return interpolate<D, false>(s, image, c, unused);
}

// Positions x + field(x) of the voxels from k on in row (i, j); `field` is the first voxel of the row in the
// first channel, `n` floats before it in the next.
template <int D, class Lanes>
PIRATE_INLINE void positions(const float* field, std::size_t n, int i, int j, int k, Lanes part, vf* p) {
  p[0] = part.load(field + k) + float(i);
  if constexpr (D == 3) p[1] = part.load(field + n + k) + float(j);
  p[D - 1] = part.load(field + (D - 1) * n + k) + (lanes() + float(k));
}

// body(k, part, cell) for the voxels lo..hi-1 of row (i, j). First where all positions of a strip fall, then the
// samples: in one loop each sample would wait for its own address.
template <int D, bool Border, class Body>
PIRATE_INLINE void along_row(const Sampler<D>& s, const float* field, std::size_t n, int i, int j, int lo, int hi,
                             Body body) {
  constexpr int kStrip = 32;
  Cell<D> cells[kStrip];
  for (int start = lo; start < hi; start += kStrip * V) {
    const int end = start + kStrip * V < hi ? start + kStrip * V : hi;
    Cell<D>* c = cells;
    vectors(start, end, [&](int k, auto part) PIRATE_BODY {
      vf p[D];
      positions<D>(field, n, i, j, k, part, p);
      locate<D, Border>(s, p, *c++);
    });
    c = cells;
    vectors(start, end, [&](int k, auto part) PIRATE_BODY { body(k, part, *c++); });
  }
}

constexpr int kTaskRows = 32;

// body(i, j, first voxel of the row) for all rows.
template <class Body>
void by_rows(const Shape& s, Body body) {
  parallel((s.rows() + kTaskRows - 1) / kTaskRows, [&](int task) {
    const int first = task * kTaskRows, last = first + kTaskRows < s.rows() ? first + kTaskRows : s.rows();
    for (int row = first; row < last; ++row) body(row / s.j, row % s.j, std::size_t(row) * s.k);
  });
}

}  // namespace pirate::PIRATE_VARIANT
