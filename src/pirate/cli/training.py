"""``pirate train``: the commands and their options; the work is in the files beside this one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Train priors on displacement fields. Interrupted trainings go on where they were when repeated.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _train() -> None:
    """Train priors on displacement fields. Interrupted trainings go on where they were when repeated."""


@app.command()
def denoiser(
    corpus: Annotated[
        list[Path], typer.Argument(help="Folders of fields that `pirate fields` wrote, of one resolution.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for weights, checkpoint, history and curves.")
    ],
    preset: Annotated[
        str,
        typer.Option(
            help="small (noise-conditional, coloured noise), gradient-step (with an explicit energy), paper "
            "(DnCNN, 17 layers) or released (the 6 layers of the authors' code)."
        ),
    ] = "small",
    steps: Annotated[int | None, typer.Option(min=1, help="Updates of the weights.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Patches for one update.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of Adam, at its highest.")] = None,
    patch: Annotated[int | None, typer.Option(min=8, help="Voxels along each axis of a patch.")] = None,
    sigma: Annotated[
        list[float] | None,
        typer.Option(
            help="One noise level in voxels instead of the preset's; several times: train each and keep the one "
            "that registers the validation pairs of --data best."
        ),
    ] = None,
    width: Annotated[
        float | None, typer.Option(min=0, help="Largest width of coloured noise, voxels; 0: white noise.")
    ] = None,
    calm: Annotated[
        float | None, typer.Option(help="Share of the examples with less noise than the network is told.")
    ] = None,
    start: Annotated[Path | None, typer.Option(help="Weights to begin with, for fine-tuning.")] = None,
    held_out: Annotated[float, typer.Option(help="Share of the subjects kept for validation.")] = 0.2,
    measure: Annotated[
        Path | None,
        typer.Option(help="Corpus of other subjects for the figures on the card; default: what is held out."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Data folder for the choice among several --sigma.")
    ] = None,
    track: Annotated[
        str, typer.Option(help="Its part to take pairs of: oasis2d, hippocampus or brain3d.")
    ] = "oasis2d",
    pairs: Annotated[int, typer.Option(min=1, help="How many pairs.")] = 8,
    minutes: Annotated[float, typer.Option(min=0, help="End after so many; 0: no limit.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of every random number.")] = 0,
    tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard files.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; default: what there is.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no log.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Learn to take noise off fields (PIRATE, eq. 8): writes denoiser.safetensors."""
    from pirate.cli.training_denoiser import Request, run

    run(
        Request(
            tuple(corpus), out, preset, steps, batch, learning_rate, patch, tuple(sigma or ()), width, calm,
            start, held_out, measure, data, track, pairs, minutes, seed, tensorboard, threads, quiet,
        )
    )  # fmt: skip


@app.command()
def deq(
    weights: Annotated[
        Path, typer.Argument(help="Denoiser to start from: FILE.safetensors of `train denoiser`.")
    ],
    data: Annotated[Path, typer.Option(help="Data folder.")],
    track: Annotated[str, typer.Option(help="Its part to train on: oasis2d, hippocampus or brain3d.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for weights, checkpoint, history and curves.")
    ],
    preset: Annotated[
        str,
        typer.Option(
            help="Loss of eq. (12), steps and learning rate: of the paper, or released (the authors' code)."
        ),
    ] = "paper",
    mode: Annotated[
        str, typer.Option(help="Gradient through the fixed point: jfb (eq. 15), k-step or exact.")
    ] = "jfb",
    k: Annotated[int, typer.Option("--k", min=1, help="Differentiated steps of mode k-step.")] = 5,
    steps: Annotated[int | None, typer.Option(min=1, help="Updates of the weights.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Pairs for one update.")] = 1,
    learning_rate: Annotated[float | None, typer.Option(help="Of Adam.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of the iteration, e.g. iterations=60, tolerance=1e-3, gamma=0.29, tau=0.086, resolution=4.",
        ),
    ] = None,
    loss: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A constant of the loss: similarity, window, squared, smoothness, smoothness_norm, folding, margin, "
            "difference.",
        ),
    ] = None,
    learn: Annotated[
        list[str] | None, typer.Option(help="Learn this scalar too: alpha, tau or sigma; several times.")
    ] = None,
    held_out: Annotated[
        float, typer.Option(help="Share of the training subjects kept for validation.")
    ] = 0.25,
    pairs: Annotated[int, typer.Option(min=1, help="Held-out pairs for each validation.")] = 12,
    validate_every: Annotated[int, typer.Option(min=1, help="Steps between validations.")] = 50,
    patience: Annotated[int, typer.Option(min=0, help="Validations without a new low; 0: never stop.")] = 0,
    minutes: Annotated[float, typer.Option(min=0, help="End after so many; 0: no limit.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of every random number.")] = 0,
    tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard files.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; default: what there is.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no log.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train a denoiser on at the fixed point of the registration (PIRATE+): writes pirate-plus.safetensors."""
    from pirate.cli.training_deq import Request, run

    run(
        Request(
            weights, data, track, out, preset, mode, k, steps, batch, learning_rate, tuple(change or ()),
            tuple(loss or ()), tuple(learn or ()), held_out, pairs, validate_every, patience, minutes, seed,
            tensorboard, threads, quiet,
        )
    )  # fmt: skip


@app.command()
def anatomy(
    data: Annotated[Path, typer.Option(help="Data folder with labels.")],
    track: Annotated[str, typer.Option(help="Its part to train on: oasis2d, hippocampus or brain3d.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for weights, checkpoint, history and curves.")
    ],
    steps: Annotated[
        int | None, typer.Option(min=1, help="Updates of the weights; default: the track's.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0, help="End after so many; 0: no limit.")] = 0.0,
    pairs: Annotated[
        int | None,
        typer.Option(min=1, help="Training pairs that are registered first; default: the track's."),
    ] = None,
    held_out: Annotated[
        int | None,
        typer.Option(min=0, help="Subjects kept to validate on; 0: none are spared; default: the track's."),
    ] = None,
    width: Annotated[
        int | None, typer.Option(min=1, help="Channels of the first level; default: the track's.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Pairs for one update; default: the track's.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="anatomy.safetensors to start from; for brain3d that of slices.")
    ] = None,
    learning_rate: Annotated[float, typer.Option(help="Of Adam, at its highest.")] = 1.5e-3,
    seed: Annotated[int, typer.Option(min=0, help="Of every random number.")] = 0,
    tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard files.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; default: what there is.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no log.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Learn from labels where fields are anatomically wrong (supervised): writes anatomy.safetensors."""
    from pirate.cli.training_anatomy import Request, run

    run(
        Request(
            data, track, out, steps, minutes, pairs, held_out, width, batch, learning_rate, seed, tensorboard,
            threads, quiet, start,
        )
    )  # fmt: skip


