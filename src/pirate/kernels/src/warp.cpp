// Warping: out(x) = image(x + field(x)), linear, and the derivative of that interpolant.
#include "kernels.hpp"
#include "sampler.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

template <int D, bool Border>
void warp_all(const Shape& s, int channels, const float* image, const float* field, bool add, float* out) {
  const std::size_t n = s.size();
  const Sampler<D> sampler(s);
  by_rows(s, [&](int i, int j, std::size_t row) {
    along_row<D, Border>(sampler, field + row, n, i, j, 0, s.k, [&](int k, auto part, const Cell<D>& c) PIRATE_BODY {
      for (int m = 0; m < channels; ++m) {
        vf v = interpolate<D>(sampler, image + m * n, c);
        if (add) v += part.load(field + m * n + row + k);
        part.store(out + m * n + row + k, v);
      }
    });
  });
}

template <int D>
void gradient_all(const Shape& s, const float* image, const float* field, float* warped, float* gradient) {
  const std::size_t n = s.size();
  const Sampler<D> sampler(s);
  by_rows(s, [&](int i, int j, std::size_t row) {
    along_row<D, false>(sampler, field + row, n, i, j, 0, s.k, [&](int k, auto part, const Cell<D>& c) PIRATE_BODY {
      vf g[D];
      part.store(warped + row + k, interpolate<D, true>(sampler, image, c, g));
      for (int m = 0; m < D; ++m) part.store(gradient + m * n + row + k, g[m]);
    });
  });
}

}  // namespace

// With `add`, out(x) = field(x) + image(x + field(x)): the composition of two fields.
void warp(const Shape& s, int channels, const float* image, const float* field, bool border, bool add,
          float* out) {
  if (s.d == 3)
    border ? warp_all<3, true>(s, channels, image, field, add, out)
           : warp_all<3, false>(s, channels, image, field, add, out);
  else
    border ? warp_all<2, true>(s, channels, image, field, add, out)
           : warp_all<2, false>(s, channels, image, field, add, out);
}

void warp_with_gradient(const Shape& s, const float* image, const float* field, float* warped,
                        float* gradient) {
  s.d == 3 ? gradient_all<3>(s, image, field, warped, gradient)
           : gradient_all<2>(s, image, field, warped, gradient);
}

}  // namespace pirate::PIRATE_VARIANT
