// Squared error and correlation over all voxels of fixed f and warped w, with weights q and Q = sum q:
//     squared error:  g = sum q (w - f)^2 / Q,   dg/dw = 2 q (w - f) / Q
//     correlation:    g = 1 - rho,               dg/dw = q (a (f - mf) + b (w - mw)),
//                     a = -1 / (Q sqrt(vf vw)),  b = rho / (Q vw),   mf, mw means and vf, vw variances.
#include <cmath>

#include "composed.hpp"
#include "kernels.hpp"

namespace pirate::PIRATE_VARIANT {

double squared_error(const Shape& s, const DataTerm& t, Moments& m) {
  const Warped to(s, t);
  const auto sums = sum_up<With::kError>(s, t, to);
  m = sums.moments(s, to.q);
  const vf b = set(float(2 / m.q));
  const float *f = t.fixed, *w = to.w, *q = to.q;
  if (t.out)
    second_sweep(s, w, t.field, [=](std::size_t x, auto part) PIRATE_BODY {
      const vf dw = b * (part.load(w + x) - part.load(f + x));
      return q ? dw * part.load(q + x) : dw;
    }, t.out);
  return sums.cross.sum() / m.q;
}

double correlation(const Shape& s, const DataTerm& t, Moments& m) {
  const Warped to(s, t);
  const auto sums = sum_up<With::kProduct>(s, t, to);
  m = sums.moments(s, to.q);
  const double mf = m.f / m.q, mw = m.w / m.q;
  const double vf_ = m.ff / m.q - mf * mf, vw = m.ww / m.q - mw * mw, deviations = std::sqrt(vf_ * vw);
  const double rho = (sums.cross.sum() / m.q - mf * mw) / deviations;
  const double da = -1 / (m.q * deviations), db = rho / (m.q * vw);
  const float pf = float(mf), pw = float(mw);  // f - pf is exact where it matters; the rest of the mean is in c
  const vf a = set(float(da)), b = set(float(db)), c = set(float(da * (pf - mf) + db * (pw - mw)));
  const float *f = t.fixed, *w = to.w, *q = to.q;
  if (t.out)
    second_sweep(s, w, t.field, [=](std::size_t x, auto part) PIRATE_BODY {
      const vf dw = a * (part.load(f + x) - pf) + b * (part.load(w + x) - pw) + c;
      return q ? dw * part.load(q + x) : dw;
    }, t.out);
  return 1 - rho;
}

}  // namespace pirate::PIRATE_VARIANT