def _network(method: str) -> Callable[..., None]:
    """The command that trains one of the networks that align a pair at once."""

    def command(
        data: Annotated[Path, typer.Option(help="Data folder.")],
        out: Annotated[
            Path, typer.Option("--out", "-o", help="Folder for weights, checkpoint, history and curves.")
        ],
        track: Annotated[
            str,
            typer.Option(
                help="What to learn from: its part oasis2d, hippocampus or brain3d, or the public data set that lies "
                "there: neurite-oasis, neurite-oasis-2d, candi, empire10 or learn2reg."
            ),
        ] = "oasis2d",
        schedule: Annotated[
            str, typer.Option(help="authors (theirs) or reduced (about half an hour on two CPU cores).")
        ] = "reduced",
        similarity: Annotated[
            str, typer.Option(help="ncc or mse, where the authors have both; default: theirs for brains.")
        ] = "",
        displacement: Annotated[
            bool, typer.Option("--displacement", help="VoxelMorph without the exponential.")
        ] = False,
        resolution: Annotated[
            int | None,
            typer.Option(help="Grid relative to the images: 1, 2, 4 or 8; default: the track's own."),
        ] = None,
        affine: Annotated[
            str | None,
            typer.Option(help="How subjects take one pose first: none, rigid, similarity or affine."),
        ] = None,
        steps: Annotated[int | None, typer.Option(min=1, help="Updates of the weights.")] = None,
        batch: Annotated[int | None, typer.Option(min=1, help="Pairs for one update.")] = None,
        learning_rate: Annotated[float | None, typer.Option(help="Of Adam, at its highest.")] = None,
        held_out: Annotated[float, typer.Option(help="Share of the subjects kept for validation.")] = 0.1,
        checks: Annotated[int, typer.Option(min=1, help="Pairs of them to validate on.")] = 20,
        validate_every: Annotated[int | None, typer.Option(min=1, help="Steps between validations.")] = None,
        patience: Annotated[
            int | None, typer.Option(min=0, help="Validations without a new low that end it; 0: never.")
        ] = None,
        precision: Annotated[
            str,
            typer.Option(
                help="single, or bfloat16: convolutions in half precision, twice as fast where the processor has it."
            ),
        ] = "single",
        minutes: Annotated[float, typer.Option(min=0, help="End after so many; 0: no limit.")] = 0.0,
        seed: Annotated[int, typer.Option(min=0, help="Of every random number.")] = 0,
        tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard files.")] = False,
        threads: Annotated[
            int | None, typer.Option(min=1, help="CPU threads; default: what there is.")
        ] = None,
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no log.")] = False,
        debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    ) -> None:
        from pirate.cli.training_network import Request, run

        run(
            Request(
                method, data, track, out, schedule, similarity, displacement, resolution, affine, steps, batch,
                learning_rate, held_out, checks, validate_every, patience, precision, minutes, seed, tensorboard,
                threads, quiet,
            )
        )  # fmt: skip

    return command


for _name, _title in (("voxelmorph", "VoxelMorph"), ("symnet", "SYMNet"), ("gradirn", "GraDIRN")):
    app.command(_name, help=f"Learn to align pairs at once, without labels ({_title}).")(_network(_name))
