// Every kernel by name, once per instruction set. Images and fields are dense float32, (channels, i, j, k).
#pragma once

#include <cstdint>

#include "shape.hpp"

namespace pirate {

struct Table {
  const char* name;
  void (*warp)(const Shape&, int channels, const float* image, const float* field, bool border, bool add,
               float* out);
  void (*warp_with_gradient)(const Shape&, const float* image, const float* field, float* warped,
                             float* gradient);
  double (*global_correlation)(const Shape& image, const Shape& grid, const float* fixed, const float* moving,
                               const float* field, const float* weight, float* gradient);
  double (*local_correlation)(const Shape&, const float* fixed, const float* warped, const float* weight,
                              int radius, bool squared, float epsilon, float* gradient);
  double (*local_correlation_force)(const Shape&, const float* fixed, const float* moving, const float* field,
                                    int radius, bool squared, float epsilon, bool compositional,
                                    float* force);
  void (*correlate)(const Shape&, int channels, const float* x, const float* taps_i, int n_i,
                    const float* taps_j, int n_j, const float* taps_k, int n_k, float* out);
  void (*compose_small)(const Shape&, const float* field, const float* update, float* out);
  void (*determinant)(const Shape&, const float* field, bool forward, float* out);
  void (*folds)(const Shape&, const float* field, std::int64_t* central, std::int64_t* forward, double* least);
  void (*resize_field)(const Shape& from, const Shape& to, const float* field, float* out);
  void (*resize_field_adjoint)(const Shape& from, const Shape& to, const float* force, float* out);
  double (*smoothness_gradient)(const Shape&, const float* field, float* gradient);
  void (*invert)(const Shape&, const float* field, int iterations, float tolerance, float* inverse, float* error);
  void (*change)(std::int64_t n, const float* a, const float* b, double* difference, double* length);
  void (*triad)(std::int64_t n, float* a, const float* b, const float* c);
};

namespace baseline {
extern const Table table;
}
namespace avx2 {
extern const Table table;
}
namespace avx512 {
extern const Table table;
}

}  // namespace pirate
