// out_a(x) = coefficient(x) (warped(x + e_a) - warped(x - e_a)) / 2 for each axis a, one-sided at the borders.
#include "composed.hpp"
#include "kernels.hpp"

namespace pirate::PIRATE_VARIANT {

void gradient_product(const Shape& s, const float* warped, const float* coefficient, float* out) {
  second_sweep(s, warped, true, [&](std::size_t x, auto part) PIRATE_BODY { return part.load(coefficient + x); }, out);
}

}  // namespace pirate::PIRATE_VARIANT
