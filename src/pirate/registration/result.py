"""What every method returns."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pirate
from pirate import kernels
from pirate.denoisers import zoo
from pirate.errors import OutputError, UsageError, printable
from pirate.grid import Grid
from pirate.image import Image
from pirate.io import composite, fields, itk, nifti, transforms
from pirate.io.atomic import sha256_of, write_json, write_text
from pirate.registration.apply import apply
from pirate.registration.inputs import ImageLike, as_image
from pirate.registration.rival import Rival
from pirate.registration.writers import Writers, writing
from pirate.settings import Settings
from pirate.solvers.solution import Record, Status
from pirate.transform import Affine, Displacement, Transform

OUTPUTS = ("warped", "warp", "inverse", "composite", "figures")
"""What ``save`` can write besides ``metrics.json`` and ``run.json``; all by default."""


@dataclass(frozen=True, eq=False, repr=False)
class Registration:
    """A finished registration of `moving` to `fixed`.

    Args:
        fixed: the image that stayed, on whose grid the results lie.
        moving: the image that was warped, as given.
        warped: `moving` brought onto the fixed grid, by one interpolation of its own voxels.
        forward: maps fixed to moving world points (RAS mm): brings the moving image onto the fixed grid.
        inverse: maps moving world points to fixed world points.
        metrics: name to number; `folds_percent`, `ndv_percent`, ..., and Dice when labels were given.
        status: why the solver stopped.
        trace: one record for each iteration; empty for a rival that tells of none.
        settings: the constants used; of a rival only the data term, by which it is measured.
        timings: seconds by stage.
        peak_memory: bytes, of the whole process.
        threads: CPU threads used.
        flags: sentences about doubtful quality; empty is good.
        notes: sentences about what was repaired in the inputs.
        images: every image that was given, by its role: fixed, moving, fixed_labels, moving_mask, ...
        maps: images on the fixed grid that tell about the field, by name; empty unless asked for.
        rival: which other method made the field; None for pirate itself.
    """

    fixed: Image
    moving: Image
    warped: Image
    forward: Transform
    inverse: Transform
    metrics: Mapping[str, Any]
    status: Status
    trace: Sequence[Record]
    settings: Settings
    timings: Mapping[str, float]
    peak_memory: int
    threads: int = 1
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    images: Mapping[str, Image] = dataclasses.field(default_factory=dict)
    maps: Mapping[str, Image] = dataclasses.field(default_factory=dict)
    rival: Rival | None = None

    def __repr__(self) -> str:
        names = f"moving {printable(self.moving.name)} -> fixed {printable(self.fixed.name)}"
        by = "" if self.rival is None else f"{self.rival.name}, "
        return f"Registration({names}, {by}{self.status.name}, {len(self.trace)} iterations)"

    @property
    def field(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """(d, *shape), displacement in voxels of the fixed grid."""
        return self.displacement(self.forward).field

    @property
    def affine(self) -> Affine:
        """The affine start, fixed world to moving world (RAS mm)."""
        return next((p for p in self.forward.parts if isinstance(p, Affine)), Affine(np.eye(4)))

    @property
    def moving_on_fixed(self) -> Image:
        """The moving image on the fixed grid before the field: through world and affine start only."""
        start = Transform(tuple(p for p in self.forward.parts if isinstance(p, Affine)))
        return apply(self.moving, start, self.fixed.grid, outside=float(self.moving.data.min()))

    @staticmethod
    def displacement(transform: Transform) -> Displacement:
        """The displacement among a transform's parts."""
        return next(p for p in transform.parts if isinstance(p, Displacement))

    def apply(self, image: ImageLike, labels: bool = False, inverse: bool = False) -> Image:
        """Bring another image of the moving subject onto the fixed grid.

        Args:
            image: path, `Image`, nibabel image or (array, affine).
            labels: integers, moved by nearest neighbour, exact to the id; else intensities, and where `image`
                has no data its smallest value.
            inverse: bring an image of the fixed subject onto the moving grid instead.
        """
        source = as_image(image, "image", "labels" if labels else "image")
        transform = self.inverse if inverse else self.forward
        grid: Grid = self.moving.grid if inverse else self.fixed.grid
        if labels:
            return apply(source, transform, grid, "nearest")
        return apply(source, transform, grid, outside=float(source.data.min()))

    def save(
        self,
        out: str | Path,
        force: bool = False,
        write: Sequence[str] = OUTPUTS,
        figures: Callable[[Registration, Path], Sequence[Path]] | None = None,
        command: Sequence[str] = (),
    ) -> list[Path]:
        """Write the results into a folder; ``run.json`` comes last, its presence means that all is there.

        Args:
            out: folder, made if missing; it must be empty unless `force`.
            force: replace the results of an earlier run.
            write: which of `OUTPUTS` to write.
            figures: draws pictures into the folder it is given and returns their paths.
            command: the command line, recorded in ``run.json``.

        Returns:
            The files written.
        """
        unknown = sorted(set(write) - set(OUTPUTS))
        if unknown:
            raise UsageError(f"cannot write {', '.join(unknown)}; the outputs are {', '.join(OUTPUTS)}.")
        folder = prepare_folder(out, force)
        old = _begin(folder)
        with writing(self.threads) as writers:
            self._add_files(writers, folder, write)
            drawn = figures(self, folder / "figures") if "figures" in write and figures is not None else ()
            digests = writers.digests()
        digests |= {path: sha256_of(path) for path in drawn}
        for path in old - set(digests):
            path.unlink(missing_ok=True)
        write_json(folder / transforms.DONE, self._record(folder, digests, command))
        return [*digests, folder / transforms.DONE]

    def _add_files(self, writers: Writers, folder: Path, write: Sequence[str]) -> None:
        """Start to write everything but the figures; the largest files first, because they take longest."""
        there, back = self.displacement(self.forward), self.displacement(self.inverse)
        if "composite" in write:
            writers.add(folder / "transform.h5", lambda path: composite.write_composite(path, self.forward))
        if "warp" in write:
            writers.add(folder / transforms.FORWARD_WARP, lambda path: fields.write_field(path, there))
        if "inverse" in write:
            writers.add(folder / transforms.INVERSE_WARP, lambda path: fields.write_field(path, back))
        if "warped" in write:
            writers.add(folder / "warped.nii.gz", self._write_warped)
        if self.maps:
            (folder / "maps").mkdir(exist_ok=True)
        for name, image in self.maps.items():
            writers.add(folder / "maps" / f"{name}.nii.gz", partial(_write_map, image))
        if any(isinstance(part, Affine) for part in self.forward.parts):
            ndim = fields.itk_form(there).grid.ndim
            writers.add(folder / transforms.AFFINE, lambda path: itk.write_affine(path, self.affine, ndim))
        writers.add(folder / "metrics.json", lambda path: write_json(path, dict(self.metrics)))
        writers.add(folder / "trace.csv", lambda path: write_text(path, trace_table(self.trace)))

    def _write_warped(self, path: Path) -> None:
        nifti.write_image(path, self.warped.data, self.warped.grid, description="pirate warped")

    def _record(self, folder: Path, digests: Mapping[Path, str], command: Sequence[str]) -> dict[str, Any]:
        """What ``run.json`` holds: enough to know what was done, to what, with what, and to do it again."""
        return {
            "pirate": pirate.__version__,
            "command": [printable(word) for word in command],
            "fixed": _described(self.fixed),
            "moving": _described(self.moving),
            "also_given": {
                role: _described(image) for role, image in self.images.items() if role not in ("fixed", "moving")
            },
            "affine": self.affine.matrix.tolist(),
            **self._constants(),
            "status": {"name": self.status.name, "meaning": self.status.value},
            "flags": list(self.flags),
            "notes": list(self.notes),
            "metrics": dict(self.metrics),
            "iterations": len(self.trace),
            "timings_s": {name: round(seconds, 3) for name, seconds in self.timings.items()},
            "peak_memory_mb": round(self.peak_memory / 1e6),
            "threads": self.threads,
            "compiled_kernels": kernels.variant(),
            "versions": {
                "python": sys.version.split()[0], "torch": torch.__version__, "numpy": np.__version__,
                "platform": platform.platform(), **({} if self.rival is None else self.rival.packages),
            },
            "outputs": {p.relative_to(folder).as_posix(): digest for p, digest in digests.items()},
        }  # fmt: skip

    def _constants(self) -> dict[str, Any]:
        """Which method ran with which constants, weights and seeds."""
        if self.rival is not None:
            return self.rival.record(self.settings)
        return {
            "method": "pirate", "settings": dataclasses.asdict(self.settings),
            "prior_sha256": _sha256_of_prior(self.settings, len(self.field)), "seeds": [],
        }  # fmt: skip


