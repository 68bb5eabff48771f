#include "kernels.hpp"

#define PIRATE_TEXT(name) #name
#define PIRATE_NAME(name) PIRATE_TEXT(name)

namespace pirate::PIRATE_VARIANT {

extern const Table table = {
    PIRATE_NAME(PIRATE_VARIANT), warp,          warp_with_gradient,   global_correlation, local_correlation,
    local_correlation_force,     gradient_product, squared_error, correlation, mutual_information, correlate,     compose_adjoint, compose_small, longest,        determinant, folds,
    fold_sums,                   mark_folds,
    resize_field,                resize_field_adjoint, smoothness_gradient, invert, change, triad,
};

}  // namespace pirate::PIRATE_VARIANT
