// Declarations of the kernels of one variant; what they compute is in their own files.
#pragma once

#include "table.hpp"

namespace pirate::PIRATE_VARIANT {

void warp(const Shape&, int, const float*, const float*, bool, bool, float*);
void warp_with_gradient(const Shape&, const float*, const float*, float*, float*);
double global_correlation(const Shape&, const Shape&, const float*, const float*, const float*, const float*,
                          float*);
double local_correlation(const Shape&, const float*, const float*, const float*, int, bool, float, float, float*);
double local_correlation_force(const Shape&, const float*, const float*, const float*, const float*, int, bool,
                               float, float, bool, float*);
void gradient_product(const Shape&, const float*, const float*, float*);
double squared_error(const Shape&, const DataTerm&, Moments&);
double correlation(const Shape&, const DataTerm&, Moments&);
double mutual_information(const Shape&, const DataTerm&, const std::uint16_t*, int, double, double, Moments&);
void correlate(const Shape&, int, const float*, const float*, int, const float*, int, const float*, int,
               float*);
void compose_adjoint(const Shape&, int, const float*, const float*, const float*, float*, float*);
void compose_small(const Shape&, const float*, const float*, const float*, float*);
double longest(const Shape&, const float*, const float*);
void determinant(const Shape&, const float*, bool, float*);
void folds(const Shape&, const float*, std::int64_t*, std::int64_t*, double*);
void fold_sums(const Shape&, const float*, const std::uint8_t*, FoldSums*);
std::int64_t mark_folds(const Shape&, const float*, float, std::uint8_t*);
void resize_field(const Shape&, const Shape&, const float*, float*);
void resize_field_adjoint(const Shape&, const Shape&, const float*, float*);
double smoothness_gradient(const Shape&, const float*, float*);
void invert(const Shape&, const float*, int, float, float*, float*);
void change(std::int64_t, const float*, const float*, double*, double*);
void triad(std::int64_t, float*, const float*, const float*);

}  // namespace pirate::PIRATE_VARIANT