def _sha256_of_prior(settings: Settings, ndim: int) -> str | None:
    """Of the prior's weights, a file's or those that ship; None where it has none."""
    file = Path(settings.prior)
    if file.is_file():
        return sha256_of(file)
    if settings.prior not in zoo.names():
        return None
    return zoo.find(
        settings.prior, ndim, settings.resolution if settings.scheme == "additive" else None
    ).sha256


def _write_map(image: Image, path: Path) -> None:
    nifti.write_image(path, image.data, image.grid, description="pirate map")


def _begin(folder: Path) -> set[Path]:
    """Take back an earlier run's word that it is complete; return the files it listed as its own.

    Half-written files of a run that was killed go too: in this folder and in its figures, by their exact form.
    """
    done = folder / transforms.DONE
    names: list[str] = []
    if done.is_file():
        with contextlib.suppress(ValueError, AttributeError, OSError):
            names = [str(name) for name in json.loads(done.read_text()).get("outputs", {})]
        done.unlink()
    for place in (folder, folder / "figures", folder / "maps"):
        for path in place.glob(".part-*"):
            if re.match(r"\.part-[0-9a-f]{12}", path.name) and path.is_file():
                path.unlink()
    own = {folder / name for name in names if ".." not in Path(name).parts and not Path(name).is_absolute()}
    return {path for path in own if path.is_file() and not path.is_symlink()}


