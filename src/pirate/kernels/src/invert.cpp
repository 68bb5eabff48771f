// Inverse of a field, each voxel for itself: v <- v - w r(v) with r(v) = v + field(x + v), from v = -field(x).
// Where kPlain such steps do not suffice, Newton's: v <- v - w (I + D field(x + v))^-1 r(v), with the derivative of
// the interpolant. A step that makes |r| larger is taken back and w halved; otherwise w grows by half, up to 1. A
// vector of voxels stops when all its errors |r| are below the tolerance. The border of the field continues outside.
#include "kernels.hpp"
#include "sampler.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

template <int D>
PIRATE_INLINE vf residual(const Sampler<D>& sampler, const float* field, std::size_t n, const vf* x,
                          const vf* v, vf* r) {
  vf p[D];
  Cell<D> c;
  for (int a = 0; a < D; ++a) p[a] = x[a] + v[a];
  locate<D, true>(sampler, p, c);
  vf square = {};
  for (int a = 0; a < D; ++a) {
    r[a] = v[a] + interpolate<D>(sampler, field + a * n, c);
    square += r[a] * r[a];
  }
  return vsqrt(square);
}

constexpr int kPlain = 8;

// r <- (I + D field)^-1 r at x + v; where that matrix is nearly singular r stays.
template <int D>
__attribute__((noinline)) void newton(const Sampler<D>& sampler, const float* field, std::size_t n, const vf* x,
                                      const vf* v, vf* r) {
  vf p[D], m[D][D];
  Cell<D> c;
  for (int a = 0; a < D; ++a) p[a] = x[a] + v[a];
  locate<D, true>(sampler, p, c);
  for (int a = 0; a < D; ++a) {
    interpolate<D, true>(sampler, field + a * n, c, m[a]);
    for (int b = 0; b < D; ++b) {  // outside the grid the field is constant along that axis
      const vi inside = (p[b] >= 0.f) & (p[b] <= sampler.last[b]);
      m[a][b] = only(m[a][b], inside);
    }
    m[a][a] += 1.f;
  }
  vf solved[D], determinant;
  if constexpr (D == 2) {
    determinant = m[0][0] * m[1][1] - m[0][1] * m[1][0];
    solved[0] = m[1][1] * r[0] - m[0][1] * r[1];
    solved[1] = m[0][0] * r[1] - m[1][0] * r[0];
  } else {
    const vf *a = m[0], *b = m[1], *e = m[2];
    const vf be0 = b[1] * e[2] - b[2] * e[1], be1 = b[2] * e[0] - b[0] * e[2], be2 = b[0] * e[1] - b[1] * e[0];
    determinant = a[0] * be0 + a[1] * be1 + a[2] * be2;
    const vf ea0 = e[1] * a[2] - e[2] * a[1], ea1 = e[2] * a[0] - e[0] * a[2], ea2 = e[0] * a[1] - e[1] * a[0];
    const vf ab0 = a[1] * b[2] - a[2] * b[1], ab1 = a[2] * b[0] - a[0] * b[2], ab2 = a[0] * b[1] - a[1] * b[0];
    solved[0] = be0 * r[0] + ea0 * r[1] + ab0 * r[2];
    solved[1] = be1 * r[0] + ea1 * r[1] + ab1 * r[2];
    solved[2] = be2 * r[0] + ea2 * r[1] + ab2 * r[2];
  }
  const vi regular = vabs(determinant) > 1e-4f;
  for (int a = 0; a < D; ++a) r[a] = regular ? solved[a] / determinant : r[a];
}

PIRATE_INLINE vf choose(vi mask, vf yes, vf no) { return (vf)(((vi)yes & mask) | ((vi)no & ~mask)); }

template <int D>
void invert_all(const Shape& s, const float* field, int iterations, float tolerance, float* inverse,
                float* error) {
  const std::size_t n = s.size();
  const Sampler<D> sampler(s);
  parallel(s.rows(), [&](int task) {
    const int i = task / s.j, j = task % s.j;
    const std::size_t row = std::size_t(task) * s.k;
    vectors(0, s.k, [&](int k, auto part) PIRATE_BODY {
      vf x[D], v[D], r[D], trial[D], r_trial[D], w = set(1.f);
      x[0] = set(float(i));
      if constexpr (D == 3) x[1] = set(float(j));
      x[D - 1] = lanes() + float(k);
      for (int a = 0; a < D; ++a) v[a] = -part.load(field + a * n + row + k);
      vf e = residual<D>(sampler, field, n, x, v, r);
      for (int t = 0; t < iterations && any(keep_first(e, part.n) >= tolerance); ++t) {
        for (int a = 0; a < D; ++a) trial[a] = r[a];
        if (t >= kPlain) newton<D>(sampler, field, n, x, v, trial);
        if (t == kPlain) w = set(1.f);
        for (int a = 0; a < D; ++a) trial[a] = v[a] - w * trial[a];
        const vf e_trial = residual<D>(sampler, field, n, x, trial, r_trial);
        const vi better = e_trial < e;
        for (int a = 0; a < D; ++a) {
          v[a] = choose(better, trial[a], v[a]);
          r[a] = choose(better, r_trial[a], r[a]);
        }
        e = choose(better, e_trial, e);
        w = choose(better, vmin(w * 1.5f, set(1.f)), w * 0.5f);
      }
      for (int a = 0; a < D; ++a) part.store(inverse + a * n + row + k, v[a]);
      part.store(error + row + k, e);
    });
  });
}

}  // namespace

void invert(const Shape& s, const float* field, int iterations, float tolerance, float* inverse, float* error) {
  s.d == 3 ? invert_all<3>(s, field, iterations, tolerance, inverse, error)
           : invert_all<2>(s, field, iterations, tolerance, inverse, error);
}

}  // namespace pirate::PIRATE_VARIANT
