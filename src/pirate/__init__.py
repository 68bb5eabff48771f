"""PIRATE: deformable image registration with a plug-and-play prior on the displacement field."""
