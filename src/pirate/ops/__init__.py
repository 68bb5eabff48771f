"""Operators on images and fields: pure torch, any device, differentiable, 2-D and 3-D alike.

An image is (B, C, *shape). A field is (B, d, *shape): displacement in voxels of its own grid, channel c
moves along array axis c, and ``warped(x) = moving(x + field(x))``.
"""