def trace_table(trace: Sequence[Record]) -> str:
    """The trace as CSV: one line for each evaluation of the operator."""
    names = [f.name for f in dataclasses.fields(Record)]
    lines = [",".join(repr(getattr(record, name)) for name in names) for record in trace]
    return "\n".join([",".join(names), *lines, ""])


def _described(image: Image) -> dict[str, Any]:
    """Name, checksum and grid of an input, for ``run.json``."""
    grid = {
        "shape": list(image.grid.shape),
        "affine": image.grid.affine.tolist(),
        "slice_axis": image.grid.slice_axis,
    }
    return {"name": printable(image.name), "sha256": image.sha256, "grid": grid}


@contextlib.contextmanager
def prepared(out: str | Path, force: bool) -> Iterator[Path]:
    """`prepare_folder` before the work in the block; if that fails, a folder made for it goes again."""
    there = Path(out).exists()
    folder = prepare_folder(out, force)
    try:
        yield folder
    except BaseException:
        if not there:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def prepare_folder(out: str | Path, force: bool) -> Path:
    """Make the output folder, or refuse to touch one that holds something; checked before any computing."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not force:
            raise OutputError(
                f"{printable(folder)}: the folder is not empty; expected a new or empty one. "
                "Choose another, or add --force (Python: force=True) to replace the results of an earlier run."
            )
        probe = folder / ".pirate-writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OutputError(
            f"{printable(folder)}: cannot be written ({error.strerror}); expected a folder one may write to. "
            "Choose another --out."
        ) from error
    return folder
