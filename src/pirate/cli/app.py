"""The commands and their options; the work is in the files beside this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pirate.cli import training

app = typer.Typer(
    help="Deformable registration of medical images with a plug-and-play prior on the displacement field.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 a quality gate failed, 2 usage, 3 bad input, 4 cannot write, "
    "5 not converged, 6 memory, 130 interrupted.",
)

Out = Annotated[
    Path, typer.Option("--out", "-o", help="Folder for the results; everything is written there.")
]
OutFile = Annotated[Path, typer.Option("--out", "-o", help="File to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is already there.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no log.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="CPU threads; default: what there is.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, ...")]


def _version(show: bool) -> None:
    if show:
        from pirate import __version__

        typer.echo(f"pirate {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Deformable registration of medical images with a plug-and-play prior on the displacement field."""


@app.command()
def register(
    fixed: Annotated[Path, typer.Argument(help="Image that stays: .nii, .nii.gz or .mgz, 2-D or 3-D.")],
    moving: Annotated[Path, typer.Argument(help="Image that is warped onto it.")],
    out: Out,
    preset: Annotated[
        str | None,
        typer.Option(
            help="fast, default or best; paper: eq. (6) of the paper to the letter; paper-plus: PIRATE+. "
            "Default: default."
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:PRESET]",
            help="A preset, or another method: log-demons, nodeo, syn, greedy, demons-sitk, voxelmorph, symnet, "
            "gradirn; `pirate methods` says what each needs.",
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights file of a trained network, made by `pirate train`.")
    ] = None,
    smoothness: Annotated[
        float | None,
        typer.Option(
            help="0 to 1: more is a more regular field, less follows the images more closely. Default: 0.5."
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            help="Denoiser of the field: none, gaussian, tv, pirate, pirate-plus, anatomy (supervised, for T1 brains), "
            "FILE.safetensors or package.module:function; `pirate priors` lists what ships."
        ),
    ] = None,
    affine: Annotated[
        str | None,
        typer.Option(
            help="Start: rigid, similarity or affine (found), none, or an ITK affine file that maps fixed to "
            "moving points (LPS mm). Default: affine; with the paper preset none."
        ),
    ] = None,
    fixed_mask: Annotated[
        Path | None, typer.Option(help="Where the fixed image counts, on its grid.")
    ] = None,
    moving_mask: Annotated[
        Path | None, typer.Option(help="Where the moving image counts, on its grid.")
    ] = None,
    fixed_labels: Annotated[
        Path | None, typer.Option(help="Anatomy of the fixed image, only to measure.")
    ] = None,
    moving_labels: Annotated[
        Path | None, typer.Option(help="Anatomy of the moving image, only to measure.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings; --set beats it.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting of the method, e.g. --set alpha=0."),
    ] = None,
    write: Annotated[
        str,
        typer.Option(help="What to write: all, or a comma list of warped,warp,inverse,composite,figures."),
    ] = "all",
    prefer: Annotated[
        str | None, typer.Option(help="sform or qform: which to believe where a file's two disagree.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Seconds for the steps; then the field so far is finished and written."),
    ] = None,
    require_convergence: Annotated[
        bool, typer.Option("--require-convergence", help="Exit 5 unless the tolerance was met.")
    ] = False,
    require_diffeomorphic: Annotated[
        bool, typer.Option("--require-diffeomorphic", help="Exit 1 if any voxel folds, by any measure.")
    ] = False,
    maps: Annotated[
        bool,
        typer.Option(
            "--maps",
            help="Also write maps of the log-Jacobian and of where the field surprises the shipped prior.",
        ),
    ] = False,
    memory_limit: Annotated[float | None, typer.Option(help="GB; a job that needs more is refused.")] = None,
    device: Device = "auto",
    threads: Threads = None,
    force: Force = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Align MOVING to FIXED; write warped image, transforms, metrics and figures into --out."""
    from pirate.cli import registering

    registering.run(
        registering.Request(
            fixed,
            moving,
            out,
            preset,
            method,
            weights,
            smoothness,
            prior,
            affine,
            fixed_mask,
            moving_mask,
            fixed_labels,
            moving_labels,
            config,
            tuple(change or ()),
            write,
            prefer,
            budget,
            require_convergence,
            require_diffeomorphic,
            maps,
            memory_limit,
            device,
            threads,
            force,
            quiet,
        )
    )


@app.command()
def apply(
    transform: Annotated[
        Path,
        typer.Argument(help="Folder written by `pirate register`, or a transform file (.nii.gz, .h5, .txt)."),
    ],
    source: Annotated[
        Path, typer.Argument(help="Image, label map (with --labels), or points (.csv, RAS mm).")
    ],
    out: OutFile,
    labels: Annotated[bool, typer.Option("--labels", help="SOURCE is a label map: ids stay exact.")] = False,
    vote: Annotated[
        bool, typer.Option("--vote", help="Labels by majority vote instead of nearest voxel.")
    ] = False,
    inverse: Annotated[
        bool, typer.Option("--inverse", help="From the fixed to the moving side, instead of moving to fixed.")
    ] = False,
    reference: Annotated[
        Path | None, typer.Option(help="Image whose grid the result gets; default: the registration's own.")
    ] = None,
    space: Annotated[str, typer.Option(help="Coordinates of the points: ras, lps (mm) or voxel.")] = "ras",
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Bring another image, label map or point list through a transform.

    What belongs to the moving image lands on the fixed one; with --inverse, what belongs to the fixed image
    lands on the moving one. Points move with the image they belong to.
    """
    from pirate.cli import applying

    applying.run(transform, source, out, labels, vote, inverse, reference, space, force)


@app.command()
def convert(
    source: Annotated[
        Path, typer.Argument(help="Transform to read: ITK field, FSL warp, Learn2Reg field, .h5.")
    ],
    out: OutFile,
    to: Annotated[str, typer.Option("--to", help="itk, fsl, l2r or h5.")],
    source_format: Annotated[
        str,
        typer.Option("--from", help="auto, itk, fsl, l2r or h5; auto recognises ITK files by their header."),
    ] = "auto",
    fixed: Annotated[
        Path | None, typer.Option(help="The fixed image, where a format does not carry its grid.")
    ] = None,
    moving: Annotated[
        Path | None, typer.Option(help="The moving image, where a format needs its grid.")
    ] = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Convert a displacement field between ITK/ANTs, FSL and Learn2Reg conventions."""
    from pirate.cli import converting

    converting.run(source, out, to, source_format, fixed, moving, force)


@app.command()
def repair(
    warp: Annotated[
        Path, typer.Argument(help="Warp of any tool: ITK displacement field (.nii.gz) or composite (.h5).")
    ],
    out: OutFile,
    fixed: Annotated[Path | None, typer.Option(help="The fixed image, to compare before and after.")] = None,
    moving: Annotated[Path | None, typer.Option(help="The moving image, likewise.")] = None,
    affine: Annotated[
        Path | None, typer.Option(help="ITK affine applied after the warp, for the comparison.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="JSON file for all numbers.")] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="At most so many; the later ones change more than the first.")
    ] = 60,
    threads: Threads = None,
    force: Force = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Unfold a warp by the smallest change that leaves no fold by central or forward differences, and NDV 0."""
    from pirate.cli import repairing

    repairing.run(repairing.Request(warp, out, fixed, moving, affine, report, rounds, threads, force, quiet))


@app.command()
def strip(
    image: Annotated[Path, typer.Argument(help="T1-weighted head: .nii, .nii.gz or .mgz, a volume.")],
    out: OutFile,
    mask: Annotated[Path | None, typer.Option(help="File for the mask, 1 in the brain.")] = None,
    threshold: Annotated[float, typer.Option(help="0 to 1: a lower one keeps more.")] = 0.5,
    threads: Threads = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Remove the skull: keep the brain, set the rest to 0 (needs the extra: pip install 'pirate-reg[bet]')."""
    from pirate.cli import stripping

    stripping.run(image, out, mask, threshold, threads, force)


@app.command()
def evaluate(
    transform: Annotated[
        Path, typer.Argument(help="Folder written by `pirate register`, or a transform file.")
    ],
    fixed_labels: Annotated[Path | None, typer.Option(help="Anatomy of the fixed image.")] = None,
    moving_labels: Annotated[Path | None, typer.Option(help="Anatomy of the moving image.")] = None,
    fixed_points: Annotated[Path | None, typer.Option(help="Landmarks in the fixed image, CSV.")] = None,
    moving_points: Annotated[
        Path | None, typer.Option(help="The same landmarks in the moving image, CSV.")
    ] = None,
    space: Annotated[str, typer.Option(help="Coordinates of the points: ras or lps (mm).")] = "ras",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="JSON file to write as well.")] = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Measure a transform: Dice, HD95 and ASSD of labels, landmark error, folding."""
    from pirate.cli import evaluating

    evaluating.run(transform, fixed_labels, moving_labels, fixed_points, moving_points, space, out, force)


@app.command()
def fields(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the corpus; if it is there, it is continued.")
    ],
    data: Annotated[
        Path | None, typer.Option(help="Data folder of a --track; or a folder or list of images of one size.")
    ] = None,
    track: Annotated[str | None, typer.Option(help="oasis2d, hippocampus or brain3d in --data.")] = None,
    method: Annotated[
        str, typer.Option(help="pirate (our solver), nodeo (the paper's choice) or random (diffeomorphisms).")
    ] = "pirate",
    count: Annotated[int, typer.Option(min=1, help="How many pairs; more on a rerun adds to them.")] = 100,
    resolution: Annotated[
        int, typer.Option(help="1, 2, 4 or 8: the fields live on every so-manieth voxel, as the prior will.")
    ] = 1,
    preset: Annotated[str, typer.Option(help="Of our solver: fast, default, best or paper.")] = "default",
    affine: Annotated[str, typer.Option(help="Start of our solver: affine, rigid or none.")] = "affine",
    split: Annotated[str, typer.Option(help="Subjects of a track: train or validation.")] = "train",
    seed: Annotated[int, typer.Option(min=0, help="Which pairs, or which random fields.")] = 0,
    shape: Annotated[
        str | None, typer.Option(help="Image size of random fields without --data, for example 160x192.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A constant of the method, e.g. iterations=100."),
    ] = None,
    threads: Threads = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Make a corpus of displacement fields to train a denoiser on; interrupted, a rerun continues it."""
    from pirate.cli import fielding

    fielding.run(
        fielding.Request(
            out, data, track, method, count, resolution, preset, affine, split, seed, shape,
            tuple(change or ()), threads, quiet,
        )
    )  # fmt: skip


@app.command()
def priors(
    as_json: Annotated[bool, typer.Option("--json", help="All of every card, as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """List the priors: what ships, on what it was trained, its figures, and whether labels were used."""
    from pirate.cli import listing

    listing.run(as_json)


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(help="One method, for its settings; with :PRESET for those of a preset.")
    ] = None,
    debug: Debug = False,
) -> None:
    """List what `pirate register --method` takes: presets, and whether weights or packages are needed."""
    from pirate.cli import method_listing

    method_listing.run(name)


@app.command()
def demo(
    out: Out,
    seed: Annotated[int, typer.Option(min=0, help="Which pair is generated.")] = 0,
    threads: Threads = None,
    force: Force = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Register a generated pair of brain-like images whose true deformation is known."""
    from pirate.cli import demonstrating

    demonstrating.run(out, seed, threads, force, quiet)


@app.command()
def doctor(threads: Threads = None, debug: Debug = False) -> None:
    """Say what is installed, what it can use, and how fast this machine is."""
    from pirate.cli import diagnosing

    diagnosing.run(threads)


@app.command()
def benchmark(
    track: Annotated[
        str,
        typer.Argument(
            help="oasis2d, hippocampus, brain3d or lung in --data; neurite-oasis, neurite-oasis-2d, candi, empire10 or "
            "learn2reg, the public data set in --data; or a CSV of your own pairs."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for everything; an interrupted run goes on there.")
    ],
    data: Annotated[Path | None, typer.Option(help="Data folder of the track.")] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma list of rows, methods, METHOD:PRESET of rivals, or groups (main, ablation, control, step, tv); "
            "default: all."
        ),
    ] = None,
    pairs: Annotated[
        int | None, typer.Option(min=1, help="At most so many pairs; default: the track's.")
    ] = None,
    ablation_pairs: Annotated[
        int | None, typer.Option(min=0, help="So many first pairs for the ablation; default: the track's.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Registrations at a time; default: one for each core.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of each registration; default: 1, of large volumes all.")
    ] = None,
    minutes_per_training: Annotated[
        float, typer.Option(min=0, help="End each training after so many; 0: when its schedule ends.")
    ] = 0.0,
    no_training: Annotated[
        bool, typer.Option("--no-training", help="Networks without weights become rows that say so.")
    ] = False,
    weights: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD=FILE", help="Weights of a network instead of training it."),
    ] = None,
    only_page: Annotated[
        bool, typer.Option("--only-page", help="Run nothing: tables and page from what is there.")
    ] = False,
    skip: Annotated[str, typer.Option(help="Comma list of ablation, scaling, timing.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Use a folder that holds something else.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run every method on the same pairs with the same start and threads; write tables, figures and a page."""
    from pirate.cli import benchmarking

    benchmarking.run(
        benchmarking.Request(
            track, out, data, methods, pairs, ablation_pairs, jobs, threads, minutes_per_training, no_training,
            tuple(weights or ()), only_page, skip, force, quiet,
        )
    )  # fmt: skip


data = typer.Typer(
    help="Folders of images and labels.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    rich_markup_mode=None,
)  # fmt: skip


@data.callback()
def _data() -> None:
    """Folders of images and labels."""


@data.command()
def check(
    source: Annotated[Path, typer.Argument(help="Folder of a known layout, or a CSV of pairs.")],
    debug: Debug = False,
) -> None:
    """Say in plain words what is there and what is missing; exit code 1 if something is."""
    from pirate.cli import data_checking

    data_checking.run(source)


app.add_typer(training.app, name="train")
app.add_typer(data, name="data")
