// Every kernel by name, once per instruction set. Images and fields are dense float32, (channels, i, j, k).
#pragma once

#include <cstdint>

#include "data_term.hpp"
#include "shape.hpp"

namespace pirate {

// Sums over a field's voxels and cells, see jacobian.cpp.
struct FoldSums {
  std::int64_t voxels = 0, folds = 0, cells = 0, forward_folds = 0, bad_cells = 0;
  double volume = 0, logs = 0, squares = 0;  // of negative simplices; of log(determinant) and its square
  float least = 0, largest = 0;
  bool finite = true;
  void add(const FoldSums& o) {
    voxels += o.voxels, folds += o.folds, cells += o.cells, forward_folds += o.forward_folds;
    bad_cells += o.bad_cells, volume += o.volume, logs += o.logs, squares += o.squares;
    least = o.least < least ? o.least : least;
    largest = o.largest > largest ? o.largest : largest;
    finite = finite && o.finite;
  }
};

struct Table {
  const char* name;
  void (*warp)(const Shape&, int channels, const float* image, const float* field, bool border, bool add,
               float* out);
  void (*warp_with_gradient)(const Shape&, const float* image, const float* field, float* warped,
                             float* gradient);
  double (*global_correlation)(const Shape& image, const Shape& grid, const float* fixed, const float* moving,
                               const float* field, const float* weight, float* gradient);
  double (*local_correlation)(const Shape&, const float* fixed, const float* warped, const float* weight,
                              int radius, bool squared, float epsilon, float intensity, float* gradient);
  double (*local_correlation_force)(const Shape&, const float* fixed, const float* moving, const float* field,
                                    const float* weight, int radius, bool squared, float epsilon, float intensity,
                                    bool compositional, float* force);
  void (*gradient_product)(const Shape&, const float* warped, const float* coefficient, float* out);
  double (*squared_error)(const Shape&, const DataTerm&, Moments&);
  double (*correlation)(const Shape&, const DataTerm&, Moments&);
  double (*mutual_information)(const Shape&, const DataTerm&, const std::uint16_t* bin, int bins, double low,
                               double high, Moments&);
  void (*correlate)(const Shape&, int channels, const float* x, const float* taps_i, int n_i,
                    const float* taps_j, int n_j, const float* taps_k, int n_k, float* out);
  void (*compose_adjoint)(const Shape&, int items, const float* outer, const float* inner, const float* g,
                          float* d_outer, float* d_inner);
  void (*compose_small)(const Shape&, const float* field, const float* update, const float* scale, float* out);
  double (*longest)(const Shape&, const float* x, const float* weight);
  void (*determinant)(const Shape&, const float* field, bool forward, float* out);
  void (*folds)(const Shape&, const float* field, std::int64_t* central, std::int64_t* forward, double* least);
  void (*fold_sums)(const Shape&, const float* field, const std::uint8_t* mask, FoldSums* sums);
  std::int64_t (*mark_folds)(const Shape&, const float* field, float epsilon, std::uint8_t* marks);
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
