"""VoxelMorph, SYMNet and GraDIRN as small as they can be, on volumes of 16 x 18 x 16, for trainings of a few steps."""

from __future__ import annotations

import torch
from tests.baselines.pairs import stirred
from tests.conftest import blobs
from torch import nn

from pirate.baselines.gradirn import GraDIRN, GraDIRNLoss
from pirate.baselines.learning import Learner, Loss, PairTask
from pirate.baselines.symnet import SYMNet, SYMNetLoss
from pirate.baselines.voxelmorph import VoxelMorph, VoxelMorphLoss
from pirate.training.loop import Plan

PLAN = Plan(steps=3, batch=2, learning_rate=0.003, schedule="constant", validate_every=1, seed=3)


def task(method: str) -> PairTask:
    """Three subjects to learn from and a pair to validate on, each the same blob moved by another way."""
    moved = [blobs((16, 18, 16), 1, (0.7 * k - 1, 0.5 * k, 0.3 * k)) for k in range(5)]
    people = [Learner(f"s{k}", "one", torch.from_numpy(image)[None], None) for k, image in enumerate(moved)]
    torch.manual_seed(0)
    networks: dict[str, tuple[nn.Module, Loss]] = {
        "voxelmorph": (VoxelMorph(3, "4,4", "4,4,4"), VoxelMorphLoss(window=5, smoothness=0.1)),
        "symnet": (SYMNet(3, width=2), SYMNetLoss()),
        "gradirn": (GraDIRN(3, width=4, depth=2, levels=2, repeats=2), GraDIRNLoss()),
    }
    network, loss = networks[method]
    return PairTask(stirred(network, 0.01), loss, people[:3], [(people[3], people[4])])
