// What a data term that compares images voxel by voxel reads, writes and reports.
#pragma once

namespace pirate {

// With a field, w(x) = moving(x + field(x)) and `out` (d channels) gets (dg/dw) grad w: the derivative of g with
// respect to a displacement composed on the right, w(x + d(x)) at d = 0. Without one, `moving` is w itself,
// `moving_mask` is warped already, and `out` (1 channel) gets dg/dw. Without `out` there is the value alone.
struct DataTerm {
  const float *fixed, *moving, *field;
  const float *fixed_mask, *moving_mask;  // weights q = fixed_mask * moving_mask; none: 1
  float* out;
};

// Sums over the image, by which the caller knows a constant image, one that is not finite, or an empty mask.
struct Moments {
  double q = 0, f = 0, ff = 0, w = 0, ww = 0;  // of q, q f, q f^2, q w, q w^2
};

}  // namespace pirate
