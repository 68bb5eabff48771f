"""Small generated copies of public data sets as they are downloaded."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
from tests.conftest import blobs, labels_of

from pirate.grid import Grid
from pirate.io.nifti import write_image

SHAPE = (14, 12, 16)


def write(path: Path, data: np.ndarray, spacing: float = 1.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    affine = np.diag([*[spacing] * 3, 1.0])
    write_image(path, data, Grid(data.shape, affine))
    return path


def neurite(root: Path, count: int = 5, plane: bool = False, shape: tuple[int, ...] = SHAPE) -> Path:
    image, labels = ("slice_norm", "slice_seg24") if plane else ("aligned_norm", "aligned_seg35")
    names = [f"OASIS_OAS1_{i:04d}_MR1" for i in range(1, count + 1)] + ["OASIS_OAS1_0001_MR2"]
    for i, name in enumerate(names):
        data = np.clip(blobs(shape[:2] if plane else shape, i), 0, 1)
        data = data[:, :, None] if plane else data
        write(root / name / f"{image}.nii.gz", data)
        write(root / name / f"{labels}.nii.gz", labels_of(data))
    (root / "subjects.txt").write_text("\n".join(names) + "\n")
    return root


def candi(root: Path, names: tuple[str, ...] = ("HC_001", "HC_002", "BPDwoPsy_030")) -> Path:
    """Two groups; label 1 large everywhere, 2 large in most, 3 small."""
    for i, name in enumerate(names):
        folder = root / name.split("_")[0] / name
        data = blobs((20 + i, 18, 16), i)
        labels = np.zeros(data.shape, np.int16)
        labels[:10, :12, :10] = 1
        labels[10:, :15, :10] = 2
        labels[0, 0, :5] = 3
        if i == 2:
            labels[labels == 2] = 0
            labels[15, 0, 0] = 2
        write(folder / f"{name}_procimg.nii.gz", data, 0.9)
        write(folder / f"{name}_seg.nii.gz", labels, 0.9)
    return root


def metaimage(
    path: Path, data: np.ndarray, compressed: bool = False, local: bool = False, more: str = ""
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = {"i2": "MET_SHORT", "u1": "MET_UCHAR", "f4": "MET_FLOAT"}[data.dtype.str[1:]]
    voxels = data.tobytes(order="F")
    voxels = zlib.compress(voxels) if compressed else voxels
    name = "LOCAL" if local else path.with_suffix(".raw").name
    header = (
        f"ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\n"
        f"CompressedData = {compressed}\nTransformMatrix = 0 1 0 1 0 0 0 0 1\nOffset = 10 20 -30\n"
        f"ElementSpacing = 0.7 0.8 2.5\n{more}DimSize = {' '.join(map(str, data.shape))}\n"
        f"ElementType = {kind}\nElementDataFile = {name}\n"
    )
    path.write_bytes(header.encode() + (voxels if local else b""))
    if not local:
        path.with_suffix(".raw").write_bytes(voxels)
    return path


def empire(root: Path, numbers: tuple[str, ...] = ("01", "02", "17")) -> Path:
    for number in numbers:
        for side in ("Fixed", "Moving"):
            scan = (1000 * blobs(SHAPE, int(number)) - 900).astype("<i2")
            metaimage(root / "scans" / f"{number}_{side}.mhd", scan, compressed=number == "02")
            metaimage(root / "lungMasks" / f"{number}_{side}.mhd", (scan > -400).astype("u1"))
    return root


def learn2reg(root: Path) -> Path:
    names = [f"OASIS_{i:04d}_0000" for i in range(1, 7)]
    for i, name in enumerate(names):
        write(root / "imagesTr" / f"{name}.nii.gz", blobs(SHAPE, i))
        write(root / "labelsTr" / f"{name}.nii.gz", labels_of(blobs(SHAPE, i)))
        points = root / "keypointsTr" / f"{name}.csv"
        points.parent.mkdir(exist_ok=True)
        points.write_text("1,2,3\n4.5,5,6\n")
    listed = [f"./imagesTr/{name}.nii.gz" for name in names]
    table = {
        "name": "OASIS", "numTraining": 6,
        "training": [{"image": path, "label": path.replace("images", "labels")} for path in listed],
        "training_paired_images": [{"fixed": listed[i], "moving": listed[i + 1]} for i in (0, 4)],
        "registration_val": [{"fixed": listed[4], "moving": listed[5]}],
        "test": ["./imagesTs/OASIS_0007_0000.nii.gz"],
    }  # fmt: skip
    (root / "OASIS_dataset.json").write_text(json.dumps(table))
    return root


MAKERS = {
    "neurite-oasis": neurite,
    "neurite-oasis-2d": lambda root: neurite(root, plane=True),
    "candi": candi,
    "empire10": empire,
    "learn2reg": learn2reg,
}
