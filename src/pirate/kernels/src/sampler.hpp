// Linear interpolation at V positions at once.
//
// A position p lies in the cell of the voxels b and b + 1, b = floor(p) clipped into the grid, and reads
//     value = sum over corners c of image[c] * product over axes of tent(p - c),   tent(t) = max(0, 1 - |t|),
// which is linear interpolation with zeros outside: where p leaves the grid the tents of both corners fade
// to 0. With the border repeated, p is clipped into the grid first. The slope of the tent, taken from the
// right, gives the derivative of the interpolant. Corners are read two at a time along k: s.k >= 2.
#pragma once

#include "shape.hpp"
#include "simd.hpp"

namespace pirate::PIRATE_VARIANT {

// Corners and weights along one axis.
struct Axis {
  vf t;       // p - b
  vf w0, w1;  // tents of b and b + 1
  vi b;
};

template <bool Border>
PIRATE_INLINE Axis axis(vf p, int n) {
  Axis a;
  const vf zero = {}, one = set(1.f);
  if constexpr (Border) p = vmin(vmax(p, zero), set(float(n - 1)));
  a.b = truncate(vmin(vmax(p, zero), set(float(n > 1 ? n - 2 : 0))));
  a.t = p - to_float(a.b);
  if constexpr (Border) {
    a.w1 = a.t;
    a.w0 = one - a.t;
  } else {
    a.w0 = vmax(one - vabs(a.t), zero);
    a.w1 = vmax(one - vabs(a.t - one), zero);
    if (n == 1) a.w1 = zero;  // there is no second voxel
  }
  return a;
}

// Slope of tent at t, from the right: 1 in [-1, 0), -1 in [0, 1), 0 elsewhere.
PIRATE_INLINE vf slope(vf t) {
  const vf zero = {}, one = set(1.f);
  vf s = t < zero ? one : -one;
  return (vf)((vi)s & ((t >= -one) & (t < one)));
}

struct Slopes {
  vf s0, s1;
};

PIRATE_INLINE Slopes slopes(const Axis& a, int n) {
  Slopes s{slope(a.t), slope(a.t - 1.f)};
  if (n == 1) s.s1 = vf{};
  return s;
}

// Where V positions fall in the image.
template <int D>
struct Cell {
  Axis x[D];                      // i, j, k or i, k
  alignas(64) std::int32_t at[V];  // first corner
  std::int64_t si, sj;             // from a corner to the next along i, j
};

template <int D, bool Border>
PIRATE_INLINE void locate(const Shape& s, const vf* p, Cell<D>& c) {
  c.x[0] = axis<Border>(p[0], s.i);
  if constexpr (D == 3) c.x[1] = axis<Border>(p[1], s.j);
  c.x[D - 1] = axis<Border>(p[D - 1], s.k);
  vi base = c.x[0].b;
  if constexpr (D == 3) base = base * s.j + c.x[1].b;
  base = base * s.k + c.x[D - 1].b;
  __builtin_memcpy(c.at, &base, sizeof base);
  c.si = s.i > 1 ? std::int64_t(s.plane()) : 0;
  c.sj = s.j > 1 ? s.k : 0;
}

template <int D>
PIRATE_INLINE vf interpolate(const float* image, const Cell<D>& c) {
  const Axis& k = c.x[D - 1];
  vf a, b;
  auto row = [&](std::int64_t offset) {
    pairs(image + offset, c.at, a, b);
    return a * k.w0 + b * k.w1;
  };
  if constexpr (D == 2) {
    return row(0) * c.x[0].w0 + row(c.si) * c.x[0].w1;
  } else {
    vf r0 = row(0) * c.x[1].w0 + row(c.sj) * c.x[1].w1;
    vf r1 = row(c.si) * c.x[1].w0 + row(c.si + c.sj) * c.x[1].w1;
    return r0 * c.x[0].w0 + r1 * c.x[0].w1;
  }
}

// Value, and derivative along each axis.
template <int D>
PIRATE_INLINE vf interpolate(const Shape& s, const float* image, const Cell<D>& c, vf* gradient) {
  const Axis& k = c.x[D - 1];
  const Slopes sk = slopes(k, s.k), si = slopes(c.x[0], s.i);
  vf a, b, dk[4], v[4];
  auto row = [&](std::int64_t offset, int m) {
    pairs(image + offset, c.at, a, b);
    v[m] = a * k.w0 + b * k.w1;
    dk[m] = a * sk.s0 + b * sk.s1;
  };
  const Axis& i = c.x[0];
  if constexpr (D == 2) {
    row(0, 0);
    row(c.si, 1);
    gradient[0] = v[0] * si.s0 + v[1] * si.s1;
    gradient[1] = dk[0] * i.w0 + dk[1] * i.w1;
    return v[0] * i.w0 + v[1] * i.w1;
  } else {
    const Axis& j = c.x[1];
    const Slopes sj = slopes(j, s.j);
    row(0, 0);
    row(c.sj, 1);
    row(c.si, 2);
    row(c.si + c.sj, 3);
    vf r0 = v[0] * j.w0 + v[1] * j.w1, r1 = v[2] * j.w0 + v[3] * j.w1;
    gradient[0] = r0 * si.s0 + r1 * si.s1;
    gradient[1] = (v[0] * sj.s0 + v[1] * sj.s1) * i.w0 + (v[2] * sj.s0 + v[3] * sj.s1) * i.w1;
    gradient[2] = (dk[0] * j.w0 + dk[1] * j.w1) * i.w0 + (dk[2] * j.w0 + dk[3] * j.w1) * i.w1;
    return r0 * i.w0 + r1 * i.w1;
  }
}

// Positions x + field(x) of the V voxels from k on in row (i, j); `count` of them are in the grid.
template <int D>
PIRATE_INLINE void positions(const Shape& s, const float* field, int i, int j, int k, int count, vf* p) {
  const float* at = field + (std::size_t(i) * s.j + j) * s.k + k;
  p[0] = load_first(at, count) + set(float(i));
  if constexpr (D == 3) p[1] = load_first(at + s.size(), count) + set(float(j));
  p[D - 1] = load_first(at + (D - 1) * s.size(), count) + (lanes() + float(k));
}

}  // namespace pirate::PIRATE_VARIANT
