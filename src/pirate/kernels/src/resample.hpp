// Weights of linear interpolation between two resolutions of one axis.
#pragma once

#include <cstdint>
#include <vector>

#include "shape.hpp"

namespace pirate::PIRATE_VARIANT {

struct Line {
  Line(int source, int target);
  std::vector<std::int32_t> lower;  // for each target voxel: the source voxel before it
  std::vector<float> weight;        // and the weight of the one after it
  std::vector<std::int32_t> first;  // for each source voxel: the first target voxel that it may feed
  int source, target;
};

// Voxels of the target per voxel of the source along the axis of a field's channel.
float unit_change(const Shape& from, const Shape& to, int channel);

}  // namespace pirate::PIRATE_VARIANT
