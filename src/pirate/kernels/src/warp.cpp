// Warping: out(x) = image(x + field(x)), linear, and the derivative of that interpolant.
#include "kernels.hpp"
#include "sampler.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

constexpr int kRows = 32;  // rows of a task

template <int D, bool Border>
void warp_rows(const Shape& s, int channels, const float* image, const float* field, bool add, float* out,
               int first, int last) {
  const std::size_t n = s.size();
  vf p[D];
  Cell<D> c;
  for (int row = first; row < last; ++row)
    for (int k = 0; k < s.k; k += V) {
      const int count = s.k - k < V ? s.k - k : V;
      positions<D>(s, field, row / s.j, row % s.j, k, count, p);
      locate<D, Border>(s, p, c);
      const std::size_t x = std::size_t(row) * s.k + k;
      for (int m = 0; m < channels; ++m) {
        vf v = interpolate<D>(image + m * n, c);
        if (add) v += load_first(field + m * n + x, count);
        store_first(out + m * n + x, v, count);
      }
    }
}

template <int D>
void gradient_rows(const Shape& s, const float* image, const float* field, float* warped, float* gradient,
                   int first, int last) {
  const std::size_t n = s.size();
  vf p[D], g[D];
  Cell<D> c;
  for (int row = first; row < last; ++row)
    for (int k = 0; k < s.k; k += V) {
      const int count = s.k - k < V ? s.k - k : V;
      positions<D>(s, field, row / s.j, row % s.j, k, count, p);
      locate<D, false>(s, p, c);
      const std::size_t x = std::size_t(row) * s.k + k;
      store_first(warped + x, interpolate<D>(s, image, c, g), count);
      for (int m = 0; m < D; ++m) store_first(gradient + m * n + x, g[m], count);
    }
}

template <class Body>
void by_rows(const Shape& s, Body body) {
  parallel((s.rows() + kRows - 1) / kRows, [&](int task) {
    const int first = task * kRows, last = first + kRows < s.rows() ? first + kRows : s.rows();
    body(first, last);
  });
}

}  // namespace

// With `add`, out(x) = field(x) + image(x + field(x)): the composition of two fields.
void warp(const Shape& s, int channels, const float* image, const float* field, bool border, bool add,
          float* out) {
  by_rows(s, [&](int first, int last) {
    if (s.d == 3 && border) warp_rows<3, true>(s, channels, image, field, add, out, first, last);
    if (s.d == 3 && !border) warp_rows<3, false>(s, channels, image, field, add, out, first, last);
    if (s.d == 2 && border) warp_rows<2, true>(s, channels, image, field, add, out, first, last);
    if (s.d == 2 && !border) warp_rows<2, false>(s, channels, image, field, add, out, first, last);
  });
}

void warp_with_gradient(const Shape& s, const float* image, const float* field, float* warped,
                        float* gradient) {
  by_rows(s, [&](int first, int last) {
    if (s.d == 3) gradient_rows<3>(s, image, field, warped, gradient, first, last);
    if (s.d == 2) gradient_rows<2>(s, image, field, warped, gradient, first, last);
  });
}

}  // namespace pirate::PIRATE_VARIANT
